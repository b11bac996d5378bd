//! Contents of certificate, key and token files, each with the flag that names the file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::cert_files::CertFiles;
use crate::webhook::tls::ClientCert;

/// The largest file that is read, in bytes: a token file may have many lines.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// An error of a certificate, key or token file.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    #[error("{file}: {source}")]
    File {
        file: CredentialFile,
        source: io::Error,
    },
    #[error("{file}: {why}")]
    Content { file: CredentialFile, why: String },
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// The folder in the paths of files that are in memory alone.
pub const MEMORY: &str = "(memory)";

/// Reports whether a path is that of a file in memory.
pub fn is_in_memory(path: &Path) -> bool {
    path.starts_with(MEMORY)
}

/// A file, and the flag that names it; no flag names those that the server makes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFile {
    pub flag: Option<&'static str>,
    pub path: PathBuf,
}

impl CredentialFile {
    /// The file that a flag (without its dashes) names.
    pub fn of_flag(flag: &'static str, path: &Path) -> Self {
        Self {
            flag: Some(flag),
            path: path.to_owned(),
        }
    }

    /// A file in a folder of the server's own.
    pub fn own(path: impl Into<PathBuf>) -> Self {
        Self {
            flag: None,
            path: path.into(),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// The system's, and files of more than [`MAX_FILE_BYTES`].
    pub fn read(&self) -> Result<FileContent, CertError> {
        let attempt = || {
            let mut bytes = Vec::new();
            File::open(&self.path)?
                .take(MAX_FILE_BYTES + 1)
                .read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_FILE_BYTES {
                Err(io::Error::from(io::ErrorKind::FileTooLarge))
            } else {
                Ok(bytes)
            }
        };
        match attempt() {
            Ok(bytes) => Ok(FileContent {
                file: self.clone(),
                bytes,
            }),
            Err(source) => Err(CertError::File {
                file: self.clone(),
                source,
            }),
        }
    }

    /// Reports whether it can be read only once, as a pipe can, or is in memory: what was read at
    /// the start is all there is.
    pub fn is_read_once(&self) -> bool {
        if is_in_memory(&self.path) {
            return true;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt;
            std::fs::metadata(&self.path)
                .is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
        }
        #[cfg(not(unix))]
        false
    }

    /// Returns an error about the content of the file.
    pub fn error(&self, why: impl ToString) -> CertError {
        CertError::Content {
            file: self.clone(),
            why: why.to_string(),
        }
    }
}

/// Formats the file as it is given on the command line.
impl fmt::Display for CredentialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flag {
            Some(flag) => write!(f, "--{flag}={}", self.path.display()),
            None => write!(f, "{}", self.path.display()),
        }
    }
}

/// A file as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContent {
    pub file: CredentialFile,
    pub bytes: Vec<u8>,
}

/// Not the bytes, which may be a key.
impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileContent({}, {} bytes)", self.file, self.bytes.len())
    }
}

impl FileContent {
    /// The text that a PEM or CSV file is.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&self) -> Result<&str, CertError> {
        std::str::from_utf8(&self.bytes).map_err(|why| self.file.error(why))
    }
}

/// The pair as clients present it.
impl From<CertKeyPair> for ClientCert {
    fn from(pair: CertKeyPair) -> Self {
        Self {
            chain: pair.cert.bytes,
            key: pair.key.bytes,
        }
    }
}

/// A certificate chain with its key, ready for TLS.
#[derive(Debug)]
pub struct ServingCert {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// The files of a certificate chain and its key.
#[derive(Clone, Debug)]
pub struct CertKeyPair {
    pub cert: FileContent,
    pub key: FileContent,
}

impl CertKeyPair {
    /// Reads both files, which two flags (or the same twice) name.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn read(files: &CertFiles, flags: Option<[&'static str; 2]>) -> Result<Self, CertError> {
        let [cert, key] = flags.map_or([None, None], |flags| flags.map(Some));
        let read = |flag, path: &Path| {
            CredentialFile {
                flag,
                path: path.to_owned(),
            }
            .read()
        };
        Ok(Self {
            cert: read(cert, &files.cert)?,
            key: read(key, &files.key)?,
        })
    }

    /// The chain and the key that the files hold.
    ///
    /// # Errors
    /// Files without a certificate or key, or with broken ones.
    pub fn parse(&self) -> Result<ServingCert, CertError> {
        let chain = CertificateDer::pem_slice_iter(&self.cert.bytes).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|why| self.cert.file.error(why))?;
        if chain.is_empty() {
            return Err(self.cert.file.error("no certificate found"));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key.bytes)
            .map_err(|why| self.key.file.error(why))?;
        Ok(ServingCert { chain, key })
    }

    /// Both, in the order that [`CertKeyPair::from_contents`] takes them in.
    pub fn files(&self) -> Vec<FileContent> {
        vec![self.cert.clone(), self.key.clone()]
    }

    /// The pair of two files; `None` for any other number.
    pub fn from_contents(contents: &[FileContent]) -> Option<Self> {
        match contents {
            [cert, key] => Some(Self {
                cert: cert.clone(),
                key: key.clone(),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_flag_and_file_and_keys_are_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.crt");
        let file = CredentialFile::of_flag("client-ca-file", &path);
        let shown = format!("--client-ca-file={}: ", path.display());
        assert!(
            file.read()
                .expect_err("missing")
                .to_string()
                .starts_with(&shown)
        );
        std::fs::write(&path, "secret").expect("written");
        let content = file.read().expect("readable");
        assert!(!format!("{content:?}").contains("secret"));
        let pair = CertKeyPair {
            cert: content.clone(),
            key: content,
        };
        assert_eq!(
            pair.parse().expect_err("no PEM").to_string(),
            format!("{shown}no certificate found")
        );
        File::create(&path)
            .and_then(|file| file.set_len(MAX_FILE_BYTES + 1))
            .expect("grown");
        assert!(file.read().is_err());
    }
}
