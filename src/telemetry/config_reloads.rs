//! Metrics of configuration files that are followed (apiserver `util/configmetrics`,
//! `server/options/authorizationconfig/metrics`).

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::metrics::{Counter, Declared, Gauge};
use crate::base::clock::Clock;

/// The metrics of one file.
pub struct ConfigReloads {
    total: Counter,
    last: Gauge,
    info: Gauge,
    /// The labels of the current series of `info`.
    shown: Mutex<Option<[String; 2]>>,
}

impl ConfigReloads {
    /// Declares the metrics: of the number of reloads, of the time of the last one, and of the
    /// content that is in use; each by name and help.
    pub const fn new(
        total: (&'static str, &'static str),
        last: (&'static str, &'static str),
        info: (&'static str, &'static str),
    ) -> Self {
        const LABELS: &[&str] = &["status", "apiserver_id_hash"];
        Self {
            total: Counter::new(total.0, total.1, LABELS),
            last: Gauge::new(last.0, last.1, LABELS),
            info: Gauge::new(info.0, info.1, &["apiserver_id_hash", "hash"]),
            shown: Mutex::new(None),
        }
    }

    /// Returns the metrics, to be declared.
    pub const fn metrics(&'static self) -> [&'static dyn Declared; 3] {
        [&self.total, &self.last, &self.info]
    }

    /// Records the content that a server began with.
    pub fn loaded(&'static self, server: &str, content: &[u8]) {
        let labels = [hash(server.as_bytes()), hash(content)];
        let mut shown = self.shown.lock();
        if let Some([server, content]) = &*shown {
            self.info.remove(&[server, content]);
        }
        self.info.set(&[&labels[0], &labels[1]], 1);
        *shown = Some(labels);
    }

    /// Records content that was taken.
    pub fn succeeded(&'static self, server: &str, content: &[u8]) {
        self.record(server, "success");
        self.loaded(server, content);
    }

    /// Records content that could not be.
    pub fn failed(&'static self, server: &str) {
        self.record(server, "failure");
    }

    fn record(&'static self, server: &str, status: &str) {
        let labels = [status, &hash(server.as_bytes())];
        self.total.inc(&labels);
        self.last.set(&labels, Clock::system().now().as_second());
    }
}

/// Returns the hash under which a text appears in labels; empty for an empty one.
pub fn hash(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let digest = digest::digest(&digest::SHA256, bytes);
    let mut out = "sha256:".to_owned();
    for byte in digest.as_ref() {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}
