//! Field sets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keelson_fuzz::fields_v1(bytes));
