//! Watch: a stream of events, each a frame of its own (apiserver `handlers/watch.go`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::{Instant, sleep_until};

use crate::base::echo;
use crate::base::latch::Latch;
use crate::endpoints::body::{self, Body};
use crate::endpoints::encode::{EventEncoder, LENGTH_BYTES};
use crate::endpoints::negotiate::{self, Form, MediaType};
use crate::endpoints::websocket;
use crate::meta::Status;
use crate::meta::options::ListOptions;
use crate::meta::selector::fields::FieldSelector;
use crate::meta::status::Result;
use crate::registry::store::Events;

use super::RequestContext;

/// How often a watch that allows bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch gets a last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The longest time that a client can ask for, in seconds.
const TIMEOUT_MAX: u64 = (i64::MAX / 1_000_000_000) as u64;

/// Streams the changes until the client, the timeout or an error ends it.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let info = &ctx.request.info;
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
    let lasts = timeout(&options, ctx.api.min_request_timeout);
    let frames = Frames {
        events,
        schedule: Schedule::new(lasts, ctx.api.draining.clone()),
        bookmarks: options.allow_watch_bookmarks,
        mute: matches!(ctx.output.form, Form::NotAcceptable(_)),
        over: lasts.is_zero(),
        encoder: Box::new(encoder),
    };
    if websocket::is_requested(ctx.request) {
        // Messages say themselves where they end.
        let protobuf = ctx.output.media == MediaType::Protobuf;
        let frames = frames.map(move |frame| {
            if protobuf {
                frame.slice(LENGTH_BYTES.min(frame.len())..)
            } else {
                frame
            }
        });
        return websocket::stream(ctx.request, &ctx.api.tasks, !protobuf, frames);
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

/// What the client asked for, or a random time between one and two times the least. A negative time
/// is over at once, and so is one that Go's nanoseconds do not hold.
fn timeout(options: &ListOptions, least: u64) -> Duration {
    match options.timeout_seconds.unwrap_or(0) {
        0 => Duration::from_secs(least).mul_f64(1.0 + rand::random::<f64>()),
        seconds => u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= TIMEOUT_MAX)
            .map(Duration::from_secs)
            .unwrap_or_default(),
    }
}

/// Wakes a watch when a bookmark is due, or when the server is about to end.
struct Alarm {
    ring: BoxFuture<'static, ()>,
    sleeper: Arc<Sleeper>,
}

/// Who is woken by an alarm, and whether it rang.
struct Sleeper {
    rang: AtomicBool,
    wakes: Waker,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        self.wakes.wake_by_ref();
    }
}

impl Alarm {
    /// Wakes nobody yet.
    fn new(bookmark: Instant, draining: Latch) -> Self {
        let either = async move {
            tokio::select! {
                () = sleep_until(bookmark) => {}
                () = draining.wait() => {}
            }
        };
        Self::of(either.boxed())
    }

    fn of(ring: BoxFuture<'static, ()>) -> Self {
        Self {
            ring,
            sleeper: Arc::new(Sleeper {
                rang: AtomicBool::new(true),
                wakes: Waker::noop().clone(),
            }),
        }
    }

    /// Wakes this task from now on; ready when it rings, and not to be asked again. It is looked at
    /// only if it rang, or somebody else was to be woken: there are many watches, and each event is
    /// for all of them.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.sleeper.rang.load(Ordering::Acquire) && self.sleeper.wakes.will_wake(cx.waker()) {
            return Poll::Pending;
        }
        self.sleeper = Arc::new(Sleeper {
            rang: AtomicBool::new(false),
            wakes: cx.waker().clone(),
        });
        self.ring
            .poll_unpin(&mut Context::from_waker(&Waker::from(self.sleeper.clone())))
    }
}

/// What a watch has to do when nothing happens.
struct Schedule {
    /// When the watch is over.
    end: Instant,
    /// When the next bookmark is due; the end where none is.
    bookmark: Instant,
    draining: Latch,
    /// The server is about to end, and this watch has a new end of its own.
    leaving: bool,
    alarm: Alarm,
}

/// What it is time for.
enum Due {
    Bookmark,
    End,
}

impl Schedule {
    fn new(lasts: Duration, draining: Latch) -> Self {
        let now = Instant::now();
        let end = now + lasts;
        let bookmark = next_bookmark(now, end);
        Self {
            end,
            bookmark,
            alarm: Alarm::new(bookmark, draining.clone()),
            draining,
            leaving: false,
        }
    }

    /// What is due, when something is.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        loop {
            ready!(self.alarm.poll(cx));
            let now = Instant::now();
            if self.draining.is_triggered() && !self.leaving {
                // Not all at once: their clients come back.
                self.end = self
                    .end
                    .min(now + self.draining.spread().mul_f64(rand::random()));
                self.leaving = true;
            }
            if now >= self.end {
                return Poll::Ready(Due::End);
            }
            if self.leaving {
                self.alarm = Alarm::of(sleep_until(self.end).boxed());
                continue;
            }
            let due = now >= self.bookmark;
            if due {
                self.bookmark = next_bookmark(self.bookmark, self.end);
            }
            self.alarm = Alarm::new(self.bookmark, self.draining.clone());
            if due {
                return Poll::Ready(Due::Bookmark);
            }
        }
    }
}

/// One watch: its events, encoded. There are many, and each looks at all of this for every event:
/// what is seldom needed is kept elsewhere.
struct Frames {
    events: Events,
    schedule: Schedule,
    bookmarks: bool,
    /// Its form cannot show an event: the first ends it.
    mute: bool,
    over: bool,
    encoder: Box<EventEncoder>,
}

impl Stream for Frames {
    type Item = Bytes;

    /// The next frame; `None` at the end.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // The stream has looked for a reset, and all else is looked for here.
        echo::looking();
        if self.over {
            return Poll::Ready(None);
        }
        // First, or a watch that always has events would never end.
        while let Poll::Ready(due) = self.schedule.poll(cx) {
            match due {
                Due::End => {
                    self.over = true;
                    return Poll::Ready(None);
                }
                Due::Bookmark if self.bookmarks => {
                    let told = self.events.progress();
                    if told > 0 {
                        return Poll::Ready(Some(self.encoder.bookmark(told, false)));
                    }
                }
                Due::Bookmark => {}
            }
        }
        let event = ready!(self.events.poll_next(cx));
        if self.mute {
            self.over = true;
            return Poll::Ready(None);
        }
        Poll::Ready(event.map(|event| {
            event
                .and_then(|event| self.encoder.event(&event))
                .unwrap_or_else(|status| {
                    // Nothing comes after an error.
                    self.over = true;
                    self.encoder.error(&status)
                })
        }))
    }
}

/// Every minute, and shortly before the end.
fn next_bookmark(last: Instant, end: Instant) -> Instant {
    let regular = last + BOOKMARK_EVERY;
    let final_one = end.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(end);
    if last < final_one {
        regular.min(final_one)
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn an_alarm_that_rings_already_is_heard() {
        let now = Latch::default();
        now.trigger();
        let mut alarm = Alarm::new(Instant::now() + BOOKMARK_EVERY, now);
        poll_fn(|cx| alarm.poll(cx)).await;
    }

    #[tokio::test]
    async fn an_alarm_that_rings_later_is_heard() {
        let (ring, rings) = tokio::sync::oneshot::channel();
        let mut alarm = Alarm::of(rings.map(drop).boxed());
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await.is_pending());
        ring.send(()).expect("somebody listens");
        poll_fn(|cx| alarm.poll(cx)).await;
    }

    #[tokio::test]
    async fn an_alarm_is_looked_at_once_for_each_who_waits() {
        let (looked, mut looks) = tokio::sync::mpsc::unbounded_channel();
        let ring = poll_fn(move |_| looked.send(()).map_or(Poll::Ready(()), |()| Poll::Pending));
        let mut alarm = Alarm::of(ring.boxed());
        for _ in 0..3 {
            assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await.is_pending());
        }
        assert_eq!(
            (looks.try_recv().is_ok(), looks.try_recv().is_ok()),
            (true, false),
            "the task is the same"
        );
        let other = tokio::spawn(async move { poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await });
        assert!(other.await.expect("it ends").is_pending());
        assert!(looks.try_recv().is_ok(), "another task");
    }
}
