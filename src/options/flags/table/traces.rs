//! Flags of the section "Traces".

use super::{Flag, refused};
use crate::options::flags::Kind::Text;

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    refused(Text, "tracing-config-file", "", "traces are not exported"),
];
