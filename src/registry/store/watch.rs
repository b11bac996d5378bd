//! Watch: the changes of a resource as its clients see them, through their selectors.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use opentelemetry::KeyValue;

use crate::base::coop::CoopBudget;
use crate::cacher::{CachedObject, Cacher, Change, Cursor, CursorError, Interest, Snapshot};
use crate::meta::Status;
use crate::meta::options::{ListOptions, parse_resource_version};
use crate::meta::status::Result;
use crate::storage::{Revision, StorageError, WatchEvent, WatchStream};
use crate::telemetry::trace;

use super::errors::revision_of;
use super::items::Items;
use super::{Selection, Store, index, too_large_resource_version};

/// The type of an event, as the client's selectors see the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
    /// A bookmark: all initial events have been delivered.
    InitialEventsEnd,
}

impl EventKind {
    /// The `type` of the event on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::InitialEventsEnd => "BOOKMARK",
        }
    }
}

/// One event. The stored bytes of a deleted object are its last, at the revision of the deletion.
#[derive(Clone, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// `None` for bookmarks.
    pub stored: Option<Arc<CachedObject>>,
    pub revision: Revision,
    /// Set for objects that existed when the watch began.
    pub initial: bool,
}

/// The events of one watch, in order of their revisions.
///
/// There are many watches, and each reads all of these fields for every change: fields that are
/// seldom used are boxed.
pub struct Events {
    store: Arc<Store>,
    /// The objects it selects; `None` for all of the resource.
    scope: Option<Arc<Scope>>,
    /// The initial events, until they are delivered.
    initial: Option<Box<Initial>>,
    source: EventSource,
    /// The event that is next, while a webhook converts its object.
    converting: Option<BoxFuture<'static, Converted>>,
    /// The cache to go on with, once storage has delivered the changes before the cache was filled.
    next_source: Option<Box<(Arc<Cacher>, Interest)>>,
    /// The revision up to which everything has been delivered.
    delivered: Revision,
}

/// The revision of a change, and what it is for a watch whose objects a webhook converts.
type Converted = (Revision, Result<Option<Event>>);

/// The objects that a watch selects.
struct Scope {
    /// The prefix of their keys.
    prefix: String,
    selection: Selection,
}

/// The initial events of a watch.
struct Initial {
    /// The objects that existed at the start and have not been delivered.
    items: Items,
    /// The bookmark behind that, if it is wanted.
    end: Option<Revision>,
}

/// The source of the events.
enum EventSource {
    /// The watch cache.
    Cache(Cursor),
    Storage(WatchStream),
    /// One error, then the end.
    Error(Status),
    Ended,
}

impl Store {
    /// Watches a namespace (all of the resource where it is empty) from the revision that the
    /// options name.
    ///
    /// # Errors
    /// 400 for options that do not go together, 500 where storage fails. A revision that is too old
    /// or too new ends the watch with an ERROR event.
    pub async fn watch(self: &Arc<Self>, namespace: &str, options: &ListOptions) -> Result<Events> {
        let gvr = &self.resource.gvr;
        let attributes = || vec![KeyValue::new("type", gvr.group_resource())];
        let work = self.begin_watch(namespace, options);
        trace::in_span("cacher.Watch", trace::SLOW, attributes, work).await
    }

    async fn begin_watch(
        self: &Arc<Self>,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Events> {
        let selection = self.selection(options)?;
        let version = parse_resource_version(&options.resource_version)
            .map_err(|why| Status::failure(500, "", why))?;
        let events = Events::new(self, namespace, &selection);
        match &self.cacher {
            Some(cacher) if cacher.ready().is_ok() => {
                self.watch_cache(cacher, namespace, &selection, options, version, events)
                    .await
            }
            _ => {
                self.watch_storage(namespace, options, version, events)
                    .await
            }
        }
    }

    async fn watch_cache(
        &self,
        cacher: &Arc<Cacher>,
        namespace: &str,
        selection: &Selection,
        options: &ListOptions,
        version: Option<u64>,
        mut events: Events,
    ) -> Result<Events> {
        let mut after = revision_of(version);
        let whole = has_initial_events(options, version);
        if whole || after == 0 {
            let snapshot = match (options.send_initial_events, version) {
                (Some(true), None) => cacher.linearizable_snapshot().await,
                (Some(true), Some(asked)) if asked > 0 => match cacher
                    .snapshot_not_older_than(after)
                    .await
                {
                    Ok(snapshot) => snapshot,
                    Err(current) => {
                        return Ok(events.ending_with(too_large_resource_version(asked, current)));
                    }
                },
                _ => cacher.snapshot(),
            };
            let Some(snapshot) = snapshot else {
                return self
                    .watch_storage(namespace, options, version, events)
                    .await;
            };
            after = snapshot.revision;
            if whole {
                let items = self.initial_items(snapshot, namespace, selection).await?;
                events.begin(items, after, options);
            }
        }
        events.delivered = after;
        let interest = self.interest(namespace, selection);
        Ok(match cacher.watch(after, interest.clone()) {
            Ok(cursor) => Events {
                source: EventSource::Cache(cursor),
                ..events
            },
            // A server that has just begun remembers little. What its store still knows, clients
            // need not list again.
            Err(CursorError::TooOld { .. }) => {
                let changes = self
                    .storage
                    .watch(&self.namespace_prefix(namespace), after)
                    .await
                    .map_err(|error| watch_status(self, error))?;
                // If it cannot be asked, the watch stays with storage.
                let _ = self.storage.request_progress().await;
                Events {
                    source: EventSource::Storage(changes),
                    next_source: Some(Box::new((cacher.clone(), interest))),
                    ..events
                }
            }
            Err(CursorError::Restarted | CursorError::Restored { .. }) => events,
        })
    }

    /// Returns the objects of a snapshot that a watch begins with.
    async fn initial_items(
        &self,
        snapshot: Snapshot,
        namespace: &str,
        selection: &Selection,
    ) -> Result<Items> {
        let prefix = self.namespace_prefix(namespace);
        if !self.converts() {
            let range = self.snapshot_range(snapshot, prefix, selection);
            return Ok(Items::selected(self, range, selection));
        }
        let by_name = selection.of_names();
        let range = self.snapshot_range(snapshot, prefix, &by_name);
        let mut stored = Items::selected(self, range, &by_name);
        let served = self.served_selection(&mut stored, selection).await?;
        Ok(served.into())
    }

    /// Returns the changes that a watch has to be woken for.
    fn interest(&self, namespace: &str, selection: &Selection) -> Interest {
        if let Some(name) = selection.fields.required("metadata.name")
            && (!namespace.is_empty() || !self.resource.decl.namespaced)
        {
            return Interest::Key(format!("{}{name}", self.namespace_prefix(namespace)).into());
        }
        // Labels of other versions are not known before they are converted.
        let indexed = if self.converts() {
            Vec::new()
        } else {
            index::keys(selection, &*self.resource.strategy)
        };
        indexed
            .first()
            .map_or(Interest::Everything, |&term| Interest::Indexed(term))
    }

    /// The watch without a cache.
    async fn watch_storage(
        &self,
        namespace: &str,
        options: &ListOptions,
        version: Option<u64>,
        mut events: Events,
    ) -> Result<Events> {
        let mut after = revision_of(version);
        if has_initial_events(options, version) {
            let page = match self.list(namespace, &initial_list(options, version)).await {
                Ok(page) => page,
                // The stream has begun for the client: it hears of it there.
                Err(status) if status.code == 504 => return Ok(events.ending_with(status)),
                Err(status) => return Err(status),
            };
            after = page.revision;
            events.begin(page.items, after, options);
        } else if after == 0 {
            after = self
                .storage
                .current_revision()
                .await
                .map_err(|error| self.fault(error, "watch"))?;
        }
        events.delivered = after;
        let changes = self
            .storage
            .watch(&self.namespace_prefix(namespace), after)
            .await;
        events.source = EventSource::Storage(changes.map_err(|error| watch_status(self, error))?);
        Ok(events)
    }
}

impl Events {
    fn new(store: &Arc<Store>, namespace: &str, selection: &Selection) -> Self {
        let everything = namespace.is_empty() && selection.is_empty();
        let scope = || {
            Arc::new(Scope {
                prefix: store.namespace_prefix(namespace),
                selection: selection.clone(),
            })
        };
        Self {
            store: store.clone(),
            scope: (!everything).then(scope),
            initial: None,
            source: EventSource::Ended,
            converting: None,
            next_source: None,
            delivered: 0,
        }
    }

    /// Begins with what existed at a revision, and with a bookmark behind that if one was asked
    /// for.
    fn begin(&mut self, items: Items, revision: Revision, options: &ListOptions) {
        let bookmark = options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
        self.initial = Some(Box::new(Initial {
            items,
            end: bookmark.then_some(revision),
        }));
    }

    fn ending_with(self, status: Status) -> Self {
        Self {
            source: EventSource::Error(status),
            ..self
        }
    }

    /// The next event; `None` at the end. Nothing comes after an error. Dropping the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next event, when there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        if let Some(initial) = &mut self.initial {
            if let Some(event) = ready!(initial.poll_next(cx)) {
                return Poll::Ready(Some(event));
            }
            self.initial = None;
        }
        let mut budget = CoopBudget::default();
        loop {
            let event = if let Some(converting) = &mut self.converting {
                let (revision, event) = ready!(converting.poll_unpin(cx));
                self.converting = None;
                self.delivered = revision;
                event
            } else {
                let Some(change) = ready!(self.poll_change(cx)) else {
                    return Poll::Ready(None);
                };
                match change {
                    Ok(change) if self.store.converts() => {
                        self.converting = self.convert(change);
                        if self.converting.is_some() {
                            continue;
                        }
                        Ok(None)
                    }
                    Ok(change) => {
                        self.delivered = change.revision;
                        event(&self.store, self.scope.as_deref(), &change)
                    }
                    Err(status) => Err(status),
                }
            };
            if event.is_err() {
                self.source = EventSource::Ended;
            }
            if let Some(event) = event.transpose() {
                return Poll::Ready(Some(event));
            }
            // Many changes that do not concern it: others have their turn.
            if budget.is_spent() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Begins to convert the objects of a change; `None` for one that concerns other watches.
    fn convert(&mut self, change: Arc<Change>) -> Option<BoxFuture<'static, Converted>> {
        let concerns = |scope: &Arc<Scope>| change.key().starts_with(&scope.prefix);
        if !self.scope.as_ref().is_none_or(concerns) {
            self.delivered = change.revision;
            return None;
        }
        let (store, scope) = (self.store.clone(), self.scope.clone());
        let converted = async move {
            let event = served_event(&store, scope.as_deref(), &change).await;
            (change.revision, event)
        };
        Some(converted.boxed())
    }

    /// Returns the revision up to which everything has been delivered.
    pub fn progress(&mut self) -> Revision {
        if self.converting.is_none()
            && let EventSource::Cache(cursor) = &mut self.source
            && let Some(reached) = cursor.progress()
        {
            self.delivered = self.delivered.max(reached);
        }
        self.delivered
    }

    /// Switches to the cache once it remembers all changes that are still to be delivered.
    fn catch_up(&mut self) {
        if let Some((cacher, interest)) = self.next_source.as_deref()
            && let Ok(cursor) = cacher.watch(self.delivered, interest.clone())
        {
            self.source = EventSource::Cache(cursor);
            self.next_source = None;
        }
    }

    /// The next change of whatever object.
    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<Change>>>> {
        loop {
            let received = match &mut self.source {
                EventSource::Ended => return Poll::Ready(None),
                EventSource::Error(status) => return Poll::Ready(Some(Err(status.clone()))),
                EventSource::Cache(cursor) => {
                    return Poll::Ready(match ready!(cursor.poll_next(cx)) {
                        Ok(change) => Some(Ok(change)),
                        Err(CursorError::Restarted) => None,
                        Err(CursorError::Restored { requested }) => {
                            Some(Err(too_old_resource_version(requested, 0)))
                        }
                        Err(CursorError::TooOld { requested, oldest }) => {
                            Some(Err(too_old_resource_version(requested, oldest)))
                        }
                    });
                }
                EventSource::Storage(changes) => ready!(changes.poll_next_unpin(cx)),
            };
            let change = match received {
                None => return Poll::Ready(None),
                Some(Ok(WatchEvent::Unread { key, .. })) => {
                    let why = format!("unable to transform key {key:?}");
                    Some(Err(Status::internal(why)))
                }
                Some(Ok(WatchEvent::Progress(revision))) => {
                    self.delivered = self.delivered.max(revision);
                    None
                }
                Some(Ok(WatchEvent::Put { current, previous })) => {
                    let revision = current.mod_revision;
                    let previous = previous.map(Arc::from);
                    Some(Ok(Arc::new(Change::new(
                        revision,
                        Some(current.into()),
                        previous,
                    ))))
                }
                Some(Ok(WatchEvent::Delete {
                    revision, previous, ..
                })) => Some(Ok(Arc::new(Change::new(
                    revision,
                    None,
                    previous.map(Arc::from),
                )))),
                Some(Err(error)) => Some(Err(watch_status(&self.store, error))),
            };
            match change {
                Some(change) => return Poll::Ready(Some(change)),
                None => self.catch_up(),
            }
        }
    }
}

/// Returns the type of the event that a change is for those who select this of it: an object that
/// enters the selection is added, one that leaves it is deleted.
fn kind_of(previous: bool, current: bool) -> Option<EventKind> {
    match (previous, current) {
        (false, false) => None,
        (false, true) => Some(EventKind::Added),
        (true, true) => Some(EventKind::Modified),
        (true, false) => Some(EventKind::Deleted),
    }
}

/// Returns the event that a change is for the watch of a scope.
fn event(store: &Store, scope: Option<&Scope>, change: &Change) -> Result<Option<Event>> {
    if scope.is_some_and(|scope| !change.key().starts_with(&scope.prefix)) {
        return Ok(None);
    }
    let selects = |stored: &Option<Arc<CachedObject>>| match (stored, scope) {
        (None, _) => Ok(false),
        (Some(_), None) => Ok(true),
        (Some(stored), Some(scope)) => store.selects(&scope.selection, stored),
    };
    let kind = kind_of(selects(&change.previous)?, selects(&change.current)?);
    Ok(kind.map(|kind| Event {
        kind,
        stored: match kind {
            EventKind::Deleted => change.deleted().cloned(),
            _ => change.current.clone(),
        },
        revision: change.revision,
        initial: false,
    }))
}

/// The same where a webhook converts the objects. Only what the selection has to see is converted.
async fn served_event(
    store: &Store,
    scope: Option<&Scope>,
    change: &Change,
) -> Result<Option<Event>> {
    let selection = scope.map(|scope| &scope.selection);
    let selects = async |stored: &Option<Arc<CachedObject>>| match (stored, selection) {
        (None, _) => Ok(false),
        (Some(stored), Some(selection)) if !selection.is_empty() => {
            if !store.selects(&selection.of_names(), stored)? {
                return Ok(false);
            }
            let served = store.served_object(stored.clone()).await?;
            store.selects(selection, &served)
        }
        (Some(_), _) => Ok(true),
    };
    let (previous, current) = (
        selects(&change.previous).await?,
        selects(&change.current).await?,
    );
    let Some(kind) = kind_of(previous, current) else {
        return Ok(None);
    };
    let stored = match (kind, &change.current) {
        (EventKind::Deleted, _) => store.served_deleted(change).await?,
        (_, Some(current)) => Some(store.served_object(current.clone()).await?),
        (_, None) => None,
    };
    Ok(Some(Event {
        kind,
        stored,
        revision: change.revision,
        initial: false,
    }))
}

impl Initial {
    /// The next of the initial events; others have their turn while it is looked for.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        let event = |kind, stored, revision| Event {
            kind,
            stored,
            revision,
            initial: true,
        };
        let added = |stored: Arc<CachedObject>| {
            let revision = stored.mod_revision;
            event(EventKind::Added, Some(stored), revision)
        };
        let next = ready!(self.items.poll_next(cx)).map(|stored| stored.map(added));
        Poll::Ready(next.or_else(|| {
            let end = self.end.take()?;
            Some(Ok(event(EventKind::InitialEventsEnd, None, end)))
        }))
    }
}

/// Reports whether a watch begins with the objects that exist.
fn has_initial_events(options: &ListOptions, version: Option<u64>) -> bool {
    options
        .send_initial_events
        .unwrap_or(revision_of(version) == 0)
}

/// The list that a watch starts with: everything, now, but not before the revision asked for.
fn initial_list(options: &ListOptions, version: Option<u64>) -> ListOptions {
    let resource_version = version
        .filter(|version| *version > 0)
        .map(|version| version.to_string())
        .unwrap_or_default();
    ListOptions {
        label_selector: options.label_selector.clone(),
        field_selector: options.field_selector.clone(),
        resource_version,
        ..ListOptions::default()
    }
}

/// 410: the changes after that revision are forgotten.
fn too_old_resource_version(wanted: Revision, oldest: Revision) -> Status {
    Status::expired(format!("too old resource version: {wanted} ({oldest})"))
}

fn watch_status(store: &Store, error: StorageError) -> Status {
    match error {
        StorageError::Compacted { .. } | StorageError::Restored { .. } => {
            Status::expired("The resourceVersion for the provided watch is too old.")
        }
        StorageError::FutureRevision { asked, current } => {
            too_large_resource_version(asked.unsigned_abs(), current)
        }
        other => store.fault(other, "watch"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;
    use crate::base::clock::Clock;
    use crate::builtin;
    use crate::cacher::Reflector;
    use crate::meta::selector::fields::FieldSelector;
    use crate::registry::Resource;
    use crate::storage::Storage;
    use crate::storage::embedded::Embedded;

    /// Objects that a selector does not take. Looking at one takes longer than a microsecond.
    const OTHERS: usize = 20_000;

    /// A list and a watch that look for one object among many let others run meanwhile.
    #[tokio::test]
    async fn selectors_yield_while_they_look_for_matches() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> = Arc::new(Embedded::open(folder.path()).expect("a store"));
        let reflector = Reflector::start(storage.clone(), "/registry/");
        let decl = crate::schema::builtin()
            .resources
            .iter()
            .find(|decl| decl.resource == "configmaps")
            .expect("a resource");
        let resource = Arc::new(Resource::builtin(decl, builtin::strategy("", "configmaps")));
        let store = Arc::new(
            Store::new(resource, storage.clone(), Clock::system(), "/registry")
                .cached(Some(&reflector)),
        );
        while reflector.ready().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let create = async |name: String| {
            let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}}}}"#);
            storage
                .create(
                    &format!("/registry/configmaps/default/{name}"),
                    object.into(),
                    None,
                )
                .await
                .expect("written");
        };
        join_all((0..OTHERS).map(|number| create(number.to_string()))).await;
        create("wanted".to_owned()).await;
        let selector = FieldSelector::exactly("metadata.name", "wanted");
        let options = ListOptions {
            field_selector: selector,
            resource_version: "1".to_owned(),
            ..ListOptions::default()
        };
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        // Of all namespaces: nothing finds it but looking.
        let now = ListOptions {
            resource_version: String::new(),
            ..options.clone()
        };
        store.list("", &now).await.expect("listed");
        turns.store(0, Ordering::Relaxed);
        let known = ListOptions {
            resource_version: "0".to_owned(),
            ..options.clone()
        };
        let mut items = store.list("", &known).await.expect("listed").items;
        let mut found = 0;
        while items.next_item().await.is_some() {
            found += 1;
        }
        assert_eq!(found, 1);
        assert!(
            turns.swap(0, Ordering::Relaxed) > 1,
            "nobody else ran while it was listed"
        );
        let mut events = store.watch("", &options).await.expect("watched");
        turns.store(0, Ordering::Relaxed);
        let event = events.next().await.expect("an event").expect("no error");
        assert!(
            event
                .stored
                .is_some_and(|stored| stored.key.ends_with("/wanted"))
        );
        assert!(
            turns.load(Ordering::Relaxed) > 1,
            "nobody else ran while it was looked for"
        );
        other.abort();
    }
}
