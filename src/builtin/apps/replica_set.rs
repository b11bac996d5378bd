//! ReplicaSets.

use crate::builtin::columns::{
    AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, SELECTOR, TEMPLATE, integer,
};
use crate::builtin::defaulting::{fill, part_or_new};
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::{check_selected_template, replica_warnings, status_counts};
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::{Fields, immutable_field, not_negative_field};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `replicasets`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "replicasets",
    traits: ResourceTraits {
        pod_spec: Some("/spec/template/spec"),
        ..WORKLOAD
    },
    strategy: &ReplicaSetStrategy,
    printer: &PRINTER,
};

pub struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill(spec, "replicas", 1);
        default_template(part_or_new(spec, "template"));
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(&mut errors, ctx, object, None);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if ctx.subresource == Subresource::Status {
            check_status(&mut errors, object);
            return errors;
        }
        check_spec(&mut errors, ctx, object, Some(old));
        immutable_field(
            &mut errors,
            &Path::new("spec"),
            "selector",
            object.section("spec"),
            old.section("spec"),
        );
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
    not_negative_field(errors, &path, "minReadySeconds", spec);
    check_selected_template(errors, ctx, spec, old);
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
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
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
        row.containers(TEMPLATE).selector("/spec/selector");
    },
};
