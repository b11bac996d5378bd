//! Pod templates: what they must look like, and what to warn of.

use serde_json::{Map, Value};

use super::PodOptions;
use crate::meta::{ErrorList, FieldError, Path};
use crate::registry::validation::{Fields, validate_annotations, validate_labels};

/// Checks the template of a pod (a struct of metadata and spec).
pub fn validate_template(errors: &mut ErrorList, path: &Path, template: &Map<String, Value>, _options: &PodOptions) {
    let metadata = template.map("metadata");
    validate_labels(errors, &path.child("labels"), metadata.and_then(|metadata| metadata.map("labels")));
    validate_annotations(errors, &path.child("annotations"), metadata.and_then(|metadata| metadata.map("annotations")));
    let empty = Map::new();
    let spec = template.map("spec").unwrap_or(&empty);
    if spec.list("containers").is_empty() {
        errors.push(FieldError::required(&path.child("spec").child("containers"), ""));
    }
}

/// What to say in Warning headers of a template that is new or changed.
pub fn template_warnings(_path: &Path, _template: Option<&Value>, _old: Option<&Value>) -> Vec<String> {
    Vec::new()
}
