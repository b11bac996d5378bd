//! A queue of names for the workers of a controller (client-go `util/workqueue`): each name is
//! there once, and nobody works on a name that another worker is at.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::supervise::catch_panic;

/// The highest number of doublings of a delay.
const MAX_DOUBLINGS: u32 = 24;

/// The work on the names of a queue.
pub trait Worker: Send + Sync + 'static {
    /// Names the work in the log.
    const TASK: &'static str;

    fn queue(&self) -> &WorkQueue;

    /// Works on a name, which comes again later where that fails.
    fn sync(&self, name: &str) -> impl Future<Output = Result<(), String>> + Send;

    /// Works on a name, whatever becomes of it.
    fn work_on(&self, name: &str) -> impl Future<Output = ()> + Send {
        async move {
            match catch_panic(Self::TASK, self.sync(name)).await.flatten() {
                Ok(()) => self.queue().forget(name),
                Err(why) => {
                    tracing::debug!(name, "{}: {why}", Self::TASK);
                    self.queue().retry(name);
                }
            }
        }
    }

    /// Works on the names that come until the runtime ends, on several of them at the same time.
    fn run_workers(self: Arc<Self>, workers: usize) {
        for _ in 0..workers {
            let this = self.clone();
            tokio::spawn(async move {
                loop {
                    let name = this.queue().take().await;
                    this.work_on(&name).await;
                    this.queue().done(&name);
                }
            });
        }
    }
}

/// An observer of what becomes of the items of a queue.
pub trait QueueObserver: Send + Sync {
    /// So many items were added.
    fn added(&self, items: usize);

    /// A worker takes an item that has waited for so long. It is given back with the time at which
    /// the work on it began.
    fn taken(&self, waited: Duration, began: std::time::Instant);

    /// A worker gives back an item on which it began at that time.
    fn done(&self, began: std::time::Instant);

    /// An item comes again because the work on it has failed.
    fn retried(&self);
}

/// A queue, whose delays after failures double from a minimum to a maximum.
pub struct WorkQueue {
    first_delay: Duration,
    max_delay: Duration,
    state: Mutex<State>,
    added: Notify,
    observer: Option<Box<dyn QueueObserver>>,
}

#[derive(Default)]
struct State {
    order: VecDeque<String>,
    /// Those in the queue, and since when.
    queued: HashMap<String, Instant>,
    /// Those that a worker has.
    taken: HashMap<String, Taken>,
    /// The earliest time at which each comes.
    due: HashMap<String, Instant>,
    failures: HashMap<String, u32>,
}

/// A name that a worker has.
struct Taken {
    since: Instant,
    /// It has come again meanwhile.
    again: bool,
}

impl State {
    /// Adds a name; reports whether it was not there.
    fn push(&mut self, name: String) -> bool {
        self.due.remove(&name);
        if let Some(taken) = self.taken.get_mut(&name) {
            return !std::mem::replace(&mut taken.again, true);
        }
        let is_new = !self.queued.contains_key(&name);
        if is_new {
            self.queued.insert(name.clone(), Instant::now());
            self.order.push_back(name);
        }
        is_new
    }

    /// Moves what is due to the queue, and returns when the next one is, and how many came.
    fn promote(&mut self, now: Instant) -> (Option<Instant>, usize) {
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let mut due: Vec<(Instant, String)> = due.map(|(name, at)| (*at, name.clone())).collect();
        due.sort();
        let came = due.into_iter().filter(|(_, name)| self.push(name.clone()));
        let came = came.count();
        (self.due.values().min().copied(), came)
    }
}

impl WorkQueue {
    /// A queue with these delays after the first and after many failures.
    pub fn new(first_delay: Duration, max_delay: Duration) -> Self {
        Self {
            observer: None,
            first_delay,
            max_delay,
            state: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Reports each step of the names to an observer.
    pub fn observed_by(self, observer: impl QueueObserver + 'static) -> Self {
        Self {
            observer: Some(Box::new(observer)),
            ..self
        }
    }

    fn tell(&self, what: impl FnOnce(&dyn QueueObserver)) {
        if let Some(observer) = &self.observer {
            what(&**observer);
        }
    }

    /// Adds a name.
    pub fn add(&self, name: &str) {
        if self.state.lock().push(name.to_owned()) {
            self.tell(|observer| observer.added(1));
        }
        self.added.notify_one();
    }

    /// Adds a name after a while, unless it comes sooner for another reason.
    pub fn add_after(&self, name: &str, delay: Duration) {
        let at = Instant::now() + delay;
        let mut state = self.state.lock();
        let due = state.due.entry(name.to_owned()).or_insert(at);
        *due = at.min(*due);
        drop(state);
        self.added.notify_one();
    }

    /// Adds a name again whose work has failed.
    pub fn retry(&self, name: &str) {
        let failures = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(name.to_owned()).or_default();
            *failures = failures.saturating_add(1);
            *failures
        };
        let doublings = (failures - 1).min(MAX_DOUBLINGS);
        self.tell(|observer| observer.retried());
        let delay = self.first_delay.saturating_mul(1 << doublings);
        self.add_after(name, delay.min(self.max_delay));
    }

    /// Forgets that the work on a name has failed.
    pub fn forget(&self, name: &str) {
        self.state.lock().failures.remove(name);
    }

    /// Takes the next name; waits where there is none. It is to be given back with
    /// [`WorkQueue::done`].
    pub async fn take(&self) -> String {
        loop {
            let next = {
                let mut state = self.state.lock();
                let now = Instant::now();
                let (next, came) = state.promote(now);
                self.tell(|observer| observer.added(came));
                if let Some(name) = state.order.pop_front() {
                    let since = state.queued.remove(&name).unwrap_or(now);
                    self.tell(|observer| observer.taken(now - since, now.into_std()));
                    let taken = Taken {
                        since: now,
                        again: false,
                    };
                    state.taken.insert(name.clone(), taken);
                    return name;
                }
                next
            };
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.added.notified() => {}
                () = due => {}
            }
        }
    }

    /// Gives a name back.
    pub fn done(&self, name: &str) {
        let mut state = self.state.lock();
        let Some(taken) = state.taken.remove(name) else {
            return;
        };
        self.tell(|observer| observer.done(taken.since.into_std()));
        if taken.again {
            state.push(name.to_owned());
            drop(state);
            self.added.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_name_is_taken_by_one_worker_at_a_time() {
        let queue = WorkQueue::new(SECOND, 4 * SECOND);
        ["a", "b", "a"].iter().for_each(|name| queue.add(name));
        assert_eq!(
            (queue.take().await, queue.take().await),
            ("a".to_owned(), "b".to_owned())
        );
        queue.add("a");
        assert_eq!(queue.take().now_or_never(), None, "another worker is at it");
        queue.done("a");
        assert_eq!(queue.take().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_and_the_earliest_counts() {
        let queue = WorkQueue::new(SECOND, 4 * SECOND);
        for seconds in [1, 2, 4, 4] {
            let begun = Instant::now();
            queue.retry("a");
            queue.add_after("a", 60 * SECOND);
            assert_eq!(queue.take().await, "a");
            assert_eq!(begun.elapsed().as_secs(), seconds);
            queue.done("a");
        }
        queue.forget("a");
        queue.add_after("a", 3 * SECOND);
        queue.add("a");
        assert_eq!(queue.take().await, "a");
        queue.done("a");
        assert_eq!(queue.take().now_or_never(), None, "it came sooner, once");
    }
}
