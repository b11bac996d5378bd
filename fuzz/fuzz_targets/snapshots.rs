//! Snapshot files, of Keelson and of etcd.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keelson_fuzz::snapshots(bytes));
