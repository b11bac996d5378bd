//! Flags of the section "Metrics".

use super::{Flag, ignored, refused};
use crate::options::flags::Kind::{List, Map, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    refused(Map, "allow-metric-labels", "", "labels of metrics cannot be restricted"),
    refused(Text, "allow-metric-labels-manifest", "", "labels of metrics cannot be restricted"),
    refused(List, "disabled-metrics", "", "metrics cannot be switched off"),
    ignored(Text, "show-hidden-metrics-for-version", "", "no metric is hidden"),
];
