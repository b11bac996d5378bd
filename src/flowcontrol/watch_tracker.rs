//! The number of watches that a write wakes (apiserver `util/flowcontrol/watch_tracker.go`).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use super::digest::RequestDigest;
use crate::meta::options::Query;
use crate::meta::selector::fields::FieldSelector;

/// The verbs that wake nobody.
const READS: [&str; 4] = ["get", "list", "watch", "proxy"];
/// The field by which watches of pods are indexed: those that name a node do not see most changes.
const INDEXED: (&str, &str) = ("pods", "spec.nodeName");

/// The open watches by group, resource, namespace and name. A hash stands for them.
#[derive(Debug, Default)]
pub struct WatchTracker {
    hasher: RandomState,
    counts: Arc<Mutex<HashMap<u64, usize>>>,
}

/// An open watch; the drop ends it.
#[derive(Debug)]
pub struct WatchRegistration {
    key: u64,
    counts: Arc<Mutex<HashMap<u64, usize>>>,
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

impl WatchTracker {
    /// Counts a watch until what is returned is dropped; `None` for one that few writes wake.
    pub fn register(&self, digest: &RequestDigest<'_>, query: &Query) -> Option<WatchRegistration> {
        if digest.resource == INDEXED.0 {
            let selector = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""));
            let selector = selector.unwrap_or_default();
            if selector
                .required(INDEXED.1)
                .is_some_and(|node| !node.is_empty())
            {
                return None;
            }
        }
        let key = self.key(digest, digest.namespace, digest.name);
        *self.counts.lock().entry(key).or_default() += 1;
        Some(WatchRegistration {
            key,
            counts: self.counts.clone(),
        })
    }

    /// Returns the number of watches that a request would wake.
    pub fn interested(&self, digest: &RequestDigest<'_>) -> usize {
        if READS.contains(&digest.verb) {
            return 0;
        }
        let all = self.key(digest, "", "");
        let namespace =
            (!digest.namespace.is_empty()).then(|| self.key(digest, digest.namespace, ""));
        let name =
            (!digest.name.is_empty()).then(|| self.key(digest, digest.namespace, digest.name));
        let counts = self.counts.lock();
        [Some(all), namespace, name]
            .iter()
            .flatten()
            .filter_map(|key| counts.get(key))
            .sum()
    }

    fn key(&self, digest: &RequestDigest<'_>, namespace: &str, name: &str) -> u64 {
        self.hasher
            .hash_one((digest.group, digest.resource, namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;

    fn digest<'a>(
        user: &'a User,
        verb: &'a str,
        resource: &'a str,
        at: [&'a str; 2],
    ) -> RequestDigest<'a> {
        RequestDigest {
            user,
            is_resource: true,
            verb,
            group: "",
            version: "v1",
            resource,
            subresource: "",
            namespace: at[0],
            name: at[1],
            path: "",
        }
    }

    #[test]
    fn a_write_wakes_the_watches_of_its_object_and_all_around_it() {
        let (tracker, user) = (WatchTracker::default(), User::default());
        let watch = |resource, at, query: &str| {
            tracker.register(&digest(&user, "watch", resource, at), &Query::parse(query))
        };
        let open = [
            watch("pods", ["", ""], ""),
            watch("pods", ["a", ""], "fieldSelector=spec.nodeName%3D"),
            watch("pods", ["a", "p"], "fieldSelector=metadata.name%3Dp"),
            watch("pods", ["b", ""], ""),
            watch("secrets", ["a", ""], ""),
        ];
        assert!(open.iter().all(Option::is_some));
        assert!(watch("pods", ["", ""], "fieldSelector=spec.nodeName%3Dn").is_none());
        let woken = |verb, at| tracker.interested(&digest(&user, verb, "pods", at));
        for (verb, at, count) in [
            ("create", ["a", ""], 2),
            ("update", ["a", "p"], 3),
            ("update", ["a", "q"], 2),
            ("delete", ["b", "p"], 2),
            ("get", ["a", "p"], 0),
        ] {
            assert_eq!(woken(verb, at), count, "{verb} {at:?}");
        }
        drop(open);
        assert_eq!(woken("update", ["a", "p"]), 0);
        assert!(tracker.counts.lock().is_empty());
    }
}
