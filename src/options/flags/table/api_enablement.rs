//! Flags of the section "API enablement".

use super::{Flag, refused, used};
use crate::options::flags::Kind::{List, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(List, "runtime-config", "",
        "what to serve: group/version[/resource]=true|false, and api/all, api/ga, api/beta, api/alpha"),
    refused(Text, "egress-selector-config-file", "", "egress proxies are not implemented"),
];
