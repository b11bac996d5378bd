//! Ends the task of a request or a connection whose client takes too long to read the answer.
//!
//! hyper does not look at the body of an answer while its client takes nothing, so a body cannot
//! end by itself. What answers a request says here until when ([`set`]); the future that drives it
//! ([`Bounded`]) is dropped then, which resets the stream or closes the connection, and frees all
//! that the answer is made of.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

/// What a future has said.
#[derive(Clone, Copy)]
enum Asked {
    Never,
    At(Instant),
    Within(Duration),
}

thread_local! {
    /// What the future that this thread polls has said last.
    static ASKED: Cell<Option<Asked>> = const { Cell::new(None) };
}

/// Ends the [`Bounded`] future that is being polled on this thread at that time, unless it says
/// otherwise before; `None` for never.
pub fn set(at: Option<Instant>) {
    ASKED.set(Some(at.map_or(Asked::Never, Asked::At)));
}

/// Ends that future when it has said nothing else for so long. Costs nothing where it does before
/// it waits.
pub fn set_within(time: Duration) {
    ASKED.set(Some(Asked::Within(time)));
}

/// Polls futures for [`Bounded`], and for those that cannot be wrapped.
#[derive(Debug, Default)]
pub struct Bound {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Bound {
    /// Polls a future; ready without an output when its time is over.
    pub fn poll<F: Future>(
        &mut self,
        task: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        let outer = ASKED.take();
        let polled = task.poll(cx);
        let asked = ASKED.replace(outer);
        if let Poll::Ready(output) = polled {
            return Poll::Ready(Some(output));
        }
        if let Some(asked) = asked {
            let at = match asked {
                Asked::Never => None,
                Asked::At(at) => Some(at),
                Asked::Within(time) => Some(Instant::now() + time),
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
    /// A task that is dropped at the time that it [`set`].
    pub struct Bounded<F> {
        #[pin]
        task: F,
        bound: Bound,
    }
}

impl<F> Bounded<F> {
    pub fn new(task: F) -> Self {
        Self {
            task,
            bound: Bound::default(),
        }
    }
}

impl<F: Future<Output = ()>> Future for Bounded<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        this.bound
            .poll(this.task, cx)
            .map(Option::unwrap_or_default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_task_ends_at_its_time() {
        let begun = Instant::now();
        Bounded::new(async move {
            set(Some(begun + Duration::from_secs(9)));
            tokio::time::sleep(Duration::from_secs(3)).await;
            set(Some(begun + Duration::from_secs(5)));
            std::future::pending::<()>().await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_may_take_it_back() {
        let begun = Instant::now();
        Bounded::new(async move {
            set(Some(begun + Duration::from_secs(5)));
            tokio::time::sleep(Duration::from_secs(3)).await;
            set(None);
            tokio::time::sleep(Duration::from_secs(30)).await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 33);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_says_nothing_more_ends() {
        let begun = Instant::now();
        Bounded::new(async move {
            for _ in 0..10 {
                set_within(Duration::from_secs(5));
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            std::future::pending::<()>().await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 41);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_within_another_has_its_own_time() {
        let begun = Instant::now();
        Bounded::new(async move {
            let inner = Bounded::new(async move {
                set(Some(begun + Duration::from_secs(1)));
                std::future::pending::<()>().await;
            });
            inner.await;
            tokio::time::sleep(Duration::from_secs(9)).await;
        })
        .await;
        assert_eq!(begun.elapsed().as_secs(), 10);
    }
}
