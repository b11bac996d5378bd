//! Names and amounts of resources (CPU, memory, storage, ...), as pods, quotas, ranges and claims have them.

use serde_json::Value;

use crate::meta::{ErrorList, FieldError, Path};
use crate::registry::builtin::quantity::Quantity;
use crate::registry::validation::NOT_NEGATIVE;

/// Resources that come in whole numbers.
const WHOLE: [&str; 10] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
    "storage",
];

/// The text of a quantity, as errors show it.
pub fn shown(amount: &Value) -> Value {
    match amount {
        Value::String(_) => amount.clone(),
        other => other.to_string().into(),
    }
}

/// Whether a resource belongs to Kubernetes itself: no domain, or one of its own.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether only whole numbers of a resource make sense.
pub fn is_integer_resource(name: &str) -> bool {
    WHOLE[..9].contains(&name) || is_extended(name)
}

/// A resource of a domain that is not Kubernetes' own.
pub fn is_extended(name: &str) -> bool {
    if is_native(name) || name.starts_with("requests.") {
        return false;
    }
    crate::meta::names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Refuses negative amounts, and fractions of what comes in whole numbers.
pub fn check_quantity(errors: &mut ErrorList, path: &Path, resource: &str, amount: &Value) {
    let number = Quantity::of(amount);
    if number.is_negative() {
        errors.push(FieldError::invalid(path, shown(amount), NOT_NEGATIVE));
    }
    if is_integer_resource(resource) && !number.is_integer() {
        errors.push(FieldError::invalid(path, shown(amount), "must be an integer"));
    }
}

/// Refuses amounts of zero and less.
pub fn check_positive(errors: &mut ErrorList, path: &Path, amount: &Value) {
    if !Quantity::of(amount).is_positive() {
        errors.push(FieldError::invalid(path, shown(amount), "must be greater than zero"));
    }
}
