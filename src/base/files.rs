//! Files and directories that only their owner may read, and atomic writes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// The bytes of a large file that are written at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Mode of files that hold secrets.
#[cfg(unix)]
const PRIVATE_FILE: u32 = 0o600;
/// Mode of files that anyone may read.
#[cfg(unix)]
const PUBLIC_FILE: u32 = 0o644;
/// Mode of private directories.
#[cfg(unix)]
const PRIVATE_FOLDER: u32 = 0o700;
/// The permission bits of the group and of others.
#[cfg(unix)]
const GROUP_AND_OTHERS: u32 = 0o077;

/// Creates a directory with its missing parents, accessible to its owner only. An existing one
/// keeps its mode.
///
/// # Errors
/// Fails if the system cannot create it.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, PRIVATE_FOLDER);
    builder.create(path)
}

/// Opens a file for reading and writing, creating it if needed, and restricts its mode to the
/// owner. The mode of a file that belongs to another user stays as it is.
///
/// # Errors
/// Fails if the system cannot open it.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, PRIVATE_FILE);
    let file = options.open(path)?;
    restrict_mode(path);
    Ok(file)
}

/// Creates a file that only its owner may use. In a folder that others write to, none of them can
/// have put a link there.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, PRIVATE_FILE);
    options.open(path)
}

/// Gives a file a name that nothing has yet, and takes its present one away.
///
/// # Errors
/// Something has that name ([`io::ErrorKind::AlreadyExists`]), or the system cannot do it. The file
/// has its name then.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not all filesystems have links.
        Err(_) if std::fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => std::fs::rename(from, to),
    }
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// Fails if the system cannot read it, or if it is longer.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Replaces the content of a file atomically, creating its directory if needed. With `secret`, the
/// file is readable by its owner only, at every moment.
///
/// # Errors
/// Fails if the system cannot write, sync or rename it. The old content is then still there.
pub fn write_atomic(path: &Path, content: &[u8], secret: bool) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        create_private_dir(folder)?;
    }
    let temporary = path.with_extension("new");
    // A leftover of an interrupted write may have another mode.
    remove_if_exists(&temporary)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(
        &mut options,
        if secret { PRIVATE_FILE } else { PUBLIC_FILE },
    );
    #[cfg(not(unix))]
    let _ = secret;
    let mut file = options.open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

/// Writes a file, which only its owner may read, that appears once it is complete: `write` gets its
/// output. Until then a file `<path>.part` is there instead, and an older file stays.
///
/// # Errors
/// Those of `write`, or fails if the system cannot write, sync or rename the file.
pub fn write_complete<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        return Err(io::Error::other("it is there, and is no regular file").into());
    }
    remove_if_exists(part)?;
    let attempt = || {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, create_private(part)?);
        let done = write(&mut out)?;
        out.into_inner().map_err(io::Error::from)?.sync_all()?;
        std::fs::rename(part, path)?;
        // A path of one name has an empty parent.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        sync_dir(folder.unwrap_or(Path::new(".")))?;
        Ok(done)
    };
    attempt().inspect_err(|_| {
        // It tells nobody anything, and the error at hand matters more.
        let _ = remove_if_exists(part);
    })
}

/// Removes a file that may or may not exist.
///
/// # Errors
/// Fails if it exists and the system cannot remove it.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Waits until the names in a directory are on disk.
///
/// # Errors
/// Fails if the system cannot write them.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(path)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Removes the permissions of the group and of others from an existing file or directory. Symbolic
/// links are not followed: their target belongs to its creator. A failure is only logged: a volume
/// may belong to another user and still be usable.
pub fn restrict_mode(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(found) = std::fs::symlink_metadata(path) else {
            return;
        };
        let mode = found.permissions().mode();
        if found.is_symlink() || mode & GROUP_AND_OTHERS == 0 {
            return;
        }
        let restricted = std::fs::Permissions::from_mode(mode & 0o7777 & !GROUP_AND_OTHERS);
        match std::fs::set_permissions(path, restricted) {
            Ok(()) => tracing::warn!(
                "{} had mode {:04o}; its owner alone may use it now",
                path.display(),
                mode & 0o7777
            ),
            Err(error) => tracing::warn!(
                "others may use {}, which has mode {:04o}: {error}",
                path.display(),
                mode & 0o7777
            ),
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// [`restrict_mode`] for a directory of the program's own: one that is empty or contains one of
/// the entries `known`. A shared directory such as `/tmp` keeps its mode.
pub fn restrict_own_dir(folder: &Path, known: &[&str]) {
    let Ok(mut entries) = std::fs::read_dir(folder) else {
        return;
    };
    if entries.next().is_none() || known.iter().any(|name| folder.join(name).exists()) {
        restrict_mode(folder);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o7777
    }

    fn with_mode(path: PathBuf, mode: u32) -> PathBuf {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
        path
    }

    #[test]
    fn secrets_are_private_even_after_an_interrupted_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let (key, cert) = (
            folder.path().join("pki/a.key"),
            folder.path().join("pki/a.crt"),
        );
        create_private_dir(&folder.path().join("pki")).expect("made");
        std::fs::write(folder.path().join("pki/a.new"), "left").expect("written");
        with_mode(folder.path().join("pki/a.new"), 0o666);
        write_atomic(&key, b"secret", true).expect("written");
        write_atomic(&cert, b"public", false).expect("written");
        assert_eq!(
            (mode(&folder.path().join("pki")), mode(&key)),
            (0o700, 0o600)
        );
        assert_eq!(std::fs::read(&key).expect("read"), b"secret");
        assert_eq!(mode(&cert) & 0o600, 0o600);
        assert!(!folder.path().join("pki/a.new").exists());
    }

    #[test]
    fn existing_files_are_restricted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let wide = folder.path().join("wide");
        std::fs::write(&wide, "").expect("written");
        with_mode(wide.clone(), 0o666);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&wide, &link).expect("linked");
        restrict_mode(&link);
        assert_eq!(mode(&wide), 0o666);
        drop(open_private(&wide).expect("opened"));
        assert_eq!(mode(&wide), 0o600);
        restrict_mode(&folder.path().join("missing"));
    }

    #[test]
    fn what_is_no_file_is_not_replaced_and_a_link_not_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, theirs) = (folder.path().join("a"), folder.path().join("theirs"));
        std::fs::write(&theirs, "theirs").expect("written");
        std::os::unix::fs::symlink(&theirs, folder.path().join("a.part")).expect("linked");
        let write = |out: &mut BufWriter<File>| out.write_all(b"ours");
        write_complete(&path, write).expect("written");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read(&theirs).expect("read"), b"theirs");
        let device = write_complete(Path::new("/dev/null"), write);
        assert!(
            device
                .expect_err("a device")
                .to_string()
                .contains("no regular file")
        );
    }

    #[test]
    fn a_name_that_is_taken_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, "new").expect("written");
        std::fs::write(&to, "old").expect("written");
        let taken = rename_new(&from, &to).expect_err("it is taken");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&to).expect("read"), b"old");
        std::fs::remove_file(&to).expect("removed");
        rename_new(&from, &to).expect("renamed");
        assert_eq!(std::fs::read(&to).expect("read"), b"new");
        assert!(!from.exists());
    }

    #[test]
    fn only_an_own_directory_is_restricted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = with_mode(folder.path().to_owned(), 0o1777);
        std::fs::write(path.join("theirs"), "").expect("written");
        restrict_own_dir(&path, &["ours"]);
        assert_eq!(mode(&path), 0o1777);
        std::fs::write(path.join("ours"), "").expect("written");
        restrict_own_dir(&path, &["ours"]);
        assert_eq!(mode(&path), 0o1700);
    }
}
