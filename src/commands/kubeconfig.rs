//! `keelson kubeconfig`: the administrator's kubeconfig of a data directory, for another address
//! than the server wrote into it.

use std::path::Path;

use super::args::{Args, Opt};
use super::{CommandError, DATA_DIR, Spec, print};
use crate::options::data_dir::KUBECONFIG;

/// The line of the file that has the address.
const SERVER: &str = "    server: ";

pub const COMMAND: Spec = Spec {
    name: "kubeconfig",
    operands: &[],
    about: "Prints the administrator's kubeconfig, which a server writes that makes its own \
            certificates.",
    options: &[
        DATA_DIR,
        Opt {
            name: "server",
            value: Some("URL"),
            default: "",
            help: "where clients reach the server, if not at the address in the file",
        },
    ],
    run,
};

fn run(args: &Args) -> Result<(), CommandError> {
    let path = Path::new(args.text("data-dir")).join(KUBECONFIG);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| CommandError::from(error).about(path.display()))?;
    match args.given("server") {
        None => print(text.trim_end()),
        Some(url) if !url.starts_with("https://") || url.contains(char::is_whitespace) => Err(
            CommandError::new(format!("--server is no https URL: {url}")),
        ),
        Some(url) => print(with_server(&text, url).trim_end()),
    }
}

fn with_server(text: &str, url: &str) -> String {
    let lines = text.lines().map(|line| match line.starts_with(SERVER) {
        true => format!("{SERVER}{url}\n"),
        false => format!("{line}\n"),
    });
    lines.collect()
}
