//! Strategic merge patches.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keelson_fuzz::strategic_patch(bytes));
