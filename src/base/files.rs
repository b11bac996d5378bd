//! Files and folders that only their owner may read: their modes, and how they are written whole.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Read and written by the owner alone.
#[cfg(unix)]
const PRIVATE_FILE: u32 = 0o600;
/// Read by everybody, written by the owner alone.
#[cfg(unix)]
const PUBLIC_FILE: u32 = 0o644;
/// Entered by the owner alone.
#[cfg(unix)]
const PRIVATE_FOLDER: u32 = 0o700;
/// What the group and others may do.
#[cfg(unix)]
const OTHERS: u32 = 0o077;

/// Makes a folder, and those above it that are missing, for its owner alone. One that exists keeps
/// its mode.
///
/// # Errors
/// The system's.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, PRIVATE_FOLDER);
    builder.create(path)
}

/// Opens a file to read and write it, and makes it if it is missing. It is its owner's alone,
/// whatever it was before; where it belongs to somebody else its mode stays.
///
/// # Errors
/// The system's.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, PRIVATE_FILE);
    let file = options.open(path)?;
    restrict_mode(path);
    Ok(file)
}

/// Writes a file whole or not at all, and its folder if that is missing. A `secret` one can be read
/// by its owner alone, at no moment by others.
///
/// # Errors
/// The system's.
pub fn write_atomic(path: &Path, content: &[u8], secret: bool) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        create_private_dir(folder)?;
    }
    let fresh = path.with_extension("new");
    // What an interrupted write left has the mode of another file, perhaps.
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(
        &mut options,
        if secret { PRIVATE_FILE } else { PUBLIC_FILE },
    );
    #[cfg(not(unix))]
    let _ = secret;
    let mut file = options.open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

/// Takes the rights of the group and of others away from a file or folder that exists. Links are
/// left alone: what they lead to belongs to whoever made it. A failure is logged: a volume may
/// belong to another user and still be fit for use.
pub fn restrict_mode(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(found) = std::fs::symlink_metadata(path) else {
            return;
        };
        let mode = found.permissions().mode();
        if found.is_symlink() || mode & OTHERS == 0 {
            return;
        }
        let narrowed = std::fs::Permissions::from_mode(mode & 0o7777 & !OTHERS);
        match std::fs::set_permissions(path, narrowed) {
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

/// [`restrict_mode`] for a folder that is the program's own: one that is empty, or has one of
/// the entries `known` in it. Somebody else's folder, such as `/tmp`, keeps its mode.
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
    fn secrets_are_never_wider_than_their_owner_also_where_a_write_was_interrupted() {
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
    fn what_exists_is_narrowed_and_links_are_not_followed() {
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
    fn only_an_own_folder_is_narrowed() {
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
