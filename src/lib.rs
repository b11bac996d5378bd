//! Keelson, a drop-in replacement for kube-apiserver. This file knows only the module list, in reading order.
//!
//! A module may use those above it, never those below (`tests/tidy.rs` checks it). ARCHITECTURE.md is the map.

pub mod admission;
pub mod auth;
pub mod base;
pub mod codec;
pub mod discovery;
pub mod endpoints;
pub mod merge;
pub mod meta;
pub mod registry;
pub mod schema;
pub mod server;
pub mod storage;
pub mod telemetry;
