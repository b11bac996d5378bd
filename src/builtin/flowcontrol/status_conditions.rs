//! Rules that FlowSchemas and PriorityLevelConfigurations share.

use std::collections::BTreeSet;

use crate::builtin::resource_traits::{METADATA_FIELDS, ResourceTraits, WORKLOAD};
use crate::meta::{ErrorList, Object, Path, Value};
use crate::registry::validation::Fields;

/// The traits of both kinds: a write of the status leaves metadata and spec as they were.
pub const FLOW_CONTROL: ResourceTraits = ResourceTraits {
    status_keeps: METADATA_FIELDS,
    status_resets: &["/metadata", "/spec"],
    ..WORKLOAD
};

/// The name of the schema and of the level that hold nothing back.
pub const EXEMPT: &str = "exempt";

/// Conditions have types, each once.
pub fn check_conditions(errors: &mut ErrorList, object: &Object) {
    let mut seen = BTreeSet::new();
    for (index, condition) in object.array_at("/status/conditions").iter().enumerate() {
        let path = Path::new("status")
            .child("conditions")
            .index(index)
            .child("type");
        let kind = condition.str("type");
        if !seen.insert(kind) {
            errors.duplicate(&path, kind);
        }
        if kind.is_empty() {
            errors.required(&path, "");
        }
    }
}

pub fn has_wildcard(list: &[Value]) -> bool {
    list.iter().any(|one| one.as_str() == Some("*"))
}
