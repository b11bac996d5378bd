//! ResourceQuotas: how much of what a namespace may have.

use std::collections::BTreeSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, join, text};
use crate::builtin::compute_resources::{check_quantity, check_quota_name, is_standard_quota};
use crate::builtin::defaulting::part;
use crate::builtin::quantities::{quantity, round_amounts};
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::meta::{ErrorList, Key, Map, Object, Path, Value, json};
use crate::registry::validation::{Fields, IMMUTABLE};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `resourcequotas`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "resourcequotas",
    traits: ResourceTraits {
        returns_deleted: true,
        ..WITH_STATUS
    },
    strategy: &ResourceQuotaStrategy,
    printer: &PRINTER,
};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                           ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

pub struct ResourceQuotaStrategy;

impl Strategy for ResourceQuotaStrategy {
    fn default(&self, object: &mut Object) {
        for (section, keys) in [("spec", &["hard"][..]), ("status", &["hard", "used"])] {
            if let Some(section) = part(object, section) {
                keys.iter().for_each(|key| round_amounts(section, key));
            }
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(&mut errors, object);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if ctx.subresource == Subresource::Status {
            if let Some(status) = object.map("status") {
                for key in ["hard", "used"] {
                    check_amounts(&mut errors, &Path::new("status").child(key), status, key);
                }
            }
            return errors;
        }
        check_spec(&mut errors, object);
        let scopes = |object: &Object| -> BTreeSet<String> {
            object
                .array_at("/spec/scopes")
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        if scopes(object) != scopes(old) {
            let shown = object.at("/spec/scopes").cloned().unwrap_or_default();
            errors.invalid(&Path::new("spec").child("scopes"), shown, IMMUTABLE);
        }
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let Some(hard) = object.at("/spec/hard").and_then(Value::as_object) else {
            return Vec::new();
        };
        if old.is_some() {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
            let (mut name, limit_name) =
                (format!("requests.{resource}"), format!("limits.{resource}"));
            if !hard.contains_key(&name) && matches!(resource, "cpu" | "memory") {
                name = resource.to_owned();
            }
            let (Some(request), Some(limit)) = (hard.field(&name), hard.field(&limit_name)) else {
                continue;
            };
            let (request, limit) = (quantity(request), quantity(limit));
            if request > limit {
                warnings.push(format!(
                    "ResourceQuota {name} ({request}) should be less than {limit_name} ({limit})"
                ));
            }
        }
        warnings
    }
}

fn check_amounts(errors: &mut ErrorList, path: &Path, holder: &Map, key: &str) {
    for (name, amount) in holder.entries(key) {
        let path = path.key(name);
        check_quota_name(errors, &path, name);
        check_quantity(errors, &path, name, amount);
    }
}

fn check_spec(errors: &mut ErrorList, object: &Object) {
    let Some(spec) = object.map("spec") else {
        return;
    };
    let path = Path::new("spec");
    check_amounts(errors, &path.child("hard"), spec, "hard");
    let scopes = spec.list("scopes");
    let scopes_path = path.child("scopes");
    let mut blame = |detail: &str| errors.invalid(&scopes_path, scopes, detail);
    for scope in scopes.iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            blame("unsupported scope");
        }
        for _ in unfit(spec, scope) {
            blame("unsupported scope applied to resource");
        }
    }
    for _ in conflicts(|name| scopes.iter().any(|one| one == name)) {
        blame("conflicting scopes");
    }
    if let Some(selector) = spec.map("scopeSelector") {
        check_selector(
            errors,
            &path.child("scopeSelector").child("matchExpressions"),
            spec,
            selector,
        );
    }
}

/// The resources of a quota that a scope does not go with.
fn unfit<'a>(spec: &'a Map, scope: &'a str) -> impl Iterator<Item = &'a Key> {
    let fits = move |resource: &str| {
        let compute = matches!(
            resource,
            "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
        );
        match scope {
            "Terminating"
            | "NotTerminating"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity" => resource == "pods" || compute,
            "BestEffort" => resource == "pods",
            "VolumeAttributesClass" => {
                matches!(resource, "persistentvolumeclaims" | "requests.storage")
            }
            _ => true,
        }
    };
    spec.entries("hard")
        .map(|(name, _)| name)
        .filter(move |name| is_standard_quota(name) && !fits(name))
}

/// The pairs of scopes that exclude each other and are both there.
fn conflicts(has: impl Fn(&str) -> bool) -> impl Iterator<Item = ()> {
    [
        ("BestEffort", "NotBestEffort"),
        ("Terminating", "NotTerminating"),
    ]
    .into_iter()
    .filter(move |(one, other)| has(one) && has(other))
    .map(|_| ())
}

fn check_selector(errors: &mut ErrorList, path: &Path, spec: &Map, selector: &Map) {
    let requirements = selector.list("matchExpressions");
    for requirement in requirements {
        let (scope, operator) = (requirement.str("scopeName"), requirement.str("operator"));
        let values = requirement.list("values");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in unfit(spec, scope) {
            let shown: Value = requirements
                .iter()
                .map(|one| json!({"ScopeName": one.str("scopeName"), "Operator": one.str("operator"), "Values": one.field("values")}))
                .collect();
            errors.invalid(
                path,
                json!({"MatchExpressions": shown}),
                "unsupported scope applied to resource",
            );
        }
        let exists_only = SCOPES[..4].contains(&scope) || scope == "CrossNamespacePodAffinity";
        if exists_only && operator != "Exists" {
            errors.invalid(&path.child("operator"), operator, EXISTS_ONLY);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), values, detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(
                &path.child("operator"),
                other,
                "not a valid selector operator",
            ),
        }
    }
    let scopes = spec.list("scopes");
    for _ in conflicts(|name| requirements.iter().any(|one| one.str("scopeName") == name)) {
        let shown = if scopes.is_empty() {
            Value::Null
        } else {
            scopes.into()
        };
        errors.invalid(
            &Path::new("spec")
                .child("scopeSelector")
                .child("matchExpressions"),
            shown,
            "conflicting scopes",
        );
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Request", "What is used and allowed of requests and counts"),
        text("Limit", "What is used and allowed of limits"),
        AGE,
    ],
    paths: "status.hard status.used",
    fill: |row| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        let hard = row.object.at("/status/hard").and_then(Value::as_object);
        for (resource, allowed) in hard.into_iter().flatten() {
            let used = row
                .object
                .at("/status/used")
                .and_then(|used| used.get(resource))
                .and_then(Value::as_str)
                .unwrap_or("0");
            let column = if resource.starts_with("limits.") {
                &mut limits
            } else {
                &mut requests
            };
            column.push((
                resource,
                format!("{resource}: {used}/{}", allowed.as_str().unwrap_or("0")),
            ));
        }
        let list = |mut column: Vec<(&Key, String)>| {
            column.sort_unstable();
            join(column.iter().map(|(_, text)| text.as_str()), ", ")
        };
        row.name().cell(list(requests)).cell(list(limits)).age();
    },
};
