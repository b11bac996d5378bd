//! Tasks that wake themselves for nothing.
//!
//! An HTTP/2 stream that claims room to send is told that it has got some, and so wakes the task
//! that claims it. With thousands of watches that would run each of them twice for every event.
//! Here a task does not hear what it said to itself before it looked at everything again.

use std::cell::Cell;
use std::hint::black_box;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

thread_local! {
    /// Which task this thread runs, and whether that woke itself since it last looked.
    static RUNNING: Cell<(*const Ear, bool)> = const { Cell::new((ptr::null(), false)) };
}

/// Wakes a task, unless it is the one that runs here.
struct Ear(Waker);

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let this = Arc::as_ptr(self);
        if RUNNING.get().0 == this {
            RUNNING.set((this, true));
        } else {
            self.0.wake_by_ref();
        }
    }
}

/// Puts back what this thread ran before, even if a task panics.
struct Turn((*const Ear, bool));

impl Turn {
    fn of(ear: &Arc<Ear>) -> Self {
        Self(RUNNING.replace((Arc::as_ptr(ear), false)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

pin_project! {
    /// A task that may say that it is [`looking`].
    #[repr(C)]
    pub struct Muffled<F> {
        // First, and so beside what the runtime keeps of a task, which is looked at with it.
        ear: Option<(Arc<Ear>, Waker)>,
        #[pin]
        task: F,
    }
}

impl<F> Muffled<F> {
    pub fn new(task: F) -> Self {
        Self { task, ear: None }
    }
}

impl<F: Future> Future for Muffled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let (ear, waker) = match this.ear {
            Some(known) if known.0.0.will_wake(cx.waker()) => known,
            unknown => {
                let ear = Arc::new(Ear(cx.waker().clone()));
                // Those who keep a clone must know it again. A waker that was made of an `Arc` and
                // its clones have different tables, but not a clone and what is cloned of that,
                // unless the compiler sees through it and makes another.
                let waker = black_box(Waker::from(ear.clone())).clone();
                unknown.insert((ear, waker))
            }
        };
        let turn = Turn::of(ear);
        let polled = this.task.poll(&mut Context::from_waker(waker));
        let (_, woken) = RUNNING.get();
        drop(turn);
        if woken && polled.is_pending() {
            cx.waker().wake_by_ref();
        }
        polled
    }
}

/// Says that the task that runs here now looks at all that it could have been woken for, or has
/// just done so. What it woke itself for before is then no reason to run it again.
pub fn looking() {
    RUNNING.set((RUNNING.get().0, false));
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::{ArcWake, waker};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a task is woken that does this in a turn, and then waits.
    fn wakes(mut turn: impl FnMut(&mut Context<'_>)) -> usize {
        let count = Arc::new(Count::default());
        let mut task = pin!(Muffled::new(poll_fn(|cx| {
            turn(cx);
            Poll::<()>::Pending
        })));
        assert!(
            task.as_mut()
                .poll(&mut Context::from_waker(&waker(count.clone())))
                .is_pending()
        );
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_task_hears_nothing_that_it_said_before_it_looked() {
        assert_eq!(wakes(|_| {}), 0);
        assert_eq!(wakes(|cx| cx.waker().wake_by_ref()), 1);
        assert_eq!(
            wakes(|cx| {
                cx.waker().wake_by_ref();
                looking();
            }),
            0
        );
        assert_eq!(
            wakes(|cx| {
                looking();
                cx.waker().wake_by_ref();
                cx.waker().wake_by_ref();
            }),
            1
        );
    }

    #[test]
    fn a_kept_waker_is_known_again() {
        let (mut kept, mut known) = (None::<Waker>, Vec::new());
        let mut task = Muffled::new(poll_fn(|cx| {
            known.extend(
                kept.replace(cx.waker().clone())
                    .map(|kept| kept.will_wake(cx.waker())),
            );
            Poll::<()>::Pending
        }));
        let outer = waker(Arc::new(Count::default()));
        for _ in 0..3 {
            assert!(
                pin!(&mut task)
                    .poll(&mut Context::from_waker(&outer))
                    .is_pending()
            );
        }
        drop(task);
        assert_eq!(known, [true, true]);
    }

    #[test]
    fn others_are_heard_at_once() {
        let mut kept = None;
        assert_eq!(
            wakes(|cx| {
                let waker = cx.waker().clone();
                std::thread::spawn(move || waker.wake())
                    .join()
                    .expect("it ends");
                looking();
                kept = Some(cx.waker().clone());
            }),
            1
        );
        // Neither is it taken for the task that runs now.
        let one = kept.expect("a waker");
        assert_eq!(wakes(|_| one.wake_by_ref()), 0);
    }

    #[test]
    fn a_task_that_panics_is_not_taken_for_running() {
        let panicked = std::panic::catch_unwind(|| wakes(|_| panic!("as it should")));
        assert!(panicked.is_err());
        assert!(RUNNING.get().0.is_null());
    }
}
