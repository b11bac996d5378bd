//! Scheduling beside affinity: tolerations, spread over a topology, gates.

use std::collections::HashSet;

use super::affinity::check_label_keys;
use super::validation_options::PodValidationOptions;
use crate::meta::{ErrorList, FieldError, Map, Path, Value, names};
use crate::registry::validation::{Fields, SelectorOptions, invalid_each, validate_label_selector};

/// The effects of taints, in the order that errors list them.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const INCLUSIONS: [&str; 2] = ["Honor", "Ignore"];

/// Checks tolerations.
pub fn check_tolerations(errors: &mut ErrorList, path: &Path, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let item = || path.index(index);
        let (key, operator) = (toleration.str("key"), toleration.str("operator"));
        let (value, effect) = (toleration.str("value"), toleration.str("effect"));
        if !key.is_empty() {
            let problems = names::qualified_name(key);
            if !problems.is_empty() {
                invalid_each(errors, &item().child("key"), key, problems);
            }
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&item().child("operator"), operator, detail);
        }
        if toleration.field("tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&item().child("effect"), effect, detail);
        }
        match operator {
            "" | "Equal" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    errors.invalid(&item().child("operator"), value, problems.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.invalid(&item().child("operator"), value, detail);
            }
            "Exists" => {}
            // Behind a gate that is closed, but named.
            "Lt" | "Gt" => {
                errors.not_supported(
                    &item().child("operator"),
                    operator,
                    &["Equal", "Exists", "Lt", "Gt"],
                );
            }
            other => errors.not_supported(&item().child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.not_supported(&item().child("effect"), effect, &EFFECTS);
        }
    }
}

/// Checks the constraints by which pods spread.
pub fn check_spread(
    errors: &mut ErrorList,
    path: &Path,
    constraints: &[Value],
    options: &PodValidationOptions,
) {
    for (index, constraint) in constraints.iter().enumerate() {
        let following = &constraints[index + 1..];
        check_spread_constraint(errors, &path.index(index), constraint, following, options);
    }
}

fn check_spread_constraint(
    errors: &mut ErrorList,
    path: &Path,
    constraint: &Value,
    following: &[Value],
    options: &PodValidationOptions,
) {
    let skew = constraint.int("maxSkew").unwrap_or(0);
    if skew <= 0 {
        errors.invalid(&path.child("maxSkew"), skew, "must be greater than zero");
    }
    let (topology, action) = (
        constraint.str("topologyKey"),
        constraint.str("whenUnsatisfiable"),
    );
    if topology.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    if !ACTIONS.contains(&action) {
        errors.not_supported(&path.child("whenUnsatisfiable"), action, &ACTIONS);
    }
    let repeats = |other: &&Value| {
        other.str("topologyKey") == topology && other.str("whenUnsatisfiable") == action
    };
    if following.iter().find(repeats).is_some() {
        let path = path.child("{topologyKey, whenUnsatisfiable}");
        errors.duplicate(&path, format!("{{{topology}, {action}}}"));
    }
    check_min_domains(errors, &path.child("minDomains"), constraint);
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        if let Some(policy) = constraint
            .opt_str(key)
            .filter(|policy| !INCLUSIONS.contains(policy))
        {
            errors.not_supported(&path.child(key), policy, &INCLUSIONS);
        }
    }
    let selector = constraint.map("labelSelector");
    check_label_keys(
        errors,
        path,
        constraint.list("matchLabelKeys"),
        &[],
        selector,
    );
    if !options.allow_invalid_spread_selector {
        validate_label_selector(
            errors,
            &path.child("labelSelector"),
            selector,
            SelectorOptions::default(),
        );
    }
}

fn check_min_domains(errors: &mut ErrorList, path: &Path, constraint: &Value) {
    let action = constraint.str("whenUnsatisfiable");
    if let Some(domains) = constraint.int("minDomains") {
        if domains <= 0 {
            errors.invalid(path, domains, "must be greater than zero");
        }
        if action != "DoNotSchedule" {
            let detail =
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.invalid(path, domains, detail);
        }
    }
}

/// Checks the gates that hold a pod back: qualified names, each once.
pub fn check_gates(errors: &mut ErrorList, path: &Path, gates: &[Value]) {
    let mut seen = HashSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let name = gate.str("name");
        invalid_each(
            errors,
            &path.index(index),
            name,
            names::qualified_name(name),
        );
        if !seen.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

/// Checks the resource claims of a pod, and answers nothing: their names are what containers refer
/// to.
pub fn check_resource_claims(errors: &mut ErrorList, path: &Path, claims: &[Value], mirror: bool) {
    let mut seen = HashSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        if mirror {
            let mut error = FieldError::forbidden(
                &Path::default(),
                "static pods do not support resource claims",
            );
            error.field = "[]".to_owned();
            errors.push(error);
            continue;
        }
        let name = claim.str("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        } else {
            invalid_each(
                errors,
                &path.child("name"),
                name,
                names::dns1123_label(name),
            );
        }
        let given =
            ["resourceClaimName", "resourceClaimTemplateName"].map(|key| claim.opt_str(key));
        let detail = match given {
            [Some(_), Some(_)] => Some(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            [None, None] => {
                Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
            }
            _ => None,
        };
        if let Some(detail) = detail {
            let empty = Map::new();
            let shown = crate::builtin::internal_types::json(
                "PodResourceClaim",
                claim.as_object().unwrap_or(&empty),
            );
            errors.invalid(&path, shown, detail);
        }
        for (key, name) in ["resourceClaimName", "resourceClaimTemplateName"]
            .into_iter()
            .zip(given)
        {
            if let Some(name) = name {
                invalid_each(
                    errors,
                    &path.child(key),
                    name,
                    names::dns1123_subdomain(name),
                );
            }
        }
    }
}
