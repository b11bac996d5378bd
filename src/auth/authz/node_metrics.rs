//! The metrics of the graph of the node authorizer (`plugin/pkg/auth/authorizer/node/metrics.go`).

use std::sync::LazyLock;
use std::time::Instant;

use crate::telemetry::metrics::{Declared, Histogram, HistogramSeries};

static SECONDS: Histogram = Histogram::new(
    "node_authorizer_graph_actions_duration_seconds",
    "[ALPHA] Histogram of duration of graph actions in node authorizer.",
    &["operation"],
    &[
        0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024,
        0.2048,
    ],
);
pub static METRICS: &[&dyn Declared] = &[&SECONDS];

/// The kinds of the graph with the names of what is done with them.
const ACTIONS: [(&str, [&str; 2]); 4] = [
    ("Pod", ["AddPod", "DeletePod"]),
    ("PersistentVolume", ["AddPV", "DeletePV"]),
    (
        "VolumeAttachment",
        ["AddVolumeAttachment", "DeleteVolumeAttachment"],
    ),
    ("ResourceSlice", ["AddResourceSlice", "DeleteResourceSlice"]),
];

/// Takes the time of a change that began at a time: an object was added or, else, deleted.
pub(super) fn changed(kind: &str, added: bool, begun: Instant) {
    static SERIES: LazyLock<[[HistogramSeries; 2]; 4]> =
        LazyLock::new(|| ACTIONS.map(|(_, names)| names.map(|name| SECONDS.series(&[name]))));
    if let Some(at) = ACTIONS.iter().position(|(known, _)| *known == kind) {
        SERIES[at][usize::from(!added)].observe(begun.elapsed().as_secs_f64());
    }
}
