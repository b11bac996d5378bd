//! The files of a certificate chain and its key, which two flags name.

use std::path::PathBuf;

use super::flags::{FlagError, Flags};

/// A certificate chain and its key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl CertFiles {
    /// The files that two flags name, which make sense only together.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn of_flags(flags: &Flags, [cert, key]: [&str; 2]) -> Result<Option<Self>, FlagError> {
        match (path(flags, cert), path(flags, key)) {
            (Some(cert), Some(key)) => Ok(Some(Self { cert, key })),
            (None, None) => Ok(None),
            _ => Err(FlagError::new(format!(
                "--{cert} and --{key} must be specified together"
            ))),
        }
    }
}

/// The path that a flag names; `None` where it is empty.
pub fn path(flags: &Flags, name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(flags.text(name))).filter(|path| !path.as_os_str().is_empty())
}
