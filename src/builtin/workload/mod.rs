//! Rules that all kinds with a pod template and a selector share.

pub mod rollout;

use crate::builtin::pod_spec::template::{template_warnings, validate_template};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::meta::{ErrorList, Map, Object, Path, Value, names};
use crate::registry::Context;
use crate::registry::validation::{
    Fields, SelectorOptions, label_selector_matches, not_negative, validate_label_selector,
};

/// Checks that a selector is there, well formed and not empty. Whether it can be matched against
/// labels at all is the answer: an absent one can (it matches nothing), a malformed one cannot.
pub fn check_selector(
    errors: &mut ErrorList,
    path: &Path,
    selector: Option<&Map>,
    kind: &str,
) -> bool {
    let Some(selector) = selector else {
        errors.required(path, "");
        return true;
    };
    let before = errors.len();
    validate_label_selector(errors, path, Some(selector), SelectorOptions::default());
    let usable = errors.len() == before;
    if is_empty_selector(selector) {
        errors.invalid(
            path,
            selector.clone(),
            format!("empty selector is invalid for {kind}"),
        );
    }
    usable
}

pub fn is_empty_selector(selector: &Map) -> bool {
    selector.map("matchLabels").is_none_or(Map::is_empty)
        && selector.list("matchExpressions").is_empty()
}

/// The labels of a template must be those that the selector asks for.
pub fn check_labels_match(
    errors: &mut ErrorList,
    path: &Path,
    template: &Map,
    selector: Option<&Map>,
) {
    let labels = template
        .map("metadata")
        .and_then(|metadata| metadata.map("labels"));
    if !label_selector_matches(selector, labels) {
        let shown = labels
            .filter(|labels| !labels.is_empty())
            .map_or(Value::Null, |labels| Value::Object(labels.clone()));
        errors.invalid(
            &path.child("metadata").child("labels"),
            shown,
            "`selector` does not match template `labels`",
        );
    }
}

/// Pods of a template that are to run for good: they restart always and have no deadline.
pub fn check_runs_forever(errors: &mut ErrorList, path: &Path, template: &Map, kind: &str) {
    let Some(spec) = template.map("spec") else {
        return;
    };
    let policy = spec.str("restartPolicy");
    if policy != "Always" {
        errors.not_supported(
            &path.child("spec").child("restartPolicy"),
            policy,
            &["Always"],
        );
    }
    if spec.field("activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("spec").child("activeDeadlineSeconds"), detail);
    }
}

/// The selector and the template of a ReplicaSet, or of a Deployment that makes some.
pub fn check_selected_template(
    errors: &mut ErrorList,
    ctx: &Context,
    spec: &Map,
    old: Option<&Object>,
) {
    let path = Path::new("spec");
    let selector = spec.map("selector");
    if check_selector(errors, &path.child("selector"), selector, "deployment") {
        let options = PodValidationOptions::of_templates(
            ctx,
            spec.field("template"),
            old.and_then(|old| old.at("/spec/template")),
        );
        check_replica_template(errors, &path.child("template"), spec, &options);
    } else {
        let shown = selector.cloned().unwrap_or_default();
        errors.invalid(&path.child("selector"), shown, "invalid label selector");
    }
}

/// Returns the warnings about a ReplicaSet or Deployment: of its name once, of its template
/// whenever there is a new generation.
pub fn replica_warnings(object: &Object, old: Option<&Object>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        warnings.extend(pod_name_warning(object));
    }
    if old.is_none_or(|old| old.generation() != object.generation()) {
        warnings.extend(template_warnings(
            &Path::new("spec").child("template"),
            object.at("/spec/template"),
        ));
    }
    warnings
}

fn check_replica_template(
    errors: &mut ErrorList,
    path: &Path,
    spec: &Map,
    options: &PodValidationOptions,
) {
    let template = spec.section("template");
    let selector = spec.map("selector");
    if !selector.is_some_and(is_empty_selector) {
        check_labels_match(errors, path, template, selector);
    }
    validate_template(errors, path, template, options);
    check_runs_forever(errors, path, template, "ReplicaSet");
}

/// Counts of a status that may not be negative; then those that may not be more than another.
pub fn status_counts(
    errors: &mut ErrorList,
    status: &Map,
    counts: &[&str],
    at_most: &[(&str, &str, &str)],
) {
    let path = Path::new("status");
    for key in counts {
        not_negative(errors, &path.child(key), status.int(key).unwrap_or(0));
    }
    for (key, limit, detail) in at_most {
        let count = status.int(key).unwrap_or(0);
        if count > status.int(limit).unwrap_or(0) {
            errors.invalid(&path.child(key), count, *detail);
        }
    }
}

/// `status.collisionCount` only grows.
pub fn collisions_only_grow(errors: &mut ErrorList, object: &Object, old: &Object) {
    let (new, old) = (
        object.i64_at("/status/collisionCount"),
        old.i64_at("/status/collisionCount"),
    );
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        let path = Path::new("status").child("collisionCount");
        errors.invalid(&path, new.unwrap_or(0), "cannot be decremented");
    }
}

/// Pods are named after the object: a name that is no DNS label makes surprising hostnames.
pub fn pod_name_warning(object: &Object) -> Option<String> {
    let problems = names::dns1123_label(object.name());
    (!problems.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            problems.join(" ")
        )
    })
}
