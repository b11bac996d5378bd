//! Estimates of the work of requests (apiserver `util/flowcontrol/request`): lists by the bytes
//! that they hold in memory, writes by the watches that they wake.

use std::time::{Duration, Instant};

use super::digest::RequestDigest;
use super::metrics::FlowSeries;
use super::object_counts::{Counted, ObjectCounts, Stats};
use super::watch_tracker::WatchTracker;
use super::work::{SeatSeconds, WorkEstimate};
use crate::meta::options::Query;

/// The seats of a request of which nothing is known to cost more.
const MIN_SEATS: u64 = 1;
/// The most seats of a list, by size and by number.
const MAX_LIST_SEATS_BY_SIZE: u64 = 100;
const MAX_LIST_SEATS_BY_COUNT: u64 = 10;
/// The most seats of a write.
const MAX_MUTATING_SEATS: u64 = 10;
/// The bytes of a list that take a seat.
const BYTES_PER_SEAT: u64 = 100_000;
/// The bytes that a list from the watch cache holds at once: it is streamed.
const MAX_STREAMED_BYTES: u64 = 1_000_000;
/// The largest object, which those of unknown size are taken for.
const MAX_OBJECT_BYTES: u64 = 1_500_000;
/// The number of objects where it is not known.
const INFINITE_OBJECTS: u64 = 1_000_000_000;
/// The objects of a list that take a seat, where sizes do not count.
const OBJECTS_PER_SEAT: u64 = 100;
/// The watches of a write that take a seat, and how long.
const WATCHES_PER_SEAT: usize = 10;
const EVENT_TIME: Duration = Duration::from_millis(5);

/// The parts of the server that estimates are made from.
#[derive(Debug)]
pub struct Estimator {
    pub counts: ObjectCounts,
    pub watches: WatchTracker,
    /// Lists are estimated by the size of objects (feature gate SizeBasedListCostEstimate).
    pub by_size: bool,
}

impl Estimator {
    /// Estimates the work of a request in a level that lets no request take more than `max_seats`.
    pub fn estimate(
        &self,
        now: Instant,
        digest: &RequestDigest<'_>,
        query: &Query,
        max_seats: Option<u64>,
        series: &FlowSeries,
    ) -> WorkEstimate {
        let at_most = |limit: u64| max_seats.unwrap_or(limit).min(limit);
        match digest.verb {
            "list" | "watch" => {
                let most = at_most(if self.by_size {
                    MAX_LIST_SEATS_BY_SIZE
                } else {
                    MAX_LIST_SEATS_BY_COUNT
                });
                WorkEstimate::seats(self.list(now, digest, query, most))
            }
            "create" | "update" | "patch" | "delete" => {
                self.mutation(digest, at_most(MAX_MUTATING_SEATS), series)
            }
            _ => WorkEstimate::seats(MIN_SEATS),
        }
    }

    fn list(&self, now: Instant, digest: &RequestDigest<'_>, query: &Query, most: u64) -> u64 {
        let Some(options) = ListRequest::read(query) else {
            // It will be refused, and costs what it may.
            return most;
        };
        let is_watch = digest.verb == "watch";
        if is_watch && !options.begins_with_all {
            return MIN_SEATS;
        }
        let stats = match self.counts.get(now, digest.group, digest.resource) {
            Counted::Known(stats) => stats,
            Counted::Stale => Stats {
                objects: INFINITE_OBJECTS,
                average_bytes: MAX_OBJECT_BYTES,
            },
            // Another server has it, or nobody.
            Counted::Unknown => return MIN_SEATS,
        };
        let cached = is_watch || !options.from_storage;
        let single = !digest.name.is_empty();
        let seats = if self.by_size {
            seats_by_size(stats, &options, cached, single)
        } else {
            seats_by_count(stats.objects, &options, cached, single)
        };
        seats.clamp(MIN_SEATS, most.max(MIN_SEATS))
    }

    fn mutation(&self, digest: &RequestDigest<'_>, most: u64, series: &FlowSeries) -> WorkEstimate {
        // A token is no change that anybody watches.
        if digest.resource == "serviceaccounts" && digest.subresource == "token" {
            return WorkEstimate::seats(MIN_SEATS);
        }
        let watchers = self.watches.interested(digest);
        series.watchers(watchers);
        if watchers < WATCHES_PER_SEAT {
            return WorkEstimate::seats(MIN_SEATS);
        }
        let seats = watchers.div_ceil(WATCHES_PER_SEAT) as u64;
        let work = SeatSeconds::of(seats, EVENT_TIME);
        // The same work on fewer seats: a wide request keeps others waiting until it has them all.
        let final_seats = seats.min(most);
        WorkEstimate {
            initial_seats: MIN_SEATS,
            final_seats,
            additional_latency: work.per_seat(final_seats),
        }
    }
}

fn seats_by_size(stats: Stats, options: &ListRequest, cached: bool, single: bool) -> u64 {
    let bytes = match stats.average_bytes {
        0 if stats.objects > 0 => MAX_OBJECT_BYTES,
        bytes => bytes,
    };
    let limited = options.limited(stats.objects);
    let objects = if single {
        1
    } else if !cached && options.selects {
        limited.max(stats.objects / 2)
    } else {
        limited
    };
    let mut at_once = objects.saturating_mul(bytes);
    if cached {
        at_once = at_once.min(MAX_STREAMED_BYTES);
    }
    at_once.div_ceil(BYTES_PER_SEAT)
}

fn seats_by_count(stored: u64, options: &ListRequest, cached: bool, single: bool) -> u64 {
    let limited = options.limited(stored);
    let objects = if single {
        1
    } else if cached {
        stored
    } else if options.selects {
        stored + limited
    } else {
        2 * limited
    };
    objects.div_ceil(OBJECTS_PER_SEAT)
}

/// The options of a list that tell its cost.
#[derive(Clone, Copy, Debug)]
struct ListRequest {
    limit: u64,
    selects: bool,
    /// It is not answered from the watch cache (apiserver `storage/cacher/delegator`).
    from_storage: bool,
    /// A watch with it begins with all objects.
    begins_with_all: bool,
}

impl ListRequest {
    /// Reads the options of a request; `None` where they cannot be understood.
    fn read(query: &Query) -> Option<Self> {
        let text = |name: &str| query.get(name).unwrap_or("");
        let number = |name: &str| match text(name) {
            "" => Some(0),
            text => text.parse::<i64>().ok(),
        };
        let limit = u64::try_from(number("limit")?).unwrap_or(0);
        number("timeoutSeconds")?;
        let version = text("resourceVersion");
        let latest_or_any = matches!(version, "" | "0");
        let from_storage = match text("resourceVersionMatch") {
            "NotOlderThan" => false,
            "" => !text("continue").is_empty() || limit > 0 && !latest_or_any,
            _ => true,
        };
        Some(Self {
            limit,
            selects: !text("fieldSelector").is_empty() || !text("labelSelector").is_empty(),
            from_storage,
            begins_with_all: query.flag("sendInitialEvents").unwrap_or(false) || latest_or_any,
        })
    }

    fn limited(&self, stored: u64) -> u64 {
        match self.limit {
            0 => stored,
            limit => limit.min(stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;

    fn estimator(by_size: bool) -> Estimator {
        Estimator {
            counts: ObjectCounts::default(),
            watches: WatchTracker::default(),
            by_size,
        }
    }

    fn digest<'a>(
        user: &'a User,
        verb: &'a str,
        resource: &'a str,
        name: &'a str,
    ) -> RequestDigest<'a> {
        RequestDigest {
            user,
            is_resource: true,
            verb,
            group: "",
            version: "v1",
            resource,
            subresource: "",
            namespace: "",
            name,
            path: "",
        }
    }

    #[test]
    fn lists_cost_what_they_hold_in_memory() {
        let (user, now) = (User::default(), Instant::now());
        let series = FlowSeries::new("a", "b");
        let sized = estimator(true);
        let stats = |objects, average_bytes| Stats {
            objects,
            average_bytes,
        };
        sized.counts.set(now, "", "pods", stats(1000, 1000));
        sized.counts.set(now, "", "secrets", stats(6, 0));
        sized.counts.set(now, "", "empty", stats(0, 0));
        for (verb, resource, query, seats) in [
            ("list", "pods", "", 10),
            ("list", "pods", "limit=150", 2),
            ("list", "pods", "limit=-5", 10),
            ("list", "pods", "limit=x", 100),
            ("list", "pods", "timeoutSeconds=x", 100),
            (
                "list",
                "pods",
                "resourceVersion=7&resourceVersionMatch=Exact",
                10,
            ),
            (
                "list",
                "pods",
                "resourceVersion=7&resourceVersionMatch=Exact&labelSelector=a&limit=1",
                5,
            ),
            ("list", "pods", "continue=x&limit=500", 5),
            ("list", "pods", "resourceVersion=7&limit=100", 1),
            ("list", "secrets", "", 10),
            ("list", "secrets", "continue=x", 90),
            ("list", "empty", "", 1),
            ("list", "unknown", "", 1),
            ("watch", "pods", "", 10),
            ("watch", "pods", "resourceVersion=0", 10),
            ("watch", "pods", "resourceVersion=7", 1),
            (
                "watch",
                "pods",
                "resourceVersion=7&sendInitialEvents=true",
                10,
            ),
            ("get", "pods", "", 1),
            ("deletecollection", "pods", "", 1),
        ] {
            let digest = digest(&user, verb, resource, "");
            let estimate = sized.estimate(now, &digest, &Query::parse(query), None, &series);
            assert_eq!(
                estimate,
                WorkEstimate::seats(seats),
                "{verb} {resource} {query}"
            );
        }
        let single = digest(&user, "list", "secrets", "one");
        let query = Query::default();
        assert_eq!(
            sized
                .estimate(now, &single, &query, None, &series)
                .initial_seats,
            10
        );
        let pods = digest(&user, "list", "pods", "");
        assert_eq!(
            sized
                .estimate(now, &pods, &query, Some(4), &series)
                .initial_seats,
            4
        );
        let later = now + Duration::from_secs(600);
        assert_eq!(
            sized
                .estimate(later, &pods, &query, None, &series)
                .initial_seats,
            10
        );
        let exact = Query::parse("continue=x");
        assert_eq!(
            sized
                .estimate(later, &pods, &exact, None, &series)
                .initial_seats,
            100
        );
    }

    #[test]
    fn without_sizes_lists_cost_by_number() {
        let (user, now) = (User::default(), Instant::now());
        let series = FlowSeries::new("a", "b");
        let counted = estimator(false);
        let stats = Stats {
            objects: 699,
            average_bytes: 1,
        };
        counted.counts.set(now, "", "pods", stats);
        for (query, seats) in [
            ("", 7),
            ("limit=399", 7),
            ("continue=x&limit=399", 8),
            ("continue=x&limit=200&labelSelector=a", 9),
            ("continue=x&labelSelector=a", 10),
        ] {
            let digest = digest(&user, "list", "pods", "");
            let estimate = counted.estimate(now, &digest, &Query::parse(query), None, &series);
            assert_eq!(estimate.initial_seats, seats, "{query}");
        }
    }

    #[test]
    fn writes_cost_by_the_watches_that_they_wake() {
        let (user, now) = (User::default(), Instant::now());
        let series = FlowSeries::new("a", "b");
        let estimator = estimator(true);
        let mut open = Vec::new();
        for (watches, max, final_seats, millis) in [
            (0, None, 0, 0),
            (9, None, 0, 0),
            (25, None, 3, 5),
            (250, None, 10, 12),
            (250, Some(5), 5, 25),
        ] {
            while open.len() < watches {
                let watch = digest(&user, "watch", "pods", "");
                open.push(estimator.watches.register(&watch, &Query::default()));
            }
            let write = digest(&user, "update", "pods", "p");
            let estimate = estimator.estimate(now, &write, &Query::default(), max, &series);
            assert_eq!(
                (
                    estimate.initial_seats,
                    estimate.final_seats,
                    estimate.additional_latency.as_millis()
                ),
                (1, final_seats, millis),
                "{watches}"
            );
        }
        let token = RequestDigest {
            subresource: "token",
            ..digest(&user, "create", "serviceaccounts", "a")
        };
        assert_eq!(
            estimator.estimate(now, &token, &Query::default(), None, &series),
            WorkEstimate::seats(1)
        );
    }
}
