//! Metadata for what is made from a template: labels and annotations, and nothing else.

use crate::meta::{ErrorList, Map, Path};
use crate::registry::validation::{Fields, validate_annotations, validate_labels};

/// The fields of ObjectMeta in the order of the checks, with the names that errors give them.
const OTHERS: [(&str, &str); 13] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// Checks the metadata of a template, such as that of a claim in a volume.
pub fn check_template_meta(errors: &mut ErrorList, path: &Path, metadata: Option<&Map>) {
    let Some(metadata) = metadata else {
        return;
    };
    validate_annotations(
        errors,
        &path.child("annotations"),
        metadata.map("annotations"),
    );
    validate_labels(errors, &path.child("labels"), metadata.map("labels"));
    for (key, named) in OTHERS {
        let set = metadata.field(key).is_some_and(|value| {
            value != "" && value.as_array().is_none_or(|list| !list.is_empty())
        });
        if set {
            errors.forbidden(&path.child(named), "cannot be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn only_labels_and_annotations_are_taken_from_a_template() {
        let lines = |metadata: crate::meta::Value| {
            let mut errors = ErrorList::new();
            check_template_meta(&mut errors, &Path::new("m"), metadata.as_object());
            errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<String>>()
        };
        let fine = json!({"labels": {"a": "b"}, "annotations": {"a": "b"}, "name": "", "finalizers": [], "creationTimestamp": null});
        assert_eq!(lines(fine), [""; 0]);
        let refused = json!({"uid": "u", "name": "n"});
        let want = [
            "m.name: Forbidden: cannot be set",
            "m.uID: Forbidden: cannot be set",
        ];
        assert_eq!(lines(refused), want);
    }
}
