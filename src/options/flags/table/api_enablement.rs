//! Flags of the section "API enablement".

use super::{Flag, used};
use crate::options::flags::Kind::{List, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(List, "runtime-config", "",
        "what to serve: group/version[/resource]=true|false, and api/all, api/ga, api/beta, api/alpha"),
    used(Text, "egress-selector-config-file", "",
        "the ways to nodes, webhooks and etcd: directly or by HTTPConnect (EgressSelectorConfiguration)"),
];
