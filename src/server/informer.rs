//! Keeps something in step with the objects of a resource: a list, then its changes, again and again.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use crate::meta::Object;
use crate::meta::options::ListOptions;
use crate::meta::status::Result;
use crate::registry::Store;
use crate::storage::{Revision, WatchEvent};

/// How long to wait before a broken watch is begun anew.
const RETRY: Duration = Duration::from_millis(500);

/// What follows a resource.
pub trait Follower: Send + Sync + 'static {
    /// These are all there are.
    fn replace(&self, objects: &[Object]);
    /// This one is new or changed.
    fn upsert(&self, object: &Object);
    /// This one is gone.
    fn remove(&self, object: &Object);
}

/// Hands `follower` everything that there is, then follows the changes in the background until the runtime ends.
pub async fn follow(store: Arc<Store>, follower: Arc<dyn Follower>) -> Result<()> {
    let revision = fill(&store, follower.as_ref()).await?;
    tokio::spawn(async move {
        let mut revision = Some(revision);
        loop {
            if let Some(from) = revision {
                changes(&store, follower.as_ref(), from).await;
            }
            tokio::time::sleep(RETRY).await;
            revision = fill(&store, follower.as_ref()).await.ok();
        }
    });
    Ok(())
}

async fn fill(store: &Store, follower: &dyn Follower) -> Result<Revision> {
    let page = store.list("", &ListOptions::default()).await?;
    let objects: Result<Vec<Object>> = page.items.iter().map(|stored| store.decode(stored)).collect();
    follower.replace(&objects?);
    Ok(page.revision)
}

/// Follows until the watch ends or something cannot be read.
async fn changes(store: &Store, follower: &dyn Follower, after: Revision) {
    let Ok(mut events) = store.storage.watch(&store.prefix(), after).await else { return };
    while let Some(Ok(event)) = events.next().await {
        let read = match event {
            WatchEvent::Put { current, .. } => store.decode(&current).map(|object| follower.upsert(&object)),
            WatchEvent::Delete { previous: Some(last), .. } => store.decode(&last).map(|object| follower.remove(&object)),
            WatchEvent::Delete { previous: None, .. } => return,
            WatchEvent::Progress(_) => Ok(()),
        };
        if let Err(status) = read {
            tracing::error!(reason = status.message, "cannot read a stored object");
            return;
        }
    }
}
