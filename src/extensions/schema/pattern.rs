//! Compiled patterns of schemas. A pattern is compiled when it is first matched, and kept while
//! there is room.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::meta::go::regexp::{self, Program};

/// About the most bytes that the compiled patterns of all definitions take.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// The bytes that a compiled pattern takes beyond its program.
const ENTRY_BYTES: usize = 16 << 10;

/// A compiled pattern, or why it does not compile.
pub type Compiled = Arc<Result<Program, String>>;

/// The patterns that were used last: those of two generations, of which the older one goes when the
/// newer one has half of the bytes.
#[derive(Default)]
struct Cache {
    newer: HashMap<Arc<str>, Compiled>,
    older: HashMap<Arc<str>, Compiled>,
    newer_bytes: usize,
}

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// Returns the program of a pattern, and what compiling it took now, in bytes of programs.
pub fn compile(pattern: &str) -> (Compiled, usize) {
    if let Some(compiled) = CACHE.lock().get(pattern) {
        return (compiled, 0);
    }
    let compiled = Arc::new(regexp::compile(pattern));
    CACHE.lock().insert(pattern.into(), compiled.clone());
    let cost = program_bytes(&compiled);
    (compiled, cost)
}

/// The size of a program; of one that does not compile, how large it may have become before that
/// was known.
pub fn program_bytes(compiled: &Result<Program, String>) -> usize {
    compiled
        .as_ref()
        .map_or(regexp::MAX_PROGRAM_BYTES, |program| program.bytes)
}

impl Cache {
    fn get(&mut self, pattern: &str) -> Option<Compiled> {
        if let Some(compiled) = self.newer.get(pattern) {
            return Some(compiled.clone());
        }
        let (pattern, compiled) = self.older.remove_entry(pattern)?;
        self.insert(pattern, compiled.clone());
        Some(compiled)
    }

    fn insert(&mut self, pattern: Arc<str>, compiled: Compiled) {
        let program = compiled
            .as_ref()
            .as_ref()
            .map_or(0, |program| program.bytes);
        self.newer_bytes += pattern.len() + ENTRY_BYTES + program;
        self.newer.insert(pattern, compiled);
        if self.newer_bytes > MAX_KEPT_BYTES / 2 {
            self.older = std::mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_patterns_are_bounded_and_used_ones_stay() {
        let mut cache = Cache::default();
        let program = Arc::new(regexp::compile("^a$"));
        let count = 4 * MAX_KEPT_BYTES / ENTRY_BYTES;
        for number in 0..count {
            cache.insert(format!("{number}").into(), program.clone());
            let used = cache.get("used").unwrap_or_else(|| program.clone());
            cache.insert("used".into(), used);
        }
        assert!(cache.newer.len() + cache.older.len() <= MAX_KEPT_BYTES / ENTRY_BYTES);
        assert!(cache.get("used").is_some() && cache.get("0").is_none());
    }
}
