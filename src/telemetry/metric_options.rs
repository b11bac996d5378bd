//! The choice of metrics and of the values of their labels by flags (component-base
//! `metrics/options.go`).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::proto::{self, MetricFamily, MetricType};

use super::samples::{family, float_metric};

/// The minor version of Kubernetes by which the age of a deprecation counts.
pub const MINOR: u32 = 36;
/// The value that is counted in the place of those that no flag allows.
const UNEXPECTED: &str = "unexpected";

/// The values that flags allow, by label.
pub type AllowedValues = HashMap<String, HashSet<String>>;

/// The flags about metrics.
#[derive(Debug, Default)]
pub struct MetricOptions {
    /// The names of metrics that are not to be shown.
    pub disabled: BTreeSet<String>,
    /// True if metrics are shown whose deprecation is over.
    pub show_hidden: bool,
    /// The values of labels that are told apart, by metric.
    pub allowed: HashMap<String, AllowedValues>,
}

static OPTIONS: OnceLock<MetricOptions> = OnceLock::new();
static TALLY: Mutex<Tally> = Mutex::new(Tally {
    registered: Vec::new(),
    hidden: 0,
});
static UNEXPECTED_VALUES: AtomicU64 = AtomicU64::new(0);

/// The numbers of metrics.
struct Tally {
    /// By stability and the version of the deprecation.
    registered: Vec<(&'static str, &'static str, u64)>,
    hidden: u64,
}

/// Sets the options, before the first metric is used. Later ones do not count.
pub fn configure(options: MetricOptions) {
    if OPTIONS.set(options).is_err() {
        tracing::debug!("the options of metrics have been set before");
    }
}

fn options() -> &'static MetricOptions {
    OPTIONS.get_or_init(MetricOptions::default)
}

/// Reports whether the flags leave a metric out.
pub fn is_disabled(name: &str) -> bool {
    options().disabled.contains(name)
}

/// Returns the values of labels that are told apart for a metric, if flags say so.
pub(super) fn allowed_values(name: &str) -> Option<&'static AllowedValues> {
    options().allowed.get(name)
}

/// The value as it is counted, where flags say which are.
pub(super) fn constrain<'a>(allowed: &AllowedValues, label: &str, value: &'a str) -> Cow<'a, str> {
    match allowed.get(label) {
        Some(values) if !values.contains(value) => {
            UNEXPECTED_VALUES.fetch_add(1, Ordering::Relaxed);
            Cow::Borrowed(UNEXPECTED)
        }
        _ => Cow::Borrowed(value),
    }
}

/// Counts a metric that begins, and reports whether it is shown.
pub(super) fn admit(name: &str, help: &str, deprecated: Option<&'static str>) -> bool {
    let level = stability(help);
    let mut tally = TALLY.lock();
    if is_hidden(options(), name, level, deprecated) {
        tally.hidden += 1;
        return false;
    }
    let version = deprecated.unwrap_or("");
    let mut known = tally.registered.iter_mut();
    match known.find(|(stability, since, _)| (*stability, *since) == (level, version)) {
        Some((.., count)) => *count += 1,
        None => tally.registered.push((level, version, 1)),
    }
    true
}

fn is_hidden(options: &MetricOptions, name: &str, level: &str, deprecated: Option<&str>) -> bool {
    // To disable goes before to show what is hidden.
    let over = || deprecated.is_some_and(|version| is_over(level, version));
    options.disabled.contains(name) || (!options.show_hidden && over())
}

/// Reports whether a metric that is deprecated since a version is hidden by now (component-base
/// `shouldHide`).
fn is_over(level: &str, version: &str) -> bool {
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok());
    let grace = match level {
        "STABLE" => 3,
        "BETA" => 1,
        _ => 0,
    };
    minor.is_some_and(|minor: u32| minor + grace <= MINOR)
}

/// The level of stability in front of a help text.
pub(super) fn stability(help: &str) -> &'static str {
    // Those of ratios over time begin with a word of their own.
    let help = help.strip_prefix("EXPERIMENTAL: ").unwrap_or(help);
    ["STABLE", "BETA", "INTERNAL"]
        .into_iter()
        .find(|level| {
            let rest = help
                .strip_prefix('[')
                .and_then(|rest| rest.strip_prefix(*level));
            rest.is_some_and(|rest| rest.starts_with(']'))
        })
        .unwrap_or("ALPHA")
}

/// The help text of a metric with its deprecation.
pub(super) fn annotated(help: &str, deprecated: Option<&str>) -> String {
    match (deprecated, help.split_once("] ")) {
        (Some(version), Some((level, text))) => {
            format!("{level}] (Deprecated since {version}) {text}")
        }
        _ => help.to_owned(),
    }
}

/// Returns the metrics about metrics.
pub(super) fn families() -> Vec<MetricFamily> {
    let tally = TALLY.lock();
    let mut registered: Vec<_> = tally.registered.clone();
    registered.sort_unstable();
    let registered = registered.into_iter().map(|(level, version, count)| {
        let labels = [("deprecated_version", version), ("stability_level", level)];
        float_metric(MetricType::COUNTER, &labels, count as f64)
    });
    let counter = |name, help, count: u64| {
        let metric = float_metric(MetricType::COUNTER, &[], count as f64);
        family(name, help, MetricType::COUNTER, vec![metric])
    };
    let registered: Vec<proto::Metric> = registered.collect();
    let mut families = vec![
        family(
            "registered_metrics_total",
            "[BETA] The count of registered metrics broken by stability level and deprecation version.",
            MetricType::COUNTER,
            registered,
        ),
        counter(
            "disabled_metrics_total",
            "[BETA] The count of disabled metrics.",
            options().disabled.len() as u64,
        ),
        counter(
            "hidden_metrics_total",
            "[BETA] The count of hidden metrics.",
            tally.hidden,
        ),
        counter(
            "cardinality_enforcement_unexpected_categorizations_total",
            "[ALPHA] The count of unexpected categorizations during cardinality enforcement.",
            UNEXPECTED_VALUES.load(Ordering::Relaxed),
        ),
    ];
    families.retain(|family| !is_disabled(family.name()));
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deprecated_for_long_is_hidden() {
        let none = MetricOptions::default();
        let hidden = |level, since| is_hidden(&none, "a", level, since);
        for (level, since, expected) in [
            ("ALPHA", None, false),
            ("ALPHA", Some("1.37.0"), false),
            ("ALPHA", Some("1.36.0"), true),
            ("BETA", Some("1.36.0"), false),
            ("BETA", Some("1.35.0"), true),
            ("STABLE", Some("1.34.0"), false),
            ("STABLE", Some("1.33.0"), true),
        ] {
            assert_eq!(hidden(level, since), expected, "{level} {since:?}");
        }
        let all = MetricOptions {
            show_hidden: true,
            disabled: BTreeSet::from(["b".to_owned()]),
            ..MetricOptions::default()
        };
        assert!(!is_hidden(&all, "a", "ALPHA", Some("1.20.0")));
        assert!(is_hidden(&all, "b", "STABLE", None));
    }

    #[test]
    fn help_tells_stability_and_deprecation() {
        assert_eq!(stability("[BETA] x"), "BETA");
        assert_eq!(stability("EXPERIMENTAL: [ALPHA] x"), "ALPHA");
        assert_eq!(stability("x"), "ALPHA");
        assert_eq!(
            annotated("[STABLE] Old.", Some("1.34.0")),
            "[STABLE] (Deprecated since 1.34.0) Old."
        );
        assert_eq!(annotated("[STABLE] New.", None), "[STABLE] New.");
    }

    #[test]
    fn values_that_are_not_allowed_are_counted_together() {
        let allowed: AllowedValues =
            HashMap::from([("verb".to_owned(), HashSet::from(["GET".to_owned()]))]);
        let before = UNEXPECTED_VALUES.load(Ordering::Relaxed);
        assert_eq!(constrain(&allowed, "verb", "GET"), "GET");
        assert_eq!(constrain(&allowed, "verb", "PUT"), UNEXPECTED);
        assert_eq!(constrain(&allowed, "code", "PUT"), "PUT");
        assert!(UNEXPECTED_VALUES.load(Ordering::Relaxed) > before);
    }
}
