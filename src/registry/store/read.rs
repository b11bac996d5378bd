//! Get and list: which revision is read, which objects are selected, where a page ends.

use std::sync::Arc;

use crate::base::coop::CoopBudget;
use crate::cacher::{CachedObject, Snapshot};
use crate::codec;
use crate::meta::options::{ListOptions, parse_resource_version};
use crate::meta::selector::FieldReader;
use crate::meta::selector::fields::FieldSelector;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::storage::{ListPage, ListRequest, Revision, StorageError, Stored, next_key};

use super::continuation::Next;
use super::errors::revision_of;
use super::items::{Items, SnapshotRange};
use super::unreadable::unreadable_key;
use super::{Store, continuation, index, storage_status, too_large_resource_version};
use crate::registry::Strategy;

/// The keys read at once while a selector looks for matches.
const SCAN_CHUNK: usize = 1000;

/// The selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Reports whether an object is selected. Readers of stored bytes need no tree for that.
    pub fn matches(&self, strategy: &dyn Strategy, object: &dyn FieldReader) -> bool {
        self.labels.selects(object)
            && self.fields.matches(|field| match field {
                "metadata.name" | "metadata.namespace" => object.text_at(field),
                other => strategy.selectable_value(object, other),
            })
    }
}

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
    fn set_continue(&mut self, key: String, prefix: &str) {
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

/// A stretch of keys to list.
struct Range {
    prefix: String,
    start: Start,
    /// At most so many; 0 for all.
    limit: usize,
    /// Objects that cannot be read are not an error.
    lenient: bool,
}

impl Store {
    /// Returns one object. `resource_version` is the oldest state that will do; empty for the
    /// latest.
    ///
    /// # Errors
    /// 404 where there is none, 504 where that state does not come in time, 500 where storage
    /// fails.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Arc<CachedObject>> {
        let key = self.key(namespace, name)?;
        let version = parse_resource_version(resource_version)
            .map_err(|why| Status::failure(500, "", why))?;
        let stored = match self.snapshot(version).await? {
            Some(snapshot) => snapshot.get(&key).cloned(),
            None => {
                let (stored, revision) = self
                    .storage
                    .get_with_revision(&key)
                    .await
                    .map_err(|error| self.fault(error, "get"))?;
                check_reached(version, revision)?;
                stored.map(Arc::from)
            }
        };
        stored.ok_or_else(|| Status::not_found(&self.resource.gvr, name))
    }

    /// Returns one object as a tree, like [`Store::cached_get_stored`].
    ///
    /// # Errors
    /// 500 where storage fails or the object cannot be decoded.
    pub async fn cached_get(&self, namespace: &str, name: &str) -> Result<Option<Object>> {
        self.cached_get_stored(namespace, name)
            .await?
            .map(|stored| self.codec.decode(&stored))
            .transpose()
    }

    /// The objects of a namespace (of all where it is empty) as trees, like
    /// [`Store::cached_list_stored`], without those that cannot be read.
    ///
    /// # Errors
    /// 500 where storage fails.
    pub async fn cached_list(&self, namespace: &str) -> Result<Vec<Object>> {
        let known = self.cached_list_stored(namespace).await?;
        Ok(self.readable(
            known
                .into_iter()
                .map(|stored| (stored.clone(), self.codec.decode(&stored))),
        ))
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
                    snapshot,
                    prefix,
                    index_key: None,
                }),
                ..Page::default()
            }),
            None => {
                self.list_range(
                    Range {
                        prefix,
                        start: Start::default(),
                        limit: 0,
                        lenient: true,
                    },
                    0,
                    &Selection::default(),
                )
                .await
            }
        }
    }

    /// The cached state that a read of a version may be served from. `None` where only storage can
    /// tell.
    async fn snapshot(&self, version: Option<u64>) -> Result<Option<Snapshot>> {
        let Some(cacher) = &self.cacher else {
            return Ok(None);
        };
        match version {
            None => Ok(cacher.linearizable_snapshot().await),
            Some(0) => Ok(cacher.snapshot()),
            Some(asked) => cacher
                .snapshot_not_older_than(revision_of(version))
                .await
                .map_err(|current| too_large_resource_version(asked, current)),
        }
    }

    /// Reports whether a selection takes a stored object.
    pub(super) fn selects(&self, selection: &Selection, stored: &Stored) -> Result<bool> {
        if selection.is_empty() {
            return Ok(true);
        }
        let strategy = &*self.resource.strategy;
        Ok(match self.codec.message(stored)? {
            Some(message) => selection.matches(strategy, &message),
            None => selection.matches(strategy, &codec::json::Reader::new(&stored.value)),
        })
    }

    /// Checks the field labels of a selector and turns the options into a selection.
    ///
    /// # Errors
    /// 400 for a field that objects of the resource are not selected by.
    pub fn selection(&self, options: &ListOptions) -> Result<Selection> {
        for term in &options.field_selector.terms {
            self.resource
                .check_field_label(&term.field)
                .map_err(Status::bad_request)?;
        }
        Ok(Selection {
            labels: options.label_selector.clone(),
            fields: options.field_selector.clone(),
        })
    }

    /// Returns one page of the objects of a namespace (of all where it is empty) that the options
    /// select.
    ///
    /// # Errors
    /// 400 for options that do not go together, 410 where the state is forgotten, 504 where it does
    /// not come in time, 500 where storage fails or an object cannot be decoded.
    pub async fn list(&self, namespace: &str, options: &ListOptions) -> Result<Page> {
        let page = self.list_stored(namespace, options).await?;
        match &self.resource.custom {
            Some(custom) if custom.is_unconverted() => self.check_decodable(page).await,
            _ => Ok(page),
        }
    }

    /// Decodes all objects of a page: an answer that has begun cannot become an error.
    async fn check_decodable(&self, mut page: Page) -> Result<Page> {
        page.items.select_all().await?;
        let (mut items, mut budget) = (page.items.clone(), CoopBudget::default());
        while let Some(stored) = items.next_item().await {
            self.codec.decode(&*stored?)?;
            budget.step().await;
        }
        Ok(page)
    }

    async fn list_stored(&self, namespace: &str, options: &ListOptions) -> Result<Page> {
        let selection = self.selection(options)?;
        let namespace = match selection.fields.required("metadata.namespace") {
            Some(wanted)
                if namespace.is_empty()
                    && self.resource.decl.namespaced
                    && valid_namespace(wanted) =>
            {
                wanted
            }
            _ => namespace,
        };
        let prefix = self.namespace_prefix(namespace);
        let known = !namespace.is_empty() || !self.resource.decl.namespaced;
        let one = selection
            .fields
            .required("metadata.name")
            .filter(|name| known && !name.is_empty());
        let start = self.start(options, &prefix, one.is_some())?;
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
        let range = Range {
            prefix,
            start,
            limit,
            lenient: false,
        };
        let snapshot = match (range.start.revision, &self.cacher) {
            (_, None) => None,
            (Some(revision), Some(cacher)) => cacher.snapshot_at(revision).await,
            (None, _) => self.snapshot(range.start.version).await?,
        };
        match snapshot {
            Some(snapshot) => self.page_of(snapshot, range, &selection).await,
            None => self
                .list_range(range, options.limit, &selection)
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

    /// Refuses a list of what is below `prefix` where it has an object in it that cannot be read,
    /// whatever is selected: upstream decodes all of them (`storage/etcd3.store.GetList`).
    pub(super) fn check_readable(&self, snapshot: &Snapshot, prefix: &str) -> Result<()> {
        snapshot
            .unreadable(prefix)
            .map_or(Ok(()), |key| Err(unreadable_key(key)))
    }

    /// A page of a cached state. Without a limit its objects are read and selected as they are
    /// asked for.
    async fn page_of(
        &self,
        snapshot: Snapshot,
        range: Range,
        selection: &Selection,
    ) -> Result<Page> {
        let Range {
            prefix,
            start,
            limit,
            ..
        } = range;
        self.check_readable(&snapshot, &prefix)?;
        let mut page = Page {
            revision: snapshot.revision,
            ..Page::default()
        };
        let range = self.snapshot_range(snapshot, prefix, selection);
        if limit == 0 && start.key.is_empty() {
            page.items = Items::selected(self, range, selection);
            return Ok(page);
        }
        let (mut items, mut budget): (Vec<Arc<CachedObject>>, _) =
            (Vec::new(), CoopBudget::default());
        for stored in range.objects(&start.key) {
            budget.step().await;
            if self.selects(selection, stored)? {
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
                    self.caches_exactly(&range.prefix)
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
                if let Some(cacher) = &self.cacher {
                    cacher.retain_snapshot(&range.snapshot);
                }
            }
            break;
        }
        page.items = items.into();
        Ok(page)
    }

    /// Reports whether the cache is that of exactly this prefix.
    fn caches_exactly(&self, prefix: &str) -> bool {
        self.cacher
            .as_ref()
            .is_some_and(|cacher| cacher.prefix() == prefix)
    }

    /// The stretch of a snapshot to look through.
    pub(super) fn snapshot_range(
        &self,
        snapshot: Snapshot,
        prefix: String,
        selection: &Selection,
    ) -> SnapshotRange {
        let keys = index::keys(selection, &*self.resource.strategy);
        SnapshotRange {
            index_key: snapshot.most_selective(&keys, &prefix),
            snapshot,
            prefix,
        }
    }

    /// Reads the start of a list from its options. `one` is set for a selector that names a single
    /// object.
    fn start(&self, options: &ListOptions, prefix: &str, one: bool) -> Result<Start> {
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
            return Ok(Start {
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
        Ok(Start {
            key: String::new(),
            revision: exact.then(|| revision_of(version)),
            version,
            items_from_key: None,
            continued: false,
        })
    }

    /// A page read from storage.
    async fn list_range(&self, range: Range, asked: i64, selection: &Selection) -> Result<Page> {
        let Range {
            prefix,
            start,
            limit,
            lenient,
        } = range;
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
            let part = self.range(&request, &start).await?;
            if page.revision == 0 {
                page.revision = part.revision;
                check_reached(start.version, part.revision)?;
            }
            request.revision = Some(page.revision);
            let (count, more) = (part.count, part.more);
            let last = part.items.last().map(|item| item.key.clone());
            for stored in part.items {
                budget.step().await;
                if !lenient && !index::is_readable(self, &stored) {
                    return Err(unreadable_key(&stored.key));
                }
                if limit > 0 && items.len() == limit {
                    let last = items
                        .last()
                        .map_or_else(|| stored.key.clone(), |item| item.key.clone());
                    page.set_continue(next_key(&last), &prefix);
                    page.items = items.into();
                    return Ok(page);
                }
                if self.selects(selection, &stored)? {
                    items.push(stored.into());
                }
            }
            let Some(last) = last.filter(|_| more) else {
                break;
            };
            if limit > 0 && items.len() >= limit {
                page.remaining = selection.is_empty().then_some(count - asked);
                page.set_continue(next_key(&last), &prefix);
                break;
            }
            request.start = next_key(&last);
        }
        page.items = items.into();
        Ok(page)
    }

    async fn range(&self, request: &ListRequest, start: &Start) -> Result<ListPage> {
        self.storage
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
                other => storage_status(other, &self.resource.gvr, "list"),
            })
    }
}

/// Refuses a read that asks for a state newer than the store has.
fn check_reached(version: Option<u64>, revision: Revision) -> Result<()> {
    match version {
        Some(asked) if revision_of(version) > revision => {
            Err(too_large_resource_version(asked, revision))
        }
        _ => Ok(()),
    }
}

/// The same error without a time to retry after: upstream does not wait here.
fn without_retry(mut status: Status) -> Status {
    status.details_mut().retry_after_seconds = 0;
    status
}

fn valid_namespace(name: &str) -> bool {
    crate::meta::names::dns1123_label(name).is_empty()
}
