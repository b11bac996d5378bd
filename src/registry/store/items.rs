//! The objects of a list, one after the other, without a list of them: read from a snapshot as they
//! are asked for.

use std::sync::Arc;

use crate::cacher::{IndexKey, Snapshot};
use crate::meta::status::Result;
use crate::storage::{Stored, next_key};

/// Objects taken from a snapshot in one go.
const BATCH: usize = 128;

/// The objects of a list, in order of their keys.
#[derive(Clone, Debug, Default)]
pub struct Items {
    batch: std::vec::IntoIter<Arc<Stored>>,
    rest: Option<Box<Rest>>,
}

/// What has not been taken yet.
#[derive(Clone, Debug)]
struct Rest {
    source: Source,
    /// The key to go on from; `None` at the end.
    next: Option<String>,
}

/// A stretch of a snapshot.
#[derive(Clone, Debug)]
pub struct Source {
    pub snapshot: Snapshot,
    pub prefix: String,
    /// The term that all of them have, where the selection asks for one.
    pub term: Option<IndexKey>,
}

impl Source {
    /// The objects from the key `start` on.
    pub fn range<'a>(
        &'a self,
        start: &'a str,
    ) -> Box<dyn Iterator<Item = &'a Arc<Stored>> + Send + 'a> {
        match self.term {
            Some(term) => Box::new(self.snapshot.range_by_index(term, &self.prefix, start)),
            None => Box::new(self.snapshot.range(&self.prefix, start)),
        }
    }
}

impl Items {
    /// All objects of the stretch.
    pub fn all(source: Source) -> Self {
        let rest = Rest {
            source,
            next: Some(String::new()),
        };
        Self {
            batch: Vec::new().into_iter(),
            rest: Some(Box::new(rest)),
        }
    }
}

impl From<Vec<Arc<Stored>>> for Items {
    fn from(items: Vec<Arc<Stored>>) -> Self {
        Self {
            batch: items.into_iter(),
            rest: None,
        }
    }
}

impl Iterator for Items {
    type Item = Result<Arc<Stored>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(stored) = self.batch.next() {
                return Some(Ok(stored));
            }
            let rest = self.rest.as_mut()?;
            self.batch = rest.take().into_iter();
            if rest.next.is_none() {
                self.rest = None;
            }
        }
    }
}

impl Rest {
    fn take(&mut self) -> Vec<Arc<Stored>> {
        let start = self.next.take().unwrap_or_default();
        let mut batch = Vec::with_capacity(BATCH);
        for stored in self.source.range(&start) {
            if batch.len() == BATCH {
                self.next = batch.last().map(|last: &Arc<Stored>| next_key(&last.key));
                break;
            }
            batch.push(stored.clone());
        }
        batch
    }
}
