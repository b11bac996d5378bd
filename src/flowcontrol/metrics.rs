//! The metrics of priority and fairness, under upstream's names (apiserver
//! `util/flowcontrol/metrics`).

use std::time::{Duration, Instant};

use crate::telemetry::metrics::{
    Counter, CounterSeries, Declared, FloatGauge, FloatGaugeSeries, Gauge, GaugeSeries, Histogram,
    HistogramSeries,
};
use crate::telemetry::timing_histogram::{Ratio, TimingHistogram};

const FLOW: &[&str] = &["priority_level", "flow_schema"];
const LEVEL: &[&str] = &["priority_level"];
const BOUND: &[&str] = &["priority_level", "bound"];
/// The buckets of times, in seconds.
#[rustfmt::skip]
const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

static REJECTED: Counter = Counter::new(
    "apiserver_flowcontrol_rejected_requests_total",
    "[BETA] Number of requests rejected by API Priority and Fairness subsystem",
    &["priority_level", "flow_schema", "reason"],
);
static DISPATCHED: Counter = Counter::new(
    "apiserver_flowcontrol_dispatched_requests_total",
    "[BETA] Number of requests executed by API Priority and Fairness subsystem",
    FLOW,
);
static SEAT_UTILIZATION: TimingHistogram = TimingHistogram::new(
    "apiserver_flowcontrol_priority_level_seat_utilization",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)",
    &["phase", "priority_level"],
    &[
        0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
    ],
);
static REQUEST_UTILIZATION: TimingHistogram = TimingHistogram::new(
    "apiserver_flowcontrol_priority_level_request_utilization",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)",
    &["phase", "priority_level"],
    &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0],
);
static READ_VS_WRITE: TimingHistogram = TimingHistogram::new(
    "apiserver_flowcontrol_read_vs_write_current_requests",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of the number of requests (as a fraction of the relevant limit) waiting or in regular stage of execution",
    &["phase", "request_kind"],
    &[
        0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
    ],
);
static CURRENT_R: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_current_r",
    "[ALPHA] R(time of last change)",
    LEVEL,
);
static DISPATCH_R: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_dispatch_r",
    "[ALPHA] R(time of last dispatch)",
    LEVEL,
);
static LATEST_S: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_latest_s",
    "[ALPHA] S(most recently dispatched request)",
    LEVEL,
);
static NEXT_S: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_next_s_bounds",
    "[ALPHA] min and max, over queues, of S(oldest waiting request in queue)",
    BOUND,
);
static NEXT_DISCOUNTED_S: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_next_discounted_s_bounds",
    "[ALPHA] min and max, over queues, of S(oldest waiting request in queue) - estimated work in progress",
    BOUND,
);
static INQUEUE_REQUESTS: Gauge = Gauge::new(
    "apiserver_flowcontrol_current_inqueue_requests",
    "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem",
    FLOW,
);
static INQUEUE_SEATS: Gauge = Gauge::new(
    "apiserver_flowcontrol_current_inqueue_seats",
    "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem",
    FLOW,
);
static QUEUE_LENGTH: Histogram = Histogram::new(
    "apiserver_flowcontrol_request_queue_length_after_enqueue",
    "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
    FLOW,
    &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0],
);
static EXECUTING_REQUESTS: Gauge = Gauge::new(
    "apiserver_flowcontrol_current_executing_requests",
    "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
    FLOW,
);
static EXECUTING_SEATS: Gauge = Gauge::new(
    "apiserver_flowcontrol_current_executing_seats",
    "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
    FLOW,
);
static WAIT_SECONDS: Histogram = Histogram::new(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "[BETA] Length of time a request spent waiting in its queue",
    &["priority_level", "flow_schema", "execute"],
    SECONDS,
);
static EXECUTION_SECONDS: Histogram = Histogram::new(
    "apiserver_flowcontrol_request_execution_seconds",
    "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
    &["priority_level", "flow_schema", "type"],
    SECONDS,
);
static WATCH_COUNT: Histogram = Histogram::new(
    "apiserver_flowcontrol_watch_count_samples",
    "[ALPHA] count of watchers for mutating requests in API Priority and Fairness",
    FLOW,
    &[0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0],
);
static EPOCH_ADVANCES: Counter = Counter::new(
    "apiserver_flowcontrol_epoch_advance_total",
    "[ALPHA] Number of times the queueset's progress meter jumped backward",
    &["priority_level", "success"],
);
static ESTIMATED_SEATS: Histogram = Histogram::new(
    "apiserver_flowcontrol_work_estimated_seats",
    "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
    FLOW,
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0],
);
static NO_ACCOMMODATION: Counter = Counter::new(
    "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
    "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
    FLOW,
);
static CONCURRENCY_LIMIT: Gauge = Gauge::deprecated(
    "apiserver_flowcontrol_request_concurrency_limit",
    "1.30.0",
    "[ALPHA] Nominal number of execution seats configured for each priority level",
    &["priority_level"],
);
static CONCURRENCY_IN_USE: Gauge = Gauge::deprecated(
    "apiserver_flowcontrol_request_concurrency_in_use",
    "1.31.0",
    "[ALPHA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
    &["flow_schema", "priority_level"],
);
static NOMINAL: Gauge = Gauge::new(
    "apiserver_flowcontrol_nominal_limit_seats",
    "[BETA] Nominal number of execution seats configured for each priority level",
    LEVEL,
);
static LOWER: Gauge = Gauge::new(
    "apiserver_flowcontrol_lower_limit_seats",
    "[ALPHA] Configured lower bound on number of execution seats available to each priority level",
    LEVEL,
);
static UPPER: Gauge = Gauge::new(
    "apiserver_flowcontrol_upper_limit_seats",
    "[ALPHA] Configured upper bound on number of execution seats available to each priority level",
    LEVEL,
);
static DEMAND: TimingHistogram = TimingHistogram::new(
    "apiserver_flowcontrol_demand_seats",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)",
    LEVEL,
    &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0],
);
static DEMAND_HIGH_WATERMARK: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_demand_seats_high_watermark",
    "[ALPHA] High watermark, over last adjustment period, of demand_seats",
    LEVEL,
);
static DEMAND_AVERAGE: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_demand_seats_average",
    "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats",
    LEVEL,
);
static DEMAND_DEVIATION: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_demand_seats_stdev",
    "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats",
    LEVEL,
);
static DEMAND_SMOOTHED: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_demand_seats_smoothed",
    "[ALPHA] Smoothed seat demands",
    LEVEL,
);
static TARGET: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_target_seats",
    "[ALPHA] Seat allocation targets",
    LEVEL,
);
static FAIR_FRAC: FloatGauge = FloatGauge::new(
    "apiserver_flowcontrol_seat_fair_frac",
    "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it",
    &[],
);
static CURRENT_LIMIT: Gauge = Gauge::new(
    "apiserver_flowcontrol_current_limit_seats",
    "[ALPHA] current derived number of execution seats available to each priority level",
    LEVEL,
);

pub static METRICS: &[&dyn Declared] = &[
    &REJECTED,
    &DISPATCHED,
    &SEAT_UTILIZATION,
    &REQUEST_UTILIZATION,
    &READ_VS_WRITE,
    &CURRENT_R,
    &DISPATCH_R,
    &LATEST_S,
    &NEXT_S,
    &NEXT_DISCOUNTED_S,
    &INQUEUE_REQUESTS,
    &INQUEUE_SEATS,
    &QUEUE_LENGTH,
    &EXECUTING_REQUESTS,
    &EXECUTING_SEATS,
    &WAIT_SECONDS,
    &EXECUTION_SECONDS,
    &WATCH_COUNT,
    &EPOCH_ADVANCES,
    &ESTIMATED_SEATS,
    &NO_ACCOMMODATION,
    &NOMINAL,
    &CONCURRENCY_LIMIT,
    &CONCURRENCY_IN_USE,
    &LOWER,
    &UPPER,
    &DEMAND,
    &DEMAND_HIGH_WATERMARK,
    &DEMAND_AVERAGE,
    &DEMAND_DEVIATION,
    &DEMAND_SMOOTHED,
    &TARGET,
    &FAIR_FRAC,
    &CURRENT_LIMIT,
];

/// The reason of a rejection, as the metric has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The level has no queues, and all seats are taken.
    ConcurrencyLimit,
    /// The queue is full.
    QueueFull,
    /// The request has waited in its queue for as long as it may, or its client has gone.
    TimeOut,
}

/// The gauges of the S of the queues at a dispatch.
struct Bounds {
    min: FloatGaugeSeries,
    max: FloatGaugeSeries,
}

impl Bounds {
    fn of(gauge: &'static FloatGauge, level: &str) -> Self {
        Self {
            min: gauge.series(&[level, "min"]),
            max: gauge.series(&[level, "max"]),
        }
    }

    fn set(&self, (min, max): (f64, f64)) {
        self.min.set(min);
        self.max.set(max);
    }
}

/// The series of a priority level.
pub struct LevelSeries {
    level: String,
    pub waiting: Ratio,
    pub executing: Ratio,
    pub seats: Ratio,
    pub demand: Ratio,
    current_r: FloatGaugeSeries,
    dispatch_r: FloatGaugeSeries,
    latest_s: FloatGaugeSeries,
    next_s: Bounds,
    next_discounted_s: Bounds,
}

/// The progress of a set of queues at a dispatch: R, the S of the queue, and the bounds of S over
/// queues, also less the work in progress.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    pub r: f64,
    pub s: f64,
    pub next: (f64, f64),
    pub discounted: (f64, f64),
}

impl LevelSeries {
    pub fn new(level: &str) -> Self {
        let mut series = Self::unexposed(level);
        series.waiting = REQUEST_UTILIZATION.ratio(&["waiting", level]);
        series.executing = REQUEST_UTILIZATION.ratio(&["executing", level]);
        series.seats = SEAT_UTILIZATION.ratio(&["executing", level]);
        series.demand = DEMAND.ratio(&[level]);
        series
    }

    /// Returns series without those of ratios, which follow the time of the system.
    pub fn unexposed(level: &str) -> Self {
        Self {
            level: level.to_owned(),
            waiting: Ratio::unexposed(),
            executing: Ratio::unexposed(),
            seats: Ratio::unexposed(),
            demand: Ratio::unexposed(),
            current_r: CURRENT_R.series(&[level]),
            dispatch_r: DISPATCH_R.series(&[level]),
            latest_s: LATEST_S.series(&[level]),
            next_s: Bounds::of(&NEXT_S, level),
            next_discounted_s: Bounds::of(&NEXT_DISCOUNTED_S, level),
        }
    }

    pub fn set_current_r(&self, r: f64) {
        self.current_r.set(r);
    }

    pub fn dispatched(&self, dispatch: &Dispatch) {
        self.dispatch_r.set(dispatch.r);
        self.latest_s.set(dispatch.s);
        self.next_s.set(dispatch.next);
        self.next_discounted_s.set(dispatch.discounted);
    }

    pub fn epoch_advanced(&self) {
        EPOCH_ADVANCES.inc(&[&self.level, "true"]);
    }
}

/// The series of a flow schema in its priority level.
pub struct FlowSeries {
    pub schema: String,
    queue_full: CounterSeries,
    concurrency_limit: CounterSeries,
    time_out: CounterSeries,
    dispatched: CounterSeries,
    inqueue_requests: GaugeSeries,
    inqueue_seats: GaugeSeries,
    queue_length: HistogramSeries,
    executing_requests: GaugeSeries,
    executing_seats: GaugeSeries,
    /// The same under the name of v1.30.
    concurrency_in_use: GaugeSeries,
    executed_wait: HistogramSeries,
    rejected_wait: HistogramSeries,
    execution: HistogramSeries,
    watch_execution: HistogramSeries,
    watch_count: HistogramSeries,
    estimated_seats: HistogramSeries,
    no_accommodation: CounterSeries,
}

impl FlowSeries {
    pub fn new(level: &str, schema: &str) -> Self {
        let flow: &[&str] = &[level, schema];
        Self {
            schema: schema.to_owned(),
            queue_full: REJECTED.series(&[level, schema, "queue-full"]),
            concurrency_limit: REJECTED.series(&[level, schema, "concurrency-limit"]),
            time_out: REJECTED.series(&[level, schema, "time-out"]),
            dispatched: DISPATCHED.series(flow),
            inqueue_requests: INQUEUE_REQUESTS.series(flow),
            inqueue_seats: INQUEUE_SEATS.series(flow),
            queue_length: QUEUE_LENGTH.series(flow),
            executing_requests: EXECUTING_REQUESTS.series(flow),
            executing_seats: EXECUTING_SEATS.series(flow),
            concurrency_in_use: CONCURRENCY_IN_USE.series(flow),
            executed_wait: WAIT_SECONDS.series(&[level, schema, "true"]),
            rejected_wait: WAIT_SECONDS.series(&[level, schema, "false"]),
            execution: EXECUTION_SECONDS.series(&[level, schema, "regular"]),
            watch_execution: EXECUTION_SECONDS.series(&[level, schema, "watch"]),
            watch_count: WATCH_COUNT.series(flow),
            estimated_seats: ESTIMATED_SEATS.series(flow),
            no_accommodation: NO_ACCOMMODATION.series(flow),
        }
    }

    pub fn rejected(&self, why: Rejection) {
        match why {
            Rejection::QueueFull => self.queue_full.inc(),
            Rejection::ConcurrencyLimit => self.concurrency_limit.inc(),
            Rejection::TimeOut => self.time_out.inc(),
        }
    }

    pub fn dispatched(&self) {
        self.dispatched.inc();
    }

    /// Counts a request with its seats in (or, with negative numbers, out of) a queue.
    pub fn in_queue(&self, requests: i64, seats: i64) {
        self.inqueue_requests.add(requests);
        self.inqueue_seats.add(seats);
    }

    pub fn enqueued(&self, length: usize) {
        self.queue_length.observe(length as f64);
    }

    pub fn executing(&self, requests: i64) {
        self.executing_requests.add(requests);
    }

    pub fn executing_seats(&self, seats: i64) {
        self.executing_seats.add(seats);
        self.concurrency_in_use.add(seats);
    }

    /// Notes how long a request has waited. As upstream, one that was taken into a queue counts as
    /// executed even where it has waited for too long.
    pub fn waited(&self, enqueued: bool, time: Duration) {
        if enqueued {
            self.executed_wait.observe(time.as_secs_f64());
        } else {
            self.rejected_wait.observe(time.as_secs_f64());
        }
    }

    pub fn executed(&self, is_watch: bool, time: Duration) {
        if is_watch {
            self.watch_execution.observe(time.as_secs_f64());
        } else {
            self.execution.observe(time.as_secs_f64());
        }
    }

    pub fn watchers(&self, count: usize) {
        self.watch_count.observe(count as f64);
    }

    pub fn estimated(&self, seats: u64) {
        self.estimated_seats.observe(seats as f64);
    }

    pub fn not_accommodated(&self) {
        self.no_accommodation.inc();
    }
}

/// The limits of a priority level by its configuration.
pub fn set_limits(level: &str, [nominal, lower, upper]: [usize; 3]) {
    let whole = |seats: usize| i64::try_from(seats).unwrap_or(i64::MAX);
    NOMINAL.set(&[level], whole(nominal));
    CONCURRENCY_LIMIT.set(&[level], whole(nominal));
    LOWER.set(&[level], whole(lower));
    UPPER.set(&[level], whole(upper));
}

/// The seats that a level has asked for lately, and those that it gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adjustment {
    pub high_watermark: f64,
    pub average: f64,
    pub deviation: f64,
    pub smoothed: f64,
    pub target: f64,
    pub current: usize,
}

/// Notes an adjustment of the limit of a level.
pub fn adjusted(level: &str, adjustment: &Adjustment) {
    let values = &[level];
    DEMAND_HIGH_WATERMARK.set(values, adjustment.high_watermark);
    DEMAND_AVERAGE.set(values, adjustment.average);
    DEMAND_DEVIATION.set(values, adjustment.deviation);
    DEMAND_SMOOTHED.set(values, adjustment.smoothed);
    TARGET.set(values, adjustment.target);
    CURRENT_LIMIT.set(
        values,
        i64::try_from(adjustment.current).unwrap_or(i64::MAX),
    );
}

/// Notes the share of its demand that each level gets.
pub fn set_fair_frac(share: f64) {
    FAIR_FRAC.set(&[], share);
}

/// The requests of one kind, reads or writes, that wait and that are answered.
pub struct KindSeries {
    waiting: Ratio,
    executing: Ratio,
}

impl KindSeries {
    /// Returns the series of a kind, `readOnly` or `mutating`.
    pub fn new(kind: &str) -> Self {
        Self {
            waiting: READ_VS_WRITE.ratio(&["waiting", kind]),
            executing: READ_VS_WRITE.ratio(&["executing", kind]),
        }
    }

    pub fn waiting(&self, now: Instant, by: f64) {
        self.waiting.add(now, by);
    }

    pub fn executing(&self, now: Instant, by: f64) {
        self.executing.add(now, by);
    }

    pub fn set_limits(&self, now: Instant, waiting: usize, executing: usize) {
        self.waiting.set_denominator(now, waiting.max(1) as f64);
        self.executing.set_denominator(now, executing.max(1) as f64);
    }
}
