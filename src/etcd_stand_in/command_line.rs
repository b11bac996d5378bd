//! The command line of the stand-in: the flags that envtest passes, and those that change nothing
//! of what it does.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// The version of etcd that it says it is, as its API server needs no other.
pub const VERSION: &str = "3.6.0";

/// The flags with an effect.
const USED: [(&str, &str); 3] = [
    ("data-dir", "the folder of the API server's store"),
    (
        "listen-client-urls",
        "the addresses to answer health checks and the API server at, http:// only",
    ),
    (
        "unsafe-no-fsync",
        "let the API server's store not wait for the disk",
    ),
];

/// The flags of etcd that say nothing to a server without data, peers and clients.
const IDLE: [&str; 22] = [
    "advertise-client-urls",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "backend-batch-interval",
    "backend-batch-limit",
    "election-timeout",
    "enable-pprof",
    "force-new-cluster",
    "heartbeat-interval",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "listen-peer-urls",
    "log-level",
    "log-outputs",
    "logger",
    "max-wals",
    "name",
    "pre-vote",
    "snapshot-count",
    "strict-reconfig-check",
];

/// The settings of a stand-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub addresses: Vec<SocketAddr>,
    pub unsafe_no_fsync: bool,
}

/// The action that a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Print(String),
    Run(Settings),
}

/// Reads a command line (without the program's name).
///
/// # Errors
/// Flags that it does not have, and values that make no sense.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Action, String> {
    let mut settings = Settings {
        data_dir: "default.etcd".into(),
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 2379))],
        unsafe_no_fsync: false,
    };
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(format!("'{arg}' is not a valid flag"));
        };
        let (name, inline) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if matches!(name, "help" | "h") {
            return Ok(Action::Print(help()));
        }
        if name == "version" {
            return Ok(Action::Print(format!("etcd Version: {VERSION}\n")));
        }
        let is_switch = matches!(
            name,
            "unsafe-no-fsync"
                | "enable-pprof"
                | "force-new-cluster"
                | "pre-vote"
                | "strict-reconfig-check"
        );
        let value = match inline {
            Some(value) => value,
            None if is_switch => "true".to_owned(),
            None => args
                .next()
                .ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        match name {
            "data-dir" => settings.data_dir = value.into(),
            "listen-client-urls" => settings.addresses = addresses(&value)?,
            "unsafe-no-fsync" => {
                settings.unsafe_no_fsync = value
                    .parse()
                    .map_err(|_| format!("--{name} is true or false, not {value}"))?;
            }
            idle if IDLE.contains(&idle) => {}
            other => {
                return Err(format!(
                    "--{other} is not a flag of this stand-in for etcd, which is for tests"
                ));
            }
        }
    }
    Ok(Action::Run(settings))
}

/// The addresses of a list of URLs.
fn addresses(urls: &str) -> Result<Vec<SocketAddr>, String> {
    let mut addresses = Vec::new();
    for url in urls.split(',') {
        let host = url
            .strip_prefix("http://")
            .ok_or_else(|| format!("--listen-client-urls: {url} is not an http:// URL"))?;
        let found = host.trim_end_matches('/').to_socket_addrs();
        let found = found.map_err(|why| format!("--listen-client-urls: {url}: {why}"))?;
        // A name may have several; clients try one after the other.
        addresses.extend(found.take(1));
    }
    Ok(addresses)
}

fn help() -> String {
    let mut text = "Keelson in the place of etcd, for tests: it holds no data.\n\n".to_owned();
    for (name, what) in USED {
        text += &format!("  --{name}\n        {what}\n");
    }
    text += "\nAccepted, without effect:\n";
    for name in IDLE {
        text += &format!("  --{name}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Action, String> {
        parse(args.iter().map(ToString::to_string))
    }

    #[test]
    fn the_flags_of_envtest_are_understood() {
        let action = run(&[
            "--advertise-client-urls=http://127.0.0.1:4000",
            "--data-dir=/tmp/a",
            "--listen-client-urls=http://127.0.0.1:4000,http://127.0.0.1:4001/",
            "--listen-peer-urls=http://127.0.0.1:4002",
            "--unsafe-no-fsync=true",
            "--name",
            "a",
        ]);
        let expected = Settings {
            data_dir: "/tmp/a".into(),
            addresses: [4000, 4001]
                .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
                .to_vec(),
            unsafe_no_fsync: true,
        };
        assert_eq!(action, Ok(Action::Run(expected)));
    }

    #[test]
    fn help_names_the_flags_at_the_beginning_of_lines() {
        let Ok(Action::Print(help)) = run(&["--help"]) else {
            panic!("no help")
        };
        let mut lines = help.lines();
        assert!(lines.any(|line| line.trim_start() == "--unsafe-no-fsync"));
    }

    #[test]
    fn what_would_not_be_obeyed_is_refused() {
        for (arg, why) in [
            (
                "--cert-file=x",
                "--cert-file is not a flag of this stand-in for etcd, which is for tests",
            ),
            (
                "--quota-backend-bytes=1",
                "--quota-backend-bytes is not a flag of this stand-in for etcd, which is for tests",
            ),
            (
                "--listen-client-urls=https://127.0.0.1:1",
                "--listen-client-urls: https://127.0.0.1:1 is not an http:// URL",
            ),
            (
                "--unsafe-no-fsync=1x",
                "--unsafe-no-fsync is true or false, not 1x",
            ),
            ("--data-dir", "flag needs an argument: --data-dir"),
            ("gateway", "'gateway' is not a valid flag"),
        ] {
            assert_eq!(run(&[arg]), Err(why.to_owned()));
        }
    }
}
