//! Random suffixes and identifiers.

use rand::RngExt;

/// The letters of generated names: no vowels and no look-alikes, so that no word appears
/// (apimachinery `util/rand`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A string of `len` letters that are safe in a DNS label.
pub fn suffix(len: usize) -> String {
    let mut rng = rand::rng();
    (0..len)
        .map(|_| ALPHABET[rng.random_range(0..ALPHABET.len())] as char)
        .collect()
}

/// A random (version 4) UUID in its canonical form.
pub fn uuid() -> String {
    // Of the thread's generator: asking the system would cost every request a call.
    uuid::Builder::from_random_bytes(rand::random())
        .into_uuid()
        .to_string()
}
