//! The conditions of a namespace that is being emptied
//! (`pkg/controller/namespace/deletion/status_condition_utils.go`).

use super::deletion::Remaining;
use crate::meta::{Map, Object, Value, str_at};

/// The types of conditions, each with the reason and the message of a good state, in the order in
/// which they are listed.
const TYPES: [(&str, &str, &str); 5] = [
    (
        DISCOVERY_FAILURE,
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        CONTENT_FAILURE,
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        CONTENT_REMAINING,
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        FINALIZERS_REMAINING,
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];
const DISCOVERY_FAILURE: &str = "NamespaceDeletionDiscoveryFailure";
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT_REMAINING: &str = "NamespaceContentRemaining";
const FINALIZERS_REMAINING: &str = "NamespaceFinalizersRemaining";

/// The findings of one look at a namespace.
#[derive(Debug, Default)]
pub struct Conditions {
    /// The messages of deletions that failed.
    pub failures: Vec<String>,
    /// The rest that remains: reason and message by type.
    found: Vec<(&'static str, &'static str, String)>,
}

impl Conditions {
    /// Notes that the resources of these groups and versions are not known now, and returns how
    /// that is told.
    pub fn undiscovered(&mut self, group_versions: &[String]) -> String {
        let mut groups = group_versions.to_vec();
        groups.sort();
        let stale = groups
            .iter()
            .map(|gv| format!("{gv}: stale GroupVersion discovery: {gv}"));
        let stale: Vec<String> = stale.collect();
        let why = format!(
            "unable to retrieve the complete list of server APIs: {}",
            stale.join(", ")
        );
        let count = groups.len();
        let message = format!("Discovery failed for some groups, {count} failing: {why}");
        self.found
            .push((DISCOVERY_FAILURE, "DiscoveryFailed", message));
        why
    }

    /// Notes what remains.
    pub fn count(&mut self, remaining: &Remaining) {
        if !remaining.resources.is_empty() {
            let counts = remaining.resources.iter();
            let mut counts: Vec<String> = counts
                .map(|(resource, count)| format!("{resource} has {count} resource instances"))
                .collect();
            counts.sort();
            let message = format!("Some resources are remaining: {}", counts.join(", "));
            self.found
                .push((CONTENT_REMAINING, "SomeResourcesRemain", message));
        }
        if !remaining.finalizers.is_empty() {
            let counts = remaining.finalizers.iter();
            let mut counts: Vec<String> = counts
                .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
                .collect();
            counts.sort();
            let message = format!(
                "Some content in the namespace has finalizers remaining: {}",
                counts.join(", ")
            );
            self.found
                .push((FINALIZERS_REMAINING, "SomeFinalizersRemain", message));
        }
    }

    /// Reason and message of a condition that is true.
    fn of(&self, name: &str) -> Option<(&'static str, String)> {
        if name == CONTENT_FAILURE && !self.failures.is_empty() {
            let mut failures = self.failures.clone();
            failures.sort();
            let message = format!(
                "Failed to delete all resource types, {} remaining: {}",
                failures.len(),
                failures.join(", ")
            );
            return Some(("ContentDeletionFailed", message));
        }
        let mut found = self.found.iter();
        let (_, reason, message) = found.find(|(of, ..)| *of == name)?;
        Some((reason, message.clone()))
    }

    /// Returns the namespace with these conditions; `None` if it has them already.
    pub fn applied(&self, namespace: &Object, now: &str) -> Option<Object> {
        let mut conditions = namespace.array_at("/status/conditions").to_vec();
        let mut has_changed = false;
        for (name, ok_reason, ok_message) in TYPES {
            let (status, reason, message) = match self.of(name) {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", ok_reason, ok_message.to_owned()),
            };
            let mut next = Map::new();
            next.insert("type", name.into());
            next.insert("status", status.into());
            next.insert("lastTransitionTime", now.into());
            next.insert("reason", reason.into());
            next.insert("message", message.as_str().into());
            let known = conditions
                .iter_mut()
                .find(|condition| str_at(condition, "/type") == name);
            let Some(known) = known else {
                conditions.push(Value::Object(next));
                has_changed = true;
                continue;
            };
            let is = |field: &str, value: &str| str_at(known, field) == value;
            if is("/status", status) && is("/reason", reason) && is("/message", &message) {
                continue;
            }
            if is("/status", status) {
                next.insert(
                    "lastTransitionTime",
                    str_at(known, "/lastTransitionTime").into(),
                );
            }
            *known = Value::Object(next);
            has_changed = true;
        }
        if !has_changed {
            return None;
        }
        let mut changed = namespace.clone();
        changed
            .section_mut("status")
            .insert("conditions", Value::Array(conditions));
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn conditions(object: &Object) -> Vec<String> {
        let conditions = object.array_at("/status/conditions").iter();
        let text = |condition: &Value| {
            ["/status", "/lastTransitionTime", "/reason", "/message"]
                .map(|field| str_at(condition, field).to_owned())
                .join(" ")
        };
        conditions.map(text).collect()
    }

    #[test]
    fn conditions_tell_what_remains_and_change_with_it() {
        let namespace = Object::from_value(json!({"metadata": {"name": "a"}})).expect("an object");
        let mut found = Conditions::default();
        let mut remaining = Remaining::default();
        remaining.resources.insert("pods.".to_owned(), 2);
        remaining
            .resources
            .insert("crontabs.example.com".to_owned(), 1);
        remaining.finalizers.insert("example.com/a".to_owned(), 3);
        found.count(&remaining);
        found.failures = vec!["b".to_owned(), "a".to_owned()];
        let first = found.applied(&namespace, "T1").expect("changed");
        assert_eq!(
            conditions(&first),
            [
                "False T1 ResourcesDiscovered All resources successfully discovered",
                "False T1 ParsedGroupVersions All legacy kube types successfully parsed",
                "True T1 ContentDeletionFailed Failed to delete all resource types, 2 remaining: a, b",
                "True T1 SomeResourcesRemain Some resources are remaining: \
                 crontabs.example.com has 1 resource instances, pods. has 2 resource instances",
                "True T1 SomeFinalizersRemain Some content in the namespace has finalizers remaining: \
                 example.com/a in 3 resource instances",
            ]
        );
        assert!(found.applied(&first, "T2").is_none(), "as it was");
        remaining.resources.remove("pods.");
        let mut fewer = Conditions::default();
        fewer.count(&remaining);
        let second = fewer.applied(&first, "T2").expect("changed");
        let second = conditions(&second);
        assert!(
            second[2].starts_with("False T2 ContentDeleted"),
            "{second:?}"
        );
        assert!(
            second[3].starts_with("True T1 SomeResourcesRemain"),
            "{second:?}"
        );
    }
}
