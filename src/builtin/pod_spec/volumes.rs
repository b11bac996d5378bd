//! Volumes of pods: each has a name of its own and exactly one source.

use std::collections::{HashMap, HashSet};

use super::containers::check_pull_policy;
use super::projected::check_projected;
use super::validation_options::PodValidationOptions;
use super::volume_items::{check_downward_file, check_files, check_mode, required};
use super::volume_sources::{Checked, check_storage};
use crate::builtin::claim_spec::validate_claim_spec;
use crate::builtin::quantities::quantity;
use crate::builtin::template_meta::check_template_meta;
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each};

/// The kinds of volumes in the order of the checks, with the name that an error gives a second one.
const KINDS: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Checks the volumes of a pod and answers those that are sound, by name. `pod_name` is known of a
/// pod that is an object of its own: claims for ephemeral volumes are named after it.
pub fn check_volumes<'a>(
    errors: &mut ErrorList,
    path: &Path,
    volumes: &'a [Value],
    pod_name: Option<&str>,
    options: &PodValidationOptions,
) -> HashMap<&'a str, &'a Map> {
    let pod_name = pod_name.filter(|name| !name.is_empty());
    let created: HashSet<String> = match pod_name {
        Some(pod) => volumes
            .iter()
            .filter(|one| one.map("ephemeral").is_some())
            .map(|one| format!("{pod}-{}", one.str("name")))
            .collect(),
        None => HashSet::new(),
    };
    let mut sound = HashMap::with_capacity(volumes.len());
    for (index, volume) in volumes.iter().enumerate() {
        let Some(volume) = volume.as_object() else {
            continue;
        };
        let item = path.index(index);
        let before = errors.len();
        check_source(errors, &item, volume, pod_name, options);
        let name = volume.str("name");
        if name.is_empty() {
            errors.required(&item.child("name"), "");
        } else {
            invalid_each(
                errors,
                &item.child("name"),
                name,
                names::dns1123_label(name),
            );
        }
        if sound.contains_key(name) {
            errors.duplicate(&item.child("name"), name);
        }
        if errors.len() == before {
            sound.insert(name, volume);
        }
        let claim = volume
            .map("persistentVolumeClaim")
            .map_or("", |claim| claim.str("claimName"));
        if created.contains(claim) {
            let path = item.child("persistentVolumeClaim").child("claimName");
            errors.invalid(
                &path,
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    sound
}

fn check_source(
    errors: &mut ErrorList,
    path: &Path,
    volume: &Map,
    pod_name: Option<&str>,
    options: &PodValidationOptions,
) {
    // Most volumes have exactly one source: the search ends once it is found.
    let given = volume.values().filter(|value| value.is_object()).count();
    if given == 0 {
        errors.required(path, "must specify a volume type");
        return;
    }
    let mut found = 0;
    for (kind, named) in KINDS {
        let Some(source) = volume.map(kind) else {
            continue;
        };
        if found > 0 {
            errors.forbidden(
                &path.child(named),
                "may not specify more than 1 volume type",
            );
        } else {
            check_one(
                errors,
                path,
                kind,
                source,
                volume.str("name"),
                pod_name,
                options,
            );
        }
        found += 1;
        let portal = source.str("targetPortal");
        if kind == "iscsi"
            && source.field("initiatorName").is_some()
            && volume.str("name").len() + 1 + portal.len() > 64
        {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.invalid(&path.child("name"), volume.str("name"), detail);
        }
        if found == given {
            break;
        }
    }
    if found == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn check_one(
    errors: &mut ErrorList,
    path: &Path,
    kind: &str,
    source: &Map,
    name: &str,
    pod_name: Option<&str>,
    options: &PodValidationOptions,
) {
    match kind {
        "emptyDir" => {
            if source
                .field("sizeLimit")
                .is_some_and(|limit| quantity(limit).sign() < 0)
            {
                let path = path.child(kind).child("sizeLimit");
                errors.forbidden(&path, "SizeLimit field must be a valid resource quantity");
            }
        }
        "secret" => check_files(errors, &path.child(kind), source, "secretName"),
        "configMap" => check_files(errors, &path.child(kind), source, "name"),
        "persistentVolumeClaim" => required(errors, &path.child(kind), source, "claimName"),
        "downwardAPI" => {
            let path = path.child(kind);
            check_mode(
                errors,
                &path.child("defaultMode"),
                source.int("defaultMode"),
            );
            for file in source.list("items") {
                check_downward_file(errors, &path, file);
            }
        }
        "projected" => {
            let path = path.child(kind);
            check_mode(
                errors,
                &path.child("defaultMode"),
                source.int("defaultMode"),
            );
            check_projected(errors, &path, source);
        }
        "ephemeral" => check_ephemeral(errors, path, source, name, pod_name),
        "image" => {
            let path = path.child(kind);
            if options.is_pod {
                required(errors, &path, source, "reference");
            }
            check_pull_policy(errors, &path.child("pullPolicy"), source.str("pullPolicy"));
        }
        _ => check_storage(errors, path, kind, source, Checked::InPod),
    }
}

/// A claim that is made for the pod and goes with it.
fn check_ephemeral(
    errors: &mut ErrorList,
    volume: &Path,
    source: &Map,
    name: &str,
    pod_name: Option<&str>,
) {
    let path = volume.child("ephemeral").child("volumeClaimTemplate");
    match source.map("volumeClaimTemplate") {
        None => errors.required(&path, ""),
        Some(template) => {
            check_template_meta(errors, &path.child("metadata"), template.map("metadata"));
            validate_claim_spec(errors, &path.child("spec"), template.section("spec"));
        }
    }
    if let (Some(pod), false) = (pod_name, name.is_empty()) {
        let claim = format!("{pod}-{name}");
        for problem in names::dns1123_subdomain(&claim) {
            errors.invalid(
                &volume.child("name"),
                name,
                format!("PVC name {claim:?}: {problem}"),
            );
        }
    }
}
