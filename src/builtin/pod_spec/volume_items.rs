//! Files of a volume: keys, paths, modes and fields of the downward API.

use super::env::{FILE_FIELDS, check_field_ref, check_resource_ref};
use super::paths::check_not_reserved;
use crate::meta::{ErrorList, Map, Path, Value};
use crate::registry::validation::Fields;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Refuses an absent string.
pub fn required(errors: &mut ErrorList, path: &Path, source: &Map, key: &str) {
    if source.str(key).is_empty() {
        errors.required(&path.child(key), "");
    }
}

/// Permission bits, at most rwxrwxrwx.
pub fn check_mode(errors: &mut ErrorList, path: &Path, mode: Option<i64>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(path, mode, FILE_MODE);
    }
}

/// A Secret or ConfigMap whose keys become files.
pub fn check_files(errors: &mut ErrorList, path: &Path, source: &Map, name_key: &str) {
    required(errors, path, source, name_key);
    check_mode(
        errors,
        &path.child("defaultMode"),
        source.int("defaultMode"),
    );
    for (index, item) in source.list("items").iter().enumerate() {
        check_key_to_path(errors, &path.child("items").index(index), item);
    }
}

/// A key and the file that it becomes.
pub fn check_key_to_path(errors: &mut ErrorList, path: &Path, item: &Value) {
    for key in ["key", "path"] {
        if item.str(key).is_empty() {
            errors.required(&path.child(key), "");
        }
    }
    check_not_reserved(errors, &path.child("path"), item.str("path"));
    check_mode(errors, &path.child("mode"), item.int("mode"));
}

/// A file that shows a field of the pod or a resource of a container.
pub fn check_downward_file(errors: &mut ErrorList, path: &Path, file: &Value) {
    if file.str("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    check_not_reserved(errors, &path.child("path"), file.str("path"));
    match (file.map("fieldRef"), file.map("resourceFieldRef")) {
        (Some(field), resource) => {
            check_field_ref(errors, &path.child("fieldRef"), field, &FILE_FIELDS);
            if resource.is_some() {
                errors.invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (None, Some(resource)) => {
            check_resource_ref(errors, &path.child("resourceFieldRef"), resource, true)
        }
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    check_mode(errors, &path.child("mode"), file.int("mode"));
}
