//! Frames of SPDY, as kubelets send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keelson_fuzz::spdy_frames(bytes));
