//! The builder of servers inside another program.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use super::{Error, Server};
use crate::options::config::Config;
use crate::options::flags::{self, Command};
use crate::server::run::{RunError, log_flags};
use crate::storage::embedded::Medium;

/// The flags that are about the log of a process.
const LOG_FLAGS: [&str; 2] = ["v", "logging-format"];

/// A server that is to be started. What no method says is as Keelson's flags have it by default,
/// but for the address, which is any free port of 127.0.0.1.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    folder: Option<PathBuf>,
    /// Names and values, in the order in which they count.
    flags: Vec<(String, String)>,
}

impl Builder {
    /// Keeps objects, certificates and keys in a folder, from which the next server goes on.
    /// Without one, everything is in memory and gone when the server stops.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    /// Writes without waiting for the disk: after a failure of the machine (not of the program) the
    /// last writes, or everything, may be gone.
    pub fn without_fsync(self) -> Self {
        self.flag("unsafe-no-fsync", true)
    }

    /// Listens on this port.
    pub fn port(self, port: u16) -> Self {
        self.flag("secure-port", port)
    }

    /// Listens on this address.
    pub fn bind_address(self, address: IpAddr) -> Self {
        self.flag("bind-address", address)
    }

    /// Serves with this certificate and key (PEM files) in place of its own.
    pub fn serving_certificate(self, cert: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.flag("tls-cert-file", cert.as_ref().display())
            .flag("tls-private-key-file", key.as_ref().display())
    }

    /// Trusts client certificates of this authority (a PEM file) in place of its own. There is no
    /// [`Server::kubeconfig`] then.
    pub fn client_authority(self, cert: impl AsRef<Path>) -> Self {
        self.flag("client-ca-file", cert.as_ref().display())
    }

    /// Sets a feature gate.
    pub fn feature_gate(self, name: &str, on: bool) -> Self {
        self.flag("feature-gates", format!("{name}={on}"))
    }

    /// Turns on an admission plugin that is off by default.
    pub fn admission_plugin(self, name: &str) -> Self {
        self.flag("enable-admission-plugins", name)
    }

    /// Turns off an admission plugin that is on by default.
    pub fn without_admission_plugin(self, name: &str) -> Self {
        self.flag("disable-admission-plugins", name)
    }

    /// Sets a flag of kube-apiserver or of Keelson, by its name without dashes. One that takes a
    /// list may be set more than once.
    pub fn flag(mut self, name: &str, value: impl Display) -> Self {
        self.flags.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts the server, and waits until it is ready. It has threads of its own, so the executor
    /// that runs this future does not matter.
    ///
    /// # Errors
    /// A flag is unknown or refused, its port or folder is in use, or a file that a flag names
    /// cannot be read.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self.config()?).await
    }

    pub(super) fn config(self) -> Result<Config, Error> {
        let in_folder = self.folder.is_some();
        let named = |name: &str| self.flags.iter().any(|(flag, _)| flag == name);
        let elsewhere = named("etcd-servers");
        if named("data-dir") {
            return Err(Error("the folder is that of Builder::folder".to_owned()));
        }
        if let Some(name) = LOG_FLAGS.into_iter().find(|name| named(name)) {
            let why = "the log is the program's own: it gets what servers write through `tracing`";
            return Err(Error(format!("{name}: {why}")));
        }
        let own = [
            ("bind-address", Ipv4Addr::LOCALHOST.to_string(), true),
            ("secure-port", "0".to_owned(), true),
            ("in-memory", "true".to_owned(), !in_folder && !elsewhere),
        ];
        let own = own
            .into_iter()
            .filter(|(name, _, applies)| *applies && !named(name))
            .map(|(name, value, _)| (name.to_owned(), value));
        let given = own.chain(self.flags.iter().cloned());
        let args = given.map(|(name, value)| format!("--{name}={value}"));
        let command = flags::parse(args).map_err(RunError::from)?;
        let Command::Run(flags) = command else {
            return Err(Error("help and version start no server".to_owned()));
        };
        let config = Config::from_flags(&flags).map_err(RunError::from)?;
        log_flags(&flags, &config);
        if !in_folder && !elsewhere && config.storage.medium != Medium::Memory {
            return Err(Error("a store in a file needs a folder".to_owned()));
        }
        Ok(Config {
            data_dir: self.folder,
            ..config
        })
    }
}
