//! Jobs: their defaults, the selector that the server makes, and what of them may change
//! (`pkg/registry/batch/job`).

pub mod columns;
pub mod indexes;
pub mod policies;
pub mod spec;
pub mod status;

use std::borrow::Cow;

use crate::builtin::defaulting::{fill, fill_text, part, part_or_new, parts};
use crate::builtin::internal_types;
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::pod_name_warning;
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, FieldError, Map, Object, Path, Value, names};
use crate::registry::NeedsReadDefaults;
use crate::registry::strategy::text_or;
use crate::registry::validation::{
    Fields, IMMUTABLE, SelectorOptions, immutable, immutable_field, label_selector_matches,
    requirement_has_invalid_value, same, validate_label_selector,
};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};
use policies::{failure_policy_shown, success_policy_shown};
use spec::{check_job_spec, spec_warnings};
use status::{check_status_update, is_true};

/// The entry of `jobs`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "jobs",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        pod_spec: Some("/spec/template/spec"),
        orphans: true,
        selectable: &["status.successful"],
        ..WORKLOAD
    },
    strategy: &JobStrategy,
    printer: &columns::PRINTER,
};

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The names of the labels before they had a domain.
const LEGACY_CONTROLLER_UID: &str = "controller-uid";
const LEGACY_JOB_NAME: &str = "job-name";

pub struct JobStrategy;

impl Strategy for JobStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        if spec.field("completions").is_none() && spec.field("parallelism").is_none() {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let backoff = if spec.field("backoffLimitPerIndex").is_some() {
            i32::MAX
        } else {
            6
        };
        fill(spec, "backoffLimit", backoff);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        let replacement = if spec.field("podFailurePolicy").is_some() {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        fill(spec, "podReplacementPolicy", replacement);
        fill(spec, "manualSelector", false);
        default_pods(spec);
        labels_from_template(object);
    }

    fn needs_read_defaults(&self) -> Option<NeedsReadDefaults> {
        Some(|stored| stored.labels().next().is_none())
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        // Labels that the job has from its pods are theirs, and get what these get.
        let labels = object.labels().filter(|labels| !labels.is_empty());
        let shared = labels.is_some()
            && labels
                == object
                    .at("/spec/template/metadata/labels")
                    .and_then(Value::as_object);
        generate_selector(object);
        if shared && object.generate_name().is_empty() {
            object.metadata_mut().shift_remove("labels");
            labels_from_template(object);
        }
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_job(&mut errors, ctx, object, None);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if ctx.subresource == Subresource::Status {
            check_status_update(&mut errors, object, old);
            return errors;
        }
        check_job(&mut errors, ctx, object, Some(old));
        check_spec_and_selector(&mut errors, ctx, object, Some(old));
        check_unchanged(&mut errors, object, old);
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        if old.is_some_and(|old| old.generation() == object.generation()) {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        if old.is_none() {
            warnings.extend(pod_name_warning(object));
        }
        warnings.extend(spec_warnings(&Path::new("spec"), object.map("spec")));
        warnings
    }

    fn delete_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set \
             propagationPolicy=Orphan to suppress this warning",
        )
    }

    fn selectable_value<'a>(&self, object: &'a dyn FieldReader, field: &str) -> Cow<'a, str> {
        match field {
            "status.successful" => text_or(object, "status.succeeded", "0"),
            other => object.text_at(other),
        }
    }
}

/// The defaults of what a job's spec holds: the template, and the conditions that a failure policy
/// asks for.
pub fn default_pods(spec: &mut Map) {
    if let Some(policy) = part(spec, "podFailurePolicy") {
        for rule in parts(policy, "rules") {
            for pattern in parts(rule, "onPodConditions") {
                fill_text(pattern, "status", "True");
            }
        }
    }
    default_template(part_or_new(spec, "template"));
}

/// A job without labels has those of its pods.
fn labels_from_template(object: &mut Object) {
    if object.labels().is_some_and(|labels| !labels.is_empty()) {
        return;
    }
    let labels = object
        .at("/spec/template/metadata/labels")
        .and_then(Value::as_object)
        .filter(|labels| !labels.is_empty());
    if let Some(labels) = labels.cloned() {
        object.metadata_mut().insert("labels", labels.into());
    }
}

/// Labels for the pods, and a selector for exactly these, unless the client wants to choose them.
fn generate_selector(object: &mut Object) {
    if object.bool_at("/spec/manualSelector") {
        return;
    }
    let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
    let spec = object.section_mut("spec");
    let labels = part_or_new(
        part_or_new(part_or_new(spec, "template"), "metadata"),
        "labels",
    );
    for (key, value) in [
        (LEGACY_JOB_NAME, &name),
        (JOB_NAME, &name),
        (LEGACY_CONTROLLER_UID, &uid),
        (CONTROLLER_UID, &uid),
    ] {
        labels.entry(key).or_insert_with(|| value.as_str().into());
    }
    let wanted = part_or_new(part_or_new(spec, "selector"), "matchLabels");
    wanted.entry(CONTROLLER_UID).or_insert_with(|| uid.into());
}

fn check_job(errors: &mut ErrorList, ctx: &Context, object: &Object, old: Option<&Object>) {
    check_generated_selector(errors, object, old);
    check_spec_and_selector(errors, ctx, object, old);
    let completions = object.i64_at("/spec/completions").unwrap_or(0);
    if object.str_at("/spec/completionMode") == "Indexed" && completions > 0 {
        let last = format!("{}-{}", object.name(), completions - 1);
        if !names::dns1123_label(&last).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {last}");
            errors.invalid(&Path::new("metadata").child("name"), object.name(), detail);
        }
    }
}

/// The labels and selector that the server makes may not be contradicted.
fn check_generated_selector(errors: &mut ErrorList, object: &Object, old: Option<&Object>) {
    let Some(selector) = object.at("/spec/selector").and_then(Value::as_object) else {
        return;
    };
    if object.bool_at("/spec/manualSelector") {
        return;
    }
    if object.uid().is_empty() {
        errors.required(&Path::new("metadata").child("uid"), "");
    }
    let empty = Map::new();
    let labels = object
        .at("/spec/template/metadata/labels")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let had = |key: &str| {
        let labels = old.and_then(|old| old.at("/spec/template/metadata/labels"));
        old.is_none() || labels.is_some_and(|labels| labels.field(key).is_some())
    };
    let mut expected = vec![
        (LEGACY_CONTROLLER_UID, object.uid()),
        (LEGACY_JOB_NAME, object.name()),
    ];
    if had(JOB_NAME) && had(CONTROLLER_UID) {
        expected.extend([(CONTROLLER_UID, object.uid()), (JOB_NAME, object.name())]);
    }
    let path = Path::new("spec")
        .child("template")
        .child("metadata")
        .child("labels");
    for &(key, value) in &expected {
        match labels.opt_str(key) {
            None => errors.required(&path.key(key), format!("must be '{value}'")),
            Some(found) if found != value => {
                errors.invalid(&path.key(key), labels.clone(), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let made: Map = expected
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    if is_usable(selector) && !label_selector_matches(Some(selector), Some(&made)) {
        errors.invalid(
            &Path::new("spec").child("selector"),
            selector_shown(selector),
            "`selector` not auto-generated",
        );
    }
}

/// A selector with its members in the order of their type.
fn selector_shown(selector: &Map) -> Map {
    ["matchLabels", "matchExpressions"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), selector.get(key)?.clone())))
        .collect()
}

fn is_usable(selector: &Map) -> bool {
    let mut errors = ErrorList::new();
    validate_label_selector(
        &mut errors,
        &Path::default(),
        Some(selector),
        SelectorOptions::default(),
    );
    errors.is_empty()
}

fn check_spec_and_selector(
    errors: &mut ErrorList,
    ctx: &Context,
    object: &Object,
    old: Option<&Object>,
) {
    let spec = object.section("spec");
    let path = Path::new("spec");
    let mut options = PodValidationOptions::of_templates(
        ctx,
        spec.field("template"),
        old.and_then(|old| old.at("/spec/template")),
    );
    let before = old
        .and_then(|old| old.at("/spec/selector"))
        .and_then(Value::as_object);
    options.allow_invalid_selector_values |= requirement_has_invalid_value(before);
    check_job_spec(errors, &path, spec, &options);
    let selector = spec.map("selector");
    match selector {
        None => errors.required(&path.child("selector"), ""),
        Some(selector) => {
            let options = SelectorOptions {
                allow_invalid_values: options.allow_invalid_selector_values,
            };
            validate_label_selector(errors, &path.child("selector"), Some(selector), options);
        }
    }
    let labels = spec
        .map("template")
        .and_then(|template| template.map("metadata"))
        .and_then(|metadata| metadata.map("labels"));
    if selector.is_none_or(is_usable) && !label_selector_matches(selector, labels) {
        let shown = labels
            .filter(|labels| !labels.is_empty())
            .map_or(Value::Null, |labels| Value::Object(labels.clone()));
        let path = path.child("template").child("metadata").child("labels");
        errors.invalid(&path, shown, "`selector` does not match template `labels`");
    }
}

fn check_unchanged(errors: &mut ErrorList, object: &Object, old: &Object) {
    let (new, before) = (object.section("spec"), old.section("spec"));
    let path = Path::new("spec");
    let both = |key: &str| (new.field(key), before.field(key));
    let completions = both("completions");
    if new.str("completionMode") != "Indexed" {
        immutable(
            errors,
            &path.child("completions"),
            completions.0,
            completions.1,
        );
    } else if let (Some(count), true) = (completions.0, !same(completions.0, completions.1))
        && count.as_i64() != new.int("parallelism")
    {
        errors.invalid(
            &path.child("completions"),
            count.clone(),
            "can only be modified in tandem with spec.parallelism",
        );
    }
    immutable_field(errors, &path, "selector", new, before);
    check_template_unchanged(errors, &path, new, before, old);
    immutable_field(errors, &path, "completionMode", new, before);
    let shown = |key: &str, shown: fn(&Value) -> Value| {
        let (new, old) = both(key);
        let error =
            || FieldError::invalid(&path.child(key), new.map_or(Value::Null, shown), IMMUTABLE);
        (!same(new, old) || new.is_some() != old.is_some()).then(error)
    };
    errors.extend(shown("podFailurePolicy", failure_policy_shown));
    for key in ["backoffLimitPerIndex", "managedBy"] {
        immutable(errors, &path.child(key), new.field(key), before.field(key));
    }
    errors.extend(shown("successPolicy", success_policy_shown));
}

/// The template stays as it is, but for where pods may run and what they need while the job is
/// suspended and idle.
fn check_template_unchanged(
    errors: &mut ErrorList,
    path: &Path,
    new: &Map,
    before: &Map,
    old: &Object,
) {
    let template = new.section("template");
    let mut allowed = before.map("template").cloned().unwrap_or_default();
    if same(new.field("template"), before.field("template")) {
        return;
    }
    let suspended = before.flag("suspend");
    let not_started = old.at("/status/startTime").is_none_or(Value::is_null);
    let idle = old.i64_at("/status/active").unwrap_or(0) == 0
        && (not_started || is_true(old, "Suspended"));
    if !(suspended && idle) {
        return immutable_template(errors, &path.child("template"), template, &allowed);
    }
    allow_directives(&mut allowed, template);
    let (spec, mut old_spec) = (
        template.section("spec"),
        allowed.map("spec").cloned().unwrap_or_default(),
    );
    for key in ["containers", "initContainers"] {
        let new = spec.list(key);
        let same_length = new.len() == old_spec.list(key).len();
        for (container, new) in parts(&mut old_spec, key).zip(new).filter(|_| same_length) {
            if container.str("name") == new.str("name") {
                follow(container, new, "resources");
            }
        }
    }
    if !same(
        Some(&Value::Object(spec.clone())),
        Some(&Value::Object(old_spec)),
    ) {
        errors.invalid(
            &path.child("template.spec"),
            internal_types::json("PodSpec", spec),
            IMMUTABLE,
        );
    }
}

fn immutable_template(errors: &mut ErrorList, path: &Path, new: &Map, old: &Map) {
    if !same(
        Some(&Value::Object(new.clone())),
        Some(&Value::Object(old.clone())),
    ) {
        let mut shown = new.map("metadata").cloned().unwrap_or_default();
        shown.retain(|_, value| !value.is_null());
        shown.insert("Spec", internal_types::json("PodSpec", new.section("spec")));
        errors.invalid(path, shown, IMMUTABLE);
    }
}

/// Takes over what a template that may be rescheduled can change.
fn allow_directives(old: &mut Map, new: &Map) {
    let empty = Value::Null;
    let (new_meta, new_spec) = (
        new.field("metadata").unwrap_or(&empty),
        new.field("spec").unwrap_or(&empty),
    );
    let metadata = part_or_new(old, "metadata");
    for key in ["annotations", "labels"] {
        follow(metadata, new_meta, key);
    }
    let spec = part_or_new(old, "spec");
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        follow(spec, new_spec, key);
    }
    let node_affinity = new_spec.map("affinity");
    let affinity = part_or_new(spec, "affinity");
    follow(
        affinity,
        &node_affinity.cloned().map_or(Value::Null, Value::Object),
        "nodeAffinity",
    );
}

fn follow(target: &mut Map, source: &Value, key: &str) {
    match source.field(key) {
        Some(value) => target.insert(key.to_owned(), value.clone()),
        None => target.shift_remove(key),
    };
}
