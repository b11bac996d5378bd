//! `keelson kubeconfig`: the administrator's kubeconfig of a data directory, for another address
//! than the server wrote into it.

use std::path::Path;

use super::args::{Args, Opt};
use super::{CommandError, DATA_DIR, Spec, print};
use crate::options::data_dir::KUBECONFIG;

/// The line of the file that has the address.
const SERVER: &str = "    server: ";
/// The beginning of the line with the name in the server's certificate.
const NAME: &str = "    tls-server-name: ";

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
        Opt {
            name: "server-name",
            value: Some("NAME"),
            default: "",
            help: "the name in the certificate of the server, if it is not that in the URL; a port \
                   that servers share needs it",
        },
    ],
    run,
};

fn run(args: &Args) -> Result<(), CommandError> {
    let path = Path::new(args.text("data-dir")).join(KUBECONFIG);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| CommandError::from(error).about(path.display()))?;
    let (url, name) = (args.given("server"), args.given("server-name"));
    if let Some(url) = url
        && (!url.starts_with("https://") || url.contains(char::is_whitespace))
    {
        return Err(CommandError::new(format!(
            "--server is no https URL: {url}"
        )));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if let Some(name) = name
        && !name.chars().all(is_plain)
    {
        return Err(CommandError::new(format!(
            "--server-name is no name: {name}"
        )));
    }
    print(with_server(&text, url, name).trim_end())
}

/// The file with another address, and with the name to expect there.
fn with_server(text: &str, url: Option<&str>, name: Option<&str>) -> String {
    let lines = text.lines().map(|line| {
        let Some(present) = line.strip_prefix(SERVER) else {
            return format!("{line}\n");
        };
        let server = format!("{SERVER}{}\n", url.unwrap_or(present));
        let name = name.map_or(String::new(), |name| format!("{NAME}{name}\n"));
        server + &name
    });
    lines.collect()
}
