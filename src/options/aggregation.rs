//! The flags of the aggregator.

use super::cert_files::CertFiles;
use super::flags::{FlagError, Flags};

/// The flags of the certificate by which extension servers know this one.
pub const CLIENT_FLAGS: [&str; 2] = ["proxy-client-cert-file", "proxy-client-key-file"];

/// The configuration of the aggregator.
#[derive(Clone, Debug)]
pub struct Aggregation {
    /// The certificate by which extension servers know this one.
    pub(crate) client: Option<CertFiles>,
    /// True if an extension server's redirects are not passed on.
    pub(crate) reject_redirects: bool,
}

impl Aggregation {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// A certificate without a key, or the reverse.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        Ok(Self {
            client: CertFiles::of_flags(flags, CLIENT_FLAGS)?,
            reject_redirects: flags.switch("aggregator-reject-forwarding-redirect"),
        })
    }
}
