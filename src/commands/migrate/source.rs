//! The stores that can be read: a data directory, a snapshot, a snapshot of etcd, an etcd.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::{Args, connect, is_etcd};
use crate::commands::{CommandError, snapshot};
use crate::storage::embedded::contents::{Entries, StoppedStore};
use crate::storage::etcd_snapshot::EtcdSnapshot;
use crate::storage::etcd3::Etcd3;
use crate::storage::etcd3::export::Leases;
use crate::storage::snapshot::{Entry, Reader, SnapshotError};
use crate::storage::{Revision, Storage};

/// Entries that are read at a time.
const PAGE: usize = 2000;

/// A store with a position in it.
pub struct Source {
    prefix: String,
    kind: Kind,
}

enum Kind {
    Directory {
        store: StoppedStore,
        entries: Entries,
    },
    Snapshot {
        file: String,
        reader: Reader<BufReader<File>>,
    },
    EtcdSnapshot {
        snapshot: EtcdSnapshot,
        at: usize,
    },
    Etcd {
        etcd: Etcd3,
        revision: Revision,
        /// The last key that was read.
        after: Option<String>,
        done: bool,
        count: u64,
        online: bool,
        leases: Leases,
    },
}

impl Source {
    /// Opens a store, whatever it is.
    ///
    /// # Errors
    /// There is none, it is in use, damaged, or does not answer.
    pub async fn open(text: &str, prefix: &str, args: &Args) -> Result<Self, CommandError> {
        let kind = if is_etcd(text) {
            let etcd = connect(text, args).await?;
            Kind::Etcd {
                revision: etcd.current_revision().await?,
                etcd,
                after: None,
                done: false,
                count: 0,
                online: args.switch("online"),
                leases: Leases::new(),
            }
        } else if Path::new(text).is_dir() {
            let store = StoppedStore::open(Path::new(text))?;
            Kind::Directory {
                entries: store.entries()?,
                store,
            }
        } else {
            Self::open_file(text, prefix, args)?
        };
        Ok(Self {
            prefix: prefix.to_owned(),
            kind,
        })
    }

    fn open_file(text: &str, prefix: &str, args: &Args) -> Result<Kind, CommandError> {
        let input = File::open(text).map_err(|error| CommandError::from(error).about(text))?;
        match Reader::new(BufReader::new(input)) {
            Err(SnapshotError::Foreign) => {
                let unchecked = args.switch("skip-hash-check");
                let snapshot = EtcdSnapshot::read(Path::new(text), prefix, unchecked)?;
                Ok(Kind::EtcdSnapshot { snapshot, at: 0 })
            }
            Err(error) => Err(CommandError::from(error).about(text)),
            Ok(_) => Ok(Kind::Snapshot {
                file: text.to_owned(),
                reader: snapshot::open(text)?,
            }),
        }
    }

    /// The revision that is read at.
    pub fn revision(&self) -> Revision {
        match &self.kind {
            Kind::Directory { entries, .. } => entries.revision(),
            Kind::Snapshot { reader, .. } => reader.revision(),
            Kind::EtcdSnapshot { snapshot, .. } => snapshot.revision,
            Kind::Etcd { revision, .. } => *revision,
        }
    }

    /// The number of keys, as far as it is known; 0 if not.
    pub fn count(&self) -> u64 {
        match &self.kind {
            Kind::EtcdSnapshot { snapshot, .. } => snapshot.entries.len() as u64,
            Kind::Etcd { count, .. } => *count,
            Kind::Directory { .. } | Kind::Snapshot { .. } => 0,
        }
    }

    /// Reports whether a copy that was made here has the revisions of its source.
    pub fn keeps_revisions(&self) -> bool {
        !matches!(self.kind, Kind::Etcd { .. })
    }

    /// Goes back to the first entry.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub fn rewind(&mut self) -> Result<(), CommandError> {
        match &mut self.kind {
            Kind::Directory { store, entries } => *entries = store.entries()?,
            Kind::Snapshot { file, reader } => *reader = snapshot::open(file)?,
            Kind::EtcdSnapshot { at, .. } => *at = 0,
            Kind::Etcd { after, done, .. } => (*after, *done) = (None, false),
        }
        Ok(())
    }

    /// Checks that nobody has written to an etcd since it was opened.
    ///
    /// # Errors
    /// Somebody has, or etcd fails.
    pub async fn check_unchanged(&self) -> Result<(), CommandError> {
        let Kind::Etcd {
            etcd,
            revision,
            online: false,
            ..
        } = &self.kind
        else {
            return Ok(());
        };
        let now = etcd.current_revision().await?;
        if now == *revision {
            return Ok(());
        }
        Err(CommandError::new(format!(
            "etcd has changed from revision {revision} to {now} meanwhile: stop the servers that \
             use it, or say --online to leave such changes behind"
        )))
    }

    /// The next entries under the prefix; none behind the last.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub async fn next_page(&mut self) -> Result<Vec<Entry>, CommandError> {
        let prefix = &self.prefix;
        let wanted = |entry: &Entry| entry.stored.key.starts_with(prefix.as_str());
        let mut page = Vec::new();
        match &mut self.kind {
            Kind::Directory { entries, .. } => {
                while page.len() < PAGE {
                    match entries.next_entry()? {
                        Some(entry) if wanted(&entry) => page.push(entry),
                        Some(_) => {}
                        None => break,
                    }
                }
            }
            Kind::Snapshot { file, reader } => {
                while page.len() < PAGE {
                    let next = reader.next_entry();
                    match next.map_err(|error| CommandError::from(error).about(&file))? {
                        Some(entry) if wanted(&entry) => page.push(entry),
                        Some(_) => {}
                        None => break,
                    }
                }
            }
            Kind::EtcdSnapshot { snapshot, at } => {
                let end = snapshot.entries.len().min(*at + PAGE);
                page.extend_from_slice(&snapshot.entries[*at..end]);
                *at = end;
            }
            Kind::Etcd {
                etcd,
                revision,
                after,
                done: done @ false,
                count,
                leases,
                ..
            } => {
                let exported = etcd
                    .export_page(prefix, after.as_deref(), *revision, leases)
                    .await?;
                page = exported.entries;
                *count = (*count).max(exported.count);
                *done = !exported.more;
                *after = page.last().map(|entry| entry.stored.key.clone());
            }
            Kind::Etcd { .. } => {}
        }
        Ok(page)
    }
}
