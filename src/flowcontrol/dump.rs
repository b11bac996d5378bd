//! The pages at `/debug/api_priority_and_fairness` (apiserver
//! `util/flowcontrol/apf_controller_debug.go`).

use std::time::Instant;

use jiff::Timestamp;

use super::controller::Controller;
use super::level::now;
use super::queueset::RequestDump;
use crate::meta::go;

/// The least width of a column, and the spaces behind its longest cell.
const MIN_WIDTH: usize = 8;
const PADDING: usize = 1;
/// The time of what has not happened yet, as Go writes it.
const NEVER: &str = "0001-01-01T00:00:00Z";
/// The index of a request that runs, and of the queue of one that has none.
const NONE: &str = "-1";

const PRIORITY_LEVELS: [&str; 10] = [
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
];
const QUEUES: [&str; 9] = [
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
];
const REQUESTS: [&str; 10] = [
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
    "StartTime",
];
const DETAILS: [&str; 8] = [
    "UserName",
    "Verb",
    "APIPath",
    "Namespace",
    "Name",
    "APIVersion",
    "Resource",
    "SubResource",
];

/// Rows of cells, written in columns as Go's `tabwriter` does.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new<'a>(head: impl IntoIterator<Item = &'a str>) -> Self {
        Self(vec![head.into_iter().map(str::to_owned).collect()])
    }

    fn add(&mut self, row: Vec<String>) {
        self.0.push(row);
    }

    fn render(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            // With the comma.
            let longest = cells.map(|cell| cell.chars().count() + 1).max();
            (longest.unwrap_or(0) + PADDING).max(MIN_WIDTH)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.0 {
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if at + 1 == row.len() {
                    out.push_str(cell);
                } else {
                    let cell = format!("{cell},");
                    out.push_str(&format!("{cell:<width$}"));
                }
            }
            out.push('\n');
        }
        out
    }
}

impl Controller {
    /// A row for each priority level.
    pub fn dump_priority_levels(&self) -> String {
        let mut table = Table::new(PRIORITY_LEVELS);
        self.with_levels(|levels| {
            for (name, state) in levels {
                let dump = state.level.with(|queues, _| queues.dump());
                let totals = dump.totals;
                let active = dump.queues.iter().filter(|queue| !queue.waiting.is_empty());
                table.add(vec![
                    name.clone(),
                    active.count().to_string(),
                    (totals.waiting == 0 && totals.executing == 0).to_string(),
                    state.level.is_quiescing().to_string(),
                    totals.waiting.to_string(),
                    totals.executing.to_string(),
                    totals.dispatched.to_string(),
                    totals.rejected.to_string(),
                    // As upstream, those that time out are cancelled.
                    "0".to_owned(),
                    totals.cancelled.to_string(),
                ]);
            }
        });
        table.render()
    }

    /// A row for each queue.
    pub fn dump_queues(&self) -> String {
        let mut table = Table::new(QUEUES);
        self.with_levels(|levels| {
            for (name, state) in levels {
                let dump = state.level.with(|queues, _| queues.dump());
                for (index, queue) in dump.queues.iter().enumerate() {
                    table.add(vec![
                        name.clone(),
                        index.to_string(),
                        queue.waiting.len().to_string(),
                        queue.running.len().to_string(),
                        queue.seats_in_use.to_string(),
                        queue.next_dispatch_r.to_string(),
                        queue.sum.initial_seats.to_string(),
                        queue.sum.max_seats.to_string(),
                        queue.sum.total_work.to_string(),
                    ]);
                }
            }
        });
        table.render()
    }

    /// A row for each request that waits or runs; `wall` is the present time.
    pub fn dump_requests(&self, wall: Timestamp, with_details: bool) -> String {
        let details = if with_details { &DETAILS[..] } else { &[] };
        let mut table = Table::new(REQUESTS.iter().chain(details).copied());
        let clock = Wall { wall, now: now() };
        self.with_levels(|levels| {
            for (name, state) in levels {
                let dump = state.level.with(|queues, _| queues.dump());
                let mut add = |at: [&str; 2], request: &RequestDump| {
                    let mut row = clock.row(name, at, request);
                    if with_details {
                        row.extend(details_of(request));
                    }
                    table.add(row);
                };
                for (index, queue) in dump.queues.iter().enumerate() {
                    let index = index.to_string();
                    for (place, request) in queue.waiting.iter().enumerate() {
                        add([&index, &place.to_string()], request);
                    }
                    for request in &queue.running {
                        add([&index, NONE], request);
                    }
                }
                for request in &dump.without_queue {
                    add([NONE, NONE], request);
                }
            }
        });
        table.render()
    }
}

/// The present time on two clocks.
struct Wall {
    wall: Timestamp,
    now: Instant,
}

impl Wall {
    fn text(&self, at: Instant) -> String {
        let ago = self.now.saturating_duration_since(at);
        self.wall.checked_sub(ago).unwrap_or(self.wall).to_string()
    }

    fn row(&self, level: &str, [queue, place]: [&str; 2], request: &RequestDump) -> Vec<String> {
        let work = &request.work;
        let latency = i64::try_from(work.additional_latency.as_nanos()).unwrap_or(i64::MAX);
        vec![
            level.to_owned(),
            request.flow.schema.clone(),
            queue.to_owned(),
            place.to_owned(),
            request
                .distinguisher
                .of(&request.details.digest())
                .to_owned(),
            self.text(request.arrived),
            work.initial_seats.to_string(),
            work.final_seats.to_string(),
            go::format_duration(latency),
            request
                .started
                .map_or_else(|| NEVER.to_owned(), |at| self.text(at)),
        ]
    }
}

fn details_of(request: &RequestDump) -> Vec<String> {
    let digest = request.details.digest();
    let version = match digest.group {
        "" => digest.version.to_owned(),
        group => format!("{group}/{}", digest.version),
    };
    vec![
        digest.user.name.clone(),
        digest.verb.to_owned(),
        digest.path.to_owned(),
        digest.namespace.to_owned(),
        digest.name.to_owned(),
        version,
        digest.resource.to_owned(),
        digest.subresource.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut table = Table::new(["A", "LongerHead", "C"]);
        table.add(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert_eq!(
            table.render(),
            "A,      LongerHead, C\na,      b,          c\n"
        );
    }
}
