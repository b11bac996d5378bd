//! The configuration by FlowSchemas and PriorityLevelConfigurations, and the limits that follow
//! from it (apiserver `util/flowcontrol/apf_controller.go`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest as hash};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::allocation::{Claim, allocate};
use super::configuration::{CATCH_ALL, EXEMPT, FlowSchema, PriorityLevelConfiguration};
use super::digest::{Distinguisher, RequestDetails, RequestDigest};
use super::dropped_requests::DroppedRequests;
use super::estimator::Estimator;
use super::integrator::Moments;
use super::level::{Admission, Kind, PriorityLevel, Seat, now};
use super::metrics::{self, Adjustment, FlowSeries, KindSeries, Rejection};
use super::object_counts::ObjectCounts;
use super::queueset::{Arrival, Queuing};
use super::watch_tracker::WatchTracker;
use crate::meta::options::Query;

/// The time between two adjustments of the limits to the demand.
pub const ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);
/// The part of the last demand in the smoothed one: it halves in five minutes.
const SMOOTHING: f64 = 0.977;
/// The share of a level's seats that one request may take.
const MAX_SEATS_SHARE: f64 = 0.15;
/// The verbs that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

/// Classifies requests, and shares out the concurrency of the server.
pub struct Controller {
    /// Replaced as a whole: requests take no lock to read it.
    configuration: ArcSwap<Configuration>,
    levels: Mutex<BTreeMap<String, LevelState>>,
    server_limit: usize,
    drained: Arc<Notify>,
    pub estimator: Estimator,
    dropped: DroppedRequests,
    reads: Arc<Kind>,
    writes: Arc<Kind>,
}

/// The flow schemas in the order in which they are tried.
struct Configuration {
    flows: Vec<Arc<Flow>>,
}

/// A flow schema in effect, with its priority level.
pub struct Flow {
    schema: FlowSchema,
    config: Arc<PriorityLevelConfiguration>,
    level: Arc<PriorityLevel>,
    /// The most seats that a request of the level may take.
    max_seats: Option<u64>,
    series: Arc<FlowSeries>,
    /// The UIDs, which answers show: the names would tell clients how they are judged.
    pub schema_uid: HeaderValue,
    pub level_uid: HeaderValue,
}

/// A priority level with its limits.
pub(super) struct LevelState {
    pub config: Arc<PriorityLevelConfiguration>,
    pub level: Arc<PriorityLevel>,
    demand: Demand,
    nominal: usize,
    /// Less what it lends.
    min: usize,
    /// With what it may borrow.
    max: usize,
    /// The limit for now; `None` until it is first set.
    current: Option<usize>,
}

/// The demand for seats in the last period, and smoothed over many.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    average: f64,
    deviation: f64,
    high_watermark: usize,
    smoothed: f64,
}

impl Demand {
    fn update(&mut self, observed: Moments) {
        self.high_watermark = observed.max.round() as usize;
        if observed.seconds <= 0.0 {
            return;
        }
        self.average = observed.average;
        self.deviation = if observed.deviation.is_nan() {
            0.0
        } else {
            observed.deviation
        };
        let envelope = self.average + self.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

impl LevelState {
    fn new(config: PriorityLevelConfiguration, drained: &Arc<Notify>) -> Self {
        Self {
            level: PriorityLevel::new(&config.name, drained.clone()),
            config: Arc::new(config),
            demand: Demand::default(),
            nominal: 0,
            min: 0,
            max: 0,
            current: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.level.with(|queues, _| queues.is_idle())
    }

    /// The seats that it has in any case until the next adjustment.
    fn min_current(&self) -> usize {
        if self.config.is_exempt() {
            return self.min.max(self.demand.high_watermark);
        }
        self.min.max(self.nominal.min(self.demand.high_watermark))
    }

    /// The most seats that one request may take, where there are queues.
    fn max_seats(&self) -> Option<u64> {
        let hand = self.config.hand_size?;
        let share = (self.nominal as f64 * MAX_SEATS_SHARE).ceil();
        let by_hand = (self.nominal / hand.max(1)) as f64;
        Some(share.min(by_hand).max(1.0) as u64)
    }
}

impl Controller {
    /// Returns a controller of a server that answers so many requests at once. It has the mandatory
    /// configuration until it gets another.
    pub fn new(server_limit: usize, by_size: bool) -> Self {
        let kind = |is_mutating, name| {
            Arc::new(Kind {
                is_mutating,
                series: KindSeries::new(name),
            })
        };
        let controller = Self {
            configuration: ArcSwap::from_pointee(Configuration { flows: Vec::new() }),
            levels: Mutex::default(),
            server_limit,
            drained: Arc::default(),
            estimator: Estimator {
                counts: ObjectCounts::default(),
                watches: WatchTracker::default(),
                by_size,
            },
            dropped: DroppedRequests::default(),
            reads: kind(false, "readOnly"),
            writes: kind(true, "mutating"),
        };
        controller.configure(Vec::new(), Vec::new());
        controller
    }

    /// Waits until a level that is no longer wanted has answered its last request, and
    /// [`Controller::configure`] would drop it.
    pub async fn drained(&self) {
        self.drained.notified().await;
    }

    /// Puts a configuration into effect.
    pub fn configure(&self, configs: Vec<PriorityLevelConfiguration>, schemas: Vec<FlowSchema>) {
        let mut levels = self.levels.lock();
        let mut old = std::mem::take(&mut *levels);
        for config in configs {
            let state = match old.remove(&config.name) {
                Some(mut state) => {
                    state.config = Arc::new(config);
                    state.level.set_quiescing(false);
                    state
                }
                None => LevelState::new(config, &self.drained),
            };
            levels.insert(state.config.name.clone(), state);
        }
        let schemas = in_order(schemas, &levels);
        keep_in_use(old, &mut levels);
        for config in PriorityLevelConfiguration::mandatory() {
            levels
                .entry(config.name.clone())
                .or_insert_with(|| LevelState::new(config, &self.drained));
        }
        self.set_limits(&mut levels);
        self.adjust_locked(&mut levels);
        let flows = schemas.into_iter().filter_map(|schema| {
            let state = levels.get(&schema.level)?;
            Some(Arc::new(Flow::new(schema, state)))
        });
        let flows = flows.collect();
        self.configuration.store(Arc::new(Configuration { flows }));
    }

    /// Shares out the concurrency of the server by the shares of the levels.
    fn set_limits(&self, levels: &mut BTreeMap<String, LevelState>) {
        let shares = levels.values().map(|state| f64::from(state.config.shares));
        let all: f64 = shares.sum();
        let (mut executing, mut waiting) = (0, 0);
        for (name, state) in levels.iter_mut() {
            let config = &state.config;
            let part = self.server_limit as f64 * f64::from(config.shares) / all;
            let nominal = part.ceil() as usize;
            let percent =
                |percent: u32| (nominal as f64 * f64::from(percent) / 100.0).round() as usize;
            let lendable = percent(config.lendable_percent);
            let borrowing = config
                .borrowing_limit_percent
                .map_or(self.server_limit, percent);
            state.nominal = nominal;
            state.min = nominal.saturating_sub(lendable);
            state.max = nominal + borrowing;
            metrics::set_limits(name, [nominal, state.min, state.max]);
            executing += nominal;
            if let Queuing::Queue {
                queues,
                queue_length_limit,
                ..
            } = config.queuing
            {
                waiting += queues.saturating_mul(queue_length_limit);
            }
        }
        let now = now();
        for kind in [&self.reads, &self.writes] {
            kind.series.set_limits(now, waiting, executing);
        }
    }

    /// Adjusts the limits of the levels to their demands: seats that one does not need go to
    /// others.
    pub fn adjust(&self) {
        self.adjust_locked(&mut self.levels.lock());
    }

    fn adjust_locked(&self, levels: &mut BTreeMap<String, LevelState>) {
        for state in levels.values_mut() {
            let observed = state.level.with(|queues, now| queues.reset_demand(now));
            state.demand.update(observed);
        }
        let limits = borrowed(levels);
        metrics::set_fair_frac(limits.fair_frac);
        for (name, state) in levels.iter_mut() {
            let (current, target) = limits
                .of
                .get(name)
                .copied()
                .unwrap_or((state.nominal, state.demand.smoothed));
            state.current = Some(current);
            metrics::adjusted(
                name,
                &Adjustment {
                    high_watermark: state.demand.high_watermark as f64,
                    average: state.demand.average,
                    deviation: state.demand.deviation,
                    smoothed: state.demand.smoothed,
                    target,
                    current,
                },
            );
            let denominator = match current {
                0 => (self.server_limit as f64 / 10.0).round().max(1.0) as u64,
                current => current as u64,
            };
            let queuing = state.config.queuing;
            state
                .level
                .with(|queues, now| queues.configure(now, queuing, current as u64, denominator));
        }
    }

    /// Returns the flow schema of a request.
    pub fn classify(&self, digest: &RequestDigest<'_>) -> Option<Arc<Flow>> {
        let configuration = self.configuration.load();
        let flows = &configuration.flows;
        let matching = flows.iter().find(|flow| flow.schema.matches(digest));
        // There is one for all users, but those that are neither authenticated nor not.
        matching
            .or_else(|| flows.iter().find(|flow| flow.schema.name == CATCH_ALL))
            .cloned()
    }

    /// Lets a request of a flow run as soon as its level has seats for it.
    ///
    /// # Errors
    /// It is rejected: the level is full, or it has waited until the deadline.
    pub async fn admit(
        &self,
        flow: &Flow,
        details: Arc<dyn RequestDetails>,
        query: &Query,
        deadline: Instant,
    ) -> Result<Seat, Rejection> {
        let digest = details.digest();
        let work = self
            .estimator
            .estimate(now(), &digest, query, flow.max_seats, &flow.series);
        flow.series.estimated(work.max_seats());
        let (distinguisher, hash) = flow.hash(&digest);
        let (is_watch, is_read) = (digest.verb == "watch", READS.contains(&digest.verb));
        let kind = if is_read { &self.reads } else { &self.writes };
        flow.level
            .admit(Admission {
                arrival: Arrival {
                    work,
                    hash,
                    flow: flow.series.clone(),
                    distinguisher,
                    details,
                },
                deadline,
                is_exempt: flow.config.is_exempt(),
                is_watch,
                kind: kind.clone(),
            })
            .await
    }

    /// Notes that a request was rejected in this second; returns the seconds after which it may
    /// come again.
    pub fn dropped(&self, second: u64, flow: &Flow) -> u64 {
        self.dropped.record(second, &flow.config.name)
    }

    /// Works on the levels, in the order of their names.
    pub(super) fn with_levels<R>(
        &self,
        work: impl FnOnce(&BTreeMap<String, LevelState>) -> R,
    ) -> R {
        work(&self.levels.lock())
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flow({} of {})", self.schema.name, self.config.name)
    }
}

impl Flow {
    fn new(schema: FlowSchema, state: &LevelState) -> Self {
        let header = |uid: &str| HeaderValue::from_str(uid);
        let empty = || HeaderValue::from_static("");
        Self {
            series: Arc::new(FlowSeries::new(&state.config.name, &schema.name)),
            schema_uid: header(&schema.uid).unwrap_or_else(|_| empty()),
            level_uid: header(&state.config.uid).unwrap_or_else(|_| empty()),
            config: state.config.clone(),
            level: state.level.clone(),
            max_seats: state.max_seats(),
            schema,
        }
    }

    /// The names of the flow schema and of its priority level.
    pub fn names(&self) -> (&str, &str) {
        (&self.schema.name, &self.config.name)
    }

    /// The flow of a request as a number, where it decides about a queue.
    fn hash(&self, digest: &RequestDigest<'_>) -> (Distinguisher, u64) {
        if !matches!(self.config.queuing, Queuing::Queue { queues, .. } if queues > 1) {
            return (Distinguisher::None, 0);
        }
        let distinguisher = self.schema.distinguisher;
        (
            distinguisher,
            hash_flow(&self.schema.name, distinguisher.of(digest)),
        )
    }
}

/// The first bytes of a hash of the flow schema and what tells its flows apart.
fn hash_flow(schema: &str, distinguisher: &str) -> u64 {
    let mut text = Vec::with_capacity(schema.len() + 1 + distinguisher.len());
    text.extend_from_slice(schema.as_bytes());
    text.push(0);
    text.extend_from_slice(distinguisher.as_bytes());
    let sum = hash(&SHA256, &text);
    let first = sum.as_ref().first_chunk::<8>();
    first.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns the flow schemas whose levels exist, in the order in which they are tried, with the
/// mandatory ones.
fn in_order(
    mut schemas: Vec<FlowSchema>,
    levels: &BTreeMap<String, LevelState>,
) -> Vec<FlowSchema> {
    schemas.retain(|schema| levels.contains_key(&schema.level));
    schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    let has = |name: &str| schemas.iter().any(|schema| schema.name == name);
    let (has_exempt, has_catch_all) = (has(EXEMPT), has(CATCH_ALL));
    if !has_exempt {
        schemas.insert(0, FlowSchema::exempt());
    }
    if !has_catch_all {
        schemas.push(FlowSchema::catch_all());
    }
    schemas
}

/// Keeps the levels that are not configured any more and still have requests, or are mandatory.
fn keep_in_use(old: BTreeMap<String, LevelState>, levels: &mut BTreeMap<String, LevelState>) {
    for (name, state) in old {
        if name != EXEMPT && name != CATCH_ALL {
            // First, so that the last request that goes is not missed.
            state.level.set_quiescing(true);
            if state.is_idle() {
                continue;
            }
        }
        levels.insert(name, state);
    }
}

/// Limits with the targets that they were made for, by level.
struct Limits {
    of: BTreeMap<String, (usize, f64)>,
    fair_frac: f64,
}

/// Returns the limits of the levels for the next period, by their demands.
fn borrowed(levels: &BTreeMap<String, LevelState>) -> Limits {
    let nominal: usize = levels.values().map(|state| state.nominal).sum();
    let (exempt, limited): (Vec<_>, Vec<_>) = levels
        .iter()
        .partition(|(_, state)| state.config.is_exempt());
    let sum = |of: fn(&LevelState) -> usize| limited.iter().map(|(_, state)| of(state)).sum();
    let (min, min_current): (usize, usize) = (sum(|state| state.min), sum(LevelState::min_current));
    let taken: usize = exempt.iter().map(|(_, state)| state.min_current()).sum();
    let left = nominal.saturating_sub(taken);
    let target = |state: &LevelState| state.demand.smoothed.max(state.min_current() as f64);
    let mut of = BTreeMap::new();
    for (name, state) in &exempt {
        of.insert((*name).clone(), (state.min_current(), target(state)));
    }
    let mut fair_frac = 0.0;
    if left <= min {
        for (name, state) in &limited {
            of.insert((*name).clone(), (state.min, target(state)));
        }
    } else if left <= min_current {
        let share = (left - min) as f64 / (min_current - min) as f64;
        for (name, state) in &limited {
            let more = (state.min_current() - state.min) as f64 * share;
            let limit = state.min + more.round() as usize;
            of.insert((*name).clone(), (limit, target(state)));
        }
    } else {
        let claims: Vec<Claim> = limited
            .iter()
            .map(|(_, state)| Claim {
                target: target(state),
                lower_bound: state.min_current() as f64,
                upper_bound: state.max as f64,
            })
            .collect();
        let allocated = allocate(nominal as f64, &claims);
        fair_frac = allocated.as_ref().map_or(0.0, |(_, share)| *share);
        for (at, (name, state)) in limited.iter().enumerate() {
            // Where there is no solution, all stays as it is.
            let kept = || {
                state
                    .current
                    .unwrap_or(state.nominal - (state.nominal - state.min) / 2)
            };
            let limit = allocated
                .as_ref()
                .and_then(|(parts, _)| parts.get(at))
                .map_or_else(kept, |part| part.round() as usize);
            of.insert((*name).clone(), (limit, target(state)));
        }
    }
    Limits { of, fair_frac }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use crate::flowcontrol::configuration::{PolicyRule, Subject};
    use crate::flowcontrol::shuffle_sharding::Dealer;

    struct Probe(User);

    impl RequestDetails for Probe {
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
                path: "/version",
            }
        }
    }

    fn level(name: &str, shares: u32, lendable_percent: u32) -> PriorityLevelConfiguration {
        PriorityLevelConfiguration {
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            shares,
            lendable_percent,
            borrowing_limit_percent: None,
            queuing: Queuing::Queue {
                queues: 4,
                queue_length_limit: 100,
                dealer: Dealer::new(4, 1).expect("a dealer"),
            },
            hand_size: Some(1),
        }
    }

    /// A flow schema for the user of the same name.
    fn schema(name: &str, level: &str, precedence: i64) -> FlowSchema {
        let mut schema = FlowSchema::exempt();
        let rules = std::mem::take(&mut schema.rules);
        FlowSchema {
            name: name.to_owned(),
            uid: String::new(),
            level: level.to_owned(),
            precedence,
            distinguisher: Distinguisher::ByUser,
            rules: rules
                .into_iter()
                .map(|rule| PolicyRule {
                    subjects: vec![Subject::User(name.to_owned())],
                    ..rule
                })
                .collect(),
        }
    }

    fn probe(name: &str) -> Arc<dyn RequestDetails> {
        Arc::new(Probe(User {
            name: name.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            ..User::default()
        }))
    }

    async fn admitted(controller: &Controller, user: &str) -> Result<Seat, Rejection> {
        let details = probe(user);
        let flow = controller.classify(&details.digest()).expect("a flow");
        let deadline = now() + Duration::from_secs(15);
        controller
            .admit(&flow, details, &Query::default(), deadline)
            .await
    }

    fn limit(controller: &Controller, level: &str) -> Option<usize> {
        controller.with_levels(|levels| levels.get(level)?.current)
    }

    fn matched(controller: &Controller, user: &str) -> String {
        let details = probe(user);
        let flow = controller.classify(&details.digest()).expect("a flow");
        let (schema, level) = flow.names();
        format!("{schema} {level}")
    }

    #[tokio::test(start_paused = true)]
    async fn seats_that_a_level_does_not_need_are_borrowed() {
        let controller = Arc::new(Controller::new(100, true));
        let levels = || vec![level("a", 45, 50), level("b", 50, 0)];
        let schemas = || vec![schema("alice", "a", 10), schema("bob", "b", 20)];
        controller.configure(levels(), schemas());
        // 100 shares with those of the catch-all.
        let limits = |controller: &Controller| {
            ["a", "b", CATCH_ALL].map(|name| limit(controller, name).expect("a limit"))
        };
        let [a, b, _] = limits(&controller);
        assert!((22..=45).contains(&a) && b >= 50, "{a} {b}");
        let mut tasks = Vec::new();
        for _ in 0..80 {
            let controller = controller.clone();
            tasks.push(tokio::spawn(async move {
                let seat = admitted(&controller, "bob").await;
                tokio::time::sleep(Duration::from_secs(3600)).await;
                drop(seat);
            }));
        }
        tokio::time::sleep(ADJUSTMENT_PERIOD).await;
        controller.adjust();
        let [a, b, rest] = limits(&controller);
        assert_eq!((a, a + b + rest), (22, 100), "{b} {rest}");
        assert!(b > 65, "{b}");
        // What is needed comes back.
        for _ in 0..50 {
            let controller = controller.clone();
            tasks.push(tokio::spawn(async move {
                let _seat = admitted(&controller, "alice").await;
                tokio::time::sleep(Duration::from_secs(3600)).await;
            }));
        }
        tokio::time::sleep(ADJUSTMENT_PERIOD).await;
        controller.adjust();
        let [a, b, _] = limits(&controller);
        assert!(a >= 45 && b >= 50, "{a} {b}");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn a_level_that_is_taken_away_answers_its_last_requests() {
        let controller = Controller::new(10, true);
        controller.configure(vec![level("a", 30, 0)], vec![schema("alice", "a", 10)]);
        assert_eq!(matched(&controller, "alice"), "alice a");
        let seat = admitted(&controller, "alice").await.expect("a seat");
        controller.configure(Vec::new(), vec![schema("alice", "a", 10)]);
        assert_eq!(matched(&controller, "alice"), "catch-all catch-all");
        let is_quiescing = || {
            controller.with_levels(|levels| levels.get("a").map(|state| state.level.is_quiescing()))
        };
        assert_eq!(is_quiescing(), Some(true));
        drop(seat);
        controller.drained().await;
        controller.configure(Vec::new(), Vec::new());
        assert_eq!(is_quiescing(), None);
    }

    #[test]
    fn flow_schemas_are_tried_by_precedence_and_name() {
        let controller = Controller::new(10, true);
        let mut both = schema("z", "a", 10);
        both.rules = schema("alice", "a", 0).rules;
        controller.configure(
            vec![level("a", 30, 0), level("b", 30, 0)],
            vec![
                schema("alice", "b", 11),
                both.clone(),
                schema("bob", "none", 1),
            ],
        );
        assert_eq!(matched(&controller, "alice"), "z a");
        assert_eq!(matched(&controller, "bob"), "catch-all catch-all");
        let same = FlowSchema {
            precedence: 11,
            ..both
        };
        controller.configure(
            vec![level("a", 30, 0), level("b", 30, 0)],
            vec![same, schema("alice", "b", 11)],
        );
        assert_eq!(matched(&controller, "alice"), "alice b");
    }

    /// The bytes are those of SHA-256 over the names with a zero between them.
    #[test]
    fn flows_are_hashed_as_upstream_hashes_them() {
        let sum = hash(&SHA256, b"global-default\0alice");
        let first: [u8; 8] = sum.as_ref()[..8].try_into().expect("eight bytes");
        assert_eq!(
            hash_flow("global-default", "alice"),
            u64::from_le_bytes(first)
        );
        assert_ne!(hash_flow("a", "bc"), hash_flow("ab", "c"));
    }
}
