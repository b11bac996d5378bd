//! A real etcd for tests: on free ports, in a directory that goes away with it, without fsync.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long etcd may take to answer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running etcd. Dropping it kills it.
pub struct Etcd {
    child: Child,
    _dir: tempfile::TempDir,
    client: u16,
}

impl Etcd {
    /// Starts one and waits until it answers. Panics, with what to do, if there is no etcd to start.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (client, peer) = free_ports();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let log = std::fs::File::create(dir.path().join("log")).expect("a log file");
        let child = Command::new(binary())
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("default={}", url(peer))])
            .args(["--unsafe-no-fsync", "--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd to start");
        let mut etcd = Self { child, _dir: dir, client };
        etcd.wait();
        etcd
    }

    /// Where clients connect, `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// The port of [`Etcd::endpoint`].
    #[allow(dead_code)] // Not every test binary needs it.
    pub fn port(&self) -> u16 {
        self.client
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while !self.ready() {
            let log = || std::fs::read_to_string(self._dir.path().join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait().expect("the state of etcd") {
                panic!("etcd ended with {status}: {}", log());
            }
            assert!(start.elapsed() < START_TIMEOUT, "etcd does not answer: {}", log());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// `/readyz` says so once there is a leader.
    fn ready(&self) -> bool {
        use std::io::{Read, Write};
        let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.client)) else { return false };
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

/// Two ports that nobody listens on now.
fn free_ports() -> (u16, u16) {
    let [a, b] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let port = |l: &TcpListener| l.local_addr().expect("its address").port();
    (port(&a), port(&b))
}
