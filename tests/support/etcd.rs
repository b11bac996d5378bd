//! A real etcd for tests: on free ports, in a directory that goes away with it, without fsync.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for an answer of etcd on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of attempts: another process may take a port between the choice and its use.
const ATTEMPTS: usize = 3;

/// A running etcd. Dropping it kills it.
pub struct Etcd {
    child: Child,
    dir: tempfile::TempDir,
    member: Member,
}

/// The parameters that one etcd of a cluster is started with, again after it was killed.
#[derive(Clone)]
struct Member {
    name: String,
    endpoint: String,
    client: u16,
    peer: u16,
    metrics: u16,
    /// All members with their peer URLs.
    cluster: String,
    tls: Option<Tls>,
}

/// The files of an etcd that speaks TLS and wants a certificate from its clients.
#[derive(Clone)]
pub struct Tls {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Etcd {
    /// Starts one and waits until it answers. Panics, with what to do, if there is no etcd to
    /// start.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// [`Etcd::start`], for clients with certificates only where `tls` is given.
    pub fn start_with(tls: Option<Tls>) -> Self {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            match Self::attempt(tls.as_ref()) {
                Ok(etcd) => return etcd,
                Err(why) => log = why,
            }
        }
        panic!("etcd does not start: {log}")
    }

    /// A cluster of three. It lives while one of them is down.
    #[allow(dead_code)] // Not every test binary needs it.
    pub fn start_three() -> Vec<Self> {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            let mut members: Vec<Member> = (0..3)
                .map(|i| Member::new(&format!("m{i}"), None))
                .collect();
            let cluster = members
                .iter()
                .map(Member::initial)
                .collect::<Vec<_>>()
                .join(",");
            members
                .iter_mut()
                .for_each(|member| member.cluster.clone_from(&cluster));
            let mut all: Vec<Self> = members.into_iter().map(Self::spawn).collect();
            match all.iter_mut().try_for_each(Self::wait) {
                Ok(()) => return all,
                Err(why) => log = why,
            }
        }
        panic!("etcd does not start: {log}")
    }

    fn attempt(tls: Option<&Tls>) -> Result<Self, String> {
        let mut member = Member::new("default", tls.cloned());
        member.cluster = member.initial();
        let mut etcd = Self::spawn(member);
        etcd.wait().map(|()| etcd)
    }

    fn spawn(member: Member) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self {
            child: member.spawn(dir.path()),
            dir,
            member,
        }
    }

    /// SIGKILL: it comes back with [`Etcd::restart`].
    #[allow(dead_code)]
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on what it has on disk, at the same address, and waits until it answers.
    #[allow(dead_code)]
    pub fn restart(&mut self) {
        self.kill();
        self.child = self.member.spawn(self.dir.path());
        if let Err(why) = self.wait() {
            panic!("etcd does not start again: {why}");
        }
    }

    /// [`Etcd::restart`] with nothing on disk: as one that was restored from a backup of long ago.
    #[allow(dead_code)]
    pub fn restart_empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path().join("data")).expect("removed");
        self.restart();
    }

    /// SIGSTOP: connections stay, and nothing answers until [`Etcd::resume`].
    #[allow(dead_code)]
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    #[allow(dead_code)]
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "{signal}");
    }

    /// Returns the address for clients, `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        self.member.endpoint.clone()
    }

    /// The port of [`Etcd::endpoint`].
    #[allow(dead_code)] // Not every test binary needs it.
    pub fn port(&self) -> u16 {
        self.member.client
    }

    fn wait(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while !self.ready() {
            let ended = self.child.try_wait().expect("the state of etcd");
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                return Err(
                    std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
                );
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// `/readyz` says so once there is a leader.
    fn ready(&self) -> bool {
        use std::io::{Read, Write};
        let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.member.metrics))
        else {
            return false;
        };
        let mut answer = String::new();
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains(" 200 ")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Member {
    fn new(name: &str, tls: Option<Tls>) -> Self {
        let [client, peer, metrics] = free_ports();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = format!("{scheme}://127.0.0.1:{client}");
        Self {
            name: name.to_owned(),
            endpoint,
            client,
            peer,
            metrics,
            cluster: String::new(),
            tls,
        }
    }

    fn initial(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer)
    }

    fn spawn(&self, dir: &Path) -> Child {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let log = std::fs::File::create(dir.join("log")).expect("a log file");
        let mut command = Command::new(binary());
        command
            .arg("--data-dir")
            .arg(dir.join("data"))
            .args([
                "--name",
                &self.name,
                "--listen-client-urls",
                &self.endpoint,
                "--advertise-client-urls",
                &self.endpoint,
            ])
            .args([
                "--listen-peer-urls",
                &url(self.peer),
                "--initial-advertise-peer-urls",
                &url(self.peer),
            ])
            .args([
                "--initial-cluster",
                &self.cluster,
                "--listen-metrics-urls",
                &url(self.metrics),
            ])
            .args([
                "--unsafe-no-fsync",
                "--log-level",
                "error",
                "--heartbeat-interval",
                "50",
                "--election-timeout",
                "500",
            ]);
        if let Some(Tls { ca, cert, key }) = &self.tls {
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(ca)
                .arg("--cert-file")
                .arg(cert)
                .arg("--key-file")
                .arg(key);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd to start")
    }
}

/// `$KEELSON_ETCD`, then `.tools/bin/etcd` of this repository, then `etcd` on the path.
fn binary() -> PathBuf {
    let local = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/etcd");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("KEELSON_ETCD").map(PathBuf::from);
    let found = named.or_else(|| {
        std::iter::once(local)
            .chain(std::env::split_paths(&path).map(|d| d.join("etcd")))
            .find(|p| p.is_file())
    });
    found
        .filter(|p| p.is_file())
        .expect("etcd is needed: run scripts/install-tools.sh test, or name one in KEELSON_ETCD")
}

/// Ports that nobody listens on now.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|l| l.local_addr().expect("its address").port())
}
