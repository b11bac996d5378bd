//! The keelson binary: hands its command line to the server.

fn main() {}
