//! Pod templates: what they must look like.

use super::annotations::{check_annotations, check_profiles_match};
use super::validation::check_spec;
use super::validation_options::PodValidationOptions;
use super::warnings::pod_warnings;
use crate::meta::{ErrorList, Map, Path, Value};
use crate::registry::validation::{Fields, validate_annotations, validate_labels};

/// Checks the template of a pod (a struct of metadata and spec).
pub fn validate_template(
    errors: &mut ErrorList,
    path: &Path,
    template: &Map,
    options: &PodValidationOptions,
) {
    let metadata = template.map("metadata");
    let annotations = metadata.and_then(|metadata| metadata.map("annotations"));
    let spec = template.section("spec");
    validate_labels(
        errors,
        &path.child("labels"),
        metadata.and_then(|metadata| metadata.map("labels")),
    );
    validate_annotations(errors, &path.child("annotations"), annotations);
    check_annotations(
        errors,
        &path.child("annotations"),
        annotations,
        spec,
        options.allow_invalid_deletion_cost,
    );
    let spec_path = path.child("spec");
    check_spec(errors, &spec_path, spec, None, options);
    check_profiles_match(errors, &spec_path, annotations, spec);
    if !spec.list("ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&spec_path.child("ephemeralContainers"), detail);
    }
}

/// Returns the warnings about a template that is new or changed.
pub fn template_warnings(path: &Path, template: Option<&Value>) -> Vec<String> {
    template
        .and_then(Value::as_object)
        .map(|template| pod_warnings(path, template, true))
        .unwrap_or_default()
}
