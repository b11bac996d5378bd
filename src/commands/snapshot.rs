//! `keelson snapshot`: takes snapshots of the embedded store, makes a store of one, and tells what
//! is in one.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::{Args, Opt};
use super::data::Server;
use super::progress::Progress;
use super::{CommandError, DATA_DIR, Spec, print};
use crate::base::files;
use crate::server::local_store::control::Request;
use crate::server::local_store::export;
use crate::storage::embedded::contents::{NewStore, StoppedStore};
use crate::storage::snapshot::{MAX_REVISION, Reader, SnapshotError, Summary};

pub const SAVE: Spec = Spec {
    name: "snapshot save",
    operands: &["FILE"],
    about: "Takes a snapshot of the embedded store, also while a server uses it. FILE may be - for \
            stdout.",
    options: &[DATA_DIR],
    run: save,
};

pub const RESTORE: Spec = Spec {
    name: "snapshot restore",
    operands: &["FILE"],
    about: "Makes a store of a snapshot. Clients that know revisions from before list again.",
    options: &[
        DATA_DIR,
        Opt {
            name: "bump-revision",
            value: Some("N"),
            default: "1000000000",
            help: "how much is added to the revision of the snapshot: more than the changes that \
                   were made since it was taken",
        },
    ],
    run: restore,
};

pub const STATUS: Spec = Spec {
    name: "snapshot status",
    operands: &["FILE"],
    about: "Checks a snapshot, and prints its hash, revision, number of keys and size.",
    options: &[Opt {
        name: "output",
        value: Some("text|json"),
        default: "text",
        help: "the form of the output",
    }],
    run: status,
};

fn save(args: &Args) -> Result<(), CommandError> {
    let folder = PathBuf::from(args.text("data-dir"));
    let file = args.operand(0).unwrap_or("-");
    let mut source = Source::open(&folder)?;
    if file == "-" {
        source.write(&mut io::stdout().lock())?;
        return Ok(());
    }
    let saved = files::write_complete(Path::new(file), |out: &mut BufWriter<File>| {
        source.write(out)
    });
    let summary = saved.map_err(|error| error.about(file))?;
    print(&format!(
        "saved {} keys at revision {} in {file}",
        summary.keys, summary.revision
    ))
}

/// A store that is saved.
enum Source {
    Running(Server),
    Stopped(StoppedStore),
}

impl Source {
    fn open(folder: &Path) -> Result<Self, CommandError> {
        match Server::ask(folder, Request::Snapshot)? {
            Some(server) => Ok(Self::Running(server)),
            None => Ok(Self::Stopped(StoppedStore::open(folder)?)),
        }
    }

    /// Writes the snapshot, and checks what comes from a server on its way.
    fn write(&mut self, out: &mut impl Write) -> Result<Summary, CommandError> {
        match self {
            Self::Stopped(store) => {
                export(store.entries()?, out).map_err(|error| CommandError::new(error.to_string()))
            }
            Self::Running(server) => {
                let tee = Tee { input: server, out };
                let summary = Reader::new(tee).and_then(Reader::finish);
                summary.map_err(|error| match error {
                    SnapshotError::Truncated => {
                        CommandError::new("the server has ended in the middle of the snapshot")
                    }
                    error => error.into(),
                })
            }
        }
    }
}

/// Writes whatever is read.
struct Tee<R, W> {
    input: R,
    out: W,
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.out.write_all(&buffer[..count])?;
        Ok(count)
    }
}

/// Opens a snapshot.
///
/// # Errors
/// It cannot be read, or is none.
pub fn open(file: &str) -> Result<Reader<BufReader<File>>, CommandError> {
    let about = |error: CommandError| error.about(file);
    let input = File::open(file).map_err(|error| about(error.into()))?;
    let input = BufReader::with_capacity(256 << 10, input);
    Reader::new(input).map_err(|error| about(error.into()))
}

fn restore(args: &Args) -> Result<(), CommandError> {
    let folder = PathBuf::from(args.text("data-dir"));
    let bump = args.number("bump-revision")?;
    let file = args.operand(0).unwrap_or("");
    let mut snapshot = open(file)?;
    let revision = snapshot.revision().checked_add(bump);
    let revision = revision.filter(|revision| *revision <= MAX_REVISION);
    let revision = revision.ok_or_else(|| CommandError::new("--bump-revision is too large"))?;
    let mut store = NewStore::create(&folder)?;
    let mut progress = Progress::new("restored", 0);
    while let Some(entry) = snapshot
        .next_entry()
        .map_err(|error| CommandError::from(error).about(file))?
    {
        store.add(entry)?;
        progress.add(1);
    }
    store.finish(revision)?;
    let keys = progress.finish();
    print(&format!(
        "{} has the {keys} keys of {file}, and goes on from revision {revision}",
        folder.display()
    ))
}

fn status(args: &Args) -> Result<(), CommandError> {
    let file = args.operand(0).unwrap_or("");
    let summary = open(file)?
        .finish()
        .map_err(|error| CommandError::from(error).about(file))?;
    let hash: String = summary
        .hash
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match args.text("output") {
        "text" => print(&format!(
            "hash:     {hash}\nrevision: {}\nkeys:     {}\nsize:     {}",
            summary.revision, summary.keys, summary.bytes
        )),
        "json" => print(
            &json!({
                "hash": hash,
                "revision": summary.revision,
                "totalKey": summary.keys,
                "totalSize": summary.bytes,
            })
            .to_string(),
        ),
        other => Err(CommandError::new(format!(
            "--output is text or json, not {other}"
        ))),
    }
}
