//! Lists: the revision that is read, the objects that are selected, the end of a page.

use std::sync::Arc;

use opentelemetry::KeyValue;

use crate::base::coop::CoopBudget;
use crate::cacher::{CachedObject, Snapshot};
use crate::meta::Status;
use crate::meta::options::{ListOptions, parse_resource_version};
use crate::meta::status::Result;
use crate::storage::{ListPage, ListRequest, Revision, StorageError, next_key};
use crate::telemetry::trace;

use super::continuation::Next;
use super::errors::revision_of;
use super::items::{Items, SnapshotRange};
use super::read::check_reached;
use super::unreadable::unreadable_key;
use super::{Selection, Store, continuation, index, storage_status, too_large_resource_version};

/// The keys read at once while a selector looks for matches.
const SCAN_CHUNK: usize = 1000;

/// A page of a list.
#[derive(Debug, Default)]
pub struct Page {
    pub items: Items,
    pub revision: Revision,
    /// The token of the next page; empty on the last.
    pub continue_token: String,
    pub remaining: Option<i64>,
}

impl Page {
    /// Sets the token of the next page, which starts at `key`.
    pub(super) fn set_continue(&mut self, key: String, prefix: &str) {
        self.continue_token = continuation::encode(
            &Next {
                key,
                revision: self.revision,
                items_from_key: self.remaining,
            },
            prefix,
        );
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The start of a list.
#[derive(Default)]
struct Start {
    key: String,
    revision: Option<Revision>,
    /// The oldest state that will do otherwise; `None` for the latest.
    version: Option<u64>,
    /// The number of objects from the key on, if the page before it counted them.
    items_from_key: Option<i64>,
    /// Set where the page follows another one, so that its revision may be compacted away.
    continued: bool,
}

impl Start {
    /// Reads the start of a list from its options. `one` is set for a selector that names a single
    /// object.
    fn new(options: &ListOptions, prefix: &str, one: bool) -> Result<Self> {
        if !options.continue_token.is_empty() {
            let Next {
                key,
                revision,
                items_from_key,
            } = continuation::decode(&options.continue_token, prefix).map_err(|status| {
                Status::bad_request(format!("invalid continue token: {}", status.message))
            })?;
            if !options.resource_version.is_empty() && options.resource_version != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let revision = (revision > 0).then_some(revision);
            return Ok(Self {
                key,
                revision,
                version: None,
                items_from_key: revision.and(items_from_key),
                continued: true,
            });
        }
        let version = parse_resource_version(&options.resource_version)
            .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        let exact = match options.resource_version_match.as_str() {
            "Exact" => true,
            "" => !one && options.limit > 0 && version > Some(0),
            _ => false,
        };
        Ok(Self {
            key: String::new(),
            revision: exact.then(|| revision_of(version)),
            version,
            items_from_key: None,
            continued: false,
        })
    }
}

/// The objects that a list from storage read, and those that it tested.
#[derive(Default)]
struct Looked {
    fetched: usize,
    evaluated: usize,
}

/// A list of the objects below a prefix.
struct ListOperation<'a> {
    store: &'a Store,
    selection: &'a Selection,
    prefix: String,
    start: Start,
    /// Maximum number of objects; 0 for all.
    limit: usize,
    /// Objects that cannot be read are not an error.
    lenient: bool,
}

impl ListOperation<'_> {
    /// Returns the page of a cached state. Without a limit its objects are read and selected as
    /// they are asked for.
    async fn read_snapshot(self, snapshot: Snapshot) -> Result<Page> {
        let Self {
            store,
            selection,
            prefix,
            start,
            limit,
            ..
        } = self;
        check_readable(&snapshot, &prefix)?;
        let mut page = Page {
            revision: snapshot.revision,
            ..Page::default()
        };
        let range = store.snapshot_range(snapshot, prefix, selection);
        if limit == 0 && start.key.is_empty() {
            page.items = Items::selected(store, range, selection);
            return Ok(page);
        }
        let (mut items, mut budget, mut fetched): (Vec<Arc<CachedObject>>, _, _) =
            (Vec::new(), CoopBudget::default(), 0);
        for stored in range.objects(&start.key) {
            fetched += 1;
            budget.step().await;
            if store.selects(selection, stored)? {
                items.push(stored.clone());
            }
            if limit == 0 || items.len() < limit {
                continue;
            }
            // The next page begins behind this object, whether or not what is there is selected.
            let key = next_key(&stored.key);
            let mut rest = range.snapshot.range(&range.prefix, &key).peekable();
            if rest.peek().is_some() {
                let all = || {
                    store
                        .caches_exactly(&range.prefix)
                        .then(|| signed(range.snapshot.len()))
                        .filter(|_| start.key.is_empty())
                };
                let counted = start
                    .items_from_key
                    .or_else(all)
                    .map(|ahead| ahead.saturating_sub(signed(items.len())).max(1));
                page.remaining = selection
                    .is_empty()
                    .then(|| counted.unwrap_or_else(|| signed(rest.count())));
                page.set_continue(key, &range.prefix);
                if let Some(cacher) = &store.cacher {
                    cacher.retain_snapshot(&range.snapshot);
                }
            }
            break;
        }
        range.metrics.cache_list(range.index_key.is_some());
        range.count(fetched, items.len());
        page.items = items.into();
        Ok(page)
    }

    /// Reads the page from storage. `asked` is the limit that the client named.
    async fn read_storage(self, asked: i64) -> Result<Page> {
        let (key, limit) = (trace::truncated(&self.prefix), asked);
        let attributes = || vec![KeyValue::new("key", key), KeyValue::new("limit", limit)];
        let metrics = self.store.metrics.clone();
        let mut looked = Looked::default();
        let work = self.read_chunks(asked, &mut looked);
        let name = "List(recursive=true) etcd3";
        let page = trace::in_span(name, trace::SLOW, attributes, work).await?;
        metrics.storage_list(looked.fetched, looked.evaluated, page.items.ready());
        Ok(page)
    }

    async fn read_chunks(self, asked: i64, looked: &mut Looked) -> Result<Page> {
        let Self {
            store,
            selection,
            ref prefix,
            ref start,
            limit,
            lenient,
        } = self;
        let mut request = ListRequest {
            prefix: prefix.clone(),
            start: start.key.clone(),
            revision: start.revision,
            limit,
        };
        let mut page = Page::default();
        let (mut items, mut budget): (Vec<Arc<CachedObject>>, _) =
            (Vec::new(), CoopBudget::default());
        if !selection.is_empty() && limit > 0 {
            request.limit = limit.max(SCAN_CHUNK);
        }
        loop {
            let part = self.read_chunk(&request).await?;
            if page.revision == 0 {
                page.revision = part.revision;
                check_reached(start.version, part.revision)?;
            }
            request.revision = Some(page.revision);
            let (count, more) = (part.count, part.more);
            let last = part.items.last().map(|item| item.key.clone());
            looked.fetched += part.items.len();
            for stored in part.items {
                looked.evaluated += 1;
                budget.step().await;
                if !lenient && !index::is_readable(store, &stored) {
                    return Err(unreadable_key(&stored.key));
                }
                if limit > 0 && items.len() == limit {
                    let last = items
                        .last()
                        .map_or_else(|| stored.key.clone(), |item| item.key.clone());
                    page.set_continue(next_key(&last), prefix);
                    page.items = items.into();
                    return Ok(page);
                }
                if store.selects(selection, &stored)? {
                    items.push(stored.into());
                }
            }
            let Some(last) = last.filter(|_| more) else {
                break;
            };
            if limit > 0 && items.len() >= limit {
                page.remaining = selection.is_empty().then_some(count - asked);
                page.set_continue(next_key(&last), prefix);
                break;
            }
            request.start = next_key(&last);
        }
        page.items = items.into();
        Ok(page)
    }

    async fn read_chunk(&self, request: &ListRequest) -> Result<ListPage> {
        let start = &self.start;
        self.store
            .storage
            .list(request.clone())
            .await
            .map_err(|error| match error {
                StorageError::Compacted { .. } if start.continued => {
                    continuation::expired(&start.key, &request.prefix)
                }
                StorageError::FutureRevision { current, asked } => too_large_resource_version(
                    start.version.unwrap_or(asked.unsigned_abs()),
                    current,
                ),
                other => storage_status(other, &self.store.resource.gvr, "list"),
            })
    }
}

impl Store {
    /// Returns one page of the objects of a namespace (of all where it is empty) that the options
    /// select.
    ///
    /// # Errors
    /// 400 for options that do not go together, 410 where the state is forgotten, 504 where it does
    /// not come in time, 500 where storage fails or an object cannot be decoded.
    pub async fn list(&self, namespace: &str, options: &ListOptions) -> Result<Page> {
        let gvr = &self.resource.gvr;
        let attributes = || vec![KeyValue::new("type", gvr.group_resource())];
        let work = async {
            if self.converts() {
                self.list_converted(namespace, options).await
            } else {
                self.list_stored(namespace, options).await
            }
        };
        trace::in_span("cacher.GetList", trace::SLOW, attributes, work).await
    }

    /// The namespace that a list is of: the one that it asks for where it is of all.
    pub(super) fn listed_namespace<'a>(
        &self,
        namespace: &'a str,
        selection: &'a Selection,
    ) -> &'a str {
        match selection.fields.required("metadata.namespace") {
            Some(wanted)
                if namespace.is_empty()
                    && self.resource.decl.namespaced
                    && valid_namespace(wanted) =>
            {
                wanted
            }
            _ => namespace,
        }
    }

    /// Returns one page of the objects as they are stored.
    pub(super) async fn list_stored(&self, namespace: &str, options: &ListOptions) -> Result<Page> {
        let selection = self.selection(options)?;
        let namespace = self.listed_namespace(namespace, &selection);
        let prefix = self.namespace_prefix(namespace);
        let known = !namespace.is_empty() || !self.resource.decl.namespaced;
        let one = selection
            .fields
            .required("metadata.name")
            .filter(|name| known && !name.is_empty());
        let start = Start::new(options, &prefix, one.is_some())?;
        let one = one.filter(|_| !start.continued);
        if let (Some(name), None) = (one, start.revision) {
            return self
                .list_one(namespace, name, options, start.version, &selection)
                .await;
        }
        // "Any" state has always been answered whole (apiserver `cacher.shouldDelegateList`).
        let limit = if start.version == Some(0) {
            0
        } else {
            usize::try_from(options.limit).unwrap_or(0)
        };
        let operation = ListOperation {
            store: self,
            selection: &selection,
            prefix,
            start,
            limit,
            lenient: false,
        };
        let snapshot = match (operation.start.revision, &self.cacher) {
            (_, None) => None,
            (Some(revision), Some(cacher)) => cacher.snapshot_at(revision).await,
            (None, _) => self.snapshot(operation.start.version).await?,
        };
        match snapshot {
            Some(snapshot) => operation.read_snapshot(snapshot).await,
            None => operation
                .read_storage(options.limit)
                .await
                .map_err(|status| {
                    if one.is_some() {
                        without_retry(status)
                    } else {
                        status
                    }
                }),
        }
    }

    /// The list of a selector that names one object: no need to look further.
    async fn list_one(
        &self,
        namespace: &str,
        name: &str,
        options: &ListOptions,
        version: Option<u64>,
        selection: &Selection,
    ) -> Result<Page> {
        // Upstream's cache has no pages of one object: its store answers, and nobody waits.
        let paged =
            options.resource_version_match.is_empty() && options.limit > 0 && version > Some(0);
        let snapshot = if paged {
            None
        } else {
            self.snapshot(version).await?
        };
        // No object has a name that cannot be one.
        let key = self.key(namespace, name).unwrap_or_default();
        let (stored, revision) = match snapshot {
            Some(snapshot) => (snapshot.get(&key).cloned(), snapshot.revision),
            None => {
                let key = if key.is_empty() { self.prefix() } else { key };
                let (stored, revision) = self
                    .storage
                    .get_with_revision(&key)
                    .await
                    .map_err(|error| self.fault(error, "list"))?;
                (stored.map(Arc::from), revision)
            }
        };
        check_reached(version, revision).map_err(without_retry)?;
        let mut items = Vec::new();
        if let Some(stored) = stored
            && self.selects(selection, &stored)?
        {
            items.push(stored);
        }
        Ok(Page {
            items: items.into(),
            revision,
            ..Page::default()
        })
    }

    /// Returns every object of a namespace (of all where it is empty) as it is stored now, also
    /// those that cannot be read.
    ///
    /// # Errors
    /// 500 where storage fails.
    pub async fn all_stored(&self, namespace: &str) -> Result<Page> {
        let prefix = self.namespace_prefix(namespace);
        match self.snapshot(None).await? {
            Some(snapshot) => Ok(Page {
                revision: snapshot.revision,
                items: Items::all(SnapshotRange {
                    metrics: self.metrics.clone(),
                    snapshot,
                    prefix,
                    index_key: None,
                }),
                ..Page::default()
            }),
            None => {
                let operation = ListOperation {
                    store: self,
                    selection: &Selection::default(),
                    prefix,
                    start: Start::default(),
                    limit: 0,
                    lenient: true,
                };
                operation.read_storage(0).await
            }
        }
    }

    /// Reports whether the cache is that of exactly this prefix.
    fn caches_exactly(&self, prefix: &str) -> bool {
        self.cacher
            .as_ref()
            .is_some_and(|cacher| cacher.prefix() == prefix)
    }
}

/// Refuses a list of what is below `prefix` where it has an object in it that cannot be read,
/// whatever is selected: upstream decodes all of them (`storage/etcd3.store.GetList`).
fn check_readable(snapshot: &Snapshot, prefix: &str) -> Result<()> {
    snapshot
        .unreadable(prefix)
        .map_or(Ok(()), |key| Err(unreadable_key(key)))
}

/// The same error without a time to retry after: upstream does not wait here.
fn without_retry(mut status: Status) -> Status {
    status.details_mut().retry_after_seconds = 0;
    status
}

fn valid_namespace(name: &str) -> bool {
    crate::meta::names::dns1123_label(name).is_empty()
}
