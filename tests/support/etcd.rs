//! A real etcd for tests: on free ports, in a directory that goes away with it, without fsync.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long etcd may take to answer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How often it is tried: somebody else may take a port between the choice and its use.
const ATTEMPTS: usize = 3;

/// A running etcd. Dropping it kills it.
pub struct Etcd {
    child: Child,
    dir: tempfile::TempDir,
    endpoint: String,
    client: u16,
    metrics: u16,
}

/// The files of an etcd that speaks TLS and wants a certificate from its clients.
#[derive(Clone)]
pub struct Tls {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Etcd {
    /// Starts one and waits until it answers. Panics, with what to do, if there is no etcd to start.
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

    fn attempt(tls: Option<&Tls>) -> Result<Self, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [client, peer, metrics] = free_ports();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let endpoint = if tls.is_some() { format!("https://127.0.0.1:{client}") } else { url(client) };
        let log = std::fs::File::create(dir.path().join("log")).expect("a log file");
        let mut command = Command::new(binary());
        command
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("default={}", url(peer)), "--listen-metrics-urls", &url(metrics)])
            .args(["--unsafe-no-fsync", "--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500"]);
        if let Some(Tls { ca, cert, key }) = tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca).arg("--cert-file").arg(cert).arg("--key-file").arg(key);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("etcd to start");
        let mut etcd = Self { child, dir, endpoint, client, metrics };
        etcd.wait().map(|()| etcd)
    }

    /// Where clients connect, `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// The port of [`Etcd::endpoint`].
    #[allow(dead_code)] // Not every test binary needs it.
    pub fn port(&self) -> u16 {
        self.client
    }

    fn wait(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while !self.ready() {
            let ended = self.child.try_wait().expect("the state of etcd");
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                return Err(std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// `/readyz` says so once there is a leader.
    fn ready(&self) -> bool {
        use std::io::{Read, Write};
        let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.metrics)) else { return false };
        let mut answer = String::new();
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `$KEELSON_ETCD`, then `.tools/bin/etcd` of this repository, then `etcd` on the path.
fn binary() -> PathBuf {
    let local = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/etcd");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("KEELSON_ETCD").map(PathBuf::from);
    let found = named.or_else(|| std::iter::once(local).chain(std::env::split_paths(&path).map(|d| d.join("etcd"))).find(|p| p.is_file()));
    found.filter(|p| p.is_file()).expect("etcd is needed: run scripts/install-tools.sh test, or name one in KEELSON_ETCD")
}

/// Ports that nobody listens on now.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|l| l.local_addr().expect("its address").port())
}
