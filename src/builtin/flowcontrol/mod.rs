//! flowcontrol.apiserver.k8s.io: flow schemas and priority levels
//! (`pkg/apis/flowcontrol/{v1,validation}`).

mod level;
mod schema;

use std::collections::BTreeSet;

use crate::meta::Value;

pub use level::PriorityLevels;
pub use schema::FlowSchemas;

use crate::meta::{ErrorList, FieldError, Object, Path};
use crate::registry::validation::Fields;

/// The name of the schema and of the level that hold nothing back.
const EXEMPT: &str = "exempt";

/// Conditions have types, each once.
fn check_conditions(errors: &mut ErrorList, object: &Object) {
    let mut seen = BTreeSet::new();
    for (index, condition) in object.array_at("/status/conditions").iter().enumerate() {
        let path = Path::new("status")
            .child("conditions")
            .index(index)
            .child("type");
        let kind = condition.str("type");
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&path, kind));
        }
        if kind.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
    }
}

fn has_wildcard(list: &[Value]) -> bool {
    list.iter().any(|one| one.as_str() == Some("*"))
}
