//! The spec of a PersistentVolumeClaim, which claims, StatefulSets and ephemeral volumes have.

use crate::builtin::compute_resources::{check_positive, check_quantity};
use crate::builtin::defaulting::{fill, fill_text, part_or_new};
use crate::builtin::quantities::{fraction, fraction_warning, round_amounts, round_requirements};
use crate::meta::{ErrorList, Map, Path, Value, json, names};
use crate::registry::validation::{Fields, SelectorOptions, invalid_each, validate_label_selector};

pub const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
pub const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Warns of parts of bytes in the spec of a claim, of an object or of a template.
pub fn claim_warnings(warnings: &mut Vec<String>, path: &Path, spec: &Map) {
    let Some(resources) = spec.map("resources") else {
        return;
    };
    for key in ["requests", "limits"] {
        if let Some(text) = resources
            .map(key)
            .and_then(|amounts| amounts.get("storage"))
            .and_then(fraction)
        {
            warnings.push(fraction_warning(
                &path.child("resources").child(key).key("storage"),
                &text,
            ));
        }
    }
}

/// Defaults of a claim: of the object itself and of templates of it.
pub fn default_claim(claim: &mut Map) {
    let status = part_or_new(claim, "status");
    fill_text(status, "phase", "Pending");
    round_amounts(status, "capacity");
    round_amounts(status, "allocatedResources");
    let spec = part_or_new(claim, "spec");
    fill(spec, "volumeMode", "Filesystem");
    round_requirements(spec, "resources");
}

/// Checks the spec of a claim, of an object or of a template.
pub fn validate_claim_spec(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        errors.required(
            &path.child("accessModes"),
            "at least 1 access mode is required",
        );
    }
    validate_label_selector(
        errors,
        &path.child("selector"),
        spec.map("selector"),
        SelectorOptions::default(),
    );
    check_access_modes(errors, &path.child("accessModes"), modes);
    let storage_path = path.child("resources").key("storage");
    match spec
        .map("resources")
        .and_then(|resources| resources.map("requests"))
        .and_then(|requests| requests.field("storage"))
    {
        None => errors.required(&storage_path, ""),
        Some(amount) => {
            let before = errors.len();
            check_positive(errors, &storage_path, amount);
            if errors.len() == before {
                check_quantity(errors, &storage_path, "storage", amount);
            }
        }
    }
    check_class(errors, path, spec, "storageClassName");
    if let Some(mode) = spec.opt_str("volumeMode")
        && !VOLUME_MODES.contains(&mode)
    {
        errors.not_supported(&path.child("volumeMode"), mode, &VOLUME_MODES);
    }
    check_sources(errors, path, spec);
    check_class(errors, path, spec, "volumeAttributesClassName");
}

/// Each access mode must exist, and ReadWriteOncePod stands alone.
pub fn check_access_modes(errors: &mut ErrorList, path: &Path, modes: &[Value]) {
    for mode in modes.iter().filter_map(Value::as_str) {
        if !ACCESS_MODES.contains(&mode) {
            errors.not_supported(path, mode, &ACCESS_MODES);
        }
    }
    let has = |wanted: fn(&str) -> bool| modes.iter().filter_map(Value::as_str).any(wanted);
    if has(|mode| mode == "ReadWriteOncePod")
        && has(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode))
    {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn check_class(errors: &mut ErrorList, path: &Path, spec: &Map, key: &str) {
    let class = spec.str(key);
    if !class.is_empty() {
        invalid_each(
            errors,
            &path.child(key),
            class,
            names::dns1123_subdomain(class),
        );
    }
}

fn check_sources(errors: &mut ErrorList, path: &Path, spec: &Map) {
    for key in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.map(key) else {
            continue;
        };
        let path = path.child(key);
        for required in ["name", "kind"] {
            if source.str(required).is_empty() {
                errors.required(&path.child(required), "");
            }
        }
        let (group, kind) = (source.str("apiGroup"), source.str("kind"));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(&path, kind, detail);
        }
        if !group.is_empty() {
            invalid_each(
                errors,
                &path.child("apiGroup"),
                group,
                names::dns1123_subdomain(group),
            );
        }
        let namespace = source.str("namespace");
        if key == "dataSourceRef" && !namespace.is_empty() {
            invalid_each(
                errors,
                &path.child("namespace"),
                namespace,
                names::dns1123_label(namespace),
            );
        }
    }
    let (Some(source), Some(reference)) = (spec.map("dataSource"), spec.map("dataSourceRef"))
    else {
        return;
    };
    if !reference.str("namespace").is_empty() {
        errors.invalid(
            path,
            json!({}),
            "may not be specified when dataSourceRef.namespace is specified",
        );
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|key| source.field(key) != reference.field(key))
    {
        errors.invalid(path, json!({}), "must match dataSourceRef");
    }
}
