//! Mounts of volumes in containers, as directories and as devices.

use std::collections::HashSet;

use super::paths::{check_descending, has_backsteps};
use super::scope::PodScope;
use crate::meta::{ErrorList, Map, Path, Value};
use crate::registry::validation::Fields;

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];

/// Checks the mounts and devices of a container.
pub fn check_mounts(errors: &mut ErrorList, path: &Path, container: &Map, pod: &PodScope) {
    let (mounts, devices) = (
        container.list("volumeMounts"),
        container.list("volumeDevices"),
    );
    let list = path.child("volumeMounts");
    let mut taken = HashSet::new();
    let (device_names, device_paths) = (texts(devices, "name"), texts(devices, "devicePath"));
    for (index, mount) in mounts.iter().enumerate() {
        check_mount(errors, &list, index, mount, container, pod);
        let target = mount.str("mountPath");
        let item = || list.index(index);
        if !taken.insert(target) {
            errors.invalid(&item().child("mountPath"), target, "must be unique");
        }
        if device_names.contains(mount.str("name")) {
            errors.invalid(
                &item().child("name"),
                mount.str("name"),
                "must not already exist in volumeDevices",
            );
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&item().child("mountPath"), target, detail);
        }
        check_mount_options(errors, &list, index, mount, container);
    }
    check_devices(errors, &path.child("volumeDevices"), mounts, devices, pod);
}

/// The texts that items have under a key.
fn texts<'a>(items: &'a [Value], key: &str) -> HashSet<&'a str> {
    items.iter().map(|item| item.str(key)).collect()
}

fn check_mount(
    errors: &mut ErrorList,
    list: &Path,
    index: usize,
    mount: &Value,
    _container: &Map,
    pod: &PodScope,
) {
    let name = mount.str("name");
    if name.is_empty() {
        errors.required(&list.index(index).child("name"), "");
    }
    if !pod.volumes.contains_key(name) {
        errors.not_found(&list.index(index).child("name"), name);
    }
    if mount.str("mountPath").is_empty() {
        errors.required(&list.index(index).child("mountPath"), "");
    }
}

fn check_mount_options(
    errors: &mut ErrorList,
    list: &Path,
    index: usize,
    mount: &Value,
    container: &Map,
) {
    let (sub_path, expression) = (mount.str("subPath"), mount.str("subPathExpr"));
    if !sub_path.is_empty() {
        check_descending(errors, &list.child("subPath"), sub_path);
    }
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            let path = list.index(index).child("subPathExpr");
            errors.invalid(
                &path,
                expression,
                "subPathExpr and subPath are mutually exclusive",
            );
        }
        check_descending(errors, &list.child("subPathExpr"), expression);
    }
    let propagation = mount.opt_str("mountPropagation");
    if let Some(mode) = propagation {
        let path = list.child("mountPropagation");
        if !PROPAGATIONS.contains(&mode) {
            errors.not_supported(&path, mode, &PROPAGATIONS);
        }
        let privileged = container
            .map("securityContext")
            .is_some_and(|context| context.flag("privileged"));
        if mode == "Bidirectional" && !privileged {
            errors.forbidden(
                &path,
                "Bidirectional mount propagation is available only to privileged containers",
            );
        }
    }
    match mount.opt_str("recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            let path = list.child("recursiveReadOnly");
            if !mount.flag("readOnly") {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if propagation.is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&path, detail);
            }
        }
        Some(other) => errors.not_supported(&list.child("recursiveReadOnly"), other, &RECURSIVE),
    }
}

fn check_devices(
    errors: &mut ErrorList,
    list: &Path,
    mounts: &[Value],
    devices: &[Value],
    pod: &PodScope,
) {
    let mut names = HashSet::new();
    let mut paths = HashSet::new();
    let (mount_names, mount_paths) = (texts(mounts, "name"), texts(mounts, "mountPath"));
    for (index, device) in devices.iter().enumerate() {
        let (name, target) = (device.str("name"), device.str("devicePath"));
        let (name_path, target_path) = (
            list.index(index).child("name"),
            list.index(index).child("devicePath"),
        );
        if name.is_empty() {
            errors.required(&name_path, "");
        }
        if names.contains(name) {
            errors.invalid(&name_path, name, "must be unique");
        }
        match pod.volumes.get(name) {
            Some(volume)
                if volume.map("persistentVolumeClaim").is_none()
                    && volume.map("ephemeral").is_none() =>
            {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&name_path, name, detail);
            }
            Some(_) => {}
            None => errors.not_found(&name_path, name),
        }
        if target.is_empty() {
            errors.required(&target_path, "");
        }
        if paths.contains(target) {
            errors.invalid(&target_path, target, "must be unique");
        }
        if has_backsteps(target) {
            errors.invalid(&target_path, target, "can not contain backsteps ('..')");
        } else {
            paths.insert(target);
        }
        if mount_names.contains(name) {
            errors.invalid(&name_path, name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(target) {
            errors.invalid(
                &target_path,
                target,
                "must not already exist as a path in volumeMounts",
            );
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
