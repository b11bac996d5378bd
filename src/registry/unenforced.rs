//! Objects that are stored and mean nothing yet: what they demand of other requests, this server
//! does not do. Whoever writes one is told in a Warning header, and the log tells of those that are
//! there at start. A row goes when its feature comes.

use crate::meta::{Object, Value};

use super::resource::Resource;

/// A kind of such objects.
pub struct Unenforced {
    pub group: &'static str,
    pub resource: &'static str,
    /// Returns the part of an object that this server does not enforce; `None` if it demands
    /// nothing.
    missing: fn(&Object) -> Option<&'static str>,
}

const fn row(
    group: &'static str,
    resource: &'static str,
    missing: fn(&Object) -> Option<&'static str>,
) -> Unenforced {
    Unenforced {
        group,
        resource,
        missing,
    }
}

/// All of them.
pub const UNENFORCED: &[Unenforced] = &[row("apiregistration.k8s.io", "apiservices", service)];

fn service(object: &Object) -> Option<&'static str> {
    object
        .at("/spec/service")
        .is_some_and(Value::is_object)
        .then_some("requests are not forwarded to aggregated API servers")
}

impl Unenforced {
    /// Returns the warning about an object.
    pub fn of(&self, resource: &Resource, object: &Object) -> Option<String> {
        let missing = (self.missing)(object)?;
        Some(format!(
            "{} {:?} is stored but not enforced by this server: {missing}",
            resource.gvk.kind,
            object.name()
        ))
    }
}

/// Reports whether an update changes more than metadata and status.
fn differs(object: &Object, old: &Object) -> bool {
    let counts = |key: &str| !matches!(key, "kind" | "apiVersion" | "metadata" | "status");
    let changed = object
        .iter()
        .any(|(key, value)| counts(key) && old.get(key) != Some(value));
    changed
        || old
            .keys()
            .any(|key| counts(key) && !object.contains_key(key))
}

/// Returns the warning for the client that writes an object: a new one, or `old` anew.
pub fn warning(resource: &Resource, object: &Object, old: Option<&Object>) -> Option<String> {
    if resource.custom.is_some() {
        return None;
    }
    let row = UNENFORCED
        .iter()
        .find(|row| row.resource == resource.gvr.resource && row.group == resource.gvr.group)?;
    if old.is_some_and(|old| !differs(object, old)) {
        return None;
    }
    row.of(resource, object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn missing(resource: &str, value: Value) -> Option<&'static str> {
        let row = UNENFORCED
            .iter()
            .find(|row| row.resource == resource)
            .expect("a row");
        (row.missing)(&Object::from_value(value).expect("an object"))
    }

    #[test]
    fn what_demands_nothing_is_passed_over() {
        assert_eq!(
            missing("apiservices", json!({"spec": {"group": "apps"}})),
            None
        );
        assert!(missing("apiservices", json!({"spec": {"service": {"name": "a"}}})).is_some());
    }
}
