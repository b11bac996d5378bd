//! Pods in protobuf.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keelson_fuzz::protobuf_pod(bytes));
