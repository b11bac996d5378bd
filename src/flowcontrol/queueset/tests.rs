//! A deterministic simulation of clients on a set of queues: the scenarios of upstream's
//! `queueset_test.go`, and random ones.

use std::collections::BTreeMap;

use super::*;
use crate::auth::User;
use crate::flowcontrol::digest::RequestDigest;

const SECOND: i64 = 1_000_000_000;

struct Anybody(User);

impl RequestDetails for Anybody {
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
            path: "/",
        }
    }
}

/// Threads that each call, think and call again. Times are nanoseconds; thinking may begin before
/// the call has ended.
#[derive(Clone, Copy)]
struct Client {
    hash: u64,
    threads: usize,
    calls: usize,
    execution: i64,
    thinking: i64,
    padding: i64,
    /// Half of the threads begin in the middle of the time.
    split: bool,
    initial_seats: u64,
    final_seats: u64,
}

fn client(hash: u64, threads: usize, calls: usize, execution: i64, thinking: i64) -> Client {
    Client {
        hash,
        threads,
        calls,
        execution,
        thinking,
        padding: 0,
        split: false,
        initial_seats: 1,
        final_seats: 1,
    }
}

impl Client {
    fn wide(self, initial_seats: u64) -> Self {
        Self {
            initial_seats,
            ..self
        }
    }

    fn padded(self, final_seats: u64, padding: i64) -> Self {
        Self {
            final_seats,
            padding,
            ..self
        }
    }

    fn split(self) -> Self {
        Self {
            split: true,
            ..self
        }
    }

    fn estimate(&self) -> WorkEstimate {
        WorkEstimate {
            initial_seats: self.initial_seats,
            final_seats: self.final_seats,
            additional_latency: Duration::from_nanos(self.padding as u64),
        }
    }

    /// The seats that so many threads would take if there were enough.
    fn demand(&self, threads: usize) -> f64 {
        let share = self.execution as f64 / (self.execution + self.thinking) as f64;
        threads as f64 * self.initial_seats as f64 * share
    }
}

/// A thread of a client, and how many calls it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    client: usize,
    thread: usize,
    number: usize,
}

enum Event {
    Begin(Call),
    End(Call, Key),
    /// The seats of a call are free.
    Returned(u64),
}

struct Simulation {
    set: QueueSet<(Call, Key)>,
    clients: Vec<Client>,
    series: Vec<Arc<FlowSeries>>,
    begin: Instant,
    now: i64,
    events: BTreeMap<(i64, u64), Event>,
    next_event: u64,
    executing: Vec<Integrator>,
    demand: (f64, Integrator),
    running: Vec<f64>,
    rejected: usize,
    executed: usize,
}

fn queuing(queues: usize, queue_length_limit: usize, hand: usize) -> Queuing {
    Queuing::Queue {
        queues,
        queue_length_limit,
        dealer: Dealer::new(queues, hand).expect("a dealer"),
    }
}

impl Simulation {
    fn new(queuing: Queuing, limit: u64, duration: i64, clients: &[Client]) -> Self {
        let begin = Instant::now();
        let mut set = QueueSet::new(begin, LevelSeries::unexposed("simulated"));
        set.configure(begin, queuing, limit, limit.max(1));
        let name = |at: usize| Arc::new(FlowSeries::new("simulated", &format!("client{at}")));
        let mut simulation = Self {
            set,
            clients: clients.to_vec(),
            series: (0..clients.len()).map(name).collect(),
            begin,
            now: 0,
            events: BTreeMap::new(),
            next_event: 0,
            executing: vec![Integrator::new(begin); clients.len()],
            demand: (0.0, Integrator::new(begin)),
            running: vec![0.0; clients.len()],
            rejected: 0,
            executed: 0,
        };
        for (client, one) in clients.iter().enumerate() {
            for thread in 0..one.threads {
                let mut at = 90 * thread as i64 + 20 * client as i64;
                if one.split && thread >= one.threads / 2 {
                    at += duration / 2;
                }
                let number = 0;
                simulation.at(
                    at,
                    Event::Begin(Call {
                        client,
                        thread,
                        number,
                    }),
                );
            }
        }
        simulation
    }

    fn at(&mut self, time: i64, event: Event) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
    }

    fn time(&self) -> Instant {
        self.begin + Duration::from_nanos(self.now as u64)
    }

    fn add_demand(&mut self, seats: f64) {
        let now = self.time();
        self.demand.0 += seats;
        self.demand.1.set(now, self.demand.0);
    }

    /// Lets time go on until then, or until nothing happens any more.
    fn run_until(&mut self, end: i64) {
        loop {
            let release = self.set.next_release().map(|at| {
                i64::try_from(at.duration_since(self.begin).as_nanos()).expect("not so long")
            });
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [release, event].into_iter().flatten().min() else {
                break;
            };
            if next > end {
                break;
            }
            self.now = next;
            let now = self.time();
            self.set.advance(now);
            self.run_dispatched();
            if event == Some(next)
                && let Some((_, event)) = self.events.pop_first()
            {
                self.happen(event);
            }
            self.check();
        }
        if end < i64::MAX {
            self.now = end;
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.time();
        match event {
            Event::Begin(call) => self.begin_call(call),
            Event::End(call, key) => {
                let client = self.clients[call.client];
                self.run(call.client, -(client.initial_seats as f64));
                let seats = client.estimate().max_seats();
                self.at(self.now + client.padding, Event::Returned(seats));
                self.set.finish(now, key);
                self.run_dispatched();
            }
            Event::Returned(seats) => self.add_demand(-(seats as f64)),
        }
    }

    fn begin_call(&mut self, call: Call) {
        let client = self.clients[call.client];
        let is_late = client.split && call.thread >= client.threads / 2;
        if call.number >= client.calls / (1 + usize::from(is_late)) {
            return;
        }
        let (now, estimate) = (self.time(), client.estimate());
        self.add_demand(estimate.max_seats() as f64);
        let arrival = Arrival {
            work: estimate,
            hash: client.hash,
            flow: self.series[call.client].clone(),
            distinguisher: Distinguisher::None,
            details: Arc::new(Anybody(User::default())),
        };
        match self.set.start(now, arrival) {
            Start::Rejected(_) => {
                self.rejected += 1;
                self.add_demand(-(estimate.max_seats() as f64));
            }
            Start::Waiting(key) => self.set.park(key, (call, key)),
            Start::Executing(key) => self.execute(call, key),
        }
        self.run_dispatched();
    }

    fn run_dispatched(&mut self) {
        for (call, key) in self.set.take_dispatched() {
            self.execute(call, key);
        }
    }

    fn execute(&mut self, call: Call, key: Key) {
        let client = self.clients[call.client];
        self.executed += 1;
        self.run(call.client, client.initial_seats as f64);
        let next = Call {
            number: call.number + 1,
            ..call
        };
        let end = self.now + client.execution;
        self.at(end + client.thinking, Event::Begin(next));
        self.at(end, Event::End(call, key));
    }

    fn run(&mut self, client: usize, seats: f64) {
        let now = self.time();
        self.running[client] += seats;
        self.executing[client].set(now, self.running[client]);
    }

    /// Checks what holds at any time.
    fn check(&self) {
        let set = &self.set;
        let (mut waiting, mut seats_waiting, mut active, mut of_queues) = (0, 0, 0, 0);
        for queue in &set.queues {
            let keys: Vec<Key> = queue.waiting(&set.requests).collect();
            assert_eq!(keys.len(), queue.len());
            let seats: u64 = keys.iter().map(|key| set.requests[*key].max_seats()).sum();
            assert_eq!(seats, queue.sum.max_seats);
            waiting += keys.len();
            seats_waiting += seats;
            active += usize::from(queue.is_active());
            of_queues += queue.seats_in_use + queue.sum.max_seats;
        }
        let totals = set.totals;
        assert_eq!(
            (waiting, seats_waiting),
            (totals.waiting, totals.seats_waiting)
        );
        assert_eq!(
            (active, of_queues),
            (set.active_queues, set.seats_of_queues)
        );
        let running = set
            .requests
            .iter()
            .filter(|(_, one)| one.phase == Phase::Executing);
        assert_eq!(running.count(), totals.executing);
        let held = set
            .requests
            .iter()
            .filter(|(_, one)| one.phase != Phase::Waiting);
        let held: u64 = held.map(|(_, one)| one.max_seats()).sum();
        assert_eq!(held, totals.seats_in_use);
    }

    /// The average seats of each client since the last call.
    fn averages(&mut self) -> Vec<f64> {
        let now = self.time();
        let all = self.executing.iter_mut();
        all.map(|seats| seats.reset(now).average).collect()
    }
}

/// The max-min fair allocation of a capacity.
fn fair(demands: &[f64], mut capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
    let mut shares = vec![0.0; demands.len()];
    for (at, client) in order.iter().enumerate() {
        shares[*client] = demands[*client].min(capacity / (demands.len() - at) as f64);
        capacity -= shares[*client];
    }
    shares
}

/// Clients for some seconds, in which each gets about its fair share.
struct Scenario<'a> {
    queuing: Queuing,
    limit: u64,
    duration: i64,
    clients: &'a [Client],
    /// The relative difference from the fair share, in each half if some clients are split.
    margins: &'a [f64],
    /// The expected averages, if they are not the fair shares.
    averages: Option<&'a [f64]>,
}

impl Scenario<'_> {
    /// Plays the scenario; all requests must be answered.
    fn play(&self) -> Simulation {
        let simulation = self.play_with(true);
        assert_eq!(simulation.rejected, 0);
        simulation
    }

    fn play_with(&self, is_fair: bool) -> Simulation {
        let mut simulation = Simulation::new(self.queuing, self.limit, self.duration, self.clients);
        let halves = self.margins.len();
        for (half, margin) in self.margins.iter().enumerate() {
            simulation.run_until(self.duration * (half as i64 + 1) / halves as i64);
            let is_last = half + 1 == halves;
            let threads = |one: &Client| {
                if one.split && !is_last {
                    one.threads / 2
                } else {
                    one.threads
                }
            };
            let demands: Vec<f64> = self
                .clients
                .iter()
                .map(|one| one.demand(threads(one)))
                .collect();
            let expected = self
                .averages
                .map_or_else(|| fair(&demands, self.limit as f64), <[f64]>::to_vec);
            let averages = simulation.averages();
            let off = |(got, want): (&f64, &f64)| (got - want).abs() / want;
            let worst = averages.iter().zip(&expected).map(off).fold(0.0, f64::max);
            assert_eq!(
                worst <= margin + 1e-7,
                is_fair || !is_last,
                "{half}: {averages:?}, not {expected:?}"
            );
            let now = simulation.time();
            if is_last {
                // The set knows of the same demand.
                let (known, real) = (
                    simulation.set.reset_demand(now),
                    simulation.demand.1.reset(now),
                );
                assert!(
                    (known.average - real.average).abs() < 1e-6,
                    "{known:?} {real:?}"
                );
                assert!(
                    (known.deviation - real.deviation).abs() < 1e-6,
                    "{known:?} {real:?}"
                );
            }
        }
        simulation.run_until(i64::MAX);
        assert!(simulation.set.is_idle() && simulation.set.requests.is_empty());
        simulation
    }
}

#[test]
fn one_client_gets_all() {
    let scenario = Scenario {
        queuing: queuing(9, 8, 3),
        limit: 1,
        duration: 20 * SECOND,
        clients: &[client(1_001_001_001, 1, 21, SECOND, 0)],
        margins: &[0.0],
        averages: None,
    };
    assert_eq!(scenario.play().executed, 21);
}

#[test]
fn exempt_requests_are_not_limited() {
    for limit in [0, 2] {
        Scenario {
            queuing: Queuing::Exempt,
            limit,
            duration: 40 * SECOND,
            clients: &[client(1, 5, 20, SECOND, SECOND).wide(3)],
            margins: &[1e-7],
            averages: Some(&[7.5]),
        }
        .play();
    }
}

#[test]
fn seats_are_kept_for_as_long_as_a_request_pads() {
    const HALF: i64 = SECOND / 2;
    let third = 1.0 / 3.0;
    for (thinking, padding, final_seats, limit, clients, averages) in [
        (SECOND, 0, 1, 1, 1, None),
        (SECOND, 0, 1, 2, 1, None),
        (SECOND, 0, 2, 2, 1, None),
        (SECOND, 0, 1, 1, 2, None),
        (SECOND, 0, 1, 2, 2, None),
        (SECOND, 0, 2, 2, 2, None),
        (0, SECOND, 1, 1, 1, Some(0.5)),
        (0, SECOND, 1, 2, 1, None),
        (0, SECOND, 2, 2, 1, Some(0.5)),
        (0, SECOND, 1, 1, 2, Some(0.25)),
        (0, SECOND, 1, 2, 2, Some(0.5)),
        (0, SECOND, 2, 2, 2, Some(0.25)),
        (SECOND, HALF, 1, 1, 1, None),
        (SECOND, HALF, 1, 2, 1, None),
        (SECOND, HALF, 2, 2, 1, None),
        (SECOND, HALF, 1, 1, 2, Some(third)),
        (SECOND, HALF, 1, 2, 2, None),
        (SECOND, HALF, 2, 2, 2, Some(third)),
        (HALF, SECOND, 1, 1, 1, Some(0.5)),
        (HALF, SECOND, 1, 2, 1, None),
        (HALF, SECOND, 2, 2, 1, Some(0.5)),
        (HALF, SECOND, 1, 1, 2, Some(0.25)),
        (HALF, SECOND, 1, 2, 2, Some(0.5)),
        (HALF, SECOND, 2, 2, 2, Some(0.25)),
    ] {
        let one = |hash| client(hash, 1, 25, SECOND, thinking).padded(final_seats, padding);
        Scenario {
            queuing: queuing(9, 8, 3),
            limit,
            // A multiple of every period.
            duration: 24 * SECOND,
            clients: &[one(1_001_001_001), one(2_002_002_002)][..clients],
            margins: &[0.0],
            averages: averages
                .map(|average| [average; 2])
                .as_ref()
                .map(|all| &all[..clients]),
        }
        .play();
    }
}

#[test]
fn flows_share_the_seats() {
    let think = SECOND - 1;
    Scenario {
        queuing: queuing(9, 8, 1),
        limit: 4,
        duration: 50 * SECOND,
        clients: &[
            client(1_001_001_001, 8, 20, SECOND, think),
            client(2_002_002_002, 8, 20, SECOND, think),
        ],
        margins: &[0.01],
        averages: None,
    }
    .play();
    Scenario {
        queuing: queuing(8, 16, 3),
        limit: 4,
        duration: 60 * SECOND,
        clients: &[
            client(400_900_100_100, 8, 30, SECOND, think),
            client(300_900_200_200, 8, 30, SECOND, think),
        ],
        margins: &[0.03],
        averages: None,
    }
    .play();
    Scenario {
        queuing: queuing(9, 8, 1),
        limit: 4,
        duration: 40 * SECOND,
        clients: &[
            client(1_001_001_001, 8, 20, SECOND, SECOND),
            client(2_002_002_002, 7, 30, SECOND, SECOND / 2),
        ],
        margins: &[0.01],
        averages: None,
    }
    .play();
}

#[test]
fn a_flow_that_wants_less_gets_what_it_wants() {
    Scenario {
        queuing: queuing(9, 6, 1),
        limit: 3,
        duration: 20 * SECOND,
        clients: &[
            client(1_001_001_001, 4, 20, SECOND, SECOND - 1),
            client(2_002_002_002, 2, 20, SECOND, SECOND - 1),
        ],
        margins: &[0.01],
        averages: None,
    }
    .play();
}

#[test]
fn the_progress_meter_may_roll_over() {
    const QUARTER: i64 = 91 * 24 * 3600 * SECOND;
    Scenario {
        queuing: queuing(9, 8, 1),
        limit: 2000,
        duration: 40 * QUARTER,
        clients: &[
            client(1_001_001_001, 8, 20, QUARTER, QUARTER).wide(500),
            client(2_002_002_002, 7, 30, QUARTER, QUARTER / 2).wide(500),
        ],
        margins: &[0.01],
        averages: None,
    }
    .play();
}

#[test]
fn wide_requests_get_their_share() {
    let think = SECOND - 1;
    Scenario {
        queuing: queuing(64, 13, 7),
        limit: 6,
        duration: 20 * SECOND,
        clients: &[
            client(10_010_010_010_010, 13, 10, SECOND, think),
            client(20_020_020_020_020, 7, 10, SECOND, think).wide(2),
        ],
        margins: &[0.155],
        averages: None,
    }
    .play();
    // The last want more than there is, and run alone.
    let two = |hash| client(hash, 15, 21, SECOND, think).wide(2);
    Scenario {
        queuing: queuing(64, 35, 7),
        limit: 6,
        duration: 225 * SECOND,
        clients: &[
            two(40_040_040_040_040),
            two(50_050_050_050_050),
            two(60_060_060_060_060),
            two(70_070_070_070_070),
            client(90_090_090_090_090, 15, 21, SECOND, think).wide(7),
        ],
        margins: &[0.33],
        averages: None,
    }
    .play();
}

/// A flow that cannot use what it is allotted saves some of it up, but not much.
#[test]
fn windup_is_bounded() {
    for (margin, is_fair) in [(0.26, true), (0.1, false)] {
        Scenario {
            queuing: queuing(9, 6, 1),
            limit: 3,
            duration: 40 * SECOND,
            clients: &[
                client(1_001_001_001, 2, 40, SECOND, -1),
                client(2_002_002_002, 2, 40, SECOND, -1).split(),
            ],
            margins: &[0.01, margin],
            averages: None,
        }
        .play_with(is_fair);
    }
}

#[test]
fn without_queues_nothing_waits_and_nothing_is_fair() {
    let simulation = Scenario {
        queuing: Queuing::Reject,
        limit: 4,
        duration: 13 * SECOND,
        clients: &[
            client(1_001_001_001, 6, 10, SECOND, SECOND * 57 / 1000),
            client(2_002_002_002, 4, 15, SECOND, SECOND * 3 / 4),
        ],
        margins: &[0.2],
        averages: None,
    }
    .play_with(false);
    assert!(simulation.rejected > 0 && simulation.executed > 0);
}

fn arrival(hash: u64, work: WorkEstimate) -> Arrival {
    Arrival {
        work,
        hash,
        flow: Arc::new(FlowSeries::new("simulated", "one")),
        distinguisher: Distinguisher::None,
        details: Arc::new(Anybody(User::default())),
    }
}

fn set(queuing: Queuing, limit: u64) -> (QueueSet<&'static str>, Instant) {
    let now = Instant::now();
    let mut set = QueueSet::new(now, LevelSeries::unexposed("simulated"));
    set.configure(now, queuing, limit, limit);
    (set, now)
}

#[test]
fn a_cancelled_request_leaves_nothing_behind() {
    let (mut set, now) = set(queuing(11, 11, 1), 1);
    let one = || arrival(1, WorkEstimate::seats(1));
    let Start::Executing(first) = set.start(now, one()) else {
        panic!("there is a seat");
    };
    let mut waiting = Vec::new();
    for name in ["second", "third", "fourth"] {
        let Start::Waiting(key) = set.start(now, one()) else {
            panic!("there is none");
        };
        set.park(key, name);
        waiting.push(key);
    }
    let later = now + Duration::from_secs(1);
    assert!(set.cancel(later, waiting[1]));
    assert!(!set.cancel(later, waiting[1]) && !set.cancel(later, first));
    assert_eq!((set.totals.waiting, set.totals.seats_waiting), (2, 2));
    set.finish(later, first);
    assert_eq!(set.take_dispatched(), ["second"]);
    set.finish(later, waiting[0]);
    assert_eq!(set.take_dispatched(), ["fourth"]);
    set.finish(later, waiting[2]);
    assert!(set.is_idle() && set.requests.is_empty());
    let totals = set.totals;
    assert_eq!(
        (totals.dispatched, totals.rejected, totals.cancelled),
        (3, 1, 1)
    );
    assert_eq!(
        (totals.seats_in_use, set.active_queues, set.seats_of_queues),
        (0, 0, 0)
    );
}

#[test]
fn a_full_queue_rejects() {
    let (mut set, now) = set(queuing(1, 2, 1), 1);
    let started: Vec<Start> = (0..4)
        .map(|_| set.start(now, arrival(7, WorkEstimate::seats(1))))
        .collect();
    assert!(matches!(started[0], Start::Executing(_)));
    assert!(matches!(
        started[1..3],
        [Start::Waiting(_), Start::Waiting(_)]
    ));
    assert_eq!(started[3], Start::Rejected(Rejection::QueueFull));
    let (mut set, now) = self::set(Queuing::Reject, 1);
    assert!(matches!(
        set.start(now, arrival(7, WorkEstimate::seats(1))),
        Start::Executing(_)
    ));
    assert_eq!(
        set.start(now, arrival(7, WorkEstimate::seats(1))),
        Start::Rejected(Rejection::ConcurrencyLimit)
    );
}

#[test]
fn final_seats_beyond_the_limit_become_time() {
    let (mut set, now) = set(queuing(1, 9, 1), 4);
    let work = WorkEstimate {
        initial_seats: 1,
        final_seats: 8,
        additional_latency: Duration::from_secs(3),
    };
    let Start::Executing(key) = set.start(now, arrival(7, work)) else {
        panic!("it runs alone");
    };
    assert_eq!((set.totals.seats_in_use, set.totals.seats_waiting), (4, 0));
    set.finish(now, key);
    assert_eq!(set.next_release(), Some(now + Duration::from_secs(6)));
    set.advance(now + Duration::from_secs(6));
    assert_eq!(set.totals.seats_in_use, 0);
}

#[test]
fn surplus_queues_go_when_they_are_empty() {
    let (mut set, now) = set(queuing(8, 9, 1), 2);
    let work = WorkEstimate {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: Duration::from_secs(1),
    };
    let mut keys = Vec::new();
    for hash in 0..8 {
        match set.start(now, arrival(hash, work)) {
            Start::Executing(key) | Start::Waiting(key) => keys.push(key),
            Start::Rejected(why) => panic!("{why:?}"),
        }
    }
    assert_eq!((set.queues.len(), set.active_queues), (8, 8));
    set.configure(now, queuing(3, 9, 1), 2, 2);
    assert_eq!(set.queues.len(), 8, "they are drained first");
    let mut at = now;
    while !set.requests.is_empty() {
        at += Duration::from_secs(1);
        set.advance(at);
        for key in &keys {
            if set
                .requests
                .get(*key)
                .is_some_and(|one| one.phase == Phase::Executing)
            {
                set.finish(at, *key);
            }
        }
    }
    assert_eq!(
        (set.queues.len(), set.active_queues, set.seats_of_queues),
        (3, 0, 0)
    );
    set.configure(at, queuing(5, 9, 1), 2, 2);
    let ids: Vec<u64> = set.queues.iter().map(|queue| queue.id).collect();
    assert!(ids.is_sorted() && ids.len() == 5, "{ids:?}");
}

/// The next request is that of the queue that ends first in the virtual world; of equal ones, that
/// of the queue that has waited for longest.
#[test]
fn queues_are_served_in_the_order_of_virtual_finish() {
    let (mut set, now) = set(queuing(3, 9, 1), 1);
    let wide = |seats| WorkEstimate::seats(seats);
    let Start::Executing(first) = set.start(now, arrival(0, wide(1))) else {
        panic!("there is a seat");
    };
    let mut keys = BTreeMap::new();
    for (name, hash, seats) in [
        ("wide", 0, 1),
        ("b1", 1, 1),
        ("c1", 2, 1),
        ("b2", 1, 1),
        ("c2", 2, 1),
    ] {
        let Start::Waiting(key) = set.start(now, arrival(hash, wide(seats))) else {
            panic!("there is none");
        };
        set.park(key, name);
        keys.insert(name, key);
    }
    let (mut order, mut running) = (Vec::new(), first);
    for step in 1..=5 {
        set.finish(now + Duration::from_millis(3 * step), running);
        let next = set.take_dispatched();
        running = keys[next[0]];
        order.extend(next);
    }
    assert_eq!(order, ["b1", "c1", "wide", "b2", "c2"]);
}

#[test]
fn random_clients_are_answered_in_any_case() {
    let mut seed = 0x5eed_u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..30 {
        let clients: Vec<Client> = (0..1 + random(6))
            .map(|_| {
                let execution = 1 + random(1_000_000_000) as i64;
                client(
                    random(u64::MAX >> 1),
                    1 + random(9) as usize,
                    20,
                    execution,
                    random(1_000_000_000) as i64,
                )
                .wide(1 + random(4))
                .padded(random(9), random(100_000_000) as i64)
            })
            .collect();
        let limit = 1 + random(6);
        let mut simulation = Simulation::new(queuing(8, 100, 3), limit, SECOND, &clients);
        for _ in 0..20 {
            simulation.run_until(simulation.now + SECOND);
            let queues = 1 + random(12) as usize;
            let now = simulation.time();
            let changed = if round % 5 == 0 {
                Queuing::Reject
            } else {
                queuing(queues, 100, 1)
            };
            simulation.set.configure(now, changed, 1 + random(6), 1);
            simulation.run_dispatched();
        }
        simulation
            .set
            .configure(simulation.time(), queuing(4, 100, 1), limit, 1);
        simulation.run_dispatched();
        simulation.run_until(i64::MAX);
        assert!(
            simulation.set.is_idle() && simulation.set.requests.is_empty(),
            "{round}"
        );
        if round % 5 != 0 {
            let calls: usize = clients.iter().map(|one| one.threads * one.calls).sum();
            assert_eq!((simulation.executed, simulation.rejected), (calls, 0));
        }
    }
}
