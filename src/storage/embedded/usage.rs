//! The bytes in use with their quota, as metrics and the log show them.

use parking_lot::Mutex;

use crate::telemetry::metrics::{Declared, Gauge, GaugeSeries};

static IN_USE: Gauge = Gauge::new(
    "keelson_storage_in_use_bytes",
    "[ALPHA] Bytes of keys and values in the embedded store, kept history included.",
    &[],
);
static ALARMS: Gauge = Gauge::new(
    "keelson_storage_alarms",
    "[ALPHA] Number of embedded stores that refuse writes because of their quota.",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[&IN_USE, &ALARMS];

/// The bytes in use, and how many may be; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub in_use: i64,
    pub quota: i64,
}

/// Follows the usage of one store. The metrics are sums over the stores of this process.
pub struct UsageTracker {
    state: Mutex<State>,
    in_use: GaugeSeries,
    alarms: GaugeSeries,
}

struct State {
    in_use: i64,
    /// True while writes are refused for the quota.
    alarm: bool,
}

impl UsageTracker {
    pub fn new(in_use: i64) -> Self {
        let tracker = Self {
            state: Mutex::new(State {
                in_use,
                alarm: false,
            }),
            in_use: IN_USE.series(&[]),
            alarms: ALARMS.series(&[]),
        };
        tracker.in_use.add(in_use);
        tracker
    }

    /// Notes the bytes that are in use now, and whether writes were refused, if any were judged.
    pub fn note(&self, in_use: i64, alarm: Option<bool>) {
        let mut state = self.state.lock();
        self.in_use.add(in_use - state.in_use);
        state.in_use = in_use;
        let alarm = alarm.unwrap_or(state.alarm);
        if alarm != state.alarm {
            state.alarm = alarm;
            self.alarms.add(if alarm { 1 } else { -1 });
            if alarm {
                tracing::error!(
                    "the embedded store is full by its quota ({in_use} bytes are in use): writes \
                     are refused until objects are deleted and old revisions compacted"
                );
            } else {
                tracing::info!("the embedded store is within its quota again");
            }
        }
    }
}

impl Drop for UsageTracker {
    fn drop(&mut self) {
        let state = self.state.lock();
        self.in_use.add(-state.in_use);
        if state.alarm {
            self.alarms.add(-1);
        }
    }
}
