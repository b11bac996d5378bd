//! Paths in the file systems of containers.

use crate::meta::{ErrorList, Path};

/// Refuses `..` as a step of a path.
pub fn check_no_backsteps(errors: &mut ErrorList, path: &Path, target: &str) {
    if has_backsteps(target) {
        errors.invalid(path, target, "must not contain '..'");
    }
}

pub fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|step| step == "..")
}

/// A path that leads down from where it is used.
pub fn check_descending(errors: &mut ErrorList, path: &Path, target: &str) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    check_no_backsteps(errors, path, target);
}

/// A path of a file in a volume; names that start with `..` are the kubelet's.
pub fn check_not_reserved(errors: &mut ErrorList, path: &Path, target: &str) {
    check_descending(errors, path, target);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}
