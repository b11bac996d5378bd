//! The limits on what the expressions of one definition or policy take when they are compiled:
//! macros and patterns make much of little text.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most nodes of all expressions together.
const MAX_NODES: usize = 1_000_000;
/// The most bytes that their patterns may take when compiled.
const MAX_PATTERN_BYTES: usize = 64 << 20;

/// The nodes and bytes that expressions may still take. Its clones share them.
#[derive(Clone, Debug)]
pub struct CompileBudget(Arc<Rest>);

#[derive(Debug)]
struct Rest {
    nodes: AtomicUsize,
    bytes: AtomicUsize,
}

impl Default for CompileBudget {
    fn default() -> Self {
        Self::new(MAX_NODES, MAX_PATTERN_BYTES)
    }
}

impl CompileBudget {
    pub fn new(nodes: usize, bytes: usize) -> Self {
        Self(Arc::new(Rest {
            nodes: nodes.into(),
            bytes: bytes.into(),
        }))
    }

    /// Takes nodes; reports whether there were more.
    pub fn take_nodes(&self, count: usize) -> bool {
        take(&self.0.nodes, count) > count
    }

    /// Takes the bytes of a pattern; reports whether there were as many.
    pub fn take_bytes(&self, count: usize) -> bool {
        take(&self.0.bytes, count) >= count
    }

    pub fn has_bytes(&self, count: usize) -> bool {
        self.0.bytes.load(Ordering::Relaxed) >= count
    }
}

/// Takes from a number what there is; returns what there was.
fn take(from: &AtomicUsize, count: usize) -> usize {
    let rest = |left: usize| Some(left.saturating_sub(count));
    let before = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
    before.unwrap_or_default()
}

pub fn too_many_nodes() -> String {
    format!("the expressions have over {MAX_NODES} nodes")
}

pub fn too_many_bytes() -> String {
    format!("patterns of expressions take more than {MAX_PATTERN_BYTES} bytes when compiled")
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, compile};
    use super::*;

    #[test]
    fn the_nodes_of_expressions_share_a_budget() {
        let budget = CompileBudget::new(20, 0);
        let environment = Environment::new().with_budget(&budget);
        let answers = ["1 + 2", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "1 + 2 + 3 + 4", "1"].map(|text| {
            let refused = compile(text, &environment).err();
            refused.map(|why| why.0.contains(&too_many_nodes()))
        });
        assert_eq!(answers, [None, None, Some(true), Some(true)]);
    }
}
