//! The flags of memory budgets.

use super::flag_readers::number;
use super::flags::{FlagError, Flags};
use crate::base::memory;

/// The memory for encoded objects, where there is much.
const MAX_ENCODED_OBJECTS: usize = 192 * 1024 * 1024;
/// The memory for the bodies of requests, where there is much.
const MAX_BODIES: usize = 256 * 1024 * 1024;
/// The divisors of the shares of the memory limit.
const ENCODED_SHARE: usize = 8;
const BODIES_SHARE: usize = 16;
const DECODED_SHARE: usize = 4;
/// The value of a flag that stands for a share of the limit.
const SHARE: i64 = -1;

/// The budgets of memory, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Objects that are kept as clients get them.
    pub(crate) encoded_objects: usize,
    /// The bodies of all requests.
    pub(crate) bodies: usize,
    /// The trees that these bodies are decoded to, and the copies that are made of them.
    pub(crate) decoded: usize,
}

impl Memory {
    /// Returns the budgets of the flags.
    ///
    /// # Errors
    /// A number that is out of range.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let limit = match number::<u64>(flags, "memory-limit-bytes")? {
            0 => memory::limit(),
            limit => limit,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let budget = |name, share| match flags.int(name) {
            SHARE => Ok(share),
            _ => number(flags, name),
        };
        Ok(Self {
            encoded_objects: budget(
                "encoded-object-cache-bytes",
                MAX_ENCODED_OBJECTS.min(limit / ENCODED_SHARE),
            )?,
            bodies: budget(
                "request-body-memory-bytes",
                MAX_BODIES.min(limit / BODIES_SHARE),
            )?,
            decoded: budget("decoded-body-memory-bytes", limit / DECODED_SHARE)?,
        })
    }
}
