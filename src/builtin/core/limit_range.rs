//! LimitRanges: the least, the most and the default of what one thing may use.

use std::collections::BTreeSet;

use crate::builtin::columns::DefaultPrinter;
use crate::builtin::compute_resources::{
    allows_overcommit, check_container_name, check_name, shown,
};
use crate::builtin::defaulting::{part, part_or_new, parts};
use crate::builtin::quantities::{quantity, round_amounts};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Map, Object, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each};
use crate::registry::{Context, Strategy};

/// The entry of `limitranges`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "limitranges",
    traits: ResourceTraits {
        create_on_update: true,
        ..DEFAULT
    },
    strategy: &LimitRangeStrategy,
    printer: &DefaultPrinter,
};

pub struct LimitRangeStrategy;

impl Strategy for LimitRangeStrategy {
    fn default(&self, object: &mut Object) {
        let Some(spec) = part(object, "spec") else {
            return;
        };
        for limit in parts(spec, "limits") {
            for key in [
                "max",
                "min",
                "default",
                "defaultRequest",
                "maxLimitRequestRatio",
            ] {
                round_amounts(limit, key);
            }
            if limit.str("type") != "Container" {
                continue;
            }
            fill_missing(limit, "default", "max");
            fill_missing(limit, "defaultRequest", "default");
            fill_missing(limit, "defaultRequest", "min");
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut seen = BTreeSet::new();
        for (index, limit) in object.array_at("/spec/limits").iter().enumerate() {
            let Some(limit) = limit.as_object() else {
                continue;
            };
            let path = Path::new("spec").child("limits").index(index);
            let kind = limit.str("type");
            let before = errors.len();
            invalid_each(
                &mut errors,
                &path.child("type"),
                kind,
                names::qualified_name(kind),
            );
            let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
            if errors.len() == before && !kind.contains('/') && !standard {
                errors.invalid(
                    &path.child("type"),
                    kind,
                    "must be a standard limit type or fully qualified",
                );
            }
            if !seen.insert(kind) {
                errors.duplicate(&path.child("type"), kind);
            }
            check_limit(&mut errors, &path, limit);
        }
        errors
    }
}

/// Amounts of one map become those of another where it has none.
fn fill_missing(limit: &mut Map, key: &'static str, from: &str) {
    let amounts = limit.map(from).cloned().unwrap_or_default();
    if amounts.is_empty() {
        return;
    }
    let target = part_or_new(limit, key);
    for (name, amount) in amounts {
        target.entry(name).or_insert(amount);
    }
}

fn check_limit(errors: &mut ErrorList, path: &Path, limit: &Map) {
    let kind = limit.str("type");
    let of_container = matches!(kind, "Pod" | "Container");
    let mut names = BTreeSet::new();
    let mut check_names = |errors: &mut ErrorList, key: &str| {
        for (name, _) in limit.entries(key) {
            let path = path.child(key).key(name);
            if of_container {
                check_container_name(errors, &path, name);
            } else {
                check_name(errors, &path, name);
            }
            names.insert(name.clone());
        }
    };
    check_names(errors, "max");
    check_names(errors, "min");
    for key in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check_names(errors, key);
        } else if limit.map(key).is_some_and(|amounts| !amounts.is_empty()) {
            errors.forbidden(
                &path.child(key),
                "may not be specified when `type` is 'Pod'",
            );
        }
    }
    let has_storage = |key: &str| {
        limit
            .map(key)
            .is_some_and(|amounts| amounts.contains_key("storage"))
    };
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let detail =
            "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    check_names(errors, "maxLimitRequestRatio");
    for name in names {
        check_amounts(errors, path, limit, &name, kind == "Pod");
    }
}

/// Compares the amounts of one resource with one another.
fn check_amounts(errors: &mut ErrorList, path: &Path, limit: &Map, name: &str, of_pod: bool) {
    let amount = |key: &str| limit.map(key).and_then(|amounts| amounts.field(name));
    let (min, max, ratio) = (amount("min"), amount("max"), amount("maxLimitRequestRatio"));
    let (default, request) = if of_pod {
        (None, None)
    } else {
        (amount("default"), amount("defaultRequest"))
    };
    let more = |one: Option<&Value>, other: Option<&Value>| match (one, other) {
        (Some(one), Some(other)) => quantity(one) > quantity(other),
        _ => false,
    };
    let mut blame = |key: &str, value: Option<&Value>, detail: String| {
        errors.invalid(
            &path.child(key).key(name),
            value.map_or(Value::Null, shown),
            detail,
        );
    };
    let text = |value: Option<&Value>| value.map(quantity).unwrap_or_default().to_string();
    let (lower, upper) = ((min, "min"), (max, "max"));
    let (request_named, default_named) = ((request, "default request"), (default, "default"));
    for (key, value, (one, one_name), (other, other_name)) in [
        ("min", min, lower, upper),
        ("defaultRequest", request, lower, request_named),
        ("defaultRequest", request, request_named, upper),
        (
            "defaultRequest",
            request,
            request_named,
            (default, "default limit"),
        ),
        ("default", min, lower, default_named),
        ("default", max, default_named, upper),
    ] {
        if more(one, other) {
            let (one, other) = (text(one), text(other));
            let detail =
                format!("{one_name} value {one} is greater than {other_name} value {other}");
            blame(key, value, detail);
        }
    }
    if let Some(value) = ratio {
        let number = quantity(value);
        if number.milli_value() < 1000 {
            blame(
                "maxLimitRequestRatio",
                ratio,
                format!("ratio {number} is less than 1"),
            );
        }
        if let (Some(min), Some(max)) = (min, max) {
            let bound = quantity(max).milli_value() as f64 / quantity(min).milli_value() as f64;
            if number.milli_value() as f64 / 1000.0 > bound {
                blame(
                    "maxLimitRequestRatio",
                    ratio,
                    format!("ratio {number} is greater than max/min = {bound:.6}"),
                );
            }
        }
    }
    if let (Some(one), Some(other), false) = (default, request, allows_overcommit(name))
        && quantity(one) != quantity(other)
    {
        let detail = format!(
            "default value {} must equal to defaultRequest value {} in {name}",
            text(default),
            text(request)
        );
        blame("defaultRequest", request, detail);
    }
}
