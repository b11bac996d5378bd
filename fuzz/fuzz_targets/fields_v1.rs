//! Field sets: whatever reads as one is written and read back the same.
#![no_main]

use keelson::merge::set::Set;
use keelson::meta::Value;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((fields, _)) = keelson::codec::json::parse(bytes) else { return };
    let Ok(set) = Set::decode(&fields) else { return };
    let written = Value::Object(set.encode());
    let again = Set::decode(&written).expect("what was written reads");
    assert_eq!(Value::Object(again.encode()), written);
});
