//! Flags of the section "Traces".

use super::{Flag, used};
use crate::options::flags::Kind::Text;

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Text, "tracing-config-file", "", "a TracingConfiguration: the collector that spans are sent to, and how many are"),
];
