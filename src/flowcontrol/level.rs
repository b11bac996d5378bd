//! A priority level as requests use it: its queues behind a lock, and the tasks that wait for it.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::metrics::{FlowSeries, KindSeries, LevelSeries, Rejection};
use super::queueset::{Arrival, Key, QueueSet, Start};
use crate::telemetry::requests;

/// The queues of a level, which wake waiting tasks.
pub type Queues = QueueSet<oneshot::Sender<()>>;

/// A priority level.
pub struct PriorityLevel {
    queues: Mutex<Queues>,
    /// Seats that are kept for a while will be free sooner than the timer is set for, or the level
    /// is gone.
    releases: Arc<Notify>,
    /// It goes when its last request has gone.
    quiescing: AtomicBool,
    /// Wakes the controller when that is so.
    drained: Arc<Notify>,
}

/// The present time. A clock that tests have stopped stands still here, too.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl PriorityLevel {
    /// Returns a level that lets nothing through until its queues are configured.
    pub fn new(name: &str, drained: Arc<Notify>) -> Arc<Self> {
        let level = Arc::new(Self {
            queues: Mutex::new(QueueSet::new(now(), LevelSeries::new(name))),
            releases: Arc::default(),
            quiescing: AtomicBool::new(false),
            drained,
        });
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(release_in_time(
                Arc::downgrade(&level),
                level.releases.clone(),
            ));
        }
        level
    }

    /// Works on the queues, and wakes whoever may run then.
    pub fn with<R>(&self, work: impl FnOnce(&mut Queues, Instant) -> R) -> R {
        let mut queues = self.queues.lock();
        let before = queues.next_release();
        let result = work(&mut queues, now());
        let (dispatched, after) = (queues.take_dispatched(), queues.next_release());
        let is_idle = queues.is_idle();
        drop(queues);
        for waker in dispatched {
            // One that has stopped to wait gives its seats back by itself.
            let _ = waker.send(());
        }
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.releases.notify_one();
        }
        if is_idle && self.quiescing.load(Ordering::Relaxed) {
            self.drained.notify_one();
        }
        result
    }

    pub fn is_quiescing(&self) -> bool {
        self.quiescing.load(Ordering::Relaxed)
    }

    pub fn set_quiescing(&self, quiescing: bool) {
        self.quiescing.store(quiescing, Ordering::Relaxed);
    }

    /// Lets a request run as soon as there are seats for it.
    ///
    /// # Errors
    /// It is rejected at once, or after it has waited until its deadline.
    pub async fn admit(self: &Arc<Self>, admission: Admission) -> Result<Seat, Rejection> {
        let Admission {
            arrival,
            deadline,
            is_exempt,
            is_watch,
            kind,
        } = admission;
        let flow = arrival.flow.clone();
        let (started, waiting, begun) = self.with(|queues, now| {
            let started = queues.start(now, arrival);
            let waiting = match started {
                Start::Waiting(key) => {
                    let (sender, receiver) = oneshot::channel();
                    queues.park(key, sender);
                    Some(receiver)
                }
                _ => None,
            };
            (started, waiting, now)
        });
        let key = match started {
            Start::Executing(key) | Start::Waiting(key) => key,
            Start::Rejected(why) => {
                flow.waited(false, now().saturating_duration_since(begun));
                return Err(why);
            }
        };
        let place = Place {
            level: self.clone(),
            key,
        };
        let mut executing_since = begun;
        let mut ended = Ok(());
        if let Some(waiting) = waiting {
            ended = place.wait(waiting, deadline, &kind).await;
            executing_since = now();
        }
        if !is_exempt {
            flow.waited(true, executing_since.saturating_duration_since(begun));
        }
        ended?;
        flow.dispatched();
        Ok(Seat::new(place, flow, executing_since, is_watch, kind))
    }
}

/// A request that asks to be let in.
pub struct Admission {
    pub arrival: Arrival,
    /// The time until which it may wait.
    pub deadline: Instant,
    pub is_exempt: bool,
    pub is_watch: bool,
    pub kind: Arc<Kind>,
}

/// The kind of a request: a read or a write.
pub struct Kind {
    pub is_mutating: bool,
    pub series: KindSeries,
}

/// A request in the queues of a level. The drop takes it out, or gives its seats back.
struct Place {
    level: Arc<PriorityLevel>,
    key: Key,
}

impl Place {
    /// Waits until the request may run.
    async fn wait(
        &self,
        mut dispatched: oneshot::Receiver<()>,
        deadline: Instant,
        kind: &Arc<Kind>,
    ) -> Result<(), Rejection> {
        let _counted = Waiting::new(kind.clone());
        tokio::select! {
            biased;
            _ = &mut dispatched => Ok(()),
            () = tokio::time::sleep_until(deadline.into()) => {
                // It may have been let through in the meantime.
                let cancelled = self.level.with(|queues, now| queues.cancel(now, self.key));
                if cancelled { Err(Rejection::TimeOut) } else { Ok(()) }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.level.with(|queues, now| {
            if !queues.cancel(now, self.key) {
                queues.finish(now, self.key);
            }
        });
    }
}

/// One more that waits, until the drop.
struct Waiting(Arc<Kind>);

impl Waiting {
    fn new(kind: Arc<Kind>) -> Self {
        kind.series.waiting(now(), 1.0);
        requests::in_queue(kind.is_mutating, true);
        Self(kind)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.series.waiting(now(), -1.0);
        requests::in_queue(self.0.is_mutating, false);
    }
}

/// The seats of a request that is being answered. The drop gives them back.
pub struct Seat {
    /// Dropped last.
    execution: Execution,
    _place: Place,
}

/// The time in which a request is answered, noted at its end.
struct Execution {
    flow: Arc<FlowSeries>,
    begun: Instant,
    is_watch: bool,
    kind: Arc<Kind>,
}

impl Seat {
    fn new(
        place: Place,
        flow: Arc<FlowSeries>,
        begun: Instant,
        is_watch: bool,
        kind: Arc<Kind>,
    ) -> Self {
        kind.series.executing(begun, 1.0);
        requests::in_flight(kind.is_mutating, true);
        Self {
            execution: Execution {
                flow,
                begun,
                is_watch,
                kind,
            },
            _place: place,
        }
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seat of {}", self.execution.flow.schema)
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        let now = now();
        self.kind.series.executing(now, -1.0);
        requests::in_flight(self.kind.is_mutating, false);
        self.flow
            .executed(self.is_watch, now.saturating_duration_since(self.begun));
    }
}

impl Drop for PriorityLevel {
    fn drop(&mut self) {
        self.releases.notify_one();
    }
}

/// Frees the seats that are kept for a while when their time has come, until the level is gone.
async fn release_in_time(level: Weak<PriorityLevel>, releases: Arc<Notify>) {
    loop {
        let Some(held) = level.upgrade() else { return };
        let next = held.queues.lock().next_release();
        drop(held);
        match next {
            None => releases.notified().await,
            Some(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {}
                    () = releases.notified() => {}
                }
                if let Some(level) = level.upgrade() {
                    level.with(|queues, now| queues.advance(now));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::User;
    use crate::flowcontrol::digest::{Distinguisher, RequestDetails, RequestDigest};
    use crate::flowcontrol::queueset::Queuing;
    use crate::flowcontrol::shuffle_sharding::Dealer;
    use crate::flowcontrol::work::WorkEstimate;

    struct Nobody(User);

    impl RequestDetails for Nobody {
        fn digest(&self) -> RequestDigest<'_> {
            RequestDigest {
                user: &self.0,
                is_resource: false,
                verb: "get",
                group: "",
                version: "",
                resource: "",
                subresource: "",
                namespace: "",
                name: "",
                path: "",
            }
        }
    }

    fn one_seat() -> Arc<PriorityLevel> {
        let level = PriorityLevel::new("one", Arc::default());
        let queuing = Queuing::Queue {
            queues: 1,
            queue_length_limit: 9,
            dealer: Dealer::new(1, 1).expect("a dealer"),
        };
        level.with(|queues, now| queues.configure(now, queuing, 1, 1));
        level
    }

    async fn admit(level: &Arc<PriorityLevel>, lingering: Duration) -> Result<Seat, Rejection> {
        let seats = u64::from(!lingering.is_zero());
        let admission = Admission {
            arrival: Arrival {
                work: WorkEstimate {
                    initial_seats: 1,
                    final_seats: seats,
                    additional_latency: lingering,
                },
                hash: 0,
                flow: Arc::new(FlowSeries::new("one", "one")),
                distinguisher: Distinguisher::None,
                details: Arc::new(Nobody(User::default())),
            },
            deadline: now() + Duration::from_secs(10),
            is_exempt: false,
            is_watch: false,
            kind: Arc::new(Kind {
                is_mutating: false,
                series: KindSeries::new("readOnly"),
            }),
        };
        level.admit(admission).await
    }

    #[tokio::test(start_paused = true)]
    async fn seats_that_are_kept_are_free_in_time() {
        let level = one_seat();
        let begun = now();
        let first = admit(&level, Duration::from_secs(5)).await.expect("a seat");
        let second = tokio::spawn({
            let level = level.clone();
            async move { admit(&level, Duration::ZERO).await.map(|_seat| now()) }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(first);
        let admitted = second.await.expect("no panic").expect("a seat");
        assert_eq!((admitted - begun).as_secs(), 7);
        assert!(level.with(|queues, _| queues.is_idle()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_level_that_is_not_used_any_more_is_gone() {
        let level = one_seat();
        let (known, tasks) = (Arc::downgrade(&level), Handle::current().metrics());
        drop(admit(&level, Duration::ZERO).await.expect("a seat"));
        tokio::task::yield_now().await;
        assert_eq!(tasks.num_alive_tasks(), 1);
        drop(level);
        assert!(known.upgrade().is_none());
        tokio::task::yield_now().await;
        assert_eq!(tasks.num_alive_tasks(), 0, "its timer, too");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_too_long_or_gives_up_leaves_the_queue() {
        let level = one_seat();
        let begun = now();
        let first = admit(&level, Duration::ZERO).await.expect("a seat");
        let gives_up = tokio::time::timeout(Duration::from_secs(1), admit(&level, Duration::ZERO));
        let (given_up, waited) = futures::join!(gives_up, admit(&level, Duration::ZERO));
        assert!(given_up.is_err());
        assert_eq!(waited.err(), Some(Rejection::TimeOut));
        assert_eq!((now() - begun).as_secs(), 10);
        let totals = level.with(|queues, _| queues.dump().totals);
        assert_eq!(
            (totals.waiting, totals.executing, totals.cancelled),
            (0, 1, 2)
        );
        drop(first);
        assert!(admit(&level, Duration::ZERO).await.is_ok());
    }

    /// A request that is let through at the moment in which its task ends runs for nobody.
    #[tokio::test(start_paused = true)]
    async fn a_seat_that_nobody_takes_goes_to_the_next() {
        let level = one_seat();
        let first = admit(&level, Duration::ZERO).await.expect("a seat");
        let mut second = Box::pin(admit(&level, Duration::ZERO));
        let mut third = Box::pin(admit(&level, Duration::ZERO));
        assert!(futures::poll!(second.as_mut()).is_pending());
        assert!(futures::poll!(third.as_mut()).is_pending());
        drop(first);
        drop(second);
        assert!(third.await.is_ok());
        assert!(level.with(|queues, _| queues.is_idle()));
    }
}
