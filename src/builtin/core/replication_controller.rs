//! ReplicationControllers: ReplicaSets before there were selectors with expressions.

use crate::builtin::columns::{AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, SELECTOR, integer};
use crate::builtin::defaulting::{fill, part};
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::pod_spec::template::{template_warnings, validate_template};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::{pod_name_warning, status_counts};
use crate::meta::{ErrorList, Map, Object, Path, Value};
use crate::registry::validation::{Fields, not_negative_field};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `replicationcontrollers`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "replicationcontrollers",
    traits: ResourceTraits {
        pod_spec: Some("/spec/template/spec"),
        orphans: true,
        selectable: &["status.replicas"],
        ..WORKLOAD
    },
    strategy: &ReplicationControllerStrategy,
    printer: &PRINTER,
};

pub struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill(spec, "replicas", 1);
        let mut labels = None;
        if let Some(template) = part(spec, "template") {
            default_template(template);
            labels = template
                .map("metadata")
                .and_then(|metadata| metadata.map("labels"))
                .cloned();
        }
        let Some(labels) = labels else { return };
        if spec.map("selector").is_none_or(Map::is_empty) {
            spec.insert("selector", labels.clone().into());
        }
        if object.labels().is_none_or(Map::is_empty) {
            object.metadata_mut().insert("labels", labels.into());
        }
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        check_spec(ctx, object, None)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource != Subresource::Status {
            return check_spec(ctx, object, Some(old));
        }
        let mut errors = ErrorList::new();
        let Some(status) = object.map("status") else {
            return errors;
        };
        let more = "cannot be greater than status.replicas";
        status_counts(
            &mut errors,
            status,
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
            ],
            &[
                ("fullyLabeledReplicas", "replicas", more),
                ("readyReplicas", "replicas", more),
                ("availableReplicas", "replicas", more),
                (
                    "availableReplicas",
                    "readyReplicas",
                    "cannot be greater than readyReplicas",
                ),
            ],
        );
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() {
            warnings.extend(pod_name_warning(object));
        }
        if old.is_none_or(|old| old.generation() != object.generation()) {
            // Upstream takes the one for the other: an update is told about the old template.
            let template = old.unwrap_or(object).at("/spec/template");
            warnings.extend(template_warnings(
                &Path::new("spec").child("template"),
                template,
            ));
        }
        warnings
    }
}

fn check_spec(ctx: &Context, object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    not_negative_field(&mut errors, &path, "minReadySeconds", spec);
    let selector = spec.map("selector").filter(|selector| !selector.is_empty());
    if selector.is_none() {
        errors.required(&path.child("selector"), "");
    }
    not_negative_field(&mut errors, &path, "replicas", spec);
    let path = path.child("template");
    let Some(template) = spec.map("template") else {
        errors.required(&path, "");
        return errors;
    };
    let labels = template
        .map("metadata")
        .and_then(|metadata| metadata.map("labels"));
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    if !selector
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key) == Some(value))
    {
        let shown = labels
            .filter(|labels| !labels.is_empty())
            .map_or(Value::Null, |labels| Value::Object(labels.clone()));
        errors.invalid(
            &path.child("metadata").child("labels"),
            shown,
            "`selector` does not match template `labels`",
        );
    }
    let options = PodValidationOptions::of_templates(
        ctx,
        spec.field("template"),
        old.and_then(|old| old.at("/spec/template")),
    );
    validate_template(&mut errors, &path, template, &options);
    let pod = template.section("spec");
    if pod.str("restartPolicy") != "Always" {
        let path = path.child("spec").child("restartPolicy");
        errors.not_supported(&path, pod.str("restartPolicy"), &["Always"]);
    }
    if pod.field("activeDeadlineSeconds").is_some() {
        let path = path.child("spec").child("activeDeadlineSeconds");
        errors.forbidden(
            &path,
            "activeDeadlineSeconds in ReplicationController is not Supported",
        );
    }
    errors
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        integer("Desired", "The number of pods that is wanted"),
        integer("Current", "The number of pods that exist"),
        integer("Ready", "The number of pods that are ready"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    paths: "spec.replicas spec.selector spec.template.spec.containers.name \
        spec.template.spec.containers.image status.replicas status.readyReplicas",
    fill: |row| {
        row.name()
            .int("/spec/replicas")
            .int("/status/replicas")
            .int("/status/readyReplicas")
            .age();
        row.containers("/spec/template/spec/containers")
            .labels("/spec/selector");
    },
};
