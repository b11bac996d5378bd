//! Failure and success policies of jobs.

use super::indexes::count_indexes;
use crate::meta::{ErrorList, Map, Path, Value, json, names};
use crate::registry::validation::{Fields, invalid_each, invalid_unshown, not_negative};

/// Bounds of a failure policy: rules, exit codes and conditions of a rule.
const FAILURE_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
/// Bounds of a success policy: rules, and the bytes of a list of indexes.
const SUCCESS_RULES_MAX: usize = 20;
const INDEXES_MAX: usize = 64 * 1024;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];

pub fn check_failure_policy(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let rules = spec
        .map("podFailurePolicy")
        .map_or(&[][..], |policy| policy.list("rules"));
    let path = path.child("rules");
    if rules.len() > FAILURE_RULES_MAX {
        errors.too_many(&path, rules.len(), FAILURE_RULES_MAX);
    }
    let pod = spec
        .map("template")
        .and_then(|template| template.map("spec"));
    let containers = |key: &'static str| {
        pod.into_iter()
            .flat_map(move |pod| pod.list(key))
            .map(|container| container.str("name"))
    };
    let names: Vec<&str> = containers("containers")
        .chain(containers("initContainers"))
        .collect();
    for (index, rule) in rules.iter().enumerate() {
        check_failure_rule(
            errors,
            &path.index(index),
            rule,
            spec.field("backoffLimitPerIndex").is_some(),
            &names,
        );
    }
}

/// A value of an enumeration whose members are told also where it is absent.
fn listed(errors: &mut ErrorList, path: &Path, value: &str, supported: &[&str]) {
    if value.is_empty() {
        let quoted: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        errors.required(path, format!("valid values: [{}]", quoted.join(" ")));
    } else if !supported.contains(&value) {
        errors.not_supported(path, value, supported);
    }
}

fn check_failure_rule(
    errors: &mut ErrorList,
    path: &Path,
    rule: &Value,
    per_index: bool,
    containers: &[&str],
) {
    let action = rule.str("action");
    if action == "FailIndex" && !per_index {
        errors.invalid(
            &path.child("action"),
            action,
            "requires the backoffLimitPerIndex to be set",
        );
    }
    listed(errors, &path.child("action"), action, ACTIONS);
    let codes = rule.map("onExitCodes");
    let conditions = rule.list("onPodConditions");
    if let Some(codes) = codes {
        check_exit_codes(errors, &path.child("onExitCodes"), codes, containers);
    }
    if conditions.len() > CONDITIONS_MAX {
        errors.too_many(
            &path.child("onPodConditions"),
            conditions.len(),
            CONDITIONS_MAX,
        );
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let path = path.child("onPodConditions").index(index);
        let kind = pattern.str("type");
        invalid_each(
            errors,
            &path.child("type"),
            kind,
            names::qualified_name(kind),
        );
        listed(
            errors,
            &path.child("status"),
            pattern.str("status"),
            STATUSES,
        );
    }
    match (codes.is_some(), !conditions.is_empty()) {
        (true, true) => errors.push(invalid_unshown(
            path,
            "specifying both OnExitCodes and OnPodConditions is not supported",
        )),
        (false, false) => errors.push(invalid_unshown(
            path,
            "specifying one of OnExitCodes and OnPodConditions is required",
        )),
        _ => {}
    }
}

fn check_exit_codes(errors: &mut ErrorList, path: &Path, codes: &Map, containers: &[&str]) {
    let operator = codes.str("operator");
    listed(errors, &path.child("operator"), operator, OPERATORS);
    if let Some(name) = codes
        .opt_str("containerName")
        .filter(|name| !containers.contains(name))
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), name, detail);
    }
    let values = codes.list("values");
    let path = path.child("values");
    if values.is_empty() {
        let shown = codes.field("values").cloned().unwrap_or_default();
        errors.invalid(&path, shown, "at least one value is required");
    } else if values.len() > EXIT_CODES_MAX {
        errors.too_many(&path, values.len(), EXIT_CODES_MAX);
    }
    let mut seen = std::collections::BTreeSet::new();
    let numbers: Vec<i64> = values
        .iter()
        .map(|value| value.as_i64().unwrap_or(0))
        .collect();
    for (index, &code) in numbers.iter().enumerate() {
        if operator == "In" && code == 0 {
            errors.invalid(
                &path.index(index),
                code,
                "must not be 0 for the In operator",
            );
        }
        if !seen.insert(code) {
            errors.duplicate(&path.index(index), code);
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(&path, values, "must be ordered");
    }
}

pub fn check_success_policy(errors: &mut ErrorList, path: &Path, policy: &Value, completions: i64) {
    let rules = policy.list("rules");
    let path = path.child("rules");
    if rules.is_empty() {
        errors.required(
            &path,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if rules.len() > SUCCESS_RULES_MAX {
        errors.too_many(&path, rules.len(), SUCCESS_RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        check_success_rule(errors, &path.index(index), rule, completions);
    }
}

fn check_success_rule(errors: &mut ErrorList, path: &Path, rule: &Value, completions: i64) {
    let (count, indexes) = (rule.int("succeededCount"), rule.opt_str("succeededIndexes"));
    if count.is_none() && indexes.is_none() {
        errors.required(
            path,
            "at least one of succeededCount or succeededIndexes must be specified",
        );
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let path = path.child("succeededIndexes");
        if indexes.len() > INDEXES_MAX {
            errors.too_long(&path, INDEXES_MAX);
        }
        match count_indexes(indexes, completions) {
            Ok(found) => total = found,
            Err(why) => errors.invalid(
                &path,
                indexes,
                format!("error parsing succeededIndexes: {why}"),
            ),
        }
    }
    let Some(count) = count else { return };
    let path = path.child("succeededCount");
    not_negative(errors, &path, count);
    if count > completions {
        let detail = format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        );
        errors.invalid(&path, count, detail);
    }
    if indexes.is_some() && count > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&path, count, detail);
    }
}

/// A failure policy as upstream's own type prints it.
pub fn failure_policy_shown(policy: &Value) -> Value {
    let rules = policy.list("rules").iter().map(|rule| {
        let codes = rule.map("onExitCodes").map(|codes| {
            json!({"ContainerName": codes.field("containerName"), "Operator": codes.str("operator"), "Values": codes.field("values")})
        });
        let conditions = rule.list("onPodConditions").iter().map(|one| json!({"Type": one.str("type"), "Status": one.str("status")}));
        let conditions = rule.field("onPodConditions").map(|_| conditions.collect::<Vec<_>>());
        json!({"Action": rule.str("action"), "OnExitCodes": codes, "OnPodConditions": conditions})
    });
    json!({"Rules": rules.collect::<Vec<_>>()})
}

/// A success policy as upstream's own type prints it.
pub fn success_policy_shown(policy: &Value) -> Value {
    let rules = policy
        .list("rules")
        .iter()
        .map(|rule| json!({"SucceededIndexes": rule.field("succeededIndexes"), "SucceededCount": rule.field("succeededCount")}));
    json!({"Rules": rules.collect::<Vec<_>>()})
}
