//! Affinity to nodes and to other pods.

use std::collections::{HashMap, HashSet};

use super::validation_options::PodValidationOptions;
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, SelectorOptions, invalid_each, validate_label_selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks all kinds of affinity.
pub fn check_affinity(
    errors: &mut ErrorList,
    path: &Path,
    affinity: &Map,
    options: &PodValidationOptions,
) {
    if let Some(nodes) = affinity.map("nodeAffinity") {
        let path = path.child("nodeAffinity");
        if let Some(selector) = nodes.map(REQUIRED) {
            check_node_selector(
                errors,
                &path.child(REQUIRED),
                selector,
                options.allow_invalid_node_labels,
            );
        }
        for (index, preferred) in nodes.list(PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(index);
            check_weight(errors, &path, preferred);
            if let Some(term) = preferred.map("preference") {
                check_node_term(errors, &path.child("preference"), term, true);
            }
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.map(kind) else {
            continue;
        };
        let path = path.child(kind);
        for (index, term) in pods.list(REQUIRED).iter().enumerate() {
            check_pod_term(errors, &path.child(REQUIRED).index(index), term, options);
        }
        for (index, preferred) in pods.list(PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(index);
            check_weight(errors, &path, preferred);
            let absent = Value::Null;
            check_pod_term(
                errors,
                &path.child("podAffinityTerm"),
                preferred.field("podAffinityTerm").unwrap_or(&absent),
                options,
            );
        }
    }
}

fn check_weight(errors: &mut ErrorList, path: &Path, preferred: &Value) {
    let weight = preferred.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

/// Checks a selector of nodes: at least one term. `lenient` lets values be anything.
pub fn check_node_selector(errors: &mut ErrorList, path: &Path, selector: &Map, lenient: bool) {
    let terms = selector.list("nodeSelectorTerms");
    let path = path.child("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        if let Some(term) = term.as_object() {
            check_node_term(errors, &path.index(index), term, lenient);
        }
    }
}

fn check_node_term(errors: &mut ErrorList, path: &Path, term: &Map, lenient: bool) {
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        check_node_requirement(
            errors,
            &path.child("matchExpressions").index(index),
            requirement,
            lenient,
        );
    }
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        check_node_field(errors, &path.child("matchFields").index(index), requirement);
    }
}

fn check_node_requirement(errors: &mut ErrorList, path: &Path, requirement: &Value, lenient: bool) {
    let values = requirement.list("values");
    let values_path = || path.child("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(
                &values_path(),
                "must be specified when `operator` is 'In' or 'NotIn'",
            );
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(
                &values_path(),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(
                &values_path(),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = requirement.str("key");
    invalid_each(errors, &path.child("key"), key, names::qualified_name(key));
    if lenient {
        return;
    }
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_each(
            errors,
            &values_path().index(index),
            value,
            names::label_value(value),
        );
    }
}

/// Nodes can be told apart by one field, their name.
fn check_node_field(errors: &mut ErrorList, path: &Path, requirement: &Value) {
    let values = requirement.list("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail =
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.child("values"), detail);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = requirement.str("key");
    if key != "metadata.name" {
        errors.invalid(&path.child("key"), key, "not a valid field selector key");
        return;
    }
    for (index, name) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_each(
            errors,
            &path.child("values").index(index),
            name,
            names::dns1123_subdomain(name),
        );
    }
}

fn check_pod_term(
    errors: &mut ErrorList,
    path: &Path,
    term: &Value,
    options: &PodValidationOptions,
) {
    let selector_options = SelectorOptions {
        allow_invalid_values: options.allow_invalid_selector_values,
    };
    validate_label_selector(
        errors,
        &path.child("labelSelector"),
        term.map("labelSelector"),
        selector_options,
    );
    validate_label_selector(
        errors,
        &path.child("namespaceSelector"),
        term.map("namespaceSelector"),
        selector_options,
    );
    for namespace in term.list("namespaces").iter().filter_map(Value::as_str) {
        invalid_each(
            errors,
            &path.child("namespace"),
            namespace,
            names::dns1123_label(namespace),
        );
    }
    check_label_keys(
        errors,
        path,
        term.list("matchLabelKeys"),
        term.list("mismatchLabelKeys"),
        term.map("labelSelector"),
    );
    let topology = term.str("topologyKey");
    if topology.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    invalid_each(
        errors,
        &path.child("topologyKey"),
        topology,
        names::qualified_name(topology),
    );
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys`, after the server has merged them into the
/// selector: a key that the selector had before is then there twice.
pub fn check_label_keys(
    errors: &mut ErrorList,
    path: &Path,
    matching: &[Value],
    mismatching: &[Value],
    selector: Option<&Map>,
) {
    for (key, keys) in [
        ("matchLabelKeys", matching),
        ("mismatchLabelKeys", mismatching),
    ] {
        if keys.is_empty() {
            continue;
        }
        let path = path.child(key);
        if selector.is_none() {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            invalid_each(errors, &path.index(index), key, names::qualified_name(key));
        }
    }
    if let Some(selector) = selector {
        let last: HashMap<&str, usize> = matching
            .iter()
            .enumerate()
            .filter_map(|(index, one)| Some((one.as_str()?, index)))
            .collect();
        let mut seen: HashSet<&str> = selector
            .entries("matchLabels")
            .map(|(key, _)| key.as_str())
            .collect();
        for requirement in selector.list("matchExpressions") {
            let key = requirement.str("key");
            if let (Some(index), true) = (last.get(key).copied(), seen.contains(key)) {
                errors.invalid(
                    &path.index(index),
                    key,
                    "exists in both matchLabelKeys and labelSelector",
                );
            }
            seen.insert(key);
        }
    }
    let excluded: HashSet<Option<&str>> = mismatching.iter().map(Value::as_str).collect();
    for (index, key) in matching
        .iter()
        .enumerate()
        .filter(|(_, key)| excluded.contains(&key.as_str()))
    {
        let path = path.child("matchLabelKeys").index(index);
        errors.invalid(
            &path,
            key.clone(),
            "exists in both matchLabelKeys and mismatchLabelKeys",
        );
    }
}
