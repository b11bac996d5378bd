//! The objects of a list, one after the other, without a list of them: read from a snapshot, and
//! selected, as they are asked for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::base::coop::CoopBudget;
use crate::cacher::{CachedObject, IndexKey, Snapshot};
use crate::meta::Status;
use crate::meta::status::Result;

use super::metrics::StoreMetrics;
use super::{Selection, Store};

/// Objects looked at in one go.
const BATCH: usize = 128;

/// The objects of a list, in order of their keys. The error is that of an object that cannot be
/// read; nothing comes after it.
///
/// As an iterator it goes on until it finds something. [`Items::next_item`] and
/// [`Items::poll_next`] let other tasks run meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Items {
    batch: std::vec::IntoIter<Arc<CachedObject>>,
    rest: Option<Box<UnreadItems>>,
    error: Option<Box<Status>>,
}

/// The part of the list that has not been looked at yet.
#[derive(Clone, Debug)]
struct UnreadItems {
    range: SnapshotRange,
    filter: Option<Arc<Filter>>,
    /// The key that is next.
    next: String,
    budget: CoopBudget,
}

#[derive(Debug)]
struct Filter {
    store: Store,
    selection: Selection,
}

/// A stretch of a snapshot.
#[derive(Clone)]
pub struct SnapshotRange {
    pub metrics: Arc<StoreMetrics>,
    pub snapshot: Snapshot,
    pub prefix: String,
    /// The index key that all of them have, where the selection asks for one.
    pub index_key: Option<IndexKey>,
}

impl std::fmt::Debug for SnapshotRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SnapshotRange({})", self.prefix)
    }
}

impl SnapshotRange {
    /// Counts objects that were looked at, and those that were selected.
    pub(super) fn count(&self, fetched: usize, returned: usize) {
        let is_indexed = self.index_key.is_some();
        self.metrics.cache_objects(is_indexed, fetched, returned);
    }

    /// The objects from the key `start` on.
    pub fn objects<'a>(
        &'a self,
        start: &'a str,
    ) -> Box<dyn Iterator<Item = &'a Arc<CachedObject>> + Send + 'a> {
        match self.index_key {
            Some(key) => Box::new(self.snapshot.range_by_index(key, &self.prefix, start)),
            None => Box::new(self.snapshot.range(&self.prefix, start)),
        }
    }
}

impl Items {
    /// All objects of the stretch.
    pub fn all(range: SnapshotRange) -> Self {
        Self::filtered(range, None)
    }

    /// The objects of the stretch that the selection takes.
    pub(super) fn selected(store: &Store, range: SnapshotRange, selection: &Selection) -> Self {
        let filter = || Filter {
            store: store.clone(),
            selection: selection.clone(),
        };
        Self::filtered(range, (!selection.is_empty()).then(filter))
    }

    fn filtered(range: SnapshotRange, filter: Option<Filter>) -> Self {
        range.metrics.cache_list(range.index_key.is_some());
        let rest = UnreadItems {
            range,
            filter: filter.map(Arc::new),
            next: String::new(),
            budget: CoopBudget::default(),
        };
        Self {
            rest: Some(Box::new(rest)),
            ..Self::default()
        }
    }

    /// The next object. Dropping the future loses nothing.
    pub async fn next_item(&mut self) -> Option<Result<Arc<CachedObject>>> {
        // Most often it is there.
        match self.batch.next() {
            Some(stored) => Some(Ok(stored)),
            None => poll_fn(|cx| self.poll_next(cx)).await,
        }
    }

    /// The next object. Pending where it is the turn of other tasks, after which the task is run
    /// again.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<CachedObject>>>> {
        loop {
            if let Some(item) = self.take_ready() {
                return Poll::Ready(item);
            }
            if self.look() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// The number of objects that are next without looking further.
    pub fn ready(&self) -> usize {
        self.batch.len()
    }

    /// Reports whether there is nothing at all.
    pub async fn is_empty(&mut self) -> bool {
        poll_fn(|cx| {
            while self.batch.as_slice().is_empty() && self.rest.is_some() {
                if self.look() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            Poll::Ready(self.batch.as_slice().is_empty() && self.error.is_none())
        })
        .await
    }

    /// Looks through all of the list now, so that clones need not do it again. Without a selection
    /// that is not worth it.
    ///
    /// # Errors
    /// An object cannot be read.
    pub async fn select_all(&mut self) -> Result<()> {
        if self.rest.as_ref().is_none_or(|rest| rest.filter.is_none()) {
            return Ok(());
        }
        let mut selected = Vec::new();
        while let Some(stored) = self.next_item().await {
            selected.push(stored?);
        }
        *self = selected.into();
        Ok(())
    }

    /// Returns the next item if it is known without looking further.
    fn take_ready(&mut self) -> Option<Option<Result<Arc<CachedObject>>>> {
        if let Some(stored) = self.batch.next() {
            return Some(Some(Ok(stored)));
        }
        if let Some(error) = self.error.take() {
            return Some(Some(Err(*error)));
        }
        self.rest.is_none().then_some(None)
    }

    /// Looks at some more objects. Reports whether it is the turn of others.
    fn look(&mut self) -> bool {
        let Some(rest) = self.rest.as_mut() else {
            return false;
        };
        let (batch, outcome) = rest.look();
        self.batch = batch.into_iter();
        match outcome {
            Ok(Looked::Some { is_spent }) => return is_spent,
            Ok(Looked::All) => self.rest = None,
            Err(status) => {
                self.rest = None;
                self.error = Some(Box::new(status));
            }
        }
        false
    }
}

/// The progress of a look.
enum Looked {
    Some { is_spent: bool },
    All,
}

impl From<Vec<Arc<CachedObject>>> for Items {
    fn from(items: Vec<Arc<CachedObject>>) -> Self {
        Self {
            batch: items.into_iter(),
            ..Self::default()
        }
    }
}

impl Iterator for Items {
    type Item = Result<Arc<CachedObject>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.take_ready() {
                return item;
            }
            self.look();
        }
    }
}

impl UnreadItems {
    /// Looks at a batch of objects, and returns those that are selected.
    fn look(&mut self) -> (Vec<Arc<CachedObject>>, Result<Looked>) {
        let mut fetched = 0;
        let (batch, outcome) = self.look_at(&mut fetched);
        self.range.count(fetched, batch.len());
        (batch, outcome)
    }

    fn look_at(&mut self, fetched: &mut usize) -> (Vec<Arc<CachedObject>>, Result<Looked>) {
        let start = std::mem::take(&mut self.next);
        let (mut batch, mut is_spent) = (Vec::with_capacity(BATCH), false);
        for (looked, stored) in self.range.objects(&start).enumerate() {
            if looked == BATCH || is_spent {
                self.next = stored.key.clone();
                return (batch, Ok(Looked::Some { is_spent }));
            }
            *fetched += 1;
            match &self.filter {
                None => batch.push(stored.clone()),
                Some(filter) => {
                    match filter.store.selects(&filter.selection, stored) {
                        Ok(true) => batch.push(stored.clone()),
                        Ok(false) => {}
                        Err(status) => return (batch, Err(status)),
                    }
                    is_spent = self.budget.is_spent();
                }
            }
        }
        (batch, Ok(Looked::All))
    }
}
