//! A queue of names for the workers of a controller (client-go `util/workqueue`): each name is
//! there once, and nobody works on a name that another worker is at.

use std::collections::{HashMap, HashSet, VecDeque};
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

/// A queue, whose delays after failures double from a minimum to a maximum.
pub struct WorkQueue {
    first_delay: Duration,
    max_delay: Duration,
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    order: VecDeque<String>,
    queued: HashSet<String>,
    /// Those that a worker has, and whether they came again meanwhile.
    taken: HashMap<String, bool>,
    /// The earliest time at which each comes.
    due: HashMap<String, Instant>,
    failures: HashMap<String, u32>,
}

impl State {
    fn push(&mut self, name: String) {
        self.due.remove(&name);
        if let Some(again) = self.taken.get_mut(&name) {
            *again = true;
        } else if self.queued.insert(name.clone()) {
            self.order.push_back(name);
        }
    }

    /// Moves what is due to the queue, and returns when the next one is.
    fn promote(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let mut due: Vec<(Instant, String)> = due.map(|(name, at)| (*at, name.clone())).collect();
        due.sort();
        due.into_iter().for_each(|(_, name)| self.push(name));
        self.due.values().min().copied()
    }
}

impl WorkQueue {
    /// A queue with these delays after the first and after many failures.
    pub fn new(first_delay: Duration, max_delay: Duration) -> Self {
        Self {
            first_delay,
            max_delay,
            state: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Adds a name.
    pub fn add(&self, name: &str) {
        self.state.lock().push(name.to_owned());
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
                let next = state.promote(Instant::now());
                if let Some(name) = state.order.pop_front() {
                    state.queued.remove(&name);
                    state.taken.insert(name.clone(), false);
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
        if state.taken.remove(name) == Some(true) {
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
