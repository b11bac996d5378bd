//! The spec of a persistent volume, whether it has an object of its own or is written into a
//! VolumeAttachment.

use crate::builtin::claim_spec::{VOLUME_MODES, check_access_modes};
use crate::builtin::compute_resources::check_positive;
use crate::builtin::pod_spec::affinity::check_node_selector;
use crate::builtin::pod_spec::volume_sources::{Checked, check_storage};
use crate::builtin::quantities::quantity;
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, one_of};

const NOT_INLINE: &str = "may not be specified in the context of inline volumes";
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
/// The kinds of volumes in the order of the checks, with the name that an error gives a second one.
pub const KINDS: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];

/// Checks the spec of a volume; one inside another object (`inline`) has only what describes the
/// volume itself.
pub fn check_volume_spec(
    errors: &mut ErrorList,
    path: &Path,
    spec: &Map,
    name: &str,
    inline: bool,
) {
    if inline {
        check_inline(errors, path, spec);
    }
    if spec.list("accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    check_access_modes(errors, &path.child("accessModes"), spec.list("accessModes"));
    let policy = spec.str("persistentVolumeReclaimPolicy");
    if !inline {
        let capacity = spec.section("capacity");
        check_capacity(errors, &path.child("capacity"), capacity);
    }
    check_reclaim_policy(errors, path, policy, inline);
    if let Some(affinity) = spec.map("nodeAffinity") {
        check_affinity(errors, &path.child("nodeAffinity"), affinity, inline);
    }
    let has_affinity = !inline && spec.map("nodeAffinity").is_some();
    check_source(errors, path, spec, name, has_affinity);
    let root = spec.map("hostPath").is_some_and(|source| {
        let path = source.str("path");
        path.starts_with('/') && path.split('/').all(|step| step.is_empty() || step == ".")
    });
    if root && policy == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
    }
    check_classes(errors, path, spec, inline);
}

/// Refuses what only volumes with an object of their own have.
fn check_inline(errors: &mut ErrorList, path: &Path, spec: &Map) {
    if spec.map("claimRef").is_some() {
        errors.forbidden(&path.child("claimRef"), NOT_INLINE);
    }
    if spec
        .map("capacity")
        .is_some_and(|capacity| !capacity.is_empty())
    {
        errors.forbidden(&path.child("capacity"), NOT_INLINE);
    }
    if spec.map("csi").is_none() {
        let detail = "has to be specified in the context of inline volumes";
        errors.required(&path.child("csi"), detail);
    }
}

fn check_reclaim_policy(errors: &mut ErrorList, path: &Path, policy: &str, inline: bool) {
    let path = path.child("persistentVolumeReclaimPolicy");
    match policy {
        "" => {}
        "Retain" if inline => {}
        _ if inline => {
            let detail = "may only be Retain in the context of inline volumes";
            errors.forbidden(&path, detail);
        }
        _ => one_of(errors, &path, policy, &RECLAIM_POLICIES),
    }
}

fn check_affinity(errors: &mut ErrorList, path: &Path, affinity: &Map, inline: bool) {
    if inline {
        errors.forbidden(path, NOT_INLINE);
        return;
    }
    let path = path.child("required");
    match affinity.map("required") {
        Some(selector) => check_node_selector(errors, &path, selector, false),
        None => errors.required(&path, "must specify required node constraints"),
    }
}

/// Checks the classes that the volume is of, and how it is used.
fn check_classes(errors: &mut ErrorList, path: &Path, spec: &Map, inline: bool) {
    let (class, class_path) = (spec.str("storageClassName"), path.child("storageClassName"));
    if !class.is_empty() && inline {
        errors.forbidden(&class_path, NOT_INLINE);
    } else if !class.is_empty() {
        invalid_each(errors, &class_path, class, names::dns1123_subdomain(class));
    }
    match spec.opt_str("volumeMode") {
        None => {}
        Some("Filesystem") if inline => {}
        Some(_) if inline => {
            let detail =
                "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errors.forbidden(&path.child("volumeMode"), detail);
        }
        Some(mode) => one_of(errors, &path.child("volumeMode"), mode, &VOLUME_MODES),
    }
    let Some(class) = spec.opt_str("volumeAttributesClassName") else {
        return;
    };
    let class_path = path.child("volumeAttributesClassName");
    if class.is_empty() {
        let detail = "an empty string is disallowed";
        errors.required(&class_path, detail);
    } else {
        invalid_each(errors, &class_path, class, names::dns1123_subdomain(class));
    }
    if spec.map("csi").is_none() {
        let detail = "has to be specified when using volumeAttributesClassName";
        errors.required(&path.child("csi"), detail);
    }
}

fn check_capacity(errors: &mut ErrorList, path: &Path, capacity: &Map) {
    if capacity.is_empty() {
        errors.required(path, "");
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        let shown = if capacity.is_empty() {
            Value::Null
        } else {
            Value::Object(capacity.clone())
        };
        errors.not_supported(path, shown, &["storage"]);
    }
    for (name, amount) in capacity {
        let path = path.key(name);
        let number = quantity(amount);
        if number.sign() < 0 {
            errors.invalid(&path, number.value(), "must be a valid resource quantity");
        }
        check_positive(errors, &path, amount);
    }
}

fn check_source(errors: &mut ErrorList, path: &Path, spec: &Map, name: &str, has_affinity: bool) {
    let mut found = false;
    for (kind, named) in KINDS {
        let Some(source) = spec.map(kind) else {
            continue;
        };
        if found && kind != "flexVolume" {
            errors.forbidden(
                &path.child(named),
                "may not specify more than 1 volume type",
            );
            continue;
        }
        found = true;
        check_storage(errors, path, kind, source, Checked::Persistent { name });
        if kind == "local" && !has_affinity {
            errors.required(
                &path.child("nodeAffinity"),
                "Local volume requires node affinity",
            );
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}
