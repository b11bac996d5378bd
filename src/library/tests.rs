//! Tests of what only the inside of the crate sees; `tests/library.rs` has the rest.

use super::*;
use crate::storage::embedded::Medium;

fn config(builder: Builder) -> Result<Config, Error> {
    builder.config()
}

#[test]
fn what_is_not_said_is_in_memory_and_on_loopback() {
    let config = config(Server::builder()).expect("a configuration");
    assert_eq!(config.data_dir, None);
    assert_eq!(config.serving.bind_address.to_string(), "127.0.0.1");
    assert_eq!(config.serving.port, 0);
    assert_eq!(config.storage.medium, Medium::Memory);
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (builder, why) in [
        (
            Server::builder().flag("data-dir", "/x"),
            "the folder is that of Builder::folder",
        ),
        (
            Server::builder().flag("in-memory", false),
            "a store in a file needs a folder",
        ),
        (Server::builder().flag("nope", 1), "unknown flag: --nope"),
        (
            Server::builder().flag("v", 4),
            "v: the log is the program's own: it gets what servers write through `tracing`",
        ),
        (
            Server::builder().flag("version", true),
            "help and version start no server",
        ),
        (
            Server::builder()
                .flag("etcd-servers", "http://127.0.0.1:1")
                .without_fsync(),
            "--unsafe-no-fsync is about the embedded store, and --etcd-servers names another",
        ),
    ] {
        let error = config(builder).expect_err(why);
        assert_eq!(error.to_string(), why);
    }
}
