//! The contract of all stores, checked on each of them, and tests for one store only.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "support/etcd.rs"]
mod etcd;
mod storage;
