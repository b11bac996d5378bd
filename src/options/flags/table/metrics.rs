//! Flags of the section "Metrics".

use super::{Flag, used};
use crate::options::flags::Kind::{List, Map, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Map, "allow-metric-labels", "", "the values of labels that metrics tell apart: METRIC,LABEL=VALUE,..."),
    used(Text, "allow-metric-labels-manifest", "", "a file with the values of --allow-metric-labels, as a map in YAML"),
    used(List, "disabled-metrics", "", "names of metrics that are not shown"),
    used(Text, "show-hidden-metrics-for-version", "", "the minor version before this one, to show metrics that it hides"),
];
