//! Deployments: how they roll out, and what counts as a new generation.

use crate::builtin::columns::{
    AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, SELECTOR, TEMPLATE, labels, text,
};
use crate::builtin::defaulting::{fill, fill_text, part_or_new};
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::rollout::{amount, check_at_most_all, check_count_or_percent, field};
use crate::builtin::workload::{
    check_selected_template, collisions_only_grow, replica_warnings, status_counts,
};
use crate::meta::{ErrorList, Map, Object, Path, json};
use crate::registry::validation::{
    Fields, immutable_field, not_negative, not_negative_field, same,
};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `deployments`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "deployments",
    traits: ResourceTraits {
        pod_spec: Some("/spec/template/spec"),
        status_keeps: &["labels"],
        status_resets: &["/spec", "/metadata/labels"],
        ..WORKLOAD
    },
    strategy: &DeploymentStrategy,
    printer: &PRINTER,
};

pub struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill(spec, "replicas", 1);
        let strategy = part_or_new(spec, "strategy");
        fill_text(strategy, "type", "RollingUpdate");
        if strategy.str("type") == "RollingUpdate" {
            let update = part_or_new(strategy, "rollingUpdate");
            fill(update, "maxUnavailable", "25%");
            fill(update, "maxSurge", "25%");
        }
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        default_template(part_or_new(spec, "template"));
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        // Annotations are copied to ReplicaSets, so a change of them is one of the desired state.
        let annotations = |object: &Object| object.at("/metadata/annotations").cloned();
        if ctx.subresource == Subresource::Main
            && !same(annotations(object).as_ref(), annotations(old).as_ref())
        {
            object.set_generation(old.generation() + 1);
        }
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(&mut errors, ctx, object, None);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        match ctx.subresource {
            Subresource::Status => {
                check_status(&mut errors, object);
                collisions_only_grow(&mut errors, object, old);
            }
            _ => {
                check_spec(&mut errors, ctx, object, Some(old));
                immutable_field(
                    &mut errors,
                    &Path::new("spec"),
                    "selector",
                    object.section("spec"),
                    old.section("spec"),
                );
            }
        }
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        replica_warnings(object, old)
    }
}

fn check_spec(errors: &mut ErrorList, ctx: &Context, object: &Object, old: Option<&Object>) {
    let spec = object.section("spec");
    let path = Path::new("spec");
    not_negative_field(errors, &path, "replicas", spec);
    check_selected_template(errors, ctx, spec, old);
    check_strategy(errors, &path.child("strategy"), spec.section("strategy"));
    let min_ready = spec.int("minReadySeconds").unwrap_or(0);
    not_negative(errors, &path.child("minReadySeconds"), min_ready);
    not_negative_field(errors, &path, "revisionHistoryLimit", spec);
    if let Some(deadline) = spec.int("progressDeadlineSeconds") {
        let path = path.child("progressDeadlineSeconds");
        not_negative(errors, &path, deadline);
        if deadline <= min_ready {
            errors.invalid(&path, deadline, "must be greater than minReadySeconds");
        }
    }
}

fn check_strategy(errors: &mut ErrorList, path: &Path, strategy: &Map) {
    let update = strategy.map("rollingUpdate");
    match (strategy.str("type"), update) {
        ("Recreate", None) => {}
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&path.child("rollingUpdate"), detail);
        }
        ("RollingUpdate", None) => {
            errors.required(
                &path.child("rollingUpdate"),
                "this should be defaulted and never be nil",
            );
        }
        ("RollingUpdate", Some(update)) => {
            check_rolling_update(errors, &path.child("rollingUpdate"), update)
        }
        (other, update) => {
            let update =
                update.map(|update| json!({"MaxUnavailable": field(update, "maxUnavailable"), "MaxSurge": field(update, "maxSurge")}));
            let shown = json!({"Type": other, "RollingUpdate": update});
            errors.not_supported(path, shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn check_rolling_update(errors: &mut ErrorList, path: &Path, update: &Map) {
    let (unavailable, surge) = (field(update, "maxUnavailable"), field(update, "maxSurge"));
    let unavailable_path = path.child("maxUnavailable");
    check_count_or_percent(errors, &unavailable_path, &unavailable);
    check_count_or_percent(errors, &path.child("maxSurge"), &surge);
    if amount(&unavailable) == 0 && amount(&surge) == 0 {
        errors.invalid(
            &unavailable_path,
            unavailable.clone(),
            "may not be 0 when `maxSurge` is 0",
        );
    }
    check_at_most_all(errors, &unavailable_path, &unavailable);
}

fn check_status(errors: &mut ErrorList, object: &Object) {
    let Some(status) = object.map("status") else {
        return;
    };
    let more = "cannot be greater than status.replicas";
    status_counts(
        errors,
        status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        &[
            ("updatedReplicas", "replicas", more),
            ("readyReplicas", "replicas", more),
            ("availableReplicas", "replicas", more),
            (
                "availableReplicas",
                "readyReplicas",
                "cannot be greater than readyReplicas",
            ),
        ],
    );
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Ready", "How many of its pods are ready"),
        text("Up-to-date", "The number of pods of the current template"),
        text("Available", "The number of pods that are available"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    paths: "spec.replicas spec.selector spec.template.spec.containers.name \
        spec.template.spec.containers.image status.readyReplicas \
        status.updatedReplicas status.availableReplicas",
    fill: |row| {
        row.name()
            .ratio("/status/readyReplicas", "/spec/replicas")
            .int("/status/updatedReplicas")
            .int("/status/availableReplicas")
            .age();
        let selector = labels::selector_text(row.object.at("/spec/selector"))
            .unwrap_or_else(|| "<invalid>".to_owned());
        row.containers(TEMPLATE).cell(selector);
    },
};
