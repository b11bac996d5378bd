//! Watch: the changes of a resource as its clients see them, through their selectors.

use futures::stream::{self, BoxStream, StreamExt};

use crate::meta::options::{ListOptions, parse_resource_version};
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::storage::{Revision, StorageError, Stored, WatchEvent, WatchStream};

use super::{Page, Selection, Store, too_large_resource_version};

/// What happened, as the client's selectors see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
    /// Nothing new up to this revision.
    Bookmark,
    /// Like a bookmark, and everything that existed at the start has been told.
    InitialEventsEnd,
}

impl EventKind {
    /// The `type` of the event on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark | Self::InitialEventsEnd => "BOOKMARK",
        }
    }
}

/// One event. The stored bytes of a deleted object are its last, at the revision of the deletion.
#[derive(Clone, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// `None` for bookmarks.
    pub stored: Option<Stored>,
    pub revision: Revision,
}

/// Events in order of their revisions. Ends after an error.
pub type Events = BoxStream<'static, Result<Event>>;

impl Store {
    /// Watches a namespace (everything where it is empty) from where the options say.
    pub async fn watch(&self, namespace: &str, options: &ListOptions) -> Result<Events> {
        let selection = self.selection(options)?;
        let version = parse_resource_version(&options.resource_version).map_err(|why| Status::failure(500, "", why))?;
        let prefix = match selection.fields.required("metadata.name") {
            _ if namespace.is_empty() => self.prefix(),
            _ => self.namespace_prefix(namespace),
        };
        let (initial, after) = if options.send_initial_events == Some(true) {
            let page = match self.list(namespace, &initial_list(options, version)).await {
                Ok(page) => page,
                // The stream has begun for the client: it hears of it there.
                Err(status) if status.code == 504 => return Ok(stream::iter([Err(status)]).boxed()),
                Err(status) => return Err(status),
            };
            let revision = page.revision;
            (self.initial_events(page, options), revision)
        } else if version == 0 {
            let now = self.storage.current_revision().await.map_err(|error| self.fault(error, "watch"))?;
            (stream::empty().boxed(), now)
        } else {
            (stream::empty().boxed(), version)
        };
        let changes = self.storage.watch(&prefix, after).await.map_err(|error| watch_status(self, error))?;
        Ok(initial.chain(self.clone().select(changes, selection)).boxed())
    }

    fn initial_events(&self, page: Page, options: &ListOptions) -> Events {
        let revision = page.revision;
        let added =
            page.items.into_iter().map(|stored| Event { kind: EventKind::Added, revision: stored.mod_revision, stored: Some(stored) });
        let end = Event { kind: EventKind::InitialEventsEnd, stored: None, revision };
        stream::iter(added.chain(options.allow_watch_bookmarks.then_some(end)).map(Ok)).boxed()
    }

    /// Turns changes of keys into events of objects: what comes into the selection is added, what leaves it deleted.
    fn select(self, changes: WatchStream, selection: Selection) -> Events {
        changes
            .filter_map(move |change| {
                let event = match change {
                    Ok(change) => self.event(change, &selection).transpose(),
                    Err(error) => Some(Err(watch_status(&self, error))),
                };
                std::future::ready(event)
            })
            .boxed()
    }

    fn event(&self, change: WatchEvent, selection: &Selection) -> Result<Option<Event>> {
        let (current, previous, revision) = match change {
            WatchEvent::Put { current, previous } => {
                let revision = current.mod_revision;
                (Some(current), previous, revision)
            }
            WatchEvent::Delete { revision, previous, .. } => (None, previous, revision),
            WatchEvent::Progress(revision) => return Ok(Some(Event { kind: EventKind::Bookmark, stored: None, revision })),
        };
        let selects = |stored: &Option<Stored>| -> Result<bool> {
            Ok(match stored {
                None => false,
                Some(_) if selection.is_empty() => true,
                Some(stored) => selection.matches(self.resource.strategy, &self.decode(stored)?),
            })
        };
        let (is, was) = (selects(&current)?, selects(&previous)?);
        let kind = match (was, is) {
            (false, false) => return Ok(None),
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
        };
        let stored = if is { current } else { previous.map(|last| Stored { mod_revision: revision, ..last }) };
        Ok(Some(Event { kind, stored, revision }))
    }

    /// The object of an event, as a tree.
    pub fn event_object(&self, event: &Event) -> Result<Option<Object>> {
        event.stored.as_ref().map(|stored| self.decode(stored)).transpose()
    }
}

/// The list that a watch starts with: everything, now, but not before the revision asked for.
fn initial_list(options: &ListOptions, version: Revision) -> ListOptions {
    let resource_version = if version > 0 { version.to_string() } else { String::new() };
    ListOptions {
        label_selector: options.label_selector.clone(),
        field_selector: options.field_selector.clone(),
        resource_version,
        ..ListOptions::default()
    }
}

fn watch_status(store: &Store, error: StorageError) -> Status {
    match error {
        StorageError::Compacted { .. } => Status::expired("The resourceVersion for the provided watch is too old."),
        StorageError::FutureRevision { asked, current } => too_large_resource_version(asked, current),
        other => store.fault(other, "watch"),
    }
}
