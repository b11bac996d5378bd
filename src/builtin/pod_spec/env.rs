//! Environment variables of containers, and where their values come from.

use crate::builtin::quantities::quantity;
use crate::meta::{ErrorList, Map, Path, names};
use crate::registry::validation::{Fields, invalid_each};

/// The fields of a pod that a variable may show.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The fields of a pod that a file may show.
pub const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// The resources of a container that a variable or file may show.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// All fields of a pod that have a name at all.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "spec.host",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const SIZE_DIVISORS: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";

/// Checks the variables of a container.
pub fn check_env(errors: &mut ErrorList, path: &Path, container: &Map) {
    let variables = container.list("env");
    if variables.is_empty() {
        return;
    }
    let path = path.child("env");
    for (index, variable) in variables.iter().enumerate() {
        let name = variable.str("name");
        let problems = names::relaxed_env_var_name(name);
        if name.is_empty() {
            errors.required(&path.index(index).child("name"), "");
        } else if !problems.is_empty() {
            invalid_each(errors, &path.index(index).child("name"), name, problems);
        }
        if let Some(source) = variable.map("valueFrom") {
            check_source(
                errors,
                &path.index(index).child("valueFrom"),
                source,
                !variable.str("value").is_empty(),
            );
        }
    }
}

fn check_source(errors: &mut ErrorList, path: &Path, source: &Map, has_value: bool) {
    let mut sources = 0;
    if let Some(field) = source.map("fieldRef") {
        sources += 1;
        check_field_ref(errors, &path.child("fieldRef"), field, &VARIABLE_FIELDS);
    }
    if let Some(resource) = source.map("resourceFieldRef") {
        sources += 1;
        check_resource_ref(errors, &path.child("resourceFieldRef"), resource, false);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(selector) = source.map(key) {
            sources += 1;
            check_key_ref(errors, &path.child(key), selector);
        }
    }
    if let Some(file) = source.map("fileKeyRef") {
        sources += 1;
        check_file_ref(errors, &path.child("fileKeyRef"), file);
    }
    let problem = if sources == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if has_value {
        "may not be specified when `value` is not empty"
    } else if sources > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    errors.invalid(path, "", problem);
}

fn check_key_ref(errors: &mut ErrorList, path: &Path, selector: &Map) {
    let (name, key) = (selector.str("name"), selector.str("key"));
    invalid_each(
        errors,
        &path.child("name"),
        name,
        names::dns1123_subdomain(name),
    );
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        invalid_each(errors, &path.child("key"), key, names::config_map_key(key));
    }
}

fn check_file_ref(errors: &mut ErrorList, path: &Path, file: &Map) {
    let (key, volume, file_path) = (file.str("key"), file.str("volumeName"), file.str("path"));
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        invalid_each(
            errors,
            &path.child("key"),
            key,
            names::relaxed_env_var_name(key),
        );
    }
    if volume.is_empty() {
        errors.required(&path.child("volumeName"), "");
    } else {
        invalid_each(
            errors,
            &path.child("volumeName"),
            volume,
            names::dns1123_label(volume),
        );
    }
    if file_path.is_empty() {
        errors.required(&path.child("path"), "");
    } else {
        crate::builtin::pod_spec::paths::check_no_backsteps(errors, &path.child("path"), file_path);
    }
}

/// Splits `path['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (path, key) = path.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

/// Checks a reference to a field of the pod.
pub fn check_field_ref(errors: &mut ErrorList, path: &Path, field: &Map, allowed: &[&str]) {
    let (version, label) = (field.str("apiVersion"), field.str("fieldPath"));
    for (key, value) in [("apiVersion", version), ("fieldPath", label)] {
        if value.is_empty() {
            errors.required(&path.child(key), "");
            return;
        }
    }
    let label_path = path.child("fieldPath");
    let mut unknown = |why: String| {
        errors.invalid(
            &label_path,
            label,
            format!("error converting fieldPath: {why}"),
        )
    };
    if version != "v1" {
        unknown(format!("unsupported pod version: {version}"));
        return;
    }
    if let Some((map, key)) = subscript(label) {
        match map {
            "metadata.annotations" => invalid_each(
                errors,
                path,
                &key.to_lowercase(),
                names::qualified_name(&key.to_lowercase()),
            ),
            "metadata.labels" => invalid_each(errors, path, key, names::qualified_name(key)),
            _ => unknown(format!("field label does not support subscript: {label}")),
        }
        return;
    }
    if !KNOWN_FIELDS.contains(&label) {
        unknown(format!("field label not supported: {label}"));
        return;
    }
    let label = if label == "spec.host" {
        "spec.nodeName"
    } else {
        label
    };
    if !allowed.contains(&label) {
        errors.not_supported(&label_path, label, allowed);
    }
}

/// Checks a reference to a resource of a container. Files must name the container.
pub fn check_resource_ref(errors: &mut ErrorList, path: &Path, field: &Map, in_file: bool) {
    let resource = field.str("resource");
    let huge =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_file && field.str("containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !huge {
        errors.not_supported(&path.child("resource"), resource, &RESOURCES);
    }
    let Some(divisor) = field.field("divisor") else {
        return;
    };
    let amount = quantity(divisor);
    if amount.is_zero() {
        return;
    }
    let text = amount.to_string();
    let size_fits = SIZE_DIVISORS.split(", ").any(|one| one == text);
    let detail = match resource {
        "limits.cpu" | "requests.cpu" if text != "1m" && text != "1" => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        "limits.memory" | "requests.memory" if !size_fits => {
            format!("only divisor's values {SIZE_DIVISORS} are supported with the memory resource")
        }
        "limits.ephemeral-storage" | "requests.ephemeral-storage" if !size_fits => {
            format!(
                "only divisor's values {SIZE_DIVISORS} are supported with the local ephemeral storage resource"
            )
        }
        _ if huge && !size_fits => format!(
            "only divisor's values {SIZE_DIVISORS} are supported with the hugepages resource"
        ),
        _ => return,
    };
    errors.invalid(&path.child("divisor"), resource, detail);
}

/// Checks the sources of whole sets of variables.
pub fn check_env_from(errors: &mut ErrorList, path: &Path, container: &Map) {
    let sources = container.list("envFrom");
    if sources.is_empty() {
        return;
    }
    let path = path.child("envFrom");
    for (index, source) in sources.iter().enumerate() {
        let item = path.index(index);
        let prefix = source.str("prefix");
        if !prefix.is_empty() {
            invalid_each(
                errors,
                &item.child("prefix"),
                prefix,
                names::relaxed_env_var_name(prefix),
            );
        }
        let mut given = 0;
        for key in ["configMapRef", "secretRef"] {
            let Some(reference) = source.map(key) else {
                continue;
            };
            given += 1;
            let (path, name) = (item.child(key).child("name"), reference.str("name"));
            if name.is_empty() {
                errors.required(&path, "");
            } else {
                let problems = crate::registry::validation::name_problems(
                    crate::registry::NameRule::DnsSubdomain,
                    name,
                    true,
                );
                invalid_each(errors, &path, name, problems);
            }
        }
        match given {
            0 => errors.invalid(
                &path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(
                &path,
                "",
                "may not have more than one field specified at a time",
            ),
        }
    }
}
