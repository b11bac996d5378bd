//! The fuzz targets over their seeds, over every beginning of each, and over seeds that are changed
//! at random: that they compile and hold is known without a fuzzer. `FUZZ_SECONDS=60 cargo test
//! --test fuzz -- --nocapture` runs each target for so long, and tells how many inputs that were;
//! `FUZZ_TARGET=tokens` runs one alone.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[path = "../fuzz/src/lib.rs"]
mod targets;

/// The inputs that are made of the seeds of each target where there is no limit of time.
const MUTANTS: usize = 300;
/// The changes of one input.
const MAX_CHANGES: usize = 8;
/// The largest input that is made.
const MAX_BYTES: usize = 1 << 16;

type Target = fn(&[u8]);

fn all() -> Vec<(&'static str, Target)> {
    vec![
        ("apply", targets::apply as Target),
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
        ("certificates", targets::certificates),
        ("certificate_requests", targets::certificate_requests),
        ("kubeconfig", targets::kubeconfig),
        ("snapshots", targets::snapshots),
    ]
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(name);
    let entries = fs::read_dir(folder).expect("a folder of seeds");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| fs::read(file).expect("a seed"))
        .collect()
}

#[test]
fn every_target_holds_over_its_seeds() {
    for (name, target) in all() {
        let mut inputs = 0;
        for seed in seeds(name) {
            for end in 0..=seed.len() {
                target(&seed[..end]);
                inputs += 1;
            }
        }
        assert!(inputs > 300, "{name} has too few seeds");
    }
}

#[test]
fn every_target_holds_over_changed_seeds() {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        text.parse().ok()
    };
    let limit = number("FUZZ_SECONDS").map(Duration::from_secs);
    let only = std::env::var("FUZZ_TARGET").unwrap_or_default();
    for (name, target) in all() {
        if !only.is_empty() && only != name {
            continue;
        }
        let seed = number("FUZZ_SEED").unwrap_or(7);
        let (mut random, seeds) = (StdRng::seed_from_u64(seed), seeds(name));
        let (begun, mut inputs) = (Instant::now(), 0);
        while match limit {
            Some(limit) => begun.elapsed() < limit,
            None => inputs < MUTANTS,
        } {
            let input = mutant(&seeds, &mut random);
            if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
                panic!(
                    "{name} does not hold over {:?}",
                    input.escape_ascii().to_string()
                );
            }
            inputs += 1;
        }
        if limit.is_some() {
            println!("{name}: {inputs} inputs");
        }
    }
}

/// Returns a seed with some changes.
fn mutant(seeds: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let pick = |random: &mut StdRng| seeds[random.random_range(0..seeds.len())].clone();
    let mut bytes = pick(random);
    for _ in 0..random.random_range(1..=MAX_CHANGES) {
        let at = random.random_range(0..=bytes.len());
        let end = (at + random.random_range(0..16)).min(bytes.len());
        match random.random_range(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = random.random(),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            4 => {
                let other = pick(random);
                let from = random.random_range(0..=other.len());
                let to = (from + random.random_range(0..64)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            5 => {
                let odd: &[u8] = ODD[random.random_range(0..ODD.len())];
                bytes.splice(at..end, odd.iter().copied());
            }
            _ => bytes.truncate(at.max(1)),
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

/// Texts that are seldom handled well.
const ODD: [&[u8]; 16] = [
    b"",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\xc3\x28",
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"-1",
    b"9223372036854775808",
    b"1e999",
    b"\xe2\x80\xa8",
    b": ",
    b"\n- ",
    b"&a *a",
    b"\x80\x80\x80\x80\x80\x01",
];
