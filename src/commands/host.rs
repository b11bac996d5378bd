//! `keelson host`: several control planes in one process, each with a folder, a port and limits of
//! its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::args::{Args, Opt};
use super::{CommandError, Spec};
use crate::base::backoff::Backoff;
use crate::base::latch::Latch;
use crate::base::supervise::catch_panic;
use crate::options::config::{self, Config};
use crate::options::flags::{self, Command};
use crate::server::limits;
use crate::server::reload::SighupListener;
use crate::server::run::{self, Prepared, RunError};
use crate::server::shared_port::{Servers, SharedPort};
use crate::server::shutdown::{Shutdown, Signals};
use crate::telemetry::panics;

/// The file in the folder of a control plane with its flags, one on a line.
const FLAGS_FILE: &str = "flags";
/// Control planes that are started at a time: others wait, so that the first are ready soon.
const CONCURRENT_STARTS: usize = 4;
/// The time after which others do not wait any more for one that is started: it may wait itself,
/// for an etcd or a plugin that does not answer.
const START_PATIENCE: Duration = Duration::from_secs(1);
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
        Opt {
            name: "shared-port",
            value: Some("PORT"),
            default: "",
            help: "a port of all control planes besides their own: the server name in the TLS \
                   handshake of a client, NAME.DOMAIN, says which it means",
        },
        Opt {
            name: "domain",
            value: Some("DOMAIN"),
            default: "keelson.local",
            help: "the domain of the names of control planes at the shared port",
        },
    ],
    run: host,
};

/// A control plane that is to run.
#[derive(Clone, Debug)]
struct Plane {
    name: String,
    /// The server name that clients ask a shared port for.
    server_name: String,
    flags: Vec<String>,
}

fn host(args: &Args) -> Result<(), CommandError> {
    let folder = PathBuf::from(args.operand(0).unwrap_or(""));
    let planes = planes(&folder, args)?;
    let shared_port = shared_port(args)?;
    // What is wrong with one of them is told before any is started.
    for plane in &planes {
        config(plane)?;
    }
    let first = config(&planes[0])?;
    let shared_port = shared_port.map(|port| SocketAddr::new(first.serving.bind_address, port));
    crate::telemetry::log::start(first.log.verbosity, first.log.json);
    panics::install();
    limits::raise_descriptors();
    let runtime = run::runtime(first.worker_threads)?;
    let outcome = runtime.block_on(async { runtime.spawn(run_all(planes, shared_port)).await });
    runtime.shutdown_timeout(LAST_TIMEOUT);
    outcome.map_err(io::Error::other)?
}

/// The port that control planes share, if they share one.
fn shared_port(args: &Args) -> Result<Option<u16>, CommandError> {
    let Some(text) = args.given("shared-port") else {
        return Ok(None);
    };
    let port = text.parse().ok().filter(|port| *port != 0);
    port.map(Some)
        .ok_or_else(|| CommandError::new(format!("--shared-port is no port: {text}")))
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
    let (first, domain) = (args.number("first-port")?, args.text("domain"));
    let mut planes = Vec::new();
    for (name, port) in names.into_iter().zip(first..) {
        check_name(&name)?;
        if !seen.insert(name.clone()) {
            return Err(CommandError::new(format!("{name} is named twice")));
        }
        let of_plane = folder.join(&name);
        let server_name = format!("{name}.{domain}").to_ascii_lowercase();
        let mut flags = vec![
            format!("--secure-port={port}"),
            // It is in the certificate that the server makes itself.
            format!("--external-hostname={server_name}"),
        ];
        flags.extend(args.rest().iter().cloned());
        flags.extend(read_flags(&of_plane.join(FLAGS_FILE))?);
        // Where its data are is not for a flag to say: no two may share a folder.
        flags.push(format!("--data-dir={}", of_plane.display()));
        planes.push(Plane {
            name,
            server_name,
            flags,
        });
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

/// The parts that all control planes of the process share.
#[derive(Clone)]
struct Host {
    places: Arc<Semaphore>,
    /// Those at the shared port.
    servers: Servers,
    /// Told once for each start.
    started: UnboundedSender<()>,
}

/// A control plane that runs, or is started again.
struct Slot {
    plane: Plane,
    /// The manner of its end, as its flags said when the process began: files may have gone since.
    leaving: config::Shutdown,
    request_timeout: Duration,
    /// Set once it is to end for good.
    ending: Latch,
    /// The shutdown of the present attempt.
    current: Mutex<Shutdown>,
}

impl Slot {
    fn new(plane: Plane) -> Result<Self, CommandError> {
        let config = config(&plane)?;
        Ok(Self {
            plane,
            leaving: config.shutdown,
            request_timeout: config.requests.timeout,
            ending: Latch::default(),
            current: Mutex::default(),
        })
    }
}

/// Runs all control planes until a signal arrives.
async fn run_all(planes: Vec<Plane>, shared_port: Option<SocketAddr>) -> Result<(), CommandError> {
    let slots = planes.into_iter().map(Slot::new);
    let slots: Vec<Arc<Slot>> = slots
        .map(|slot| slot.map(Arc::new))
        .collect::<Result<_, _>>()?;
    let (tell, started) = unbounded_channel();
    let host = Host {
        places: Arc::new(Semaphore::new(CONCURRENT_STARTS)),
        servers: Servers::default(),
        started: tell,
    };
    if let Some(address) = shared_port {
        let port = SharedPort::bind(address, host.servers.clone());
        let port = port.map_err(|error| CommandError::from(error).about(address))?;
        tokio::spawn(port.serve());
    }
    let mut running = JoinSet::new();
    for slot in &slots {
        running.spawn(keep_running(slot.clone(), host.clone()));
    }
    let mut signals = Signals::new();
    tokio::select! {
        () = announce(slots.len(), started) => {}
        () = signals.next() => {}
    }
    for slot in slots {
        slot.ending.trigger();
        let shutdown = slot.current.lock().clone();
        tokio::spawn(async move {
            shutdown.leave(&slot.leaving, slot.request_timeout).await;
        });
    }
    tokio::select! {
        () = async { while running.join_next().await.is_some() {} } => Ok(()),
        () = signals.next() => std::process::exit(1),
    }
}

/// Prints a line once so many control planes have started. Never ends.
async fn announce(count: usize, mut started: UnboundedReceiver<()>) {
    let began = Instant::now();
    for _ in 0..count {
        started.recv().await;
    }
    let millis = began.elapsed().as_secs_f64() * 1000.0;
    let _ = writeln!(
        io::stdout(),
        "{count} control planes are ready ({millis:.0} ms)"
    );
    std::future::pending::<()>().await;
}

/// Runs a control plane, and again if it ends by itself: others are not to end with it.
async fn keep_running(slot: Arc<Slot>, host: Host) {
    let (name, mut backoff) = (&slot.plane.name, Backoff::new(PAUSE, PAUSE_MAX));
    loop {
        let shutdown = Shutdown::new();
        *slot.current.lock() = shutdown.clone();
        if slot.ending.is_triggered() {
            return;
        }
        match catch_panic(name, run_once(&slot.plane, &shutdown, &host)).await {
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

async fn run_once(plane: &Plane, shutdown: &Shutdown, host: &Host) -> Result<(), CommandError> {
    let mut prepared = tokio::select! {
        prepared = prepare(plane, shutdown, &host.places) => prepared?,
        () = shutdown.stopped() => return Ok(()),
    };
    host.servers
        .set(&plane.server_name, prepared.listener.share());
    tracing::info!(
        "control plane {} serves on {}",
        plane.name,
        prepared.address
    );
    // Nobody may count them any more.
    let _ = host.started.send(());
    let registry = prepared.chain.api.registry.clone();
    prepared.serve(shutdown.clone()).await;
    registry.close();
    Ok(())
}

/// Makes a server when it is its turn, which it has for a while only.
async fn prepare(
    plane: &Plane,
    shutdown: &Shutdown,
    places: &Semaphore,
) -> Result<Prepared, CommandError> {
    let place = places.acquire().await;
    let mut prepared = pin!(run::prepare(
        config(plane)?,
        shutdown,
        SighupListener::listen()
    ));
    let prepared = match tokio::time::timeout(START_PATIENCE, &mut prepared).await {
        Ok(prepared) => prepared,
        Err(_) => {
            drop(place);
            prepared.await
        }
    };
    prepared.map_err(|error| CommandError::new(error.to_string()))
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
