//! Keeps something in step with the objects of a resource: a list, then its changes, again and again.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::protobuf::Projection;
use crate::meta::Object;
use crate::meta::options::ListOptions;
use crate::meta::selector::FieldReader;
use crate::meta::status::Result;
use crate::registry::Store;
use crate::registry::store::EventKind;
use crate::storage::{Revision, Stored};

/// How long to wait before a broken watch is begun anew.
const RETRY: Duration = Duration::from_millis(500);

/// What follows a resource.
pub trait Follower: Send + Sync + 'static {
    /// The dotted paths of what it reads of an object; `None` for everything.
    fn reads(&self) -> Option<&'static [&'static str]> {
        None
    }
    /// Whether an object that is there and has changed is, to who follows, as it was.
    fn is_same(&self, _object: &dyn FieldReader) -> bool {
        false
    }
    /// These are all there are.
    fn replace(&self, objects: &[Object]);
    /// This one is new or changed.
    fn upsert(&self, object: &Object);
    /// This one is gone.
    fn remove(&self, object: &Object);
}

/// Hands `follower` everything that there is, then follows the changes in the background until the runtime ends.
pub async fn follow(store: Arc<Store>, follower: Arc<dyn Follower>) -> Result<()> {
    let part = follower.reads().map(|paths| Projection::new(store.resource.storage_ty(), paths.iter().copied()));
    let revision = fill(&store, follower.as_ref(), part.as_ref()).await?;
    tokio::spawn(async move {
        let mut revision = Some(revision);
        loop {
            if let Some(from) = revision {
                changes(&store, follower.as_ref(), part.as_ref(), from).await;
            }
            tokio::time::sleep(RETRY).await;
            revision = fill(&store, follower.as_ref(), part.as_ref()).await.ok();
        }
    });
    Ok(())
}

/// What a follower reads of a stored object: `part`, or all of it.
fn decode(store: &Store, part: Option<&Projection>, stored: &Stored) -> Result<Object> {
    match part {
        Some(part) => store.decode_part(stored, part),
        None => store.decode(stored),
    }
}

/// Whether a change is none to the follower, as far as can be told without decoding.
fn is_same(store: &Store, follower: &dyn Follower, stored: &Stored) -> bool {
    store.message(stored).is_ok_and(|message| message.is_some_and(|message| follower.is_same(&message)))
}

async fn fill(store: &Store, follower: &dyn Follower, part: Option<&Projection>) -> Result<Revision> {
    let page = store.list("", &ListOptions::default()).await?;
    let objects: Result<Vec<Object>> = page.items.map(|stored| decode(store, part, &*stored?)).collect();
    follower.replace(&objects?);
    Ok(page.revision)
}

/// Follows until the watch ends or something cannot be read.
async fn changes(store: &Arc<Store>, follower: &dyn Follower, part: Option<&Projection>, after: Revision) {
    let options = ListOptions { resource_version: after.to_string(), ..ListOptions::default() };
    let Ok(mut events) = store.watch("", &options).await else { return };
    while let Some(Ok(event)) = events.next().await {
        if event.kind == EventKind::Modified && event.stored.as_deref().is_some_and(|stored| is_same(store, follower, stored)) {
            continue;
        }
        match (event.kind, event.stored.map(|stored| decode(store, part, &stored)).transpose()) {
            (EventKind::Added | EventKind::Modified, Ok(Some(object))) => follower.upsert(&object),
            (EventKind::Deleted, Ok(Some(object))) => follower.remove(&object),
            (_, Ok(_)) => {}
            (_, Err(status)) => {
                tracing::error!(reason = status.message, "cannot read a stored object");
                return;
            }
        }
    }
}
