//! The watch handler: a stream of events, one frame each (apiserver `handlers/watch.go`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::base::latch::Latch;
use crate::endpoints::body::{self, Body};
use crate::endpoints::encode::{EventEncoder, LENGTH_BYTES};
use crate::endpoints::negotiate::{self, Form, MediaType};
use crate::endpoints::{Guard, websocket};
use crate::meta::Status;
use crate::meta::options::ListOptions;
use crate::meta::selector::fields::FieldSelector;
use crate::meta::status::Result;
use crate::registry::store::{Event, EventKind, Events, Store};

use super::RequestContext;

/// The interval of the bookmarks of a watch that allows them.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time between the last bookmark of a watch and its end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The longest timeout that a client can request, in seconds.
const MAX_TIMEOUT_SECONDS: u64 = (i64::MAX / 1_000_000_000) as u64;

/// Streams events until the client, the timeout, an error or a shutdown ends the watch.
///
/// # Errors
/// Fails for invalid options, and if the watch cannot be opened.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let (info, begun) = (&ctx.request.info, Instant::now());
    let mut options = ListOptions::from_query(&ctx.request.query, info.watch_path)?;
    if info.watch_path && !info.name.is_empty() {
        if options.field_selector.is_empty() {
            options.field_selector = FieldSelector::exactly("metadata.name", &info.name);
        } else if options.field_selector.required("metadata.name") != Some(info.name.as_str()) {
            return Err(Status::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
    }
    let encoder = EventEncoder::new(ctx.encoder()?, ctx.api.clock.clone());
    let events = ctx.store.watch(ctx.namespace(), &options).await?;
    negotiate::check_streamable(ctx.output)?;
    let timeout = timeout(&options, ctx.api.min_request_timeout);
    let frames = Frames {
        events,
        deadlines: Deadlines::new(timeout, ctx.api.draining.clone()),
        bookmarks: options.allow_watch_bookmarks,
        unrepresentable: matches!(ctx.output.form, Form::NotAcceptable(_)),
        finished: timeout.is_zero(),
        initializing: ctx.request.initializing.lock().take(),
        encoder: Box::new(encoder),
        counts: Box::new(Counts {
            store: ctx.store.clone(),
            scope: scope(ctx, &options),
            begun,
        }),
    };
    if websocket::is_requested(ctx.request) {
        // WebSocket messages have a length of their own.
        let protobuf = ctx.output.media == MediaType::Protobuf;
        let frames = frames.map(move |frame| {
            if protobuf {
                frame.slice(LENGTH_BYTES.min(frame.len())..)
            } else {
                frame
            }
        });
        let tasks = &ctx.api.tasks;
        return Ok(websocket::stream(ctx.request, tasks, !protobuf, frames));
    }
    let body = frames.map(|frame| Ok::<_, std::io::Error>(Frame::data(frame)));
    let mut response = Response::new(body::stream(StreamBody::new(body)));
    let media = match ctx.output.media {
        MediaType::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        other => other.name(),
    };
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    Ok(response)
}

/// Returns the requested timeout, or a random one between `min` and twice `min` seconds. A negative
/// one ends the watch at once, and so does one that overflows Go's nanoseconds.
fn timeout(options: &ListOptions, min: u64) -> Duration {
    match options.timeout_seconds.unwrap_or(0) {
        0 => Duration::from_secs(min).mul_f64(1.0 + rand::random::<f64>()),
        seconds => u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= MAX_TIMEOUT_SECONDS)
            .map(Duration::from_secs)
            .unwrap_or_default(),
    }
}

/// An event that a timer of a watch fires for.
enum TimerEvent {
    Bookmark,
    End,
}

/// The times at which a watch acts although no event has arrived.
struct Deadlines {
    /// The end of the watch.
    end: Instant,
    /// The time at which the next bookmark is due; `end` if none is.
    next_bookmark: Instant,
    /// Fires at `next_bookmark`, or at `end` once the server drains.
    timer: Pin<Box<Sleep>>,
    /// Completes when the server starts to drain, with the time until it is the watch's turn to
    /// end; `None` after that.
    draining: Option<BoxFuture<'static, Duration>>,
}

impl Deadlines {
    fn new(timeout: Duration, draining: Latch) -> Self {
        let now = Instant::now();
        let end = now + timeout;
        let next_bookmark = bookmark_after(now, end);
        let draining = async move {
            draining.wait().await;
            draining.next_turn()
        };
        Self {
            end,
            next_bookmark,
            timer: Box::pin(sleep_until(next_bookmark)),
            draining: Some(draining.boxed()),
        }
    }

    /// Polls for the next thing that is due.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TimerEvent> {
        if let Some(draining) = &mut self.draining
            && let Poll::Ready(turn) = draining.poll_unpin(cx)
        {
            self.draining = None;
            // Clients come back when their watches end, so they do not all end at once.
            self.end = self.end.min(Instant::now() + turn);
            self.timer.as_mut().reset(self.end);
        }
        ready!(self.timer.as_mut().poll(cx));
        if Instant::now() >= self.end {
            return Poll::Ready(TimerEvent::End);
        }
        self.next_bookmark = bookmark_after(self.next_bookmark, self.end);
        self.timer.as_mut().reset(self.next_bookmark);
        Poll::Ready(TimerEvent::Bookmark)
    }
}

/// Returns the time at which the bookmark after the one at `last` is due: a minute later, and once
/// more shortly before the end.
fn bookmark_after(last: Instant, end: Instant) -> Instant {
    let final_bookmark = end.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(end);
    if last < final_bookmark {
        final_bookmark.min(last + BOOKMARK_INTERVAL)
    } else {
        end
    }
}

/// The frames of one watch. There are many of these and each is polled for every event, so the
/// part that only encodes is boxed.
struct Frames {
    events: Events,
    deadlines: Deadlines,
    bookmarks: bool,
    /// The negotiated form cannot represent an event: the first event ends the watch.
    unrepresentable: bool,
    finished: bool,
    /// Held until all that there is has been sent.
    initializing: Guard,
    encoder: Box<EventEncoder>,
    counts: Box<Counts>,
}

/// The store and the scope that a watch is counted by.
struct Counts {
    store: Arc<Store>,
    scope: &'static str,
    begun: Instant,
}

impl Counts {
    fn sent(&self, event: &Event, frame: &Bytes) {
        self.store.metrics.watch_event(frame.len());
        if event.kind == EventKind::InitialEventsEnd {
            let took = self.begun.elapsed();
            self.store.metrics.watch_list(self.scope, took);
        } else if event.initial {
            self.store.count_initial_event();
        }
    }
}

/// The scope of a watch by its path and its selector (apiserver `metrics.CleanListScope`).
fn scope(ctx: &RequestContext<'_>, options: &ListOptions) -> &'static str {
    let info = &ctx.request.info;
    let asks = |field| {
        let value = options.field_selector.required(field);
        value.is_some_and(|value| !value.is_empty())
    };
    if !info.name.is_empty() || asks("metadata.name") {
        "resource"
    } else if !info.namespace.is_empty() || asks("metadata.namespace") {
        "namespace"
    } else {
        "cluster"
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.finished {
            return Poll::Ready(None);
        }
        // First, so that a watch that always has events ends in time.
        while let Poll::Ready(due) = self.deadlines.poll(cx) {
            match due {
                TimerEvent::End => {
                    self.finished = true;
                    return Poll::Ready(None);
                }
                TimerEvent::Bookmark if self.bookmarks => {
                    let revision = self.events.progress();
                    if revision > 0 {
                        return Poll::Ready(Some(self.encoder.bookmark(revision, false)));
                    }
                }
                TimerEvent::Bookmark => {}
            }
        }
        let Poll::Ready(event) = self.events.poll_next(cx) else {
            self.initializing = None;
            return Poll::Pending;
        };
        if self.unrepresentable {
            self.finished = true;
            return Poll::Ready(None);
        }
        Poll::Ready(event.map(|event| {
            let encoded = event.and_then(|event| {
                let frame = self.encoder.event(&event)?;
                self.counts.sent(&event, &frame);
                Ok(frame)
            });
            encoded.unwrap_or_else(|status| {
                // Nothing comes after an error.
                self.finished = true;
                self.encoder.error(&status)
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn next(deadlines: &mut Deadlines) -> TimerEvent {
        poll_fn(|cx| deadlines.poll(cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn bookmarks_are_due_each_minute_and_before_the_end() {
        let start = Instant::now();
        let mut deadlines = Deadlines::new(Duration::from_secs(90), Latch::default());
        for seconds in [60, 88] {
            assert!(matches!(next(&mut deadlines).await, TimerEvent::Bookmark));
            assert_eq!(start.elapsed().as_secs(), seconds);
        }
        assert!(matches!(next(&mut deadlines).await, TimerEvent::End));
        assert_eq!(start.elapsed().as_secs(), 90);
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_a_watch_within_the_spread() {
        let (latch, start) = (Latch::default(), Instant::now());
        let mut deadlines = Deadlines::new(Duration::from_secs(1800), latch.clone());
        assert!(futures::poll!(std::pin::pin!(next(&mut deadlines))).is_pending());
        latch.trigger_within(Duration::from_secs(10), 2);
        latch.next_turn();
        assert!(matches!(next(&mut deadlines).await, TimerEvent::End));
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_begins_while_the_server_drains_ends_at_once() {
        let latch = Latch::default();
        latch.trigger();
        let mut deadlines = Deadlines::new(Duration::from_secs(1800), latch);
        assert!(matches!(next(&mut deadlines).await, TimerEvent::End));
    }
}
