//! `keelson defrag`: gives the space that the file of the embedded store does not need back to the
//! disk.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Builder;

use super::args::{Args, Opt};
use super::data::Server;
use super::{CommandError, DATA_DIR, Spec, print};
use crate::server::local_store::control::{Request, compact};
use crate::storage::embedded::contents::StoppedStore;
use crate::storage::embedded::{Embedded, FILE};

pub const DEFRAG: Spec = Spec {
    name: "defrag",
    operands: &[],
    about: "Writes the file of the embedded store anew, without the space that is free in it, also \
            while a server uses it.",
    options: &[
        DATA_DIR,
        Opt {
            name: "compact",
            value: None,
            default: "",
            help: "forget all revisions but the present one before: clients that are behind list \
                   again",
        },
    ],
    run: defrag,
};

fn defrag(args: &Args) -> Result<(), CommandError> {
    let folder = PathBuf::from(args.text("data-dir"));
    let size = || std::fs::metadata(folder.join(FILE)).map_or(0, |file| file.len());
    let (before, compacts) = (size(), args.switch("compact"));
    let request = match compacts {
        true => Request::Compact,
        false => Request::Defragment,
    };
    if Server::ask(&folder, request)?.is_none() {
        // It says what is wrong, and makes no store where there is none.
        drop(StoppedStore::open(&folder)?);
        let store = Arc::new(Embedded::open(&folder)?);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match compacts {
                true => compact(&store).await,
                false => store.defragment().await,
            }
        })?;
    }
    print(&format!(
        "the file had {before} bytes, and has {} now",
        size()
    ))
}
