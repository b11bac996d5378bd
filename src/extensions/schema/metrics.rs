//! The metrics of the validation of custom objects (apiextensions-apiserver
//! `apiserver/validation/metrics.go`).

use std::time::Duration;

use crate::telemetry::metrics::{Declared, Histogram};

static RATCHETING: Histogram = Histogram::new(
    "apiextensions_apiserver_validation_ratcheting_seconds",
    "[ALPHA] Time for comparison of old to new for the purposes of CRDValidationRatcheting during an UPDATE in seconds.",
    &[],
    &[
        1e-5, 4e-5, 0.00016, 0.00064, 0.00256, 0.01024, 0.04096, 0.16384, 0.65536, 2.62144,
    ],
);
pub static METRICS: &[&dyn Declared] = &[&RATCHETING];

/// Notes the time that it took to find out whether a value is the one that was there before.
pub(super) fn compared(took: Duration) {
    RATCHETING.observe(&[], took.as_secs_f64());
}
