//! PersistentVolumes.

pub mod columns;

use super::persistent_volume_claim::{BETA_CLASS, BETA_CLASS_TEXT};
use crate::builtin::defaulting::{fill, fill_text, part, part_or_new};
use crate::builtin::internal_types;
use crate::builtin::node_labels::term_warnings;
use crate::builtin::pod_spec::volume_defaults::default_storage;
use crate::builtin::quantities::round_amounts;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::builtin::volume_spec::{KINDS, check_volume_spec};
use crate::meta::{ErrorList, Object, Path, Value, json};
use crate::registry::validation::{Fields, immutable, same};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `persistentvolumes`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "persistentvolumes",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        returns_deleted: true,
        ..WITH_STATUS
    },
    strategy: &PersistentVolumeStrategy,
    printer: &columns::PRINTER,
};

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const MOUNT_OPTIONS_TEXT: &str = "deprecated since v1.31; use \"mountOptions\" attribute instead";
const RECYCLE_TEXT: &str = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
/// Kinds of days gone by, with the name a warning gives them.
const DEPRECATED: [(&str, &str, &str); 6] = [
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];
/// The kinds that take mount options.
const MOUNTABLE: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

pub struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {
    fn default(&self, object: &mut Object) {
        fill_text(part_or_new(object, "status"), "phase", "Pending");
        let spec = part_or_new(object, "spec");
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        round_amounts(spec, "capacity");
        for (kind, _) in KINDS {
            if let Some(source) = part(spec, kind) {
                default_storage(kind, source);
            }
        }
    }

    fn prepare_for_create(&self, ctx: &Context, object: &mut Object) {
        object.insert(
            "status",
            json!({"phase": "Pending", "lastPhaseTransitionTime": seconds(ctx)}),
        );
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        if ctx.subresource != Subresource::Status {
            return;
        }
        let was = old.at("/status/lastPhaseTransitionTime").cloned();
        let same_phase = object.str_at("/status/phase") == old.str_at("/status/phase");
        let status = object.section_mut("status");
        let now = status.field("lastPhaseTransitionTime").cloned();
        if same_phase && now.is_none() {
            if let Some(was) = was {
                status.insert("lastPhaseTransitionTime", was);
            }
        } else if !same_phase && (now.is_none() || now == was) {
            status.insert("lastPhaseTransitionTime", seconds(ctx).into());
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (key, text) in [
            (BETA_CLASS, BETA_CLASS_TEXT),
            (MOUNT_OPTIONS, MOUNT_OPTIONS_TEXT),
        ] {
            if object
                .annotations()
                .is_some_and(|annotations| annotations.contains_key(key))
            {
                warnings.push(format!(
                    "{}: {text}",
                    Path::new("metadata").child("annotations").key(key)
                ));
            }
        }
        let Some(spec) = object.map("spec") else {
            return warnings;
        };
        let path = Path::new("spec");
        if spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
            warnings.push(format!(
                "{}: {RECYCLE_TEXT}",
                path.child("persistentVolumeReclaimPolicy")
            ));
        }
        if let Some(required) = spec
            .map("nodeAffinity")
            .and_then(|affinity| affinity.map("required"))
        {
            let path = path
                .child("nodeAffinity")
                .child("required")
                .child("nodeSelectorTerms");
            for (index, term) in required.list("nodeSelectorTerms").iter().enumerate() {
                if let Some(term) = term.as_object() {
                    term_warnings(&mut warnings, &path.index(index), term, false);
                }
            }
        }
        for (kind, shown, text) in DEPRECATED {
            if spec.field(kind).is_some() {
                warnings.push(format!("{}: {text}", path.child(shown)));
            }
        }
        warnings
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(&mut errors, object);
        check_mount_options(&mut errors, object);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Status {
            return ErrorList::new();
        }
        // Upstream checks an updated volume twice.
        let mut errors = self.validate(ctx, object);
        check_spec(&mut errors, object);
        check_update(&mut errors, object, old);
        errors
    }
}

/// The time of the request, to the second.
fn seconds(ctx: &Context) -> String {
    ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn check_spec(errors: &mut ErrorList, object: &Object) {
    let spec = object.section("spec");
    check_volume_spec(errors, &Path::new("spec"), spec, object.name(), false);
}

/// Mount options, once an annotation and still one inside upstream, go with some kinds only.
fn check_mount_options(errors: &mut ErrorList, object: &Object) {
    let Some(spec) = object.map("spec") else {
        return;
    };
    let annotated = object
        .annotations()
        .is_some_and(|annotations| annotations.contains_key(MOUNT_OPTIONS));
    let given = annotated || !spec.list("mountOptions").is_empty();
    let csi = !annotated && spec.map("csi").is_some();
    if given && !csi && !MOUNTABLE.iter().any(|kind| spec.map(kind).is_some()) {
        let path = Path::new("metadata")
            .child("annotations")
            .child(MOUNT_OPTIONS);
        errors.forbidden(&path, "may not specify mount options for this volume type");
    }
}

fn check_update(errors: &mut ErrorList, object: &Object, old: &Object) {
    let (mut spec, old_spec) = (object.section("spec").clone(), old.section("spec"));
    // The secret for expansion may be added later.
    if old_spec
        .map("csi")
        .is_some_and(|csi| csi.field("controllerExpandSecretRef").is_none())
        && let Some(csi) = part(&mut spec, "csi")
    {
        csi.shift_remove("controllerExpandSecretRef");
    }
    if KINDS
        .iter()
        .any(|(kind, _)| !same(spec.get(kind), old_spec.get(kind)))
    {
        let diff = internal_types::diff("PersistentVolumeSource", old_spec, &spec);
        let path = Path::new("spec").child("persistentvolumesource");
        errors.forbidden(
            &path,
            format!("spec.persistentvolumesource is immutable after creation\n{diff}"),
        );
    }
    immutable(
        errors,
        &Path::new("volumeMode"),
        spec.get("volumeMode"),
        old_spec.get("volumeMode"),
    );
    let (affinity, was) = (spec.get("nodeAffinity"), old_spec.get("nodeAffinity"));
    if was.is_some() && !same(affinity, was) {
        let shown = affinity
            .and_then(Value::as_object)
            .map_or(Value::Null, |affinity| {
                internal_types::json("VolumeNodeAffinity", affinity)
            });
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.invalid(&Path::new("nodeAffinity"), shown, detail);
    }
    if old_spec.opt_str("volumeAttributesClassName").is_some()
        && spec.opt_str("volumeAttributesClassName").is_none()
    {
        let path = Path::new("spec").child("volumeAttributesClassName");
        errors.forbidden(&path, "update from non-nil value to nil is forbidden");
    }
}
