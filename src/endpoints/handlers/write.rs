//! Detached writes. Once its body has been read, a write runs to completion even if the client
//! disconnects, resets its stream, or the request times out: allocations and the stored object must
//! stay consistent.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Response;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::answer;
use crate::endpoints::body::Body;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::{Api, Request};
use crate::telemetry::{panics, requests};

/// The subresources that are streams: they end with their client.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Reports whether a request is a write.
pub fn is_write(info: &RequestInfo) -> bool {
    let writes = matches!(
        info.verb.as_str(),
        "create" | "update" | "patch" | "delete" | "deletecollection"
    );
    writes && !is_stream(info)
}

/// Reports whether a request is for a stream.
pub fn is_stream(info: &RequestInfo) -> bool {
    STREAMS.contains(&info.subresource.as_str())
}

/// Answers a request that writes. If the client disconnects before the answer, the write ends if it
/// is still reading the body, and else goes on in a task of its own.
pub async fn run(api: &Arc<Api>, request: Arc<Request>) -> Response<Body> {
    let write = {
        let (api, request) = (api.clone(), request.clone());
        async move { answer(&api, &request).await }
    };
    let guard = request.guard.clone();
    Detachable {
        write: Some(Box::pin(write)),
        may_go_on: || !request.body.is_reading(),
        tasks: &api.tasks,
        // It goes on because its client has gone, or because it has timed out.
        ended: Some(move |status| {
            if guard.is_some_and(|guard| guard.has_timed_out()) {
                requests::ended_after_timeout(status);
            }
        }),
    }
    .await
}

/// A future that continues as a task if it is dropped before its end and is marked so.
struct Detachable<'a, F, P, E>
where
    F: Future + Send + 'static,
    P: Fn() -> bool,
    E: FnOnce(&'static str) + Send + 'static,
{
    write: Option<Pin<Box<F>>>,
    may_go_on: P,
    tasks: &'a TaskTracker,
    /// Called with `ok` or `panic` at the end of a write that has gone on.
    ended: Option<E>,
}

impl<F, P, E> Future for Detachable<'_, F, P, E>
where
    F: Future + Send + 'static,
    P: Fn() -> bool + Unpin,
    E: FnOnce(&'static str) + Send + Unpin + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out, so that what panics is not polled again.
        let Some(mut write) = self.write.take() else {
            return Poll::Pending;
        };
        let polled = write.as_mut().poll(cx);
        if polled.is_pending() {
            self.write = Some(write);
        }
        polled
    }
}

impl<F, P, E> Drop for Detachable<'_, F, P, E>
where
    F: Future + Send + 'static,
    P: Fn() -> bool,
    E: FnOnce(&'static str) + Send + 'static,
{
    fn drop(&mut self) {
        let ended = self.ended.take();
        let Some(write) = self.write.take().filter(|_| (self.may_go_on)()) else {
            return;
        };
        // There is none when the process ends.
        if let Ok(runtime) = Handle::try_current() {
            let write = async move {
                let outcome = panics::guard(pin!(write)).await;
                if let Some(ended) = ended {
                    ended(if outcome.is_ok() { "ok" } else { "panic" });
                }
                if let Err(panic) = outcome {
                    tracing::error!(
                        location = panic.location,
                        backtrace = panic.backtrace,
                        "a write panicked after its client had gone: {}",
                        panic.message
                    );
                }
            };
            self.tasks.spawn_on(write, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_dropped_write_goes_on_unless_it_reads_its_body() {
        for (may_go_on, finishes) in [(true, true), (false, false)] {
            let (tasks, (ask, asked), (tell, told)) =
                (TaskTracker::new(), oneshot::channel(), oneshot::channel());
            let asked_for = Cell::new(false);
            let mut write = Detachable {
                write: Some(Box::pin(async move {
                    let _ = asked.await;
                    let _ = tell.send(());
                })),
                may_go_on: || {
                    asked_for.set(true);
                    may_go_on
                },
                tasks: &tasks,
                ended: Some(|_| ()),
            };
            assert!(futures::poll!(&mut write).is_pending());
            drop(write);
            assert!(asked_for.get());
            let _ = ask.send(());
            assert_eq!(told.await.is_ok(), finishes);
        }
    }

    #[tokio::test]
    async fn a_write_that_is_dropped_at_any_of_its_awaits_runs_to_its_end() {
        const AWAITS: usize = 20;
        for polls in 0..=AWAITS {
            let (tasks, (tell, told)) = (TaskTracker::new(), oneshot::channel());
            let mut write = Detachable {
                write: Some(Box::pin(async move {
                    for _ in 0..AWAITS {
                        tokio::task::yield_now().await;
                    }
                    let _ = tell.send(());
                })),
                may_go_on: || true,
                tasks: &tasks,
                ended: Some(|_| ()),
            };
            for _ in 0..polls {
                assert!(futures::poll!(&mut write).is_pending());
            }
            drop(write);
            assert_eq!(told.await, Ok(()), "after {polls} polls");
        }
    }

    #[tokio::test]
    async fn a_write_that_ends_or_panics_leaves_no_task() {
        let tasks = TaskTracker::new();
        let detachable = |fails: bool| Detachable {
            write: Some(Box::pin(async move { assert!(!fails, "a bug") })),
            may_go_on: || true,
            tasks: &tasks,
            ended: Some(|_| ()),
        };
        detachable(false).await;
        assert!(panics::guard(pin!(detachable(true))).await.is_err());
        assert!(tasks.is_empty());
    }
}
