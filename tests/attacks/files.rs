//! Files of a server are its owner's alone: objects with all secrets, keys, the administrator's
//! credentials.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::support::etcd::Etcd;
use super::support::{Store, TestServer};

/// Permission bits of the group and others.
const OTHERS: u32 = 0o077;

/// Everything below a folder, and the folder itself.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let (mut all, mut folders) = (vec![folder.to_owned()], vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            all.push(path);
        }
    }
    all
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Reports whether a file may be read by others if they get to it, which they do not.
fn is_public(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "crt" || extension == "pub")
}

/// Checks the modes of everything in a data folder; the names of what is there.
fn check(data: &Path) -> Vec<String> {
    let all = tree(data);
    for path in &all {
        let (mode, others) = (mode(path), if is_public(path) { 0o022 } else { OTHERS });
        assert_eq!(mode & others, 0, "{} has mode {mode:04o}", path.display());
    }
    all.iter()
        .filter_map(|path| Some(path.strip_prefix(data).ok()?.display().to_string()))
        .collect()
}

const KEPT: [&str; 5] = [
    "pki",
    "pki/ca.key",
    "pki/sa.key",
    "pki/apiserver.key",
    "admin.kubeconfig",
];

#[tokio::test]
async fn a_data_folder_is_private_whatever_the_umask_is_and_an_old_one_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = TestServer::start_after("umask 0", folder.path(), Store::Embedded, &[]).await;
    let names = check(&data);
    assert!(
        KEPT.iter()
            .chain(&["keelson.redb"])
            .all(|name| names.iter().any(|one| one == name)),
        "{names:?}"
    );
    server.terminate().await;
    // As an earlier version left it, or somebody who meant to help.
    for path in tree(&data) {
        let wide = if path.is_dir() { 0o755 } else { 0o666 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(wide)).unwrap();
    }
    for public in tree(&data).iter().filter(|path| is_public(path)) {
        std::fs::set_permissions(public, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _server = TestServer::start_after("umask 0", folder.path(), Store::Embedded, &[]).await;
    check(&data);
}

#[tokio::test]
async fn keys_are_private_where_the_objects_are_in_etcd() {
    let (folder, etcd) = (
        tempfile::tempdir().unwrap(),
        tokio::task::spawn_blocking(Etcd::start).await.unwrap(),
    );
    let _server =
        TestServer::start_after("umask 0", folder.path(), Store::Etcd(&etcd.endpoint()), &[]).await;
    let names = check(&folder.path().join("data"));
    assert!(
        KEPT.iter().all(|name| names.iter().any(|one| one == name)),
        "{names:?}"
    );
}

/// A folder that the operator shares with others keeps its mode: only what the server made is the
/// server's.
#[tokio::test]
async fn a_folder_with_other_things_in_it_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("theirs"), "").unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let _server = TestServer::start_after("umask 0", folder.path(), Store::Embedded, &[]).await;
    assert_eq!(mode(&data), 0o1777);
    assert!(
        tree(&data.join("pki"))
            .iter()
            .chain(&[data.join("keelson.redb")])
            .all(|path| is_public(path) || mode(path) & OTHERS == 0)
    );
}
