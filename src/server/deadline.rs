//! Ends the task of a request or a connection whose client takes too long to read the answer.
//!
//! hyper does not look at the body of an answer while its client takes nothing, so a body cannot
//! end by itself. Instead, what answers a request sets a deadline ([`set_deadline`]), and the
//! future that drives it ([`WithDeadline`]) is dropped then. That resets the stream or closes the
//! connection, and frees all that the answer is made of.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

/// The deadline that a future asks for.
#[derive(Clone, Copy)]
enum Request {
    Never,
    At(Instant),
    Within(Duration),
}

thread_local! {
    /// The latest request of the future that this thread polls.
    static REQUESTED: Cell<Option<Request>> = const { Cell::new(None) };
}

/// Ends the [`WithDeadline`] future that is being polled on this thread at that time, unless it
/// asks for another before; `None` for never.
pub fn set_deadline(at: Option<Instant>) {
    REQUESTED.set(Some(at.map_or(Request::Never, Request::At)));
}

/// Ends that future after so long, unless it asks for another deadline before. No timer is set
/// where it does so in the same poll.
pub fn set_timeout(time: Duration) {
    REQUESTED.set(Some(Request::Within(time)));
}

/// Polls futures for [`WithDeadline`], and for those that cannot be wrapped.
#[derive(Debug, Default)]
pub struct DeadlineTimer {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Polls a future; ready without an output after its deadline.
    pub fn poll<F: Future>(
        &mut self,
        task: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        let outer = REQUESTED.take();
        let polled = task.poll(cx);
        let requested = REQUESTED.replace(outer);
        if let Poll::Ready(output) = polled {
            return Poll::Ready(Some(output));
        }
        if let Some(requested) = requested {
            let at = match requested {
                Request::Never => None,
                Request::At(at) => Some(at),
                Request::Within(time) => Some(Instant::now() + time),
            };
            if self.at != at {
                self.at = at;
                self.sleep = at.map(|at| Box::pin(sleep_until(at)));
            }
        }
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }
}

pin_project! {
    /// A task that ends at the deadline that it sets; see [`set_deadline`].
    pub struct WithDeadline<F> {
        #[pin]
        task: F,
        timer: DeadlineTimer,
    }
}

impl<F> WithDeadline<F> {
    pub fn new(task: F) -> Self {
        Self {
            task,
            timer: DeadlineTimer::default(),
        }
    }
}

impl<F: Future<Output = ()>> Future for WithDeadline<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        this.timer
            .poll(this.task, cx)
            .map(Option::unwrap_or_default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_task_ends_at_its_deadline() {
        let begun = Instant::now();
        WithDeadline::new(async move {
            set_deadline(Some(begun + Duration::from_secs(9)));
            tokio::time::sleep(Duration::from_secs(3)).await;
            set_deadline(Some(begun + Duration::from_secs(5)));
            std::future::pending::<()>().await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_may_be_taken_back() {
        let begun = Instant::now();
        WithDeadline::new(async move {
            set_deadline(Some(begun + Duration::from_secs(5)));
            tokio::time::sleep(Duration::from_secs(3)).await;
            set_deadline(None);
            tokio::time::sleep(Duration::from_secs(30)).await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 33);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_begins_anew_with_each_call() {
        let begun = Instant::now();
        WithDeadline::new(async move {
            for _ in 0..10 {
                set_timeout(Duration::from_secs(5));
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            std::future::pending::<()>().await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 41);
    }

    #[tokio::test(start_paused = true)]
    async fn nested_tasks_have_deadlines_of_their_own() {
        let begun = Instant::now();
        WithDeadline::new(async move {
            let inner = WithDeadline::new(async move {
                set_deadline(Some(begun + Duration::from_secs(1)));
                std::future::pending::<()>().await;
            });
            inner.await;
            tokio::time::sleep(Duration::from_secs(9)).await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 10);
    }
}
