//! The patches that change the owners of an object (`pkg/controller/garbagecollector/patch.go`):
//! strategic ones of built-in kinds, which need not know the other owners; merge patches with the
//! whole list of custom ones.

use crate::meta::{Map, Object, Value, bool_at, json, str_at};

/// Returns a strategic merge patch that takes owners away.
pub fn strategic_removal(dependent: &str, owners: &[&str]) -> Value {
    let removals: Vec<Value> = owners
        .iter()
        .map(|uid| json!({"$patch": "delete", "uid": uid}))
        .collect();
    json!({"metadata": {"ownerReferences": removals, "uid": dependent}})
}

/// Returns a merge patch that takes owners away from the object as it is.
pub fn merge_removal(object: &Object, owners: &[&str]) -> Value {
    with_owners(object, |reference| {
        let is_kept = !owners.contains(&str_at(&reference, "/uid"));
        is_kept.then_some(reference)
    })
}

/// Returns a strategic merge patch after which no owner waits for the object.
pub fn strategic_unblocking(object: &Object) -> Value {
    let blocking = object.array_at("/metadata/ownerReferences").iter();
    let unblocked: Vec<Value> = blocking
        .filter(|reference| bool_at(reference, "/blockOwnerDeletion"))
        .map(|reference| json!({"uid": str_at(reference, "/uid"), "blockOwnerDeletion": false}))
        .collect();
    json!({"metadata": {"ownerReferences": unblocked, "uid": object.uid()}})
}

/// Returns a merge patch after which no owner waits for the object as it is.
pub fn merge_unblocking(object: &Object) -> Value {
    with_owners(object, |reference| match reference {
        Value::Object(mut fields) => {
            fields.insert("blockOwnerDeletion", false.into());
            Some(Value::Object(fields))
        }
        other => Some(other),
    })
}

/// Returns a merge patch that takes a finalizer away from the object as it is.
pub fn finalizer_removal(object: &Object, finalizer: &str) -> Value {
    let mut others = object.finalizers().to_vec();
    others.retain(|one| one.as_str() != Some(finalizer));
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", object.resource_version().into());
    metadata.insert("finalizers", Value::Array(others));
    json!({"metadata": Value::Object(metadata)})
}

/// A merge patch of the owners of this very state of the object.
fn with_owners(object: &Object, change: impl Fn(Value) -> Option<Value>) -> Value {
    let references = object.array_at("/metadata/ownerReferences").to_vec();
    let changed: Vec<Value> = references.into_iter().filter_map(change).collect();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", object.resource_version().into());
    metadata.insert("ownerReferences", Value::Array(changed));
    json!({"metadata": Value::Object(metadata)})
}
