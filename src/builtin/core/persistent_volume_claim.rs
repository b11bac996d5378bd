//! PersistentVolumeClaims, also those that are templates in other kinds.

use crate::builtin::claim_spec::{claim_warnings, default_claim, validate_claim_spec};
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, UNSET, join, text, wide};
use crate::builtin::compute_resources::check_quantity;
use crate::builtin::quantities::quantity;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::NeedsReadDefaults;
use crate::registry::validation::{Fields, IMMUTABLE, immutable, invalid_each, same};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `persistentvolumeclaims`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "persistentvolumeclaims",
    traits: ResourceTraits {
        returns_deleted: true,
        meta_checks: MetaChecks::Everything,
        ..WITH_STATUS
    },
    strategy: &PersistentVolumeClaimStrategy,
    printer: &PRINTER,
};

/// The annotation that named the storage class before there was a field.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The warning about that annotation.
pub const BETA_CLASS_TEXT: &str =
    "deprecated since v1.8; use \"storageClassName\" attribute instead";
/// The values of a resize's status.
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
];

pub struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn default(&self, object: &mut Object) {
        default_claim(object);
    }

    fn needs_read_defaults(&self) -> Option<NeedsReadDefaults> {
        Some(|stored| stored.text_at("status.phase").is_empty())
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        object.insert("status", json!({}));
        let spec = object.section_mut("spec");
        drop_distant_source(spec, None);
        drop_foreign_source(spec, None);
        mirror_sources(spec);
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        if ctx.subresource == Subresource::Main {
            let spec = object.section_mut("spec");
            drop_distant_source(spec, old.map("spec"));
            drop_foreign_source(spec, old.map("spec"));
            mirror_sources(spec);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_claim_spec(&mut errors, &Path::new("spec"), object.section("spec"));
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Status {
            return check_status(object);
        }
        let mut errors = self.validate(ctx, object);
        check_update(&mut errors, object, old);
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        if object
            .annotations()
            .is_some_and(|annotations| annotations.contains_key(BETA_CLASS))
        {
            warnings.push(format!(
                "{}: {BETA_CLASS_TEXT}",
                Path::new("metadata").child("annotations").key(BETA_CLASS)
            ));
        }
        if let Some(spec) = object.map("spec") {
            claim_warnings(&mut warnings, &Path::new("spec"), spec);
        }
        warnings
    }
}

fn source_is_known(source: &Map) -> bool {
    matches!(
        (source.str("apiGroup"), source.str("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

/// A source in another namespace needs the gate CrossNamespaceVolumeDataSource, which is off: it is
/// dropped, unless there is one already.
fn drop_distant_source(spec: &mut Map, old: Option<&Map>) {
    let distant = spec
        .map("dataSourceRef")
        .is_some_and(|source| !source.str("namespace").is_empty());
    if distant && old.is_none_or(|old| old.field("dataSourceRef").is_none()) {
        spec.shift_remove("dataSourceRef");
    }
}

/// `dataSource` holds claims and snapshots only; anything else is dropped, unless it is there
/// already.
fn drop_foreign_source(spec: &mut Map, old: Option<&Map>) {
    let in_use = old.is_some_and(|old| {
        old.field("dataSource").is_some() || old.field("dataSourceRef").is_some()
    });
    if !in_use
        && spec.field("dataSourceRef").is_none()
        && !spec.map("dataSource").is_some_and(source_is_known)
    {
        spec.shift_remove("dataSource");
    }
}

/// `dataSource` and `dataSourceRef` say the same, whichever was given.
fn mirror_sources(spec: &mut Map) {
    match (spec.map("dataSource"), spec.map("dataSourceRef")) {
        (Some(source), None) => {
            let source = source.clone();
            spec.insert("dataSourceRef", source.into());
        }
        (None, Some(reference)) if reference.str("namespace").is_empty() => {
            let mut source = reference.clone();
            source.shift_remove("namespace");
            spec.insert("dataSource", source.into());
        }
        _ => {}
    }
}

fn storage_of<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    object
        .at(path)
        .and_then(Value::as_object)
        .and_then(|amounts| amounts.field("storage"))
}

fn check_update(errors: &mut ErrorList, object: &Object, old: &Object) {
    let annotation = |object: &Object| {
        object
            .annotations()
            .map_or("", |annotations| annotations.str(BETA_CLASS))
            .to_owned()
    };
    let (new_beta, old_beta) = (annotation(object), annotation(old));
    let class = |object: &Object| {
        object
            .at("/spec/storageClassName")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (new_class, old_class) = (class(object), class(old));
    let upgrade = !old_beta.is_empty()
        && old_class.is_none()
        && new_class.as_ref() == Some(&old_beta)
        && matches!(&new_beta, beta if beta.is_empty() || *beta == old_beta);
    if !upgrade && new_beta != old_beta {
        let path = Path::new("metadata").child("annotations").child(BETA_CLASS);
        errors.invalid(&path, new_beta, IMMUTABLE);
    }
    let class_from_nothing = new_class.is_some()
        && old_class.is_none()
        && (old_beta.is_empty() || new_class.as_ref() == Some(&old_beta));
    let bound = object.str_at("/status/phase") == "Bound";
    let (mut new_spec, old_spec) = (object.section("spec").clone(), old.section("spec"));
    let mut restore = |key: &str| match old_spec.get(key) {
        Some(value) => new_spec.insert(key.to_owned(), value.clone()),
        None => new_spec.shift_remove(key),
    };
    if old_spec.str("volumeName").is_empty() {
        restore("volumeName");
    }
    if upgrade || class_from_nothing {
        restore("storageClassName");
    }
    if bound {
        restore("volumeAttributesClassName");
        if let (Some(requests), Some(amount)) = (
            new_spec
                .get_mut("resources")
                .and_then(|resources| resources.get_mut("requests")),
            storage_of(old, "/spec/resources/requests"),
        ) {
            requests["storage"] = amount.clone();
        }
    }
    if !same(
        Some(&Value::Object(new_spec.clone())),
        Some(&Value::Object(old_spec.clone())),
    ) {
        let diff =
            crate::builtin::internal_types::diff("PersistentVolumeClaimSpec", old_spec, &new_spec);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{diff}"
        );
        errors.forbidden(&Path::new("spec"), detail);
    }
    check_size(errors, object, old);
    immutable(
        errors,
        &Path::new("volumeMode"),
        object.at("/spec/volumeMode"),
        old.at("/spec/volumeMode"),
    );
    check_attributes_class(errors, object, old);
}

/// Checks that a claim does not shrink below the capacity that it has.
fn check_size(errors: &mut ErrorList, object: &Object, old: &Object) {
    let amount = |value: Option<&Value>| value.map(quantity).unwrap_or_default();
    let new_size = amount(storage_of(object, "/spec/resources/requests"));
    let old_size = amount(storage_of(old, "/spec/resources/requests"));
    if new_size < old_size && new_size <= amount(storage_of(old, "/status/capacity")) {
        let path = Path::new("spec")
            .child("resources")
            .child("requests")
            .child("storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
}

/// An attributes class that is in effect can be changed but not taken away.
fn check_attributes_class(errors: &mut ErrorList, object: &Object, old: &Object) {
    let new = object
        .at("/spec/volumeAttributesClassName")
        .and_then(Value::as_str);
    let changed = new
        != old
            .at("/spec/volumeAttributesClassName")
            .and_then(Value::as_str);
    let in_effect = old
        .at("/status/currentVolumeAttributesClassName")
        .and_then(Value::as_str)
        .is_some();
    if !changed || !in_effect {
        return;
    }
    let what = match new {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let detail = format!(
        "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    );
    errors.forbidden(
        &Path::new("spec").child("volumeAttributesClassName"),
        detail,
    );
}

fn check_status(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    if object.array_at("/spec/accessModes").is_empty() {
        errors.required(&Path::new("Spec").child("accessModes"), "");
    }
    let Some(status) = object.map("status") else {
        return errors;
    };
    let path = Path::new("status");
    for (name, amount) in status.entries("capacity") {
        let number = quantity(amount).value();
        if number < 0 {
            errors.invalid(
                &path.child("capacity").key(name),
                number,
                "must be a valid resource quantity",
            );
        }
    }
    for (name, value) in status.entries("allocatedResourceStatuses") {
        let path = path.child("allocatedResourceStatuses");
        check_resource_key(&mut errors, &path, name);
        if !value
            .as_str()
            .is_some_and(|value| RESIZE_STATUSES.contains(&value))
        {
            let mut supported = RESIZE_STATUSES;
            supported.sort_unstable();
            errors.not_supported(&path, name.as_str(), &supported);
        }
    }
    for (name, amount) in status.entries("allocatedResources") {
        let path = path.child("allocatedResources");
        let before = errors.len();
        check_resource_key(&mut errors, &path, name);
        if errors.len() == before {
            check_quantity(&mut errors, &path.key(name), "storage", amount);
        }
    }
    errors
}

/// The resources of a claim that can be resized: its storage, and custom ones.
fn check_resource_key(errors: &mut ErrorList, path: &Path, name: &str) {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        invalid_each(errors, path, name, problems);
        return;
    }
    let custom = name.contains('/')
        && !name
            .split('/')
            .next()
            .is_some_and(|domain| domain == "kubernetes.io" || domain.ends_with(".kubernetes.io"));
    if name != "storage" && !custom {
        errors.not_supported(path, name, &["storage"]);
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Status", "Whether the claim is bound"),
        text("Volume", "The volume it is bound to"),
        text("Capacity", "The size of that volume"),
        text(
            "Access Modes",
            "The ways in which that volume can be mounted",
        ),
        text("StorageClass", "The storage class it asks for"),
        text(
            "VolumeAttributesClass",
            "The volume attributes class it asks for",
        ),
        AGE,
        wide("VolumeMode", "Filesystem or Block"),
    ],
    paths: "metadata.annotations spec.volumeName spec.storageClassName \
        spec.volumeAttributesClassName spec.volumeMode status.phase status.capacity \
        status.accessModes",
    fill: |row| {
        let object = row.object;
        row.name()
            .cell(volume_phase(object))
            .text("/spec/volumeName");
        if object.str_at("/spec/volumeName").is_empty() {
            row.cell("").cell("");
        } else {
            row.text_or("/status/capacity/storage", "0")
                .cell(access_modes(object, "/status/accessModes"));
        }
        row.cell(storage_class(object))
            .text_or("/spec/volumeAttributesClassName", UNSET)
            .age()
            .text_or("/spec/volumeMode", UNSET);
    },
};

pub fn volume_phase(object: &Object) -> &str {
    if object.deletion_timestamp().is_some() {
        "Terminating"
    } else {
        object.str_at("/status/phase")
    }
}

/// The class of a volume or claim; the annotation of old goes first.
pub fn storage_class(object: &Object) -> &str {
    let annotation = object
        .annotations()
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"));
    annotation
        .and_then(Value::as_str)
        .unwrap_or_else(|| object.str_at("/spec/storageClassName"))
}

pub fn access_modes(object: &Object, path: &str) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = object.array_at(path);
    let has = |mode: &str| modes.iter().any(|one| one == mode);
    join(
        SHORT
            .iter()
            .filter(|(mode, _)| has(mode))
            .map(|(_, short)| *short),
        ",",
    )
}
