//! The metrics of connections through proxies (apiserver `server/egressselector/metrics`).

use std::time::Instant;

use crate::telemetry::metrics::{Counter, Declared, Histogram};

/// The protocol by which proxies are asked.
const PROTOCOL: &str = "http_connect";

static STARTS: Counter = Counter::new(
    "apiserver_egress_dialer_dial_start_total",
    "[ALPHA] Dial starts, labeled by the protocol (http-connect or grpc) and transport (tcp or uds).",
    &["protocol", "transport"],
);
static SECONDS: Histogram = Histogram::new(
    "apiserver_egress_dialer_dial_duration_seconds",
    "[ALPHA] Dial latency histogram in seconds, labeled by the protocol (http-connect or grpc), transport (tcp or uds)",
    &["protocol", "transport"],
    &[0.005, 0.025, 0.1, 0.5, 2.5, 12.5],
);
static FAILURES: Counter = Counter::new(
    "apiserver_egress_dialer_dial_failure_count",
    "[ALPHA] Dial failure count, labeled by the protocol (http-connect or grpc), transport (tcp or uds), and stage (connect or proxy). The stage indicates at which stage the dial failed",
    &["protocol", "transport", "stage"],
);

pub static METRICS: &[&dyn Declared] = &[&STARTS, &SECONDS, &FAILURES];

/// The parts of a dial.
#[derive(Clone, Copy)]
pub enum Stage {
    /// The proxy is connected to.
    Connect,
    /// The proxy connects.
    Proxy,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Proxy => "proxy",
        }
    }
}

/// A dial that is counted.
pub struct Dialling {
    /// `tcp` or `uds`.
    transport: &'static str,
    begun: Instant,
}

impl Dialling {
    pub fn start(transport: &'static str) -> Self {
        STARTS.inc(&[PROTOCOL, transport]);
        Self {
            transport,
            begun: Instant::now(),
        }
    }

    pub fn succeeded(&self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        SECONDS.observe(&[PROTOCOL, self.transport], seconds);
    }

    pub fn failed(&self, stage: Stage) {
        FAILURES.inc(&[PROTOCOL, self.transport, stage.as_str()]);
    }
}
