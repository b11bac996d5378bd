//! DaemonSets, with the generation of their template in an annotation.

use crate::builtin::columns::{
    AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, SELECTOR, TEMPLATE, integer, text,
};
use crate::builtin::defaulting::{fill, fill_text, part_or_new};
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::pod_spec::template::{template_warnings, validate_template};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::rollout::{amount, check_at_most_all, check_count_or_percent, field};
use crate::builtin::workload::{
    check_runs_forever, collisions_only_grow, is_empty_selector, status_counts,
};
use crate::meta::{ErrorList, Map, Object, Path, Value, json};
use crate::registry::validation::{
    Fields, SelectorOptions, immutable_field, label_selector_matches, not_negative,
    not_negative_field, same, validate_label_selector,
};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `daemonsets`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "daemonsets",
    traits: ResourceTraits {
        pod_spec: Some("/spec/template/spec"),
        ..WORKLOAD
    },
    strategy: &DaemonSetStrategy,
    printer: &PRINTER,
};

/// The annotation in which the API shows a field that apps/v1 no longer has.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        let strategy = part_or_new(spec, "updateStrategy");
        fill_text(strategy, "type", "RollingUpdate");
        if strategy.str("type") == "RollingUpdate" {
            let update = part_or_new(strategy, "rollingUpdate");
            fill(update, "maxUnavailable", 1);
            fill(update, "maxSurge", 0);
        }
        fill(spec, "revisionHistoryLimit", 10);
        default_template(part_or_new(spec, "template"));
        if object
            .annotations()
            .is_none_or(|annotations| annotations.opt_str(TEMPLATE_GENERATION).is_none())
        {
            set_template_generation(object, 0);
        }
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        let given = template_generation(object);
        set_template_generation(object, given.max(1));
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        let changed = ctx.subresource == Subresource::Main
            && !same(object.at("/spec/template"), old.at("/spec/template"));
        set_template_generation(object, template_generation(old) + i64::from(changed));
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
            collisions_only_grow(&mut errors, object, old);
            return errors;
        }
        immutable_field(
            &mut errors,
            &Path::new("spec"),
            "selector",
            object.section("spec"),
            old.section("spec"),
        );
        check_spec(&mut errors, ctx, object, Some(old));
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        if old.is_some_and(|old| template_generation(old) == template_generation(object)) {
            return Vec::new();
        }
        template_warnings(
            &Path::new("spec").child("template"),
            object.at("/spec/template"),
        )
    }
}

fn template_generation(object: &Object) -> i64 {
    object
        .annotations()
        .and_then(|annotations| annotations.str(TEMPLATE_GENERATION).parse().ok())
        .unwrap_or(0)
}

fn set_template_generation(object: &mut Object, generation: i64) {
    let annotations = part_or_new(object.metadata_mut(), "annotations");
    annotations.insert(
        TEMPLATE_GENERATION.to_owned(),
        generation.to_string().into(),
    );
}

fn check_spec(errors: &mut ErrorList, ctx: &Context, object: &Object, old: Option<&Object>) {
    let spec = object.section("spec");
    let template = spec.section("template");
    let path = Path::new("spec");
    let options = PodValidationOptions::of_templates(
        ctx,
        spec.field("template"),
        old.and_then(|old| old.at("/spec/template")),
    );
    let selector = spec.map("selector");
    let selector_options = SelectorOptions {
        allow_invalid_values: options.allow_invalid_selector_values,
    };
    let before = errors.len();
    validate_label_selector(errors, &path.child("selector"), selector, selector_options);
    let labels = template
        .map("metadata")
        .and_then(|metadata| metadata.map("labels"));
    if errors.len() == before && !label_selector_matches(selector, labels) {
        let shown = labels
            .filter(|labels| !labels.is_empty())
            .map_or(Value::Null, |labels| Value::Object(labels.clone()));
        let path = path.child("template").child("metadata").child("labels");
        errors.invalid(&path, shown, "`selector` does not match template `labels`");
    }
    if let Some(selector) = selector.filter(|selector| is_empty_selector(selector)) {
        errors.invalid(
            &path.child("selector"),
            selector.clone(),
            "empty selector is invalid for daemonset",
        );
    }
    validate_template(errors, &path.child("template"), template, &options);
    check_runs_forever(errors, &path.child("template"), template, "DaemonSet");
    not_negative_field(errors, &path, "minReadySeconds", spec);
    not_negative(
        errors,
        &path.child("templateGeneration"),
        template_generation(object),
    );
    check_strategy(
        errors,
        &path.child("updateStrategy"),
        spec.section("updateStrategy"),
    );
    not_negative_field(errors, &path, "revisionHistoryLimit", spec);
}

fn check_strategy(errors: &mut ErrorList, path: &Path, strategy: &Map) {
    let update = strategy.map("rollingUpdate");
    match (strategy.str("type"), update) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.required(&path.child("rollingUpdate"), ""),
        ("RollingUpdate", Some(update)) => {
            check_rolling_update(errors, &path.child("rollingUpdate"), update)
        }
        (other, update) => {
            let update =
                update.map(|update| json!({"MaxUnavailable": field(update, "maxUnavailable"), "MaxSurge": field(update, "maxSurge")}));
            let shown = json!({"Type": other, "RollingUpdate": update});
            errors.not_supported(path, shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn check_rolling_update(errors: &mut ErrorList, path: &Path, update: &Map) {
    let (unavailable, surge) = (field(update, "maxUnavailable"), field(update, "maxSurge"));
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    check_count_or_percent(errors, &unavailable_path, &unavailable);
    check_count_or_percent(errors, &surge_path, &surge);
    check_at_most_all(errors, &unavailable_path, &unavailable);
    check_at_most_all(errors, &surge_path, &surge);
    match (amount(&unavailable) != 0, amount(&surge) != 0) {
        (true, true) => errors.invalid(
            &surge_path,
            surge,
            "may not be set when maxUnavailable is non-zero",
        ),
        (false, false) => errors.required(&unavailable_path, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

fn check_status(errors: &mut ErrorList, object: &Object) {
    let Some(status) = object.map("status") else {
        return;
    };
    status_counts(
        errors,
        status,
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        &[],
    );
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        integer("Desired", "The number of nodes that should run its pod"),
        integer("Current", "The number of those nodes that run it"),
        integer("Ready", "The number of nodes on which it is ready"),
        integer(
            "Up-to-date",
            "The number of nodes that run the current template",
        ),
        integer("Available", "The number of nodes on which it is available"),
        text("Node Selector", "The labels of the nodes that are meant"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    paths: "spec.selector spec.template.spec.nodeSelector \
        spec.template.spec.containers.name spec.template.spec.containers.image \
        status.desiredNumberScheduled status.currentNumberScheduled status.numberReady \
        status.updatedNumberScheduled status.numberAvailable",
    fill: |row| {
        row.name()
            .int("/status/desiredNumberScheduled")
            .int("/status/currentNumberScheduled")
            .int("/status/numberReady");
        row.int("/status/updatedNumberScheduled")
            .int("/status/numberAvailable")
            .labels("/spec/template/spec/nodeSelector")
            .age();
        row.containers(TEMPLATE).selector("/spec/selector");
    },
};
