//! Measures the time from nothing to a ready server, in memory and on disk:
//! `cargo run --profile dist --example time_to_ready`.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use keelson::{Builder, Error, Server};

/// Starts of each kind.
const STARTS: usize = 20;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first also reads the schema of the built-in types.
    let first = time(Server::builder()).await?;
    println!("in memory, the first of the process: {first:?}");
    report("in memory", || Ok(Server::builder())).await?;
    let folder = tempfile::tempdir()?;
    let mut number = 0;
    report("in a new folder", || {
        number += 1;
        Ok(Server::builder().folder(folder.path().join(number.to_string())))
    })
    .await?;
    let known = folder.path().join("known");
    time(Server::builder().folder(&known)).await?;
    report("in a folder that was used before", || {
        Ok(Server::builder().folder(&known))
    })
    .await?;
    Ok(())
}

async fn time(builder: Builder) -> Result<Duration, Error> {
    let begun = Instant::now();
    let server = builder.start().await?;
    let taken = begun.elapsed();
    server.stop().await?;
    Ok(taken)
}

/// Prints the median and the extremes.
async fn report(
    kind: &str,
    mut builder: impl FnMut() -> Result<Builder, Error>,
) -> Result<(), Error> {
    let mut taken = Vec::new();
    for _ in 0..STARTS {
        taken.push(time(builder()?).await?);
    }
    taken.sort();
    let [least, median, most] = [0, STARTS / 2, STARTS - 1].map(|at| taken[at]);
    println!("{kind}: {median:?} ({least:?} to {most:?})");
    Ok(())
}
