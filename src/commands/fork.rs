//! `keelson fork`: another control plane with the same objects, certificates and keys, in a folder
//! of its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::args::Args;
use super::data::Server;
use super::{CommandError, Spec, print};
use crate::base::files;
use crate::options::data_dir::{KUBECONFIG, PKI};
use crate::server::local_store::control::Request;
use crate::storage::embedded::FILE;
use crate::storage::embedded::contents::StoppedStore;

pub const FORK: Spec = Spec {
    name: "fork",
    operands: &["SOURCE", "DESTINATION"],
    about: "Copies a data directory, also while a server uses it: the store at one moment, and the \
            certificates and keys. Nothing is copied where the filesystem can share it (Btrfs, XFS, \
            APFS).",
    options: &[],
    run: fork,
};

fn fork(args: &Args) -> Result<(), CommandError> {
    let began = Instant::now();
    let (source, destination) = match (args.operand(0), args.operand(1)) {
        (Some(source), Some(destination)) => (Path::new(source), Path::new(destination)),
        _ => return Err(CommandError::new("a fork has a source and a destination")),
    };
    check_destination(destination)?;
    let partial = partial(destination)?;
    fs::create_dir(&partial).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CommandError::new(format!(
            "{} is left from a fork that did not end, or belongs to one that runs: remove it if \
             none does",
            partial.display()
        )),
        _ => CommandError::from(error).about(partial.display()),
    })?;
    let copied = copy(source, &partial).and_then(|()| place(&partial, destination));
    if copied.is_err() {
        // The error at hand matters more than what is left.
        let _ = fs::remove_dir_all(&partial);
    }
    copied?;
    print(&format!(
        "{} is a fork of {} ({:.0} ms)",
        destination.display(),
        source.display(),
        began.elapsed().as_secs_f64() * 1000.0
    ))
}

/// Checks that there is nothing yet.
fn check_destination(destination: &Path) -> Result<(), CommandError> {
    let shown = destination.display();
    match fs::read_dir(destination).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(CommandError::new(format!("{shown} is not empty"))),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CommandError::from(error).about(shown)),
    }
}

/// The folder that becomes the destination once it is complete.
fn partial(destination: &Path) -> Result<PathBuf, CommandError> {
    let Some(name) = destination.file_name() else {
        let shown = destination.display();
        return Err(CommandError::new(format!("{shown} names no folder")));
    };
    let mut name = name.to_owned();
    name.push(".partial");
    if let Some(parent) = destination.parent() {
        files::create_private_dir(parent)?;
    }
    Ok(destination.with_file_name(name))
}

fn copy(source: &Path, into: &Path) -> Result<(), CommandError> {
    files::restrict_mode(into);
    let store = (source.join(FILE), into.join(FILE));
    match Server::ask(source, Request::Hold)? {
        Some(mut server) => {
            copy_file(&store.0, &store.1)?;
            // Only then is the copy that of one moment.
            server.send("done")?;
        }
        None => {
            let _stopped = StoppedStore::open(source)?;
            copy_file(&store.0, &store.1)?;
        }
    }
    sync(&store.1)?;
    let kubeconfig = source.join(KUBECONFIG);
    if kubeconfig.exists() {
        copy_file(&kubeconfig, &into.join(KUBECONFIG))?;
    }
    if source.join(PKI).is_dir() {
        files::create_private_dir(&into.join(PKI))?;
        for entry in fs::read_dir(source.join(PKI))? {
            let entry = entry?;
            if entry.path().is_file() {
                let copy = into.join(PKI).join(entry.file_name());
                copy_file(&entry.path(), &copy)?;
                sync(&copy)?;
            }
        }
        files::sync_dir(&into.join(PKI))?;
    }
    Ok(files::sync_dir(into)?)
}

/// Copies a file with its mode; the system shares the blocks if the filesystem can.
fn copy_file(from: &Path, to: &Path) -> Result<(), CommandError> {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| CommandError::from(error).about(from.display()))
}

fn sync(path: &Path) -> Result<(), CommandError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| CommandError::from(error).about(path.display()))
}

fn place(partial: &Path, destination: &Path) -> Result<(), CommandError> {
    fs::rename(partial, destination)
        .map_err(|error| CommandError::from(error).about(destination.display()))?;
    let parent = destination
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    Ok(files::sync_dir(parent.unwrap_or(Path::new(".")))?)
}
