//! The flags about the embedded store: its quota, and the snapshots that the server takes of it.

use std::path::PathBuf;
use std::time::Duration;

use super::flags::{FlagError, Flags};

/// The flags that mean nothing without an embedded store.
const FLAGS: [&str; 4] = [
    "quota-backend-bytes",
    "snapshot-dir",
    "snapshot-interval",
    "snapshot-retention",
];

/// The configuration of the embedded store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// The bytes that may be in use; 0 for any number.
    pub(crate) quota_bytes: i64,
    /// `None` if no snapshots are taken.
    pub(crate) snapshots: Option<SnapshotSchedule>,
}

/// The snapshots that a server takes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSchedule {
    /// `None` for the folder in the data directory.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) interval: Duration,
    /// The number of snapshots that are kept.
    pub(crate) keep: usize,
}

impl EmbeddedConfig {
    pub(super) fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let given = |name: &str| flags.given().any(|(flag, _)| flag.name == name);
        if let Some(name) = FLAGS.into_iter().find(|name| given(name))
            && !flags.list("etcd-servers").is_empty()
        {
            return Err(FlagError::new(format!(
                "--{name} is about the embedded store, which --etcd-servers replaces"
            )));
        }
        let quota_bytes = flags.int("quota-backend-bytes");
        if quota_bytes < 0 {
            return Err(FlagError::new("--quota-backend-bytes can not be negative"));
        }
        let interval = flags.duration("snapshot-interval");
        let keep = usize::try_from(flags.int("snapshot-retention")).unwrap_or(0);
        if keep == 0 {
            return Err(FlagError::new("--snapshot-retention must be at least 1"));
        }
        let folder = Some(flags.text("snapshot-dir")).filter(|folder| !folder.is_empty());
        let snapshots = (!interval.is_zero()).then_some(SnapshotSchedule {
            folder: folder.map(PathBuf::from),
            interval,
            keep,
        });
        Ok(Self {
            quota_bytes,
            snapshots,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::flags::{Command, parse};

    fn config(args: &[&str]) -> Result<EmbeddedConfig, FlagError> {
        match parse(args.iter().map(ToString::to_string))? {
            Command::Run(flags) => EmbeddedConfig::from_flags(&flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn snapshots_are_taken_if_there_is_an_interval() {
        assert_eq!(config(&[]), Ok(EmbeddedConfig::default()));
        let given = config(&[
            "--snapshot-dir=/snapshots",
            "--snapshot-interval=1h",
            "--snapshot-retention=3",
        ]);
        let snapshots = given.unwrap().snapshots.unwrap();
        assert_eq!(snapshots.folder, Some(PathBuf::from("/snapshots")));
        assert_eq!((snapshots.interval.as_secs(), snapshots.keep), (3600, 3));
    }

    #[test]
    fn values_without_a_meaning_are_refused() {
        for (args, message) in [
            (
                vec!["--quota-backend-bytes=-1"],
                "--quota-backend-bytes can not be negative",
            ),
            (
                vec!["--snapshot-retention=0"],
                "--snapshot-retention must be at least 1",
            ),
            (
                vec!["--etcd-servers=http://e:2379", "--snapshot-interval=1h"],
                "--snapshot-interval is about the embedded store, which --etcd-servers replaces",
            ),
        ] {
            assert_eq!(config(&args).unwrap_err().to_string(), message);
        }
    }
}
