//! The graph of owners and dependents, as the objects tell of them
//! (`pkg/controller/garbagecollector/graph_builder.go`).
//!
//! Upstream keeps nodes for owners that it has not seen. Here an object whose owner is not known is
//! looked at: the collector asks for each of its owners by name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::meta::{Gvr, Object, bool_at, str_at};

/// The finalizers by which a delete says what becomes of the dependents.
pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

/// A UID.
pub type Uid = Arc<str>;

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: Uid,
    /// True if the owner waits for the object when it is deleted in the foreground.
    pub blocks: bool,
}

impl Source {
    /// Reports whether both are of the same objects: a resource may be followed in another version
    /// than before.
    fn has_objects_of(&self, other: &Self) -> bool {
        (&self.gvr.group, &self.gvr.resource) == (&other.gvr.group, &other.gvr.resource)
    }
}

impl OwnerReference {
    /// Reads those of an object.
    pub fn of(object: &Object) -> Vec<Self> {
        let references = object.array_at("/metadata/ownerReferences").iter();
        let read = |reference| Self {
            api_version: str_at(reference, "/apiVersion").to_owned(),
            kind: str_at(reference, "/kind").to_owned(),
            name: str_at(reference, "/name").to_owned(),
            uid: str_at(reference, "/uid").into(),
            blocks: bool_at(reference, "/blockOwnerDeletion"),
        };
        references.map(read).collect()
    }
}

/// The resource that an informer follows.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    pub gvr: Gvr,
    pub kind: String,
}

/// A known object.
#[derive(Clone, Debug)]
pub struct Node {
    pub source: Arc<Source>,
    pub namespace: String,
    pub name: String,
    pub owners: Vec<OwnerReference>,
    being_deleted: bool,
    orphans: bool,
    /// It waits for its dependents. Once it does, it does so to its end.
    pub deletes_dependents: bool,
}

impl Node {
    fn read(source: &Arc<Source>, object: &Object) -> Self {
        let being_deleted = object.deletion_timestamp().is_some();
        let has = |name: &str| has_finalizer(object, name);
        Self {
            source: source.clone(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            owners: OwnerReference::of(object),
            being_deleted,
            orphans: being_deleted && has(ORPHAN),
            deletes_dependents: being_deleted && has(FOREGROUND),
        }
    }

    /// Reports whether nothing is left to be done about it.
    pub fn is_going(&self) -> bool {
        self.being_deleted && !self.deletes_dependents
    }

    /// Reports whether an owner that waits for its dependents waits for this one.
    pub fn blocks(&self, owner: &str) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|reference| &*reference.uid == owner && reference.blocks)
    }

    /// Reports whether a reference means this object: it is of the kind, with the name, and in the
    /// same namespace or in none.
    fn is_meant(&self, reference: &OwnerReference, dependent: &Self) -> bool {
        let (group, kind) = (&self.source.gvr.group, &self.source.kind);
        let group_of = reference.api_version.split_once('/');
        group_of.map_or("", |(group, _)| group) == group
            && reference.kind == *kind
            && reference.name == self.name
            && (self.namespace.is_empty() || self.namespace == dependent.namespace)
    }
}

/// Reports whether an object has a finalizer.
pub fn has_finalizer(object: &Object, name: &str) -> bool {
    let mut finalizers = object.finalizers().iter();
    finalizers.any(|finalizer| finalizer.as_str() == Some(name))
}

/// The objects that the collector is to look at after a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Those that may have to be deleted.
    pub delete: BTreeSet<Uid>,
    /// Those whose dependents are to be left alone.
    pub orphan: BTreeSet<Uid>,
}

/// The graph.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<Uid, Node>,
    /// The objects that name an owner, by the UID that they name, whether it is known or not.
    dependents: HashMap<Uid, BTreeSet<Uid>>,
}

impl Graph {
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Returns the known objects that name an owner.
    pub fn dependents(&self, owner: &str) -> Vec<(Uid, &Node)> {
        let uids = self.dependents.get(owner).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.clone(), self.nodes.get(uid)?)))
            .collect()
    }

    /// Takes note of an object that is new or has changed.
    pub fn observe(&mut self, source: &Arc<Source>, object: &Object, work: &mut Work) {
        let uid: Uid = object.uid().into();
        if uid.is_empty() {
            return;
        }
        let mut node = Node::read(source, object);
        let old = self.nodes.remove(&uid);
        self.link(&uid, old.as_ref(), &node, work);
        let begins_to_orphan = node.orphans && !old.as_ref().is_some_and(|old| old.orphans);
        let begins_to_delete =
            node.deletes_dependents && !old.as_ref().is_some_and(|old| old.deletes_dependents);
        node.deletes_dependents |= old.as_ref().is_some_and(|old| old.deletes_dependents);
        if old.is_none() {
            // They were there before it, and may mean another object of this UID.
            for (dependent, of) in self.dependents(&uid) {
                let mut references = of.owners.iter().filter(|owner| owner.uid == uid);
                if !references.all(|reference| node.is_meant(reference, of)) {
                    work.delete.insert(dependent);
                }
            }
        }
        self.nodes.insert(uid.clone(), node);
        if begins_to_orphan {
            work.orphan.insert(uid);
        } else if begins_to_delete {
            work.delete
                .extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            work.delete.insert(uid);
        }
    }

    /// Brings the owners of an object up to date.
    fn link(&mut self, uid: &Uid, old: Option<&Node>, node: &Node, work: &mut Work) {
        let before = old.map_or(&[][..], |old| &old.owners);
        for reference in before {
            let now = node.owners.iter().find(|owner| owner.uid == reference.uid);
            if now.is_none() {
                self.unlink(&reference.uid, uid);
            }
            // It may have been the last that its owner waits for.
            if reference.blocks && !now.is_some_and(|now| now.blocks) {
                work.delete.insert(reference.uid.clone());
            }
        }
        for reference in &node.owners {
            if before.contains(reference) {
                continue;
            }
            let dependents = self.dependents.entry(reference.uid.clone()).or_default();
            dependents.insert(uid.clone());
            let owner = self.nodes.get(&reference.uid);
            if !owner.is_some_and(|owner| owner.is_meant(reference, node)) {
                work.delete.insert(uid.clone());
            }
        }
    }

    fn unlink(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// Takes note of an object that is gone.
    pub fn forget(&mut self, uid: &str, work: &mut Work) {
        let Some((uid, node)) = self.nodes.remove_entry(uid) else {
            return;
        };
        for reference in &node.owners {
            self.unlink(&reference.uid, &uid);
            let owner = self.nodes.get(&reference.uid);
            if owner.is_some_and(|owner| owner.deletes_dependents) {
                work.delete.insert(reference.uid.clone());
            }
        }
        work.delete
            .extend(self.dependents.get(&uid).into_iter().flatten().cloned());
    }

    /// Takes note that an object is gone of which only the name is known.
    pub fn forget_named(&mut self, source: &Source, namespace: &str, name: &str, work: &mut Work) {
        let mut known = self.nodes.iter();
        let named = known.find(|(_, node)| {
            node.name == name && node.namespace == namespace && node.source.has_objects_of(source)
        });
        if let Some(uid) = named.map(|(uid, _)| uid.clone()) {
            self.forget(&uid, work);
        }
    }

    /// Takes note that these are all objects of a resource.
    pub fn replace(&mut self, source: &Arc<Source>, objects: &[Object], work: &mut Work) {
        let present: BTreeSet<&str> = objects.iter().map(Object::uid).collect();
        let known = self.nodes.iter();
        let gone: Vec<Uid> = known
            .filter(|(uid, node)| node.source.has_objects_of(source) && !present.contains(&***uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        gone.iter().for_each(|uid| self.forget(uid, work));
        for object in objects {
            self.observe(source, object, work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn source() -> Arc<Source> {
        Arc::new(Source {
            gvr: Gvr::new("", "v1", "configmaps"),
            kind: "ConfigMap".to_owned(),
        })
    }

    /// An object whose UID is its name, with owners (a `!` after one that it blocks).
    fn object(name: &str, owners: &[&str]) -> Object {
        let owner = |owner: &&str| {
            let uid = owner.trim_end_matches('!');
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid,
                "blockOwnerDeletion": owner.ends_with('!'),
            })
        };
        let owners: Vec<_> = owners.iter().map(owner).collect();
        Object::from_value(json!({"metadata": {
            "name": name, "namespace": "default", "uid": name, "ownerReferences": owners,
        }}))
        .expect("an object")
    }

    fn deleted(mut object: Object, finalizer: &str) -> Object {
        let metadata = object.metadata_mut();
        metadata.insert("deletionTimestamp", "2026-01-01T00:00:00Z".into());
        metadata.insert("finalizers", json!([finalizer]));
        object
    }

    struct World(Graph, Arc<Source>);

    impl World {
        fn observe(&mut self, object: &Object) -> Work {
            let mut work = Work::default();
            self.0.observe(&self.1, object, &mut work);
            work
        }

        fn forget(&mut self, name: &str) -> Work {
            let mut work = Work::default();
            self.0.forget(name, &mut work);
            work
        }
    }

    fn world() -> World {
        World(Graph::default(), source())
    }

    fn names(uids: &BTreeSet<Uid>) -> Vec<&str> {
        uids.iter().map(|uid| &**uid).collect()
    }

    #[test]
    fn dependents_are_looked_at_when_their_owner_is_missing_or_goes() {
        let mut world = world();
        assert_eq!(names(&world.observe(&object("b", &["a"])).delete), ["b"]);
        assert_eq!(world.observe(&object("a", &[])), Work::default());
        assert_eq!(world.observe(&object("c", &["a"])), Work::default());
        assert_eq!(names(&world.forget("a").delete), ["b", "c"]);
        assert_eq!(world.forget("a"), Work::default(), "once");
        assert_eq!(world.forget("b"), Work::default());
        assert_eq!(world.forget("c"), Work::default());
        assert!(world.0.dependents.is_empty() && world.0.nodes.is_empty());
    }

    #[test]
    fn references_to_another_name_or_namespace_are_looked_at() {
        let mut world = world();
        world.observe(&object("a", &[]));
        let mut stranger = object("b", &["a"]);
        stranger.set_meta_str("namespace", "other");
        assert_eq!(names(&world.observe(&stranger).delete), ["b"]);
        let mut late = self::world();
        late.observe(&stranger);
        assert_eq!(names(&late.observe(&object("a", &[])).delete), ["b"]);
    }

    #[test]
    fn an_owner_that_waits_is_looked_at_when_a_dependent_goes_or_lets_it() {
        let mut world = world();
        world.observe(&object("a", &[]));
        world.observe(&object("b", &["a!"]));
        world.observe(&object("c", &["a!"]));
        let begins = world.observe(&deleted(object("a", &[]), FOREGROUND));
        assert_eq!(names(&begins.delete), ["a", "b", "c"]);
        let again = world.observe(&deleted(object("a", &[]), FOREGROUND));
        assert_eq!(again, Work::default(), "it has begun before");
        assert_eq!(names(&world.forget("b").delete), ["a"]);
        assert_eq!(names(&world.observe(&object("c", &["a"])).delete), ["a"]);
        assert_eq!(names(&world.observe(&object("c", &[])).delete), [""; 0]);
    }

    #[test]
    fn orphaning_begins_once() {
        let mut world = world();
        let object = deleted(object("a", &[]), ORPHAN);
        assert_eq!(names(&world.observe(&object).orphan), ["a"]);
        assert_eq!(world.observe(&object), Work::default());
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mut world = world();
        world.observe(&object("a", &[]));
        world.observe(&object("b", &["a"]));
        let mut work = Work::default();
        let source = world.1.clone();
        world.0.replace(&source, &[object("b", &["a"])], &mut work);
        assert_eq!(names(&work.delete), ["b"]);
        assert!(world.0.get("a").is_none());
        // The next version of the resource has the same objects.
        let next = Arc::new(Source {
            gvr: Gvr::new("", "v2", "configmaps"),
            kind: "ConfigMap".to_owned(),
        });
        world.0.replace(&next, &[], &mut work);
        assert!(world.0.get("b").is_none());
    }

    #[test]
    fn what_cannot_be_read_any_more_is_known_by_its_name() {
        let mut world = world();
        world.observe(&object("a", &[]));
        world.observe(&object("b", &["a"]));
        let mut work = Work::default();
        let source = world.1.clone();
        world.0.forget_named(&source, "other", "a", &mut work);
        assert_eq!(work, Work::default());
        world.0.forget_named(&source, "default", "a", &mut work);
        assert_eq!(names(&work.delete), ["b"]);
    }
}
