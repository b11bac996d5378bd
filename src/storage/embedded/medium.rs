//! The media of embedded stores: a file, a file that is not waited for, or memory.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{BackendError, StorageBackend};

/// The place of an embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A file: what is acknowledged is on the disk.
    File,
    /// A file that is not waited for.
    UnsyncedFile,
    /// Memory, which nobody else has.
    Memory,
}

/// A file whose content reaches the disk when the system sees fit. It survives the process, but not
/// always the machine.
#[derive(Debug)]
pub struct UnsyncedFile(FileBackend);

impl UnsyncedFile {
    /// Takes over a file that nobody else has open.
    ///
    /// # Errors
    /// Another process has it open, or it cannot be locked.
    pub fn new(file: File) -> Result<Self, redb::DatabaseError> {
        FileBackend::new(file).map(Self)
    }
}

impl StorageBackend for UnsyncedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}

/// Memory that clones share, so that it outlives the database that is open on it.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<InMemoryBackend>);

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
