//! Keelson, a drop-in replacement for kube-apiserver. This file knows only the module list, in reading order.
//!
//! A module may use those above it, never those below (`tests/tidy.rs` checks it). ARCHITECTURE.md is the map.

pub mod base;
pub mod telemetry;
pub mod meta;
pub mod schema;
pub mod codec;
pub mod merge;
pub mod storage;
pub mod cacher;
pub mod auth;
pub mod admission;
pub mod registry;
pub mod extensions;
pub mod discovery;
pub mod endpoints;
pub mod server;
