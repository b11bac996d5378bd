//! What every store promises, checked on each of them; then what only one of them can be asked.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "support/etcd.rs"]
mod etcd;
mod storage;
