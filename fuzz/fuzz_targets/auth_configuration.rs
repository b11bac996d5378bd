//! The configuration files of authentication and authorization.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keelson_fuzz::auth_configuration(bytes));
