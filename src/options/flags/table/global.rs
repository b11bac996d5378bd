//! Flags of the section "Global".

use super::{Flag, used};
use crate::options::flags::Kind::{Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Switch, "help", "false", "print this and exit (-h)"),
    used(Text, "version", "false", "print the version and exit"),
];
