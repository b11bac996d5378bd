//! Metrics that do not change while the server runs: its build, its versions, its feature
//! gates.

use crate::discovery::version::{self, Build};
use crate::options::config::Config;
use crate::telemetry::metrics::{Declared, Gauge};
use crate::webhook;

static BUILD: Gauge = Gauge::new(
    "kubernetes_build_info",
    "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    &[
        "major",
        "minor",
        "git_version",
        "git_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    ],
);
static OWN_BUILD: Gauge = Gauge::new(
    "keelson_build_info",
    "A metric with a constant '1' value labeled by the version of Keelson and the commit that it was built from.",
    &["version", "git_commit"],
);
static VERSION: Gauge = Gauge::new(
    "version_info",
    "[ALPHA] Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers.",
    &["component", "binary", "emulation", "min_compat"],
);
static FEATURES: Gauge = Gauge::new(
    "kubernetes_feature_enabled",
    "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    &["name", "stage"],
);
pub static METRICS: &[&dyn Declared] = &[&BUILD, &OWN_BUILD, &VERSION, &FEATURES];

/// Sets the metrics of what this server is.
pub fn record(config: &Config) {
    let Build {
        commit,
        tree_state,
        date,
        platform,
    } = version::build();
    BUILD.set(
        &[
            version::MAJOR,
            version::MINOR,
            version::GIT_VERSION,
            commit,
            tree_state,
            date,
            "",
            version::COMPILER,
            &platform,
        ],
        1,
    );
    OWN_BUILD.set(&[env!("CARGO_PKG_VERSION"), commit], 1);
    let number = |minor| format!("{}.{minor}", version::MAJOR);
    VERSION.set(
        &[
            "kube",
            version::GIT_VERSION.trim_start_matches('v'),
            &number(version::MINOR),
            &number(version::MIN_COMPATIBILITY_MINOR),
        ],
        1,
    );
    webhook::metrics::show_no_plugins();
    for (name, stage, enabled) in config.feature_gates.all() {
        FEATURES.set(&[name, stage], i64::from(enabled));
    }
}
