//! One watch as a stream that outlives its connections.
//!
//! A task reads from etcd into a bounded queue. It never waits for the consumer: unread data of one
//! stream would use up the flow control window that all requests of the connection share. When the
//! queue is full the task ends, and the watch goes on from the last revision received once the
//! consumer has caught up. Nothing is lost: etcd remembers, up to its compaction.
//!
//! Responses are not fragmented (kube-apiserver's are not either), so each holds whole revisions
//! only.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use etcd_client::{
    Error, Event, EventType, GetOptions, KeyValue, KvClient, WatchClient, WatchOptions,
    WatchResponse,
};
use futures::StreamExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::error::interpret;
use super::metrics::Method;
use super::{Clients, LatestRevision, range_end, stored_from};
use crate::base::backoff::Backoff;
use crate::base::supervise::FailureTracker;
use crate::storage::{Result, Revision, StorageError, WatchEvent, WatchStream};

/// Timeout of starting a watch.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Responses received and not yet consumed, at most.
const QUEUE_RESPONSES: usize = 1024;
/// The pause before a second attempt to begin; doubles with each one after that that brings
/// nothing.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The pause before progress is asked for again: etcd does not answer while a watch is behind.
const PROGRESS_RETRY: Duration = Duration::from_millis(100);
/// Maximum number of progress requests. A watch that nothing has happened for gets no answer at
/// all.
const PROGRESS_ATTEMPTS: u32 = 10;

/// A watch of the keys under `prefix`, from the change after `after` on, `with_previous` values or
/// without. Whenever `asked` changes, progress is asked for. `latest` is the latest revision that
/// etcd was ever known to have. `link` hears of connections that break.
pub(super) fn open(
    clients: Arc<ArcSwap<Clients>>,
    prefix: &str,
    after: Revision,
    with_previous: bool,
    asked: watch::Receiver<u64>,
    latest: Arc<LatestRevision>,
    link: Arc<FailureTracker>,
) -> Watch {
    // A client may name a revision that is still to come.
    let seen = LatestRevision::default();
    seen.record(after.min(latest.get()));
    Watch {
        clients,
        prefix: prefix.to_owned(),
        after: after.max(0),
        with_previous,
        asked,
        inbox: None,
        ready: VecDeque::new(),
        seen: Arc::new(seen),
        latest,
        link,
        backoff: Backoff::new(BACKOFF_FIRST, BACKOFF_MAX),
        failures: 0,
        done: false,
    }
}

type Batch = Result<Vec<WatchEvent>>;

pub struct Watch {
    clients: Arc<ArcSwap<Clients>>,
    prefix: String,
    /// Everything up to here has been received.
    after: Revision,
    with_previous: bool,
    asked: watch::Receiver<u64>,
    inbox: Option<mpsc::Receiver<Batch>>,
    ready: VecDeque<WatchEvent>,
    /// The last revision that etcd had while this watch was on it, or was opened.
    seen: Arc<LatestRevision>,
    latest: Arc<LatestRevision>,
    link: Arc<FailureTracker>,
    backoff: Backoff,
    /// Connections in a row that brought nothing.
    failures: u32,
    done: bool,
}

impl Watch {
    /// Waits until etcd has begun it, or the first attempt has failed. A compaction after that
    /// takes nothing from it.
    pub async fn begin(&mut self) {
        let begun = self.connect().await;
        // The sender is only ever dropped.
        let _ = begun.await;
    }

    /// The changes, and at last an error that no connection mends.
    pub fn changes(self) -> WatchStream {
        futures::stream::unfold(self, |mut watch| async move {
            watch.next().await.map(|item| (item, watch))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<WatchEvent>> {
        while !self.done {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let Some(inbox) = &mut self.inbox else {
                drop(self.connect().await);
                continue;
            };
            match inbox.recv().await {
                Some(Ok(batch)) => {
                    self.failures = 0;
                    self.backoff.reset();
                    let last = batch.iter().map(WatchEvent::revision).max();
                    let last = last.unwrap_or_default();
                    self.seen.record(last);
                    self.latest.record(last);
                    self.after = self.after.max(last);
                    self.ready.extend(batch);
                }
                Some(Err(error)) => {
                    self.done = true;
                    return Some(Err(error));
                }
                None => {
                    self.inbox = None;
                    self.failures = self.failures.saturating_add(1);
                }
            }
        }
        None
    }

    /// Starts the task that receives; after failures, not at once. What is returned is closed when
    /// etcd has begun, or will not.
    async fn connect(&mut self) -> oneshot::Receiver<Infallible> {
        if self.failures > 1 {
            sleep(self.backoff.next_delay()).await;
        }
        let (outbox, inbox) = mpsc::channel(QUEUE_RESPONSES);
        let (beginning, begun) = oneshot::channel();
        self.inbox = Some(inbox);
        let receiver = Receiver {
            client: self.clients.load().watch.clone(),
            kv: self.clients.load().kv.clone(),
            seen: self.seen.clone(),
            latest: self.latest.clone(),
            link: self.link.clone(),
            prefix: self.prefix.clone(),
            after: self.after,
            with_previous: self.with_previous,
            // Never read here: what was asked before this connection is asked again on it.
            asked: self.asked.clone(),
            attempts: 0,
            outbox,
            beginning: Some(beginning),
        };
        tokio::spawn(receiver.run());
        begun
    }
}

/// One connection of a watch.
struct Receiver {
    client: WatchClient,
    kv: KvClient,
    /// The last revision that etcd is known to have had.
    seen: Arc<LatestRevision>,
    latest: Arc<LatestRevision>,
    link: Arc<FailureTracker>,
    prefix: String,
    after: Revision,
    with_previous: bool,
    asked: watch::Receiver<u64>,
    /// Number of progress requests that remain unless progress is reported.
    attempts: u32,
    outbox: mpsc::Sender<Batch>,
    /// Dropped when etcd has begun.
    beginning: Option<oneshot::Sender<Infallible>>,
}

impl Receiver {
    /// Receives until the connection breaks, the queue is full or the watch is dropped.
    async fn run(mut self) {
        match self.receive().await {
            Ok(()) => {}
            // The consumer reconnects, and meets the same error again if there was no room for it
            // now.
            Err(
                error @ (StorageError::Compacted { .. }
                | StorageError::Restored { .. }
                | StorageError::Internal(_)),
            ) => {
                drop(self.outbox.try_send(Err(error)));
            }
            Err(error) => {
                tracing::debug!(prefix = self.prefix, after = self.after, %error, "a watch broke off and will go on");
                self.link.record_failure(&error.to_string());
            }
        }
    }

    async fn receive(&mut self) -> Result<()> {
        let mut options = WatchOptions::new()
            .with_range(range_end(&self.prefix))
            .with_start_revision(self.after.saturating_add(1))
            .with_progress_notify();
        if self.with_previous {
            options = options.with_prev_key();
        }
        let start = timeout(
            START_TIMEOUT,
            self.client
                .watch(super::range_start(&self.prefix), Some(options)),
        )
        .await;
        let stream =
            start.map_err(|_| StorageError::Unavailable("etcd does not begin a watch".into()))?;
        Method::Watch.started();
        let (mut requests, mut responses) = stream.map_err(broken)?.split();
        loop {
            tokio::select! {
                response = responses.message() => {
                    match &response {
                        Ok(_) => Method::Watch.received(),
                        Err(error) => Method::Watch.failed(error),
                    }
                    self.check_restored(&response).await?;
                    let Some(batch) = self.events(response)? else { return Ok(()) };
                    if !batch.is_empty() && self.outbox.try_send(Ok(batch)).is_err() {
                        return Ok(());
                    }
                }
                // The sender lives as long as the store; without it nobody asks.
                Ok(()) = self.asked.changed() => {
                    self.attempts = PROGRESS_ATTEMPTS - 1;
                    Method::Watch.sent();
                    requests.request_progress().await.map_err(broken)?;
                }
                () = sleep(PROGRESS_RETRY), if self.attempts > 0 => {
                    self.attempts -= 1;
                    Method::Watch.sent();
                    requests.request_progress().await.map_err(broken)?;
                }
                () = self.outbox.closed() => return Ok(()),
            }
        }
    }

    /// Notices an etcd that was restored to an earlier state while this watch was away from it. A
    /// member that says so when it begins the watch may only lag behind the others: what counts is
    /// what the cluster says.
    async fn check_restored(
        &mut self,
        response: &std::result::Result<Option<WatchResponse>, Error>,
    ) -> Result<()> {
        let Ok(Some(response)) = response else {
            return Ok(());
        };
        let revision = |header: Option<&etcd_client::ResponseHeader>| {
            header.map_or(0, |header| header.revision())
        };
        if !response.created() {
            return Ok(());
        }
        let (seen, now) = (self.seen.get(), revision(response.header()));
        self.seen.record(now);
        self.latest.record(now);
        if now >= seen {
            return Ok(());
        }
        let options = GetOptions::new().with_count_only();
        let asked = timeout(START_TIMEOUT, self.kv.get(super::HEALTH_KEY, Some(options))).await;
        let answer = asked.map_err(|_| super::timed_out())?.map_err(broken)?;
        if revision(answer.header()) < seen {
            Err(StorageError::Restored { was: seen })
        } else {
            Ok(())
        }
    }

    /// The events of a response; `None` at the end of the stream.
    fn events(
        &mut self,
        response: std::result::Result<Option<WatchResponse>, Error>,
    ) -> Result<Option<Vec<WatchEvent>>> {
        let Some(mut response) = response.map_err(broken)? else {
            return Ok(None);
        };
        self.beginning = None;
        if response.compact_revision() > 0 {
            return Err(StorageError::Compacted {
                oldest: Some(response.compact_revision()),
            });
        }
        if response.canceled() {
            return Err(StorageError::Unavailable(
                response.cancel_reason().to_owned(),
            ));
        }
        if response.created() || !response.events().is_empty() {
            return response
                .events()
                .iter()
                .map(|event| self.event(event))
                .collect::<Result<_>>()
                .map(Some);
        }
        let told = response.take_header().map_or(0, |h| h.revision());
        self.attempts = 0;
        // A watch from a future revision has no progress to report.
        Ok(Some(if told < self.after {
            Vec::new()
        } else {
            vec![WatchEvent::Progress(told)]
        }))
    }

    fn event(&self, event: &Event) -> Result<WatchEvent> {
        let kv = event
            .kv()
            .ok_or_else(|| StorageError::Internal("an event without a key".into()))?;
        let previous = event.prev_kv().map(stored).transpose()?;
        let is_new =
            event.event_type() == EventType::Put && kv.create_revision() == kv.mod_revision();
        // The value before is known unless it was compacted: then what this watch should tell is
        // gone, too.
        if self.with_previous && previous.is_none() && !is_new {
            return Err(StorageError::Compacted {
                oldest: Some(kv.mod_revision()),
            });
        }
        match event.event_type() {
            EventType::Put => Ok(WatchEvent::Put {
                current: stored(kv)?,
                previous,
            }),
            EventType::Delete => Ok(WatchEvent::Delete {
                key: super::text(kv.key().to_vec())?,
                revision: kv.mod_revision(),
                previous,
            }),
        }
    }
}

/// An error of the connection: the next one may do better.
fn broken(error: Error) -> StorageError {
    match interpret(&error, 0) {
        error @ StorageError::Compacted { .. } => error,
        error => StorageError::Unavailable(error.to_string()),
    }
}

fn stored(kv: &KeyValue) -> Result<crate::storage::Stored> {
    stored_from(
        kv.key().to_vec(),
        Bytes::copy_from_slice(kv.value()),
        kv.create_revision(),
        kv.mod_revision(),
    )
}
