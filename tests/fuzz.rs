//! The fuzz targets over their seeds, and over every beginning of each: that they compile and hold
//! is known without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
mod targets;

/// Runs a target over its seeds; answers how many inputs that were.
fn run(name: &str, target: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(name);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).expect("a folder of seeds") {
        let seed = fs::read(entry.expect("an entry").path()).expect("a seed");
        for end in 0..=seed.len() {
            target(&seed[..end]);
            inputs += 1;
        }
    }
    inputs
}

#[test]
fn every_target_holds_over_its_seeds() {
    let all = [
        ("apply", targets::apply as fn(&[u8])),
        ("fields_v1", targets::fields_v1),
        ("strategic_patch", targets::strategic_patch),
        ("yaml_text", targets::yaml_text),
        ("json_pod", targets::json_pod),
        ("protobuf_pod", targets::protobuf_pod),
        ("selectors", targets::selectors),
        ("expressions", targets::expressions),
        ("audit_policy", targets::audit_policy),
        (
            "encryption_configuration",
            targets::encryption_configuration,
        ),
        ("encryption_envelope", targets::encryption_envelope),
        ("auth_configuration", targets::auth_configuration),
        ("spdy_frames", targets::spdy_frames),
        ("tokens", targets::tokens),
    ];
    for (name, target) in all {
        assert!(run(name, target) > 300, "{name} has too few seeds");
    }
}
