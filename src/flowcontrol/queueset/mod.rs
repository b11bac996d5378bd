//! Fair queuing of the requests of one priority level (apiserver
//! `util/flowcontrol/fairqueuing/queueset`). A state machine: the time is an argument, nothing
//! waits, and whoever may run is told by [`QueueSet::take_dispatched`].
//!
//! In a virtual world each queue with requests gets the same share of the seats. R, the progress
//! meter, is the work that each queue has been allotted since the start; the S of a queue is the
//! reading of R at which its next request begins in that world. The queue whose oldest request
//! ends first there is served first here.

mod queue;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::digest::{Distinguisher, RequestDetails};
use super::integrator::{Integrator, Moments};
use super::metrics::{Dispatch, FlowSeries, LevelSeries, Rejection};
use super::shuffle_sharding::Dealer;
use super::work::{SeatSeconds, WorkEstimate, nanos};
pub use queue::QueueSum;
use queue::{Lingering, Links, Queue};

/// The time that a request is expected to take, until it is known.
const ESTIMATED_SERVICE: Duration = Duration::from_millis(3);
/// The amount by which the progress meter is wound back before it overflows.
const R_DECREMENT: SeatSeconds = SeatSeconds(u64::MAX / 2);
/// The reading at which that happens.
const HIGH_R: SeatSeconds = SeatSeconds(u64::MAX / 2 + u64::MAX / 4);

/// A request in a set, until it has given back its seats.
pub type Key = usize;

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// Nothing is limited.
    Exempt,
    /// Requests that cannot run at once are rejected.
    Reject,
    Queue {
        queues: usize,
        queue_length_limit: usize,
        dealer: Dealer,
    },
}

impl Queuing {
    fn queues(&self) -> usize {
        match self {
            Self::Queue { queues, .. } => *queues,
            Self::Exempt | Self::Reject => 0,
        }
    }
}

/// A request that arrives.
pub struct Arrival {
    pub work: WorkEstimate,
    /// The flow that it belongs to, as a hash.
    pub hash: u64,
    pub flow: Arc<FlowSeries>,
    pub distinguisher: Distinguisher,
    pub details: Arc<dyn RequestDetails>,
}

/// The outcome of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Executing(Key),
    Waiting(Key),
    Rejected(Rejection),
}

/// An estimate with the work that it comes to.
#[derive(Clone, Copy, Debug)]
struct Work {
    estimate: WorkEstimate,
    total: SeatSeconds,
    after_answer: SeatSeconds,
}

impl Work {
    fn new(estimate: WorkEstimate) -> Self {
        let after_answer = SeatSeconds::of(estimate.final_seats, estimate.additional_latency);
        Self {
            estimate,
            total: SeatSeconds::of(estimate.initial_seats, ESTIMATED_SERVICE).plus(after_answer),
            after_answer,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Executing,
    /// It is answered and keeps its seats for a while.
    Lingering,
}

/// A request in a set. `W` is what wakes it.
pub struct Queued<W> {
    flow: Arc<FlowSeries>,
    distinguisher: Distinguisher,
    details: Arc<dyn RequestDetails>,
    work: Work,
    phase: Phase,
    /// The number of its queue, if it went through one.
    queue: Option<u64>,
    links: Links,
    waker: Option<W>,
    arrived: Instant,
    /// R at its arrival.
    arrival_r: SeatSeconds,
    started: Option<Instant>,
}

impl<W> Queued<W> {
    fn max_seats(&self) -> u64 {
        self.work.estimate.max_seats()
    }
}

/// The totals of a set since its creation or now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub waiting: usize,
    pub executing: usize,
    pub seats_in_use: u64,
    pub seats_waiting: u64,
    pub dispatched: u64,
    pub rejected: u64,
    pub cancelled: u64,
}

/// The queues of one priority level with the requests that wait and that run.
pub struct QueueSet<W> {
    queuing: Queuing,
    concurrency_limit: u64,
    /// They may be more than are wanted, until the surplus is empty. Ordered by number.
    queues: Vec<Queue>,
    next_queue: u64,
    requests: Slab<Queued<W>>,
    /// The seats that are to be free again.
    lingering: BinaryHeap<Reverse<Lingering>>,
    /// Those of requests that may run now and have not been told yet.
    dispatched: Vec<W>,
    current_r: SeatSeconds,
    last_time: Instant,
    /// The queue that the next look begins with: the one after that which was served last.
    robin: usize,
    enqueues: usize,
    totals: Totals,
    /// The queues that have requests, and the seats that all queues could use.
    active_queues: usize,
    seats_of_queues: u64,
    demand: Integrator,
    series: LevelSeries,
}

impl<W> QueueSet<W> {
    /// Returns a set without queues that lets nothing through until it is configured.
    pub fn new(now: Instant, series: LevelSeries) -> Self {
        Self {
            queuing: Queuing::Reject,
            concurrency_limit: 0,
            queues: Vec::new(),
            next_queue: 0,
            requests: Slab::new(),
            lingering: BinaryHeap::new(),
            dispatched: Vec::new(),
            current_r: SeatSeconds::MIN,
            last_time: now,
            robin: 1,
            enqueues: 0,
            totals: Totals::default(),
            active_queues: 0,
            seats_of_queues: 0,
            demand: Integrator::new(now),
            series,
        }
    }

    /// Changes queues and limits. Surplus queues go when they are empty.
    pub fn configure(
        &mut self,
        now: Instant,
        queuing: Queuing,
        concurrency_limit: u64,
        denominator: u64,
    ) {
        self.advance(now);
        for _ in self.queues.len()..queuing.queues() {
            self.queues.push(Queue::new(self.next_queue));
            self.next_queue += 1;
        }
        self.queuing = queuing;
        self.concurrency_limit = concurrency_limit;
        let places = match queuing {
            Queuing::Queue {
                queues,
                queue_length_limit,
                ..
            } => queues.saturating_mul(queue_length_limit.max(1)),
            Queuing::Exempt | Queuing::Reject => 1,
        };
        let series = &self.series;
        series.waiting.set_denominator(now, places as f64);
        series.executing.set_denominator(now, denominator as f64);
        series.seats.set_denominator(now, denominator as f64);
        series.demand.set_denominator(now, denominator as f64);
        self.dispatch_all(now);
    }

    /// Lets a request run, has it wait, or rejects it.
    pub fn start(&mut self, now: Instant, arrival: Arrival) -> Start {
        self.advance(now);
        let started = match self.queuing {
            Queuing::Queue {
                queue_length_limit,
                dealer,
                ..
            } => self.enqueue(now, arrival, queue_length_limit, dealer),
            Queuing::Exempt | Queuing::Reject => self.start_without_queue(now, arrival),
        };
        if let Start::Rejected(_) = started {
            self.totals.rejected += 1;
        }
        started
    }

    fn start_without_queue(&mut self, now: Instant, arrival: Arrival) -> Start {
        if !self.can_accommodate(arrival.work.max_seats()) {
            arrival.flow.rejected(Rejection::ConcurrencyLimit);
            return Start::Rejected(Rejection::ConcurrencyLimit);
        }
        let key = self.insert(now, arrival, None);
        self.set_executing(now, key);
        Start::Executing(key)
    }

    fn enqueue(&mut self, now: Instant, arrival: Arrival, limit: usize, dealer: Dealer) -> Start {
        let at = self.shuffle_shard(dealer, arrival.hash);
        let Some(queue) = self.queues.get_mut(at) else {
            return Start::Rejected(Rejection::QueueFull);
        };
        if self.totals.seats_in_use >= self.concurrency_limit && queue.len() >= limit {
            arrival.flow.rejected(Rejection::QueueFull);
            return Start::Rejected(Rejection::QueueFull);
        }
        if !queue.is_active() {
            queue.next_dispatch_r = self.current_r;
            self.active_queues += 1;
        }
        let id = queue.id;
        let key = self.insert(now, arrival, Some(id));
        if let Some(queue) = self.queues.get_mut(at) {
            queue.push(&mut self.requests, key);
            let (length, request) = (queue.len(), &self.requests[key]);
            let seats = request.max_seats();
            request.flow.in_queue(1, seats as i64);
            request.flow.enqueued(length);
            self.seats_of_queues += seats;
            self.totals.waiting += 1;
            self.totals.seats_waiting += seats;
        }
        self.series.waiting.add(now, 1.0);
        self.note_demand(now);
        self.bound_next_dispatch(at);
        self.dispatch_all(now);
        match self.requests.get(key).map(|request| request.phase) {
            Some(Phase::Waiting) => Start::Waiting(key),
            _ => Start::Executing(key),
        }
    }

    fn insert(&mut self, now: Instant, arrival: Arrival, queue: Option<u64>) -> Key {
        self.requests.insert(Queued {
            work: Work::new(arrival.work),
            flow: arrival.flow,
            distinguisher: arrival.distinguisher,
            details: arrival.details,
            phase: Phase::Waiting,
            queue,
            links: Links::default(),
            waker: None,
            arrived: now,
            arrival_r: self.current_r,
            started: None,
        })
    }

    /// Keeps what is to be handed out when a waiting request may run.
    pub fn park(&mut self, key: Key, waker: W) {
        if let Some(request) = self.requests.get_mut(key) {
            request.waker = Some(waker);
        }
    }

    /// Returns what requests that may run now have parked.
    pub fn take_dispatched(&mut self) -> Vec<W> {
        std::mem::take(&mut self.dispatched)
    }

    /// Takes a request that still waits out of its queue and forgets it. Returns false for one that
    /// runs already, and has to be finished.
    pub fn cancel(&mut self, now: Instant, key: Key) -> bool {
        self.advance(now);
        let Some(request) = self.requests.get(key) else {
            return false;
        };
        if request.phase != Phase::Waiting {
            return false;
        }
        let at = self.queue_of(key);
        self.leave_queue(now, key);
        if let Some(request) = self.requests.try_remove(key) {
            request.flow.rejected(Rejection::TimeOut);
        }
        self.totals.rejected += 1;
        self.totals.cancelled += 1;
        self.note_demand(now);
        if let Some(at) = at {
            self.bound_next_dispatch(at);
        }
        true
    }

    /// Notes that a request has been answered. It keeps its seats for as long as its effects cost
    /// something.
    pub fn finish(&mut self, now: Instant, key: Key) {
        self.advance(now);
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        if request.phase != Phase::Executing {
            return;
        }
        request.phase = Phase::Lingering;
        request.flow.executing(-1);
        let estimate = request.work.estimate;
        let actual = request
            .started
            .map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
        self.totals.executing -= 1;
        self.series.executing.add(now, -1.0);
        if let Some(at) = self.queue_of(key)
            && let Some(queue) = self.queues.get_mut(at)
        {
            queue.executing -= 1;
            self.active_queues -= usize::from(!queue.is_active());
            // It was charged for the time that it was expected to take.
            let saved = nanos(ESTIMATED_SERVICE) - nanos(actual);
            queue.next_dispatch_r = queue
                .next_dispatch_r
                .minus(SeatSeconds::new(estimate.initial_seats as f64, saved));
            self.bound_next_dispatch(at);
        }
        if estimate.additional_latency.is_zero() {
            self.release(now, key);
        } else {
            let until = now + estimate.additional_latency;
            self.lingering.push(Reverse(Lingering { until, key }));
        }
        self.dispatch_all(now);
    }

    /// Returns the next time at which seats are free again without an answer.
    pub fn next_release(&self) -> Option<Instant> {
        self.lingering.peek().map(|Reverse(next)| next.until)
    }

    /// Brings the set to the present: time goes on in the virtual world, seats that were kept are
    /// free again, and what can run does.
    pub fn advance(&mut self, now: Instant) {
        self.synchronize(now);
        let mut released = false;
        while let Some(Reverse(next)) = self.lingering.peek()
            && next.until <= now
        {
            let key = next.key;
            self.lingering.pop();
            self.release(now, key);
            released = true;
        }
        if released {
            self.dispatch_all(now);
        }
    }

    /// Returns the moments of the demand for seats since the last call.
    pub fn reset_demand(&mut self, now: Instant) -> Moments {
        self.demand.reset(now)
    }

    pub fn is_idle(&self) -> bool {
        self.totals.waiting == 0 && self.totals.executing == 0
    }

    /// Gives back the seats of a request and forgets it.
    fn release(&mut self, now: Instant, key: Key) {
        let at = self.queue_of(key);
        let Some(request) = self.requests.try_remove(key) else {
            return;
        };
        let seats = request.max_seats();
        self.totals.seats_in_use -= seats;
        request.flow.executing_seats(-(seats as i64));
        self.series.seats.add(now, -(seats as f64));
        self.note_demand(now);
        let Some(at) = at else { return };
        let Some(queue) = self.queues.get_mut(at) else {
            return;
        };
        queue.seats_in_use -= seats;
        self.seats_of_queues -= seats;
        if self.queues.len() > self.queuing.queues()
            && let Some(queue) = self.queues.get(at)
            && !queue.is_active()
        {
            self.seats_of_queues -= queue.seats_in_use;
            self.queues.remove(at);
            self.robin -= usize::from(self.robin > at);
        }
    }

    fn note_demand(&mut self, now: Instant) {
        let seats = (self.totals.seats_in_use + self.totals.seats_waiting) as f64;
        self.demand.set(now, seats);
        self.series.demand.set(now, seats);
    }

    /// The position of the queue that a request went through, if there still is one.
    fn queue_of(&self, key: Key) -> Option<usize> {
        let id = self.requests.get(key)?.queue?;
        self.queues.binary_search_by_key(&id, |queue| queue.id).ok()
    }

    /// Lets time go on in the virtual world, as if all had been as it is since the last call.
    fn synchronize(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.last_time);
        self.last_time = self.last_time.max(now);
        let progress = SeatSeconds::new(self.virtual_time_ratio(), nanos(passed));
        self.current_r = self.current_r.plus(progress);
        if self.current_r >= HIGH_R {
            self.advance_epoch();
        }
        self.series.set_current_r(self.current_r.to_f64());
    }

    /// The seats that each queue with requests is allotted.
    fn virtual_time_ratio(&self) -> f64 {
        if self.active_queues == 0 {
            return 0.0;
        }
        self.seats_of_queues.min(self.concurrency_limit) as f64 / self.active_queues as f64
    }

    /// Winds the progress meter back, and all that was read from it.
    fn advance_epoch(&mut self) {
        self.current_r = self.current_r.minus(R_DECREMENT);
        for queue in &mut self.queues {
            queue.next_dispatch_r = if queue.is_active() {
                queue.next_dispatch_r.minus(R_DECREMENT)
            } else {
                // It may be old; the next request sets it.
                SeatSeconds::MIN
            };
        }
        for (_, request) in &mut self.requests {
            if request.phase == Phase::Waiting {
                request.arrival_r = request.arrival_r.minus(R_DECREMENT);
            }
        }
        self.series.epoch_advanced();
    }

    /// Returns the queue of a hand that has the least work. Where several have, not always the
    /// first that is dealt: flows with overlapping hands would meet there.
    fn shuffle_shard(&mut self, dealer: Dealer, hash: u64) -> usize {
        let hand = dealer.deal(hash);
        let cards = hand.cards();
        let offset = self.enqueues % cards.len().max(1);
        self.enqueues = self.enqueues.wrapping_add(1);
        let (later, first) = cards.split_at(offset);
        let work = |card: &&usize| {
            self.queues
                .get(**card)
                .map_or(SeatSeconds::MAX, |queue| queue.sum.total_work)
        };
        first
            .iter()
            .chain(later)
            .min_by_key(work)
            .map_or(0, |card| *card)
    }

    /// Reports whether so many seats are free.
    fn can_accommodate(&self, seats: u64) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // It runs alone.
            _ if seats > self.concurrency_limit => self.totals.executing == 0,
            _ => self.totals.seats_in_use + seats <= self.concurrency_limit,
        }
    }

    fn dispatch_all(&mut self, now: Instant) {
        while self.totals.waiting > 0
            && self.totals.seats_in_use < self.concurrency_limit
            && self.dispatch(now)
        {}
    }

    /// Lets the request run that ends first in the virtual world. Returns false where there are not
    /// enough seats for it: nothing overtakes it.
    fn dispatch(&mut self, now: Instant) -> bool {
        let Some(next) = self.find_next() else {
            return false;
        };
        let request = &self.requests[next.key];
        if !self.can_accommodate(request.max_seats()) {
            request.flow.not_accommodated();
            return false;
        }
        self.robin = next.at + 1;
        self.series.dispatched(&next.dispatch);
        self.leave_queue(now, next.key);
        let limit = self.concurrency_limit;
        let request = &mut self.requests[next.key];
        // The same work on fewer seats.
        let estimate = &mut request.work.estimate;
        if estimate.final_seats > limit {
            estimate.final_seats = limit;
            estimate.additional_latency = request.work.after_answer.per_seat(limit);
        }
        let (total, waker) = (request.work.total, request.waker.take());
        self.dispatched.extend(waker);
        self.set_executing(now, next.key);
        if let Some(queue) = self.queues.get_mut(next.at) {
            queue.next_dispatch_r = queue.next_dispatch_r.plus(total);
        }
        self.bound_next_dispatch(next.at);
        true
    }

    /// Takes a waiting request out of its queue.
    fn leave_queue(&mut self, now: Instant, key: Key) {
        let at = self.queue_of(key);
        let Some(request) = self.requests.get(key) else {
            return;
        };
        let seats = request.max_seats();
        request.flow.in_queue(-1, -(seats as i64));
        self.totals.waiting -= 1;
        self.totals.seats_waiting -= seats;
        self.series.waiting.add(now, -1.0);
        if let Some(queue) = at.and_then(|at| self.queues.get_mut(at)) {
            queue.remove(&mut self.requests, key);
            self.seats_of_queues -= seats;
            self.active_queues -= usize::from(!queue.is_active());
        }
    }

    /// Notes that a request that is in no queue runs from now on.
    fn set_executing(&mut self, now: Instant, key: Key) {
        let at = self.queue_of(key);
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        request.phase = Phase::Executing;
        request.started = Some(now);
        let seats = request.max_seats();
        request.flow.executing(1);
        request.flow.executing_seats(seats as i64);
        self.totals.executing += 1;
        self.totals.dispatched += 1;
        self.totals.seats_in_use += seats;
        self.series.executing.add(now, 1.0);
        self.series.seats.add(now, seats as f64);
        if let Some(queue) = at.and_then(|at| self.queues.get_mut(at)) {
            self.active_queues += usize::from(!queue.is_active());
            queue.executing += 1;
            queue.seats_in_use += seats;
            self.seats_of_queues += seats;
        }
        self.note_demand(now);
    }

    /// Looks for the oldest request of a queue that ends first in the virtual world; of equal ones,
    /// that of the queue that has not been served for longest.
    fn find_next(&self) -> Option<Next> {
        let mut found: Option<(SeatSeconds, usize, Key)> = None;
        let mut next = (SeatSeconds::MAX, SeatSeconds::MIN);
        let mut discounted = next;
        let begin = self.robin.min(self.queues.len());
        let round = (begin..self.queues.len()).chain(0..begin);
        for at in round {
            let queue = &self.queues[at];
            let Some(key) = queue.oldest() else { continue };
            let s = queue.next_dispatch_r;
            let in_progress = SeatSeconds::of(queue.seats_in_use, ESTIMATED_SERVICE);
            next = (next.0.min(s), next.1.max(s));
            let less = s.minus(in_progress);
            discounted = (discounted.0.min(less), discounted.1.max(less));
            let finish = s.plus(self.requests[key].work.total);
            if found.is_none_or(|(first, ..)| finish < first) {
                found = Some((finish, at, key));
            }
        }
        let (_, at, key) = found?;
        let floats = |(min, max): (SeatSeconds, SeatSeconds)| (min.to_f64(), max.to_f64());
        Some(Next {
            at,
            key,
            dispatch: Dispatch {
                r: self.current_r.to_f64(),
                s: self.queues[at].next_dispatch_r.to_f64(),
                next: floats(next),
                discounted: floats(discounted),
            },
        })
    }

    /// Sees to it that the next request of a queue does not begin before it has arrived: a queue
    /// that does not use what it is allotted would save it up.
    fn bound_next_dispatch(&mut self, at: usize) {
        let Some(queue) = self.queues.get_mut(at) else {
            return;
        };
        if let Some(oldest) = queue.oldest().and_then(|key| self.requests.get(key)) {
            queue.next_dispatch_r = queue.next_dispatch_r.max(oldest.arrival_r);
        }
    }
}

/// The request to be dispatched next.
struct Next {
    at: usize,
    key: Key,
    dispatch: Dispatch,
}

/// A picture of a set.
pub struct Dump {
    pub totals: Totals,
    pub queues: Vec<QueueDump>,
    /// The requests that run without having been in a queue.
    pub without_queue: Vec<RequestDump>,
}

/// A picture of a queue.
pub struct QueueDump {
    pub waiting: Vec<RequestDump>,
    pub running: Vec<RequestDump>,
    pub next_dispatch_r: SeatSeconds,
    pub seats_in_use: u64,
    pub sum: QueueSum,
}

/// A picture of a request.
#[derive(Clone)]
pub struct RequestDump {
    pub flow: Arc<FlowSeries>,
    pub distinguisher: Distinguisher,
    pub details: Arc<dyn RequestDetails>,
    pub arrived: Instant,
    pub started: Option<Instant>,
    pub work: WorkEstimate,
}

impl<W> QueueSet<W> {
    /// Returns a picture of what waits and runs.
    pub fn dump(&self) -> Dump {
        let picture = |request: &Queued<W>| RequestDump {
            flow: request.flow.clone(),
            distinguisher: request.distinguisher,
            details: request.details.clone(),
            arrived: request.arrived,
            started: request.started,
            work: request.work.estimate,
        };
        let running = |queue: Option<u64>| {
            let all = self.requests.iter().map(|(_, request)| request);
            all.filter(|request| request.phase == Phase::Executing && request.queue == queue)
                .map(picture)
                .collect()
        };
        let queues = self.queues.iter().map(|queue| QueueDump {
            waiting: queue
                .waiting(&self.requests)
                .filter_map(|key| self.requests.get(key).map(picture))
                .collect(),
            running: if queue.executing > 0 {
                running(Some(queue.id))
            } else {
                Vec::new()
            },
            next_dispatch_r: queue.next_dispatch_r,
            seats_in_use: queue.seats_in_use,
            sum: queue.sum,
        });
        Dump {
            totals: self.totals,
            queues: queues.collect(),
            without_queue: running(None),
        }
    }
}
