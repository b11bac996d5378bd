//! The files that a server makes itself: certificates and keys. They are used as soon as they are
//! made, and written to the disk together, so that a start waits for few writes; a server without
//! a folder keeps them in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use super::cert_files::CertFiles;
use super::credential_files::{
    CertError, CertKeyPair, CredentialFile, FileContent, MEMORY, is_in_memory,
};
use super::data_dir;
use crate::base::files::write_atomic;

/// The phase in which a file is written. What a later file depends on is on the disk before it, so
/// that a start that was interrupted can be continued by the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    AuthorityKey,
    Authority,
    Key,
    Certificate,
}

#[derive(Debug)]
struct Made {
    content: Vec<u8>,
    secret: bool,
    phase: Phase,
}

/// The files of one server.
#[derive(Debug)]
pub struct OwnFiles {
    /// The data directory; `None` for a server that has none.
    folder: Option<PathBuf>,
    /// The files that have been made and are not on the disk yet.
    made: BTreeMap<PathBuf, Made>,
}

impl OwnFiles {
    /// The files in a data directory, or in memory.
    pub fn new(folder: Option<&Path>) -> Self {
        Self {
            folder: folder.map(Path::to_owned),
            made: BTreeMap::new(),
        }
    }

    /// Reports whether nothing outlives the process.
    pub fn in_memory(&self) -> bool {
        self.folder.is_none()
    }

    /// Returns the path of a certificate or key.
    pub fn pki(&self) -> PathBuf {
        match &self.folder {
            Some(folder) => folder.join(data_dir::PKI),
            None => Path::new(MEMORY).join(data_dir::PKI),
        }
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(data_dir::KUBECONFIG))
    }

    pub fn exists(&self, path: &Path) -> bool {
        self.made.contains_key(path) || path.exists()
    }

    /// Returns the content of a file.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn read(&self, path: &Path) -> Result<FileContent, CertError> {
        let file = CredentialFile::own(path);
        match self.made.get(path) {
            Some(made) => Ok(FileContent {
                file,
                bytes: made.content.clone(),
            }),
            None => file.read(),
        }
    }

    /// Returns a certificate and its key.
    ///
    /// # Errors
    /// Those of [`OwnFiles::read`].
    pub fn read_pair(&self, files: &CertFiles) -> Result<CertKeyPair, CertError> {
        Ok(CertKeyPair {
            cert: self.read(&files.cert)?,
            key: self.read(&files.key)?,
        })
    }

    /// Keeps a new file, which takes the place of one of its name. Others may read it, unless it is
    /// a key.
    pub fn keep(&mut self, path: &Path, content: Vec<u8>, phase: Phase) {
        let made = Made {
            content,
            secret: path.extension().is_some_and(|extension| extension == "key"),
            phase,
        };
        self.made.insert(path.to_owned(), made);
    }

    /// Writes the files that are not to stay in memory, those of a phase at the same time. Blocks.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub fn write(self) -> Result<(), CertError> {
        let mut made = Vec::from_iter(self.made);
        made.retain(|(path, _)| !is_in_memory(path));
        made.sort_by_key(|(_, made)| made.phase);
        for phase in made.chunk_by(|(_, one), (_, other)| one.phase == other.phase) {
            let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
                let write =
                    |(path, made): &(PathBuf, Made)| write_atomic(path, &made.content, made.secret);
                let writes: Vec<_> = phase
                    .iter()
                    .map(|file| scope.spawn(move || write(file)))
                    .collect();
                writes
                    .into_iter()
                    .map(|thread| {
                        thread
                            .join()
                            .unwrap_or_else(|_| Err(io::Error::other("panic")))
                    })
                    .collect()
            });
            for ((path, _), outcome) in phase.iter().zip(outcomes) {
                outcome.map_err(|source| CertError::File {
                    file: CredentialFile::own(path),
                    source,
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_readable_before_they_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = OwnFiles::new(Some(folder.path()));
        let path = files.pki().join("ca.key");
        assert!(!files.exists(&path));
        files.keep(&path, b"secret".to_vec(), Phase::AuthorityKey);
        assert!(files.exists(&path) && !path.exists());
        assert_eq!(files.read(&path).expect("kept").bytes, b"secret");
        files.write().expect("written");
        assert_eq!(std::fs::read(&path).expect("a file"), b"secret");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&path).expect("a file").permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn without_a_folder_nothing_is_written() {
        let mut files = OwnFiles::new(None);
        let path = files.pki().join("ca.crt");
        files.keep(&path, b"public".to_vec(), Phase::Authority);
        assert!(is_in_memory(&path) && files.kubeconfig().is_none());
        files.write().expect("nothing to do");
        assert!(!path.exists());
    }
}
