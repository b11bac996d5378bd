//! Flags of the section "Features".

use super::{Flag, ignored, refused};
use crate::options::flags::Kind::{Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    refused(Switch, "contention-profiling", "false", "there is no Go runtime to profile"),
    refused(Text, "debug-socket-path", "", "there is no debugging socket"),
    ignored(Switch, "enable-priority-and-fairness", "true",
        "there are no priority levels: in any case the --max-*-inflight flags limit requests"),
    ignored(Switch, "profiling", "true",
        "there is no Go runtime to profile: /debug/pprof is not served in any case"),
];
