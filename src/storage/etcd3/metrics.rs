//! The metrics of calls to etcd (go-grpc-middleware `providers/prometheus`, apiserver
//! `storage/etcd3/metrics`).

use std::sync::LazyLock;

use etcd_client::Error;

use crate::telemetry::metrics::{Counter, CounterSeries, Declared, Histogram};

const LABELS: &[&str] = &["grpc_type", "grpc_service", "grpc_method"];

static STARTED: Counter = Counter::new(
    "grpc_client_started_total",
    "Total number of RPCs started on the client.",
    LABELS,
);
static HANDLED: Counter = Counter::new(
    "grpc_client_handled_total",
    "Total number of RPCs completed by the client, regardless of success or failure.",
    &["grpc_type", "grpc_service", "grpc_method", "grpc_code"],
);
static RECEIVED: Counter = Counter::new(
    "grpc_client_msg_received_total",
    "Total number of RPC stream messages received by the client.",
    LABELS,
);
static SENT: Counter = Counter::new(
    "grpc_client_msg_sent_total",
    "Total number of gRPC stream messages sent by the client.",
    LABELS,
);
static RETRIES: Counter = Counter::new(
    "etcd_request_retry_total",
    "[ALPHA] Etcd request retry total",
    &["error"],
);
static LEASE_KEYS: Histogram = Histogram::new(
    "etcd_lease_object_counts",
    "[ALPHA] Number of objects attached to a single etcd lease.",
    &[],
    &[10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0],
);

pub static METRICS: &[&dyn Declared] =
    &[&STARTED, &HANDLED, &RECEIVED, &SENT, &RETRIES, &LEASE_KEYS];

/// The names of gRPC's codes (grpc-go `codes`).
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
const UNKNOWN: usize = 2;

/// The calls that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Range,
    Txn,
    Compact,
    LeaseGrant,
    Status,
    Watch,
}

/// The type, the service and the name of each.
const METHODS: [[&str; 3]; 6] = [
    ["unary", "etcdserverpb.KV", "Range"],
    ["unary", "etcdserverpb.KV", "Txn"],
    ["unary", "etcdserverpb.KV", "Compact"],
    ["unary", "etcdserverpb.Lease", "LeaseGrant"],
    ["unary", "etcdserverpb.Maintenance", "Status"],
    ["bidi_stream", "etcdserverpb.Watch", "Watch"],
];

/// The series of a method.
struct Series {
    started: CounterSeries,
    succeeded: CounterSeries,
    received: CounterSeries,
    sent: CounterSeries,
}

static SERIES: LazyLock<[Series; 6]> = LazyLock::new(|| {
    METHODS.map(|labels| {
        let [kind, service, method] = labels;
        Series {
            started: STARTED.series(&labels),
            succeeded: HANDLED.series(&[kind, service, method, CODES[0]]),
            received: RECEIVED.series(&labels),
            sent: SENT.series(&labels),
        }
    })
});

/// The name of the code of an error. One that is not gRPC's has none.
fn code(error: &Error) -> &'static str {
    let at = match error {
        Error::GRpcStatus(status) => usize::try_from(status.code() as i32).unwrap_or(UNKNOWN),
        _ => UNKNOWN,
    };
    CODES.get(at).copied().unwrap_or(CODES[UNKNOWN])
}

impl Method {
    fn series(self) -> &'static Series {
        &SERIES[self as usize]
    }

    /// Counts a call with one message each way while it is made.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn count<T>(self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let series = self.series();
        series.started.inc();
        series.sent.inc();
        let outcome = call.await;
        match &outcome {
            Ok(_) => {
                series.received.inc();
                series.succeeded.inc();
            }
            Err(error) => self.failed(error),
        }
        outcome
    }

    /// Counts a stream that begins, with its first message.
    pub fn started(self) {
        self.series().started.inc();
        self.sent();
    }

    /// Counts a message that is sent.
    pub fn sent(self) {
        self.series().sent.inc();
    }

    /// Counts a message that was received.
    pub fn received(self) {
        self.series().received.inc();
    }

    /// Counts a call or stream that failed.
    pub fn failed(self, error: &Error) {
        let [kind, service, method] = METHODS[self as usize];
        HANDLED.inc(&[kind, service, method, code(error)]);
    }
}

/// Counts a call that is made again because of an error.
pub fn retried(error: &Error) {
    RETRIES.inc(&[code(error)]);
}

/// Notes how many keys a lease had that gets no more.
pub fn lease_is_full(keys: usize) {
    LEASE_KEYS.observe(&[], keys as f64);
}
