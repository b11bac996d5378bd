//! The warnings for the client of a write.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The bytes of warnings after which no more are taken: many more than a response may have.
const MAX_WARNING_BYTES: usize = 64 * 1024;

/// Warnings for the client, gathered while a request is worked on; each text once.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Gathered>);

#[derive(Debug, Default)]
struct Gathered {
    /// In the order in which they came.
    texts: Vec<Arc<str>>,
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Warnings {
    pub fn add(&self, text: impl Into<String>) {
        let mut gathered = self.0.lock();
        if gathered.bytes > MAX_WARNING_BYTES {
            return;
        }
        let text: Arc<str> = text.into().into();
        if gathered.known.insert(text.clone()) {
            gathered.bytes += text.len();
            gathered.texts.push(text);
        }
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
            .texts
            .iter()
            .map(|text| text.as_ref().to_owned())
            .collect()
    }
}
