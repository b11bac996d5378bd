//! policy: PodDisruptionBudgets (`pkg/apis/policy/validation`).

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, integer, text};
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::rollout::{check_at_most_all, check_count_or_percent};
use crate::meta::{ErrorList, Object, Path, Value, json};
use crate::registry::validation::{
    Fields, SelectorOptions, not_negative, one_of, validate_conditions, validate_label_selector,
};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `poddisruptionbudgets`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "poddisruptionbudgets",
    traits: ResourceTraits {
        meta_checks: MetaChecks::None,
        status_meta_checks: MetaChecks::None,
        any_finalizer: true,
        unconditional_update: false,
        ..WORKLOAD
    },
    strategy: &PodDisruptionBudgetStrategy,
    printer: &PRINTER,
};

pub struct PodDisruptionBudgetStrategy;

impl Strategy for PodDisruptionBudgetStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check_spec(object, SelectorOptions::default())
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Status {
            return check_status(object);
        }
        let mut before = ErrorList::new();
        let selector = old.at("/spec/selector").and_then(|one| one.as_object());
        validate_label_selector(
            &mut before,
            &Path::default(),
            selector,
            SelectorOptions::default(),
        );
        check_spec(
            object,
            SelectorOptions {
                allow_invalid_values: !before.is_empty(),
            },
        )
    }
}

fn check_spec(object: &Object, options: SelectorOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(spec) = object.map("spec") else {
        return errors;
    };
    let path = Path::new("spec");
    if let (Some(min), Some(max)) = (spec.field("minAvailable"), spec.field("maxUnavailable")) {
        let shown = json!({
            "MinAvailable": min,
            "Selector": spec.field("selector"),
            "MaxUnavailable": max,
            "UnhealthyPodEvictionPolicy": spec.field("unhealthyPodEvictionPolicy"),
        });
        errors.invalid(
            &path,
            shown,
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = spec.field(key) {
            check_count_or_percent(&mut errors, &path.child(key), value);
            check_at_most_all(&mut errors, &path.child(key), value);
        }
    }
    validate_label_selector(
        &mut errors,
        &path.child("selector"),
        spec.map("selector"),
        options,
    );
    if let Some(policy) = spec.opt_str("unhealthyPodEvictionPolicy") {
        one_of(
            &mut errors,
            &path.child("unhealthyPodEvictionPolicy"),
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        );
    }
    errors
}

fn check_status(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(status) = object.map("status") else {
        return errors;
    };
    let path = Path::new("status");
    validate_conditions(
        &mut errors,
        &path.child("conditions"),
        status.list("conditions"),
    );
    for key in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        not_negative(&mut errors, &path.child(key), status.int(key).unwrap_or(0));
    }
    errors
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text(
            "Min Available",
            "The number or share of pods that must stay",
        ),
        text(
            "Max Unavailable",
            "The number or share of pods that may be missing",
        ),
        integer(
            "Allowed Disruptions",
            "The number of pods that may be evicted now",
        ),
        AGE,
    ],
    paths: "spec.minAvailable spec.maxUnavailable status.disruptionsAllowed",
    fill: |row| {
        let object = row.object;
        let limit = |path| match object.at(path) {
            Some(Value::String(share)) => share.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => "N/A".to_owned(),
        };
        row.name()
            .cell(limit("/spec/minAvailable"))
            .cell(limit("/spec/maxUnavailable"))
            .int("/status/disruptionsAllowed")
            .age();
    },
};
