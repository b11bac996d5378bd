//! Servers for tests: a spawned keelson (`$KEELSON_BINARY`, if that is another) on a port and
//! folder of its own, and its clients.
#![allow(dead_code)] // every test crate uses a part

pub mod connect_proxy;
pub mod etcd;
pub mod http;
pub mod kubelet;
pub mod oidc;
pub mod webhook;

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::config::AuthInfo;
use tempfile::TempDir;

/// The token of user `admin`, group `system:masters`.
pub const ADMIN: &str = "admintoken";
/// The token of user `alice`, group `devs`.
pub const USER: &str = "usertoken";
/// Time limit for what takes a fraction of a second, such as the start of a server.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of polling for an expected state.
const LOOK: Duration = Duration::from_millis(10);

/// The store of a server.
#[derive(Clone, Copy, Debug)]
pub enum Store<'a> {
    /// In the data folder.
    Embedded,
    /// In the etcd at this URL.
    Etcd(&'a str),
}

/// A keelson process. Dropping it kills the process.
pub struct TestServer {
    process: Process,
    port: u16,
    /// Holds the folder where the server made it for itself.
    _folder: Option<TempDir>,
}

impl TestServer {
    /// A fresh server on the embedded store, ready to answer.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut server = Self::start_in(folder.path(), Store::Embedded).await;
        server._folder = Some(folder);
        server
    }

    /// A server on what `folder` holds (and the store), ready to answer.
    pub async fn start_in(folder: &Path, store: Store<'_>) -> Self {
        Self::start_with(folder, store, &[]).await
    }

    /// [`TestServer::start_in`] with further flags.
    pub async fn start_with(folder: &Path, store: Store<'_>, flags: &[&str]) -> Self {
        Self::start_after("", folder, store, flags).await
    }

    /// [`TestServer::start_with`] in a process that a shell has prepared with some commands (`umask
    /// 0`).
    pub async fn start_after(
        commands: &str,
        folder: &Path,
        store: Store<'_>,
        flags: &[&str],
    ) -> Self {
        Self::start_until("/readyz", commands, folder, store, flags).await
    }

    /// [`TestServer::start_with`] for a server that will not be ready: it is to be live.
    pub async fn start_live(folder: &Path, store: Store<'_>, flags: &[&str]) -> Self {
        Self::start_until("/livez", "", folder, store, flags).await
    }

    async fn start_until(
        probe: &str,
        commands: &str,
        folder: &Path,
        store: Store<'_>,
        flags: &[&str],
    ) -> Self {
        let port = free_port();
        let mut process = Self::spawn_after(commands, folder, store, port, flags);
        process
            .ready(&format!("keelson on port {port}"), || {
                http::get_status(port, probe)
            })
            .await;
        Self {
            process,
            port,
            _folder: None,
        }
    }

    /// A server process that may or may not come up.
    pub fn spawn(folder: &Path, store: Store<'_>, port: u16) -> Process {
        Self::spawn_with(folder, store, port, &[])
    }

    fn spawn_with(folder: &Path, store: Store<'_>, port: u16, flags: &[&str]) -> Process {
        Self::spawn_after("", folder, store, port, flags)
    }

    fn spawn_after(
        commands: &str,
        folder: &Path,
        store: Store<'_>,
        port: u16,
        flags: &[&str],
    ) -> Process {
        let tokens = folder.join("tokens.csv");
        fs::write(
            &tokens,
            format!(
                "{ADMIN},admin,admin-uid,\"system:masters\"\n{USER},alice,alice-uid,\"devs\"\n"
            ),
        )
        .expect("written");
        let mut command = binary();
        if !commands.is_empty() {
            let server = std::mem::replace(&mut command, Command::new("sh"));
            command
                .arg("-c")
                .arg(format!("{commands}; exec \"$0\" \"$@\""))
                .arg(server.get_program());
        }
        command
            .arg(format!("--data-dir={}", folder.join("data").display()))
            .arg(format!("--secure-port={port}"))
            .arg(format!("--token-auth-file={}", tokens.display()))
            .args([
                "--bind-address=127.0.0.1",
                "--advertise-address=10.0.0.1",
                "--service-cluster-ip-range=10.96.0.0/16",
            ])
            .args([
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
            ]);
        // Modes add up, and a configuration file stands in for them.
        if !flags
            .iter()
            .any(|flag| flag.starts_with("--authorization-"))
        {
            command.arg("--authorization-mode=Node,RBAC");
        }
        if let Store::Etcd(url) = store {
            command.arg(format!("--etcd-servers={url}"));
        }
        command.args(flags);
        Process::spawn(command, &folder.join(format!("keelson-{port}.log")))
    }

    /// A server process with just these flags, in that folder.
    pub fn run(folder: &Path, flags: &[String]) -> Process {
        let mut command = binary();
        command.args(flags).current_dir(folder);
        Process::spawn(command, &folder.join("keelson.log"))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A kube-rs client with a token.
    pub fn client(&self, token: &str) -> kube::Client {
        let url = format!("https://127.0.0.1:{}", self.port)
            .parse()
            .expect("a URL");
        let mut config = kube::Config::new(url);
        config.accept_invalid_certs = true;
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        kube::Client::try_from(config).expect("a client")
    }

    /// Returns what the server has written to its standard output and error so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// A figure about the memory of the process in KiB: `VmRSS` (now), `VmHWM` (at most).
    pub fn memory_kib(&self, figure: &str) -> u64 {
        self.process.memory_kib(figure)
    }

    /// The page of metrics.
    pub async fn metrics(&self) -> String {
        let request = ::http::Request::get("/metrics")
            .header("Host", "localhost")
            .header("Authorization", format!("Bearer {ADMIN}"))
            .body(Default::default())
            .expect("a request");
        let answer = http::call(self.port, request, PATIENCE).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200);
        String::from_utf8(answer.body.into()).expect("text")
    }

    /// SIGKILL: no goodbye, nothing flushed.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGHUP: it looks at its certificates, keys and tokens.
    pub fn hang_up(&self) {
        let sent = Command::new("kill")
            .arg("-HUP")
            .arg(self.process.child.id().to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "SIGHUP");
    }

    /// SIGHUP, and then waits for what comes of it.
    pub async fn hang_up_until(&self, what: &str, is_so: impl AsyncFnMut() -> bool) {
        self.hang_up();
        until(what, is_so).await;
    }

    /// SIGTERM: it takes its leave, and must end well.
    pub async fn terminate(&mut self) {
        self.process.terminate();
        assert!(
            self.process.ends().await,
            "it ended badly:\n{}",
            self.process.log()
        );
    }

    /// The process itself.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The server to test.
fn binary() -> Command {
    Command::new(
        std::env::var_os("KEELSON_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_keelson").into()),
    )
}

/// A child process and its log.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn spawn(mut command: Command, log: &Path) -> Self {
        let out = File::create(log).expect("a log file");
        let err = out.try_clone().expect("a second handle");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")),
            log: log.to_owned(),
        }
    }

    /// Waits until the probe says 200; fails with the log where the process ends first or takes too
    /// long.
    pub async fn ready<F: Future<Output = Option<u16>>>(
        &mut self,
        name: &str,
        probe: impl Fn() -> F,
    ) {
        let start = Instant::now();
        while probe().await != Some(200) {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("{name} stopped with {status}:\n{}", self.log());
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{name} is not ready after {PATIENCE:?}:\n{}",
                self.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Reports whether the process ended well, once it ends by itself; fails where it does not
    /// within the time a start takes.
    pub async fn ends(&mut self) -> bool {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.success();
            }
            assert!(
                start.elapsed() < PATIENCE,
                "still running after {PATIENCE:?}:\n{}",
                self.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let sent = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "SIGTERM");
    }

    /// A figure about the memory of the process in KiB: `VmRSS` (now), `VmHWM` (at most).
    pub fn memory_kib(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a process");
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
        let digits = line.map(|line| line.trim().trim_end_matches(" kB"));
        let digits = digits.unwrap_or_else(|| panic!("no {figure} in {status}"));
        digits.parse().expect("a number")
    }

    /// Returns what the process has written to its standard output and error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until something is so; fails where it takes too long.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// A port that nothing listens on now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}
