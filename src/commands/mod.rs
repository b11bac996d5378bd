//! The commands beside the server: `keelson snapshot save` and the like. A command line without one
//! is the server's.

mod args;
mod data;
mod defrag;
mod fork;
mod host;
mod kubeconfig;
mod migrate;
mod progress;
mod shell;
mod snapshot;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use self::args::{Args, ArgsError, Opt};
use crate::etcd_stand_in;
use crate::server;
use crate::server::shutdown::Signals;
use crate::storage::StorageError;
use crate::storage::snapshot::SnapshotError;

/// A command with its description.
struct Spec {
    /// Its words, such as `snapshot save`.
    name: &'static str,
    /// The arguments that are no options, as the help shows them. Those in brackets may be left
    /// out.
    operands: &'static [&'static str],
    about: &'static str,
    options: &'static [Opt],
    run: fn(&Args) -> Result<(), CommandError>,
}

const COMMANDS: &[&Spec] = &[
    &snapshot::SAVE,
    &snapshot::RESTORE,
    &snapshot::STATUS,
    &migrate::MIGRATE,
    &fork::FORK,
    &defrag::DEFRAG,
    &host::HOST,
    &kubeconfig::COMMAND,
    &shell::COMPLETION,
    &shell::MAN,
];

/// The option that names a data directory.
const DATA_DIR: Opt = Opt {
    name: "data-dir",
    value: Some("FOLDER"),
    default: "./keelson-data",
    help: "the data directory of the server",
};

/// An error that ends a command. Its text is for the terminal.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Other(String),
}

impl CommandError {
    fn new(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }

    /// Adds what the error is about.
    fn about(self, what: impl std::fmt::Display) -> Self {
        Self::Other(format!("{what}: {self}"))
    }
}

/// Runs what the program is called: a stand-in for etcd under that name, else [`main`].
pub fn main_as(program: &str, args: impl IntoIterator<Item = String>) -> ExitCode {
    let name = Path::new(program).file_stem();
    if name.is_some_and(|name| name == etcd_stand_in::NAME) {
        return etcd_stand_in::main(args, async { Signals::new().next().await });
    }
    main(args)
}

/// Runs a command with `args` (without argv[0]), or the server if there is none.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.into_iter().collect();
    let Some((spec, rest)) = find(&args) else {
        return match args.split_first() {
            Some((word, rest)) if is_group(word) => finish(group_help(word, rest)),
            _ => server::main(args),
        };
    };
    if args::asks_for_help(rest) {
        return finish(print(&help(spec)));
    }
    let outcome = Args::parse(spec.options, spec.operands, rest).map_err(CommandError::from);
    finish(outcome.and_then(|args| (spec.run)(&args)))
}

fn finish(outcome: Result<(), CommandError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If even stderr is gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command that the arguments begin with, and the arguments behind it.
fn find(args: &[String]) -> Option<(&'static Spec, &[String])> {
    COMMANDS.iter().find_map(|spec| {
        let words: Vec<&str> = spec.name.split(' ').collect();
        let begins = args.len() >= words.len() && args.iter().zip(&words).all(|(a, b)| a == b);
        begins.then(|| (*spec, &args[words.len()..]))
    })
}

/// Reports whether a word begins the names of several commands.
fn is_group(word: &str) -> bool {
    COMMANDS.iter().any(|spec| {
        spec.name
            .split_once(' ')
            .is_some_and(|(group, _)| group == word)
    })
}

/// Prints the commands of a group to those who ask, and tells others what they could have meant.
fn group_help(group: &str, rest: &[String]) -> Result<(), CommandError> {
    let mut text = String::new();
    for spec in COMMANDS.iter().filter(|spec| spec.name.starts_with(group)) {
        let _ = writeln!(text, "  keelson {:<18} {}", spec.name, spec.about);
    }
    if args::asks_for_help(rest) {
        return print(&text);
    }
    Err(CommandError::new(format!(
        "{group} needs one of these words behind it:\n{}",
        text.trim_end()
    )))
}

fn help(spec: &Spec) -> String {
    let mut text = format!("{}\n\nUsage:\n  keelson {}", spec.about, spec.name);
    for operand in spec.operands {
        let _ = write!(text, " {operand}");
    }
    if !spec.options.is_empty() {
        text.push_str(" [options]\n\nOptions:\n");
    }
    for option in spec.options {
        let value = option
            .value
            .map_or(String::new(), |value| format!("={value}"));
        let _ = write!(text, "  --{}{value}\n        {}", option.name, option.help);
        if option.default.is_empty() {
            text.push('\n');
        } else {
            let _ = writeln!(text, " (default {})", option.default);
        }
    }
    text.trim_end().to_owned()
}

fn print(text: &str) -> Result<(), CommandError> {
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_commands_and_everything_else_is_the_servers() {
        let args = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let line = args("snapshot save file --data-dir=x");
        let (spec, rest) = find(&line).unwrap();
        assert_eq!((spec.name, rest.len()), ("snapshot save", 2));
        for line in ["snapshot", "snapshots save", "--data-dir=x fork", "save"] {
            assert!(find(&args(line)).is_none(), "{line}");
        }
        assert!(is_group("snapshot") && !is_group("fork") && !is_group("save"));
    }

    #[test]
    fn every_command_explains_itself() {
        for spec in COMMANDS {
            let text = help(spec);
            assert!(text.contains(&format!("keelson {}", spec.name)), "{text}");
            for option in spec.options {
                assert!(text.contains(&format!("--{}", option.name)), "{text}");
            }
        }
    }
}
