//! node.k8s.io: RuntimeClasses (`pkg/apis/node/validation`).

use std::collections::HashSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text};
use crate::builtin::compute_resources::{check_container_name, check_quantity};
use crate::builtin::pod_spec::scheduling::check_tolerations;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::builtin::{internal_types, node_labels};
use crate::meta::{ErrorList, Map, Object, Path, names};
use crate::registry::validation::{Fields, immutable_text, invalid_each, validate_labels};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `runtimeclasses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "runtimeclasses",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        any_finalizer: true,
        create_on_update: true,
        unconditional_update: false,
        ..DEFAULT
    },
    strategy: &RuntimeClassStrategy,
    printer: &PRINTER,
};

/// The fields in which equal tolerations agree.
const TOLERATION_KEYS: [&str; 4] = ["key", "operator", "value", "effect"];

pub struct RuntimeClassStrategy;

impl Strategy for RuntimeClassStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let handler = object.str("handler");
        if handler.is_empty() {
            errors.required(&Path::new("handler"), "");
        } else {
            invalid_each(
                &mut errors,
                &Path::new("handler"),
                handler,
                names::dns1123_label(handler),
            );
        }
        if let Some(overhead) = object.map("overhead") {
            let path = Path::new("overhead").child("limits");
            for (name, amount) in overhead.entries("podFixed") {
                check_container_name(&mut errors, &path.key(name), name);
                check_quantity(&mut errors, &path.key(name), name, amount);
            }
        }
        if let Some(scheduling) = object.map("scheduling") {
            check_scheduling(&mut errors, &Path::new("scheduling"), scheduling);
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.validate(ctx, object);
        immutable_text(
            &mut errors,
            &Path::new("handler"),
            object.str("handler"),
            old.str("handler"),
        );
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let selector = object
            .map("scheduling")
            .and_then(|scheduling| scheduling.map("nodeSelector"));
        node_labels::selector_warnings(selector, |_| "scheduling.nodeSelector".to_owned()).collect()
    }
}

fn check_scheduling(errors: &mut ErrorList, path: &Path, scheduling: &Map) {
    validate_labels(
        errors,
        &path.child("nodeSelector"),
        scheduling.map("nodeSelector"),
    );
    let (path, tolerations) = (path.child("tolerations"), scheduling.list("tolerations"));
    check_tolerations(errors, &path, tolerations);
    let mut known = HashSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !known.insert(TOLERATION_KEYS.map(|key| toleration.str(key))) {
            let shown = toleration
                .as_object()
                .map(|toleration| internal_types::json("Toleration", toleration))
                .unwrap_or_default();
            errors.duplicate(&path.index(index), shown);
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Handler", "What the container runtime calls it"),
        AGE,
    ],
    paths: "handler",
    fill: |row| {
        row.name().text("/handler").age();
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Value, json};

    #[test]
    fn labels_of_old_are_warned_of() {
        let class = |label: &str| json!({"scheduling": {"nodeSelector": {label: "a"}}});
        let warnings = |tree: Value| {
            RuntimeClassStrategy.warnings(&Object::from_value(tree).expect("an object"), None)
        };
        let text =
            r#"scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/arch" instead"#;
        assert_eq!(warnings(class("beta.kubernetes.io/arch")), [text]);
        assert!(
            warnings(class("kubernetes.io/arch")).is_empty()
                && warnings(json!({"handler": "a"})).is_empty()
        );
    }
}
