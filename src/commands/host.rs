//! `keelson host`: several control planes in one process, each with a folder, a port and limits of
//! its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::args::{Args, Opt};
use super::{CommandError, Spec};
use crate::base::backoff::Backoff;
use crate::base::latch::Latch;
use crate::base::supervise::catch_panic;
use crate::options::config::Config;
use crate::options::flags::{self, Command};
use crate::server::limits;
use crate::server::reload::SighupListener;
use crate::server::run::{self, RunError};
use crate::server::shutdown::{Shutdown, Signals};
use crate::telemetry::panics;

/// The file in the folder of a control plane with its flags, one on a line.
const FLAGS_FILE: &str = "flags";
/// Control planes that are started at a time: others wait, so that the first are ready soon.
const CONCURRENT_STARTS: usize = 4;
/// The pause before a control plane is started again, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The time that blocking work has left when everything else has ended.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name: that of a folder, and a label in the log.
const MAX_NAME_BYTES: usize = 63;

pub const HOST: Spec = Spec {
    name: "host",
    operands: &["FOLDER", "[-- FLAGS]"],
    about: "Runs several control planes in one process. Each has a folder inside FOLDER and the next \
            port. Flags of all of them stand behind --, those of one in FOLDER/NAME/flags, one on a \
            line.",
    options: &[
        Opt {
            name: "planes",
            value: Some("NAME,..."),
            default: "",
            help: "the names of the control planes; the folders inside FOLDER if empty",
        },
        Opt {
            name: "first-port",
            value: Some("PORT"),
            default: "6443",
            help: "the port of the first control plane; each gets the port behind that of the one \
                   before, in the order of --planes or of their names",
        },
    ],
    run: host,
};

/// A control plane that is to run.
#[derive(Clone, Debug)]
struct Plane {
    name: String,
    flags: Vec<String>,
}

fn host(args: &Args) -> Result<(), CommandError> {
    let folder = PathBuf::from(args.operand(0).unwrap_or(""));
    let planes = planes(&folder, args)?;
    // What is wrong with one of them is told before any is started.
    for plane in &planes {
        config(plane)?;
    }
    let first = config(&planes[0])?;
    crate::telemetry::log::start(first.log.verbosity, first.log.json);
    panics::install();
    limits::raise_descriptors();
    let runtime = run::runtime(first.worker_threads)?;
    let outcome = runtime.block_on(async { runtime.spawn(run_all(planes)).await });
    runtime.shutdown_timeout(LAST_TIMEOUT);
    outcome.map_err(io::Error::other)?
}

/// Returns the control planes with all their flags.
fn planes(folder: &Path, args: &Args) -> Result<Vec<Plane>, CommandError> {
    let names = match args.given("planes") {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => folders(folder)?,
    };
    if names.is_empty() {
        let shown = folder.display();
        return Err(CommandError::new(format!(
            "there is no control plane in {shown}: name some with --planes"
        )));
    }
    let mut seen = BTreeSet::new();
    let first = args.number("first-port")?;
    let mut planes = Vec::new();
    for (name, port) in names.into_iter().zip(first..) {
        check_name(&name)?;
        if !seen.insert(name.clone()) {
            return Err(CommandError::new(format!("{name} is named twice")));
        }
        let of_plane = folder.join(&name);
        let mut flags = vec![format!("--secure-port={port}")];
        flags.extend(args.rest().iter().cloned());
        flags.extend(read_flags(&of_plane.join(FLAGS_FILE))?);
        // Where its data are is not for a flag to say: no two may share a folder.
        flags.push(format!("--data-dir={}", of_plane.display()));
        planes.push(Plane { name, flags });
    }
    Ok(planes)
}

/// The names of the folders inside a folder, in order.
fn folders(folder: &Path) -> Result<Vec<String>, CommandError> {
    let entries =
        fs::read_dir(folder).map_err(|error| CommandError::from(error).about(folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && check_name(&name).is_ok() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Checks that a name is a DNS label, so that it names one folder inside the folder.
fn check_name(name: &str) -> Result<(), CommandError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if good {
        return Ok(());
    }
    Err(CommandError::new(format!(
        "{name:?} is no name of a control plane: small letters, digits and dashes"
    )))
}

fn read_flags(file: &Path) -> Result<Vec<String>, CommandError> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|error| CommandError::from(error).about(file.display()))?,
    };
    let lines = text.lines().map(str::trim);
    let flags = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(flags.map(str::to_owned).collect())
}

fn config(plane: &Plane) -> Result<Config, CommandError> {
    let about = |error: RunError| CommandError::new(format!("{}: {error}", plane.name));
    match flags::parse(plane.flags.iter().cloned()) {
        Ok(Command::Run(flags)) => Config::from_flags(&flags).map_err(|error| about(error.into())),
        Ok(Command::Help | Command::Version) => Err(CommandError::new(format!(
            "{}: help and version are no flags of a control plane",
            plane.name
        ))),
        Err(error) => Err(about(error.into())),
    }
}

/// A control plane that runs, or is started again.
struct Slot {
    plane: Plane,
    /// Set once it is to end for good.
    ending: Latch,
    /// The shutdown of the present attempt.
    current: Mutex<Shutdown>,
}

/// Runs all control planes until a signal arrives.
async fn run_all(planes: Vec<Plane>) -> Result<(), CommandError> {
    let (places, count) = (Arc::new(Semaphore::new(CONCURRENT_STARTS)), planes.len());
    let (mut running, mut slots) = (JoinSet::new(), Vec::new());
    let (tell, mut started) = unbounded_channel();
    let began = Instant::now();
    for plane in planes {
        let slot = Arc::new(Slot {
            plane,
            ending: Latch::default(),
            current: Mutex::default(),
        });
        slots.push(slot.clone());
        running.spawn(keep_running(slot, places.clone(), tell.clone()));
    }
    let ready = async {
        for _ in 0..count {
            started.recv().await;
        }
        let millis = began.elapsed().as_secs_f64() * 1000.0;
        let _ = writeln!(
            io::stdout(),
            "{count} control planes are ready ({millis:.0} ms)"
        );
        std::future::pending::<()>().await;
    };
    let mut signals = Signals::new();
    tokio::select! {
        () = ready => {}
        () = signals.next() => {}
    }
    for slot in slots {
        slot.ending.trigger();
        let (shutdown, config) = (slot.current.lock().clone(), config(&slot.plane)?);
        tokio::spawn(async move {
            shutdown
                .leave(&config.shutdown, config.requests.timeout)
                .await;
        });
    }
    tokio::select! {
        () = async { while running.join_next().await.is_some() {} } => Ok(()),
        () = signals.next() => std::process::exit(1),
    }
}

/// Runs a control plane, and again if it ends by itself: others are not to end with it.
async fn keep_running(slot: Arc<Slot>, places: Arc<Semaphore>, started: UnboundedSender<()>) {
    let (name, mut backoff) = (&slot.plane.name, Backoff::new(PAUSE, PAUSE_MAX));
    loop {
        let shutdown = Shutdown::new();
        *slot.current.lock() = shutdown.clone();
        if slot.ending.is_triggered() {
            return;
        }
        let once = run_once(&slot.plane, &shutdown, &places, &started);
        match catch_panic(name, once).await {
            Ok(Ok(())) if slot.ending.is_triggered() => return,
            Ok(Ok(())) => tracing::error!("control plane {name} has ended"),
            Ok(Err(error)) => tracing::error!("control plane {name}: {error}"),
            Err(_) => {}
        }
        // What is left of the attempt ends with it.
        shutdown.close();
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = slot.ending.wait() => return,
        }
    }
}

async fn run_once(
    plane: &Plane,
    shutdown: &Shutdown,
    places: &Semaphore,
    started: &UnboundedSender<()>,
) -> Result<(), CommandError> {
    let place = places.acquire().await;
    let config = config(plane)?;
    let prepared = tokio::select! {
        prepared = run::prepare(config, shutdown, SighupListener::listen()) => prepared,
        () = shutdown.stopped() => return Ok(()),
    };
    let prepared = prepared.map_err(|error| CommandError::new(error.to_string()))?;
    drop(place);
    tracing::info!(
        "control plane {} serves on {}",
        plane.name,
        prepared.address
    );
    // Nobody may count them any more.
    let _ = started.send(());
    let registry = prepared.chain.api.registry.clone();
    prepared.serve(shutdown.clone()).await;
    registry.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Args::parse(HOST.options, HOST.operands, &args).unwrap()
    }

    #[test]
    fn each_plane_has_a_folder_a_port_and_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::write(
            folder.path().join("b/flags"),
            "# more\n\n--v=4\n--data-dir=/elsewhere\n",
        )
        .unwrap();
        let line = format!(
            "{} --planes=a,b --first-port=7000 -- --v=2",
            folder.path().display()
        );
        let planes = planes(folder.path(), &args(&line)).unwrap();
        let [a, b] = [config(&planes[0]).unwrap(), config(&planes[1]).unwrap()];
        assert_eq!((a.serving.port, b.serving.port), (7000, 7001));
        assert_eq!((a.log.verbosity, b.log.verbosity), (2, 4));
        assert!(
            planes[1].flags.last().unwrap().ends_with("/b"),
            "nobody has another's folder"
        );
    }

    #[test]
    fn names_that_lead_elsewhere_or_are_missing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |line: &str| {
            let line = format!("{} {line}", folder.path().display());
            planes(folder.path(), &args(&line)).unwrap_err().to_string()
        };
        for name in ["..", "a/b", "", "A", "-a", &"a".repeat(64)] {
            let text = refused(&format!("--planes=x,{name}"));
            assert!(text.contains("is no name of a control plane"), "{text}");
        }
        assert!(refused("--planes=a,a").contains("a is named twice"));
        assert!(refused("--first-port=1").contains("there is no control plane in"));
    }
}
