//! Snapshots: the state of a store at one revision in one file, whatever the store.
//!
//! A file has a magic line, the revision, the entries in the order of their keys, and at its end
//! their number and the SHA-256 of all before: one that was cut or changed is not taken. The layout
//! depends on no other format, so that it outlives those of the stores. Numbers are little endian.

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use bytes::Bytes;

use super::{Revision, Stored};

/// The first bytes of each snapshot, with the version of its layout.
const MAGIC: &[u8; 20] = b"keelson snapshot v1\n";
/// The part of [`MAGIC`] that later layouts will share.
const FAMILY: &[u8] = b"keelson snapshot v";
/// The mark in front of an entry, and of the end.
const ENTRY: u8 = 1;
const END: u8 = 0;
/// The longest key and value that are read: far more than any store takes.
const MAX_KEY_BYTES: usize = 64 << 10;
const MAX_VALUE_BYTES: usize = 64 << 20;
/// The last revision that a store may begin with: those behind it are for its writes.
pub const MAX_REVISION: Revision = i64::MAX / 2;

/// An error of reading or writing a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("it is no snapshot of Keelson")]
    Foreign,
    #[error("its layout is that of a newer Keelson, which can restore it")]
    Newer,
    #[error("it ends too early: it was not written to its end, or was cut")]
    Truncated,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

type Result<T> = std::result::Result<T, SnapshotError>;

/// A key with its value, and when it goes by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub stored: Stored,
    /// Microseconds since 1970.
    pub expires: Option<i64>,
}

/// The facts about a snapshot that was read or written to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub revision: Revision,
    pub keys: u64,
    pub bytes: u64,
    pub hash: [u8; SHA256_OUTPUT_LEN],
}

/// Writes a snapshot.
pub struct Writer<W> {
    out: W,
    hash: Context,
    summary: Summary,
}

impl<W: Write> Writer<W> {
    /// Begins a snapshot of the state at `revision`.
    ///
    /// # Errors
    /// The output's.
    pub fn new(out: W, revision: Revision) -> Result<Self> {
        let mut writer = Self {
            out,
            hash: Context::new(&SHA256),
            summary: Summary {
                revision,
                keys: 0,
                bytes: 0,
                hash: [0; SHA256_OUTPUT_LEN],
            },
        };
        writer.put(MAGIC)?;
        writer.put(&revision.to_le_bytes())?;
        Ok(writer)
    }

    /// Adds an entry, whose key comes after those before.
    ///
    /// # Errors
    /// The output's.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let Entry { stored, expires } = entry;
        let length = |bytes: &[u8]| {
            u32::try_from(bytes.len())
                .map_err(|_| SnapshotError::Damaged("a key or value is too long"))
        };
        self.put(&[ENTRY])?;
        self.put(&length(stored.key.as_bytes())?.to_le_bytes())?;
        self.put(stored.key.as_bytes())?;
        self.put(&stored.create_revision.to_le_bytes())?;
        self.put(&stored.mod_revision.to_le_bytes())?;
        self.put(&expires.unwrap_or(0).to_le_bytes())?;
        self.put(&length(&stored.value)?.to_le_bytes())?;
        self.put(&stored.value)?;
        self.summary.keys += 1;
        Ok(())
    }

    /// Ends the snapshot, and returns the output with the facts.
    ///
    /// # Errors
    /// The output's.
    pub fn finish(mut self) -> Result<(W, Summary)> {
        self.put(&[END])?;
        self.put(&self.summary.keys.to_le_bytes())?;
        let hash = self.hash.finish();
        self.summary.hash.copy_from_slice(hash.as_ref());
        self.out.write_all(hash.as_ref())?;
        self.out.flush()?;
        self.summary.bytes += SHA256_OUTPUT_LEN as u64;
        Ok((self.out, self.summary))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.hash.update(bytes);
        self.summary.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a snapshot. What it yields is to be used only once its end has been reached without an
/// error.
pub struct Reader<R> {
    input: R,
    hash: Context,
    summary: Summary,
    last_key: Option<String>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Begins to read a snapshot.
    ///
    /// # Errors
    /// It is none, or the input fails.
    pub fn new(input: R) -> Result<Self> {
        let mut reader = Self {
            input,
            hash: Context::new(&SHA256),
            summary: Summary {
                revision: 0,
                keys: 0,
                bytes: 0,
                hash: [0; SHA256_OUTPUT_LEN],
            },
            last_key: None,
            ended: false,
        };
        let magic: [u8; MAGIC.len()] = reader.take().map_err(|error| match error {
            SnapshotError::Truncated => SnapshotError::Foreign,
            error => error,
        })?;
        if !magic.starts_with(FAMILY) {
            return Err(SnapshotError::Foreign);
        }
        if &magic != MAGIC {
            return Err(SnapshotError::Newer);
        }
        reader.summary.revision = reader.number()?;
        if !(1..=MAX_REVISION).contains(&reader.summary.revision) {
            return Err(SnapshotError::Damaged(
                "its revision is not positive, or too large",
            ));
        }
        Ok(reader)
    }

    /// The revision of the state.
    pub fn revision(&self) -> Revision {
        self.summary.revision
    }

    /// The next entry; `None` at the end of a snapshot that is complete.
    ///
    /// # Errors
    /// It ends too early, is damaged, or the input fails.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        if self.ended {
            return Ok(None);
        }
        match self.take::<1>()? {
            [ENTRY] => self.entry().map(Some),
            [END] => self.end().map(|()| None),
            _ => Err(SnapshotError::Damaged("there is no entry where one is due")),
        }
    }

    /// Reads to the end, and returns the facts.
    ///
    /// # Errors
    /// Those of [`Reader::next_entry`].
    pub fn finish(mut self) -> Result<Summary> {
        while self.next_entry()?.is_some() {}
        Ok(self.summary)
    }

    fn entry(&mut self) -> Result<Entry> {
        let key = String::from_utf8(self.bytes(MAX_KEY_BYTES)?)
            .map_err(|_| SnapshotError::Damaged("a key is no text"))?;
        if self.last_key.as_ref().is_some_and(|last| *last >= key) {
            return Err(SnapshotError::Damaged("its keys are out of order"));
        }
        let (create_revision, mod_revision) = (self.number()?, self.number()?);
        let framed = 1 <= create_revision
            && create_revision <= mod_revision
            && mod_revision <= self.summary.revision;
        if !framed {
            return Err(SnapshotError::Damaged("the revisions of a key contradict"));
        }
        let expires = Some(self.number()?).filter(|at| *at != 0);
        let value = Bytes::from(self.bytes(MAX_VALUE_BYTES)?);
        self.summary.keys += 1;
        self.last_key = Some(key.clone());
        let stored = Stored {
            key,
            value,
            create_revision,
            mod_revision,
        };
        Ok(Entry { stored, expires })
    }

    fn end(&mut self) -> Result<()> {
        if self.number()?.cast_unsigned() != self.summary.keys {
            return Err(SnapshotError::Damaged("entries are missing"));
        }
        let hash = self.hash.clone().finish();
        self.summary.hash = self.take()?;
        if hash.as_ref() != self.summary.hash {
            return Err(SnapshotError::Damaged("its hash is another"));
        }
        if self.input.read(&mut [0])? != 0 {
            return Err(SnapshotError::Damaged("something follows its end"));
        }
        self.ended = true;
        Ok(())
    }

    fn number(&mut self) -> Result<i64> {
        self.take().map(i64::from_le_bytes)
    }

    /// Reads bytes with their length in front. Memory is taken as they come.
    fn bytes(&mut self, limit: usize) -> Result<Vec<u8>> {
        let length = u32::from_le_bytes(self.take()?) as usize;
        if length > limit {
            return Err(SnapshotError::Damaged("a key or value is too long"));
        }
        let mut bytes = Vec::new();
        (&mut self.input)
            .take(length as u64)
            .read_to_end(&mut bytes)?;
        if bytes.len() < length {
            return Err(SnapshotError::Truncated);
        }
        self.hash.update(&bytes);
        self.summary.bytes += length as u64;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.hash.update(&bytes);
        self.summary.bytes += N as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &'static str, revision: Revision, expires: Option<i64>) -> Entry {
        Entry {
            stored: Stored {
                key: key.to_owned(),
                value: Bytes::from_static(value.as_bytes()),
                create_revision: 2,
                mod_revision: revision,
            },
            expires,
        }
    }

    fn written(entries: &[Entry]) -> (Vec<u8>, Summary) {
        let mut writer = Writer::new(Vec::new(), 9).unwrap();
        entries.iter().for_each(|entry| writer.add(entry).unwrap());
        writer.finish().unwrap()
    }

    fn two() -> [Entry; 2] {
        [
            entry("/a", "first", 4, None),
            entry("/b", "", 9, Some(1_000_000)),
        ]
    }

    fn read(bytes: &[u8]) -> Result<Vec<Entry>> {
        let mut reader = Reader::new(bytes)?;
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, summary) = written(&two());
        assert_eq!(read(&bytes).unwrap(), two());
        assert_eq!(Reader::new(&bytes[..]).unwrap().finish().unwrap(), summary);
        assert_eq!((summary.revision, summary.keys), (9, 2));
        assert_eq!(summary.bytes, bytes.len() as u64);
        assert_eq!(read(&written(&[]).0).unwrap(), []);
    }

    #[test]
    fn a_snapshot_that_was_cut_anywhere_or_changed_anywhere_is_refused() {
        let (bytes, _) = written(&two());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut to {length}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(matches!(read(&longer), Err(SnapshotError::Damaged(_))));
    }

    #[test]
    fn foreign_and_newer_files_are_told_apart() {
        assert!(matches!(read(b""), Err(SnapshotError::Foreign)));
        assert!(matches!(read(&[7; 100]), Err(SnapshotError::Foreign)));
        let (mut bytes, _) = written(&two());
        bytes[FAMILY.len()] = b'2';
        assert!(matches!(read(&bytes), Err(SnapshotError::Newer)));
    }

    #[test]
    fn a_length_that_lies_takes_no_memory() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(9_i64.to_le_bytes());
        bytes.push(ENTRY);
        bytes.extend(u32::MAX.to_le_bytes());
        assert!(matches!(read(&bytes), Err(SnapshotError::Damaged(_))));
    }
}
