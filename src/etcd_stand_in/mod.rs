//! A stand-in for etcd in tests: envtest starts an etcd before each API server, and gets this
//! program under the name `etcd`. It holds no data. It answers health checks, and tells a Keelson
//! that is given its address which folder to use, in place of a protocol that nobody needs then.

mod command_line;
mod handover;
mod responder;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::net::TcpListener;

pub use handover::{Handover, ask};

use command_line::{Action, Settings};

/// The name that this program has as etcd.
pub const NAME: &str = "etcd";

/// Runs with the arguments of an etcd (without argv[0]) until a signal arrives.
pub fn main(args: impl IntoIterator<Item = String>, until: impl Future<Output = ()>) -> ExitCode {
    let outcome = match command_line::parse(args) {
        Ok(Action::Print(text)) => io::stdout().write_all(text.as_bytes()),
        Ok(Action::Run(settings)) => run(&settings, until),
        Err(why) => Err(io::Error::other(why)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // If even stderr is gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "Error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: &Settings, until: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut listeners = Vec::new();
        for address in &settings.addresses {
            listeners.push(bind(*address).await?);
        }
        let handover = Handover::of(settings);
        for listener in listeners {
            tokio::spawn(responder::serve(listener, handover.clone()));
        }
        until.await;
        Ok(())
    })
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |why: io::Error| io::Error::other(format!("listening on {address}: {why}"));
    TcpListener::bind(address).await.map_err(named)
}
