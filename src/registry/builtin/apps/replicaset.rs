//! ReplicaSets.

use serde_json::Map;

use super::workload::{check_replica_template, check_selector, pod_name_warning, status_counts};
use crate::meta::{ErrorList, FieldError, Object, Path};
use crate::registry::builtin::core::pod::{PodOptions, default_template, template_warnings};
use crate::registry::builtin::defaults::{fill, part_or_new};
use crate::registry::validation::{Fields, immutable, not_negative};
use crate::registry::{Context, Strategy, Subresource};

pub struct ReplicaSets;

impl Strategy for ReplicaSets {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill(spec, "replicas", 1);
        default_template(part_or_new(spec, "template"));
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = Vec::new();
        check_spec(&mut errors, object, None);
        errors
    }

    fn validate_update(&self, _ctx: &Context, sub: Subresource, object: &Object, old: &Object) -> ErrorList {
        let mut errors = Vec::new();
        if sub == Subresource::Status {
            check_status(&mut errors, object);
            return errors;
        }
        check_spec(&mut errors, object, Some(old));
        let path = Path::new("spec").child("selector");
        immutable(&mut errors, &path, object.at("/spec/selector"), old.at("/spec/selector"));
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() {
            warnings.extend(pod_name_warning(object));
        }
        if old.is_none_or(|old| old.generation() != object.generation()) {
            warnings.extend(template_warnings(&Path::new("spec").child("template"), object.at("/spec/template")));
        }
        warnings
    }
}

fn check_spec(errors: &mut ErrorList, object: &Object, old: Option<&Object>) {
    let empty = Map::new();
    let spec = object.map("spec").unwrap_or(&empty);
    let path = Path::new("spec");
    not_negative(errors, &path.child("replicas"), spec.int("replicas").unwrap_or(0));
    not_negative(errors, &path.child("minReadySeconds"), spec.int("minReadySeconds").unwrap_or(0));
    let selector = spec.map("selector");
    if check_selector(errors, &path.child("selector"), selector, "deployment") {
        let options = PodOptions::of_templates(spec.field("template"), old.and_then(|old| old.at("/spec/template")));
        check_replica_template(errors, &path.child("template"), spec, &options);
    } else {
        let shown = selector.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&path.child("selector"), shown, "invalid label selector"));
    }
}

fn check_status(errors: &mut ErrorList, object: &Object) {
    let Some(status) = object.map("status") else { return };
    let more = "cannot be greater than status.replicas";
    status_counts(
        errors,
        status,
        &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration", "terminatingReplicas"],
        &[
            ("fullyLabeledReplicas", "replicas", more),
            ("readyReplicas", "replicas", more),
            ("availableReplicas", "replicas", more),
            ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
        ],
    );
}
