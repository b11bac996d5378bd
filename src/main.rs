//! The keelson binary: hands its command line to the server.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keelson::main(std::env::args().skip(1))
}
