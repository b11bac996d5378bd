//! Flags of the section "Features".

use super::{Flag, refused, used};
use crate::options::flags::Kind::{Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    refused(Switch, "contention-profiling", "false", "threads do not block in a way that could be profiled: there is no Go runtime"),
    refused(Text, "debug-socket-path", "", "there is no debugging socket"),
    used(Switch, "enable-priority-and-fairness", "true",
        "let requests wait for the seats of priority levels, instead of turning them away by number"),
    used(Switch, "profiling", "true",
        "serve /debug/flags and profiles of the process in /debug/pprof"),
];
