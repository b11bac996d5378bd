//! Random suffixes, identifiers and orders.

use rand::RngExt;
use rand::seq::SliceRandom;

/// The alphabet of generated names. It has no vowels and no look-alikes, so that no words appear
/// (apimachinery `util/rand`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns `len` random characters that are safe in a DNS label.
pub fn suffix(len: usize) -> String {
    let mut rng = rand::rng();
    (0..len)
        .map(|_| ALPHABET[rng.random_range(0..ALPHABET.len())] as char)
        .collect()
}

/// Returns a random (version 4) UUID in canonical form.
pub fn uuid() -> String {
    // From the thread's generator: the system's would cost every request a system call.
    uuid::Builder::from_random_bytes(rand::random())
        .into_uuid()
        .to_string()
}

/// Brings items into a random order.
pub fn shuffle<T>(items: &mut [T]) {
    items.shuffle(&mut rand::rng());
}

/// Fills a nonce or a key with random bytes of the system's cryptographic generator.
///
/// # Panics
/// The system has no randomness: nothing may be encrypted then.
pub fn fill(bytes: &mut [u8]) {
    if aws_lc_rs::rand::fill(bytes).is_err() {
        panic!("the system has no randomness");
    }
}
