//! Flags of the section "Admission".

use super::{Flag, refused, used};
use crate::options::flags::Kind::{Int, List, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    refused(List, "admission-control", "", "it is deprecated; use --enable-admission-plugins"),
    used(Text, "admission-control-config-file", "",
        "a file with the configuration of admission plugins"),
    used(Int, "default-not-ready-toleration-seconds", "300",
        "how long new pods tolerate a node that is not ready"),
    used(Int, "default-unreachable-toleration-seconds", "300",
        "how long new pods tolerate a node that cannot be reached"),
    used(List, "disable-admission-plugins", "", "default plugins to switch off"),
    used(List, "enable-admission-plugins", "", "plugins to switch on besides the default ones"),
];
