//! VolumeAttachments: which volume is wanted at which node.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, boolean, make, text};
use crate::builtin::internal_types;
use crate::builtin::pod_spec::volume_sources::check_csi_driver_name;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, STATUS_ALONE};
use crate::builtin::volume_spec::check_volume_spec;
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each, same};
use crate::registry::{Context, Strategy};

/// The entry of `volumeattachments`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "volumeattachments",
    traits: ResourceTraits {
        unconditional_update: false,
        returns_deleted: true,
        ..STATUS_ALONE
    },
    strategy: &VolumeAttachmentStrategy,
    printer: &PRINTER,
};

/// Bounds of what a driver tells: metadata of an attachment and the message of an error, in bytes.
const METADATA_MAX: usize = 256 * 1024;
const MESSAGE_MAX: usize = 1024;
const ONE_OF_BOTH: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";

pub struct VolumeAttachmentStrategy;

impl Strategy for VolumeAttachmentStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = object.section("spec");
        let path = Path::new("spec");
        check_csi_driver_name(&mut errors, &path.child("attacher"), spec.str("attacher"));
        let source = spec.section("source");
        check_source(&mut errors, &path.child("source"), source);
        let node = spec.str("nodeName");
        invalid_each(
            &mut errors,
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
        check_status(&mut errors, object.section("status"));
        if let Some(name) = source.opt_str("persistentVolumeName") {
            let path = path.child("source").child("persistentVolumeName");
            invalid_each(&mut errors, &path, name, names::dns1123_subdomain(name));
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.validate(ctx, object);
        if !same(object.field("spec"), old.field("spec")) {
            errors.invalid(&Path::new("spec"), spec_shown(object), IMMUTABLE);
        }
        errors
    }
}

/// The spec as upstream's own type prints it.
fn spec_shown(object: &Object) -> Value {
    let spec = object.section("spec");
    let source = spec.section("source");
    let inline = source
        .map("inlineVolumeSpec")
        .map(|inline| internal_types::json("PersistentVolumeSpec", inline));
    json!({
        "Attacher": spec.str("attacher"),
        "Source": {"PersistentVolumeName": source.field("persistentVolumeName"), "InlineVolumeSpec": inline},
        "NodeName": spec.str("nodeName"),
    })
}

fn check_source(errors: &mut ErrorList, path: &Path, source: &Map) {
    match (
        source.map("inlineVolumeSpec"),
        source.opt_str("persistentVolumeName"),
    ) {
        (None, None) => errors.required(path, ONE_OF_BOTH),
        (Some(_), Some(_)) => errors.forbidden(path, ONE_OF_BOTH),
        (None, Some("")) => {
            errors.required(
                &path.child("persistentVolumeName"),
                "must specify non empty persistentVolumeName",
            );
        }
        (None, Some(_)) => {}
        (Some(inline), None) => {
            let path = path.child("inlineVolumeSpec");
            check_volume_spec(errors, &path, inline, "", true);
        }
    }
}

fn check_status(errors: &mut ErrorList, status: &Map) {
    let path = Path::new("status");
    let size: usize = status
        .entries("attachmentMetadata")
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > METADATA_MAX {
        errors.too_long(&path.child("attachmentMetadata"), METADATA_MAX);
    }
    for key in ["attachError", "detachError"] {
        let Some(error) = status.map(key) else {
            continue;
        };
        if error.str("message").len() > MESSAGE_MAX {
            errors.too_long(&path.child(key).child("message"), METADATA_MAX);
        }
        if let Some(code) = error.int("errorCode").filter(|code| *code < 0) {
            let detail = names::range_error(0, i64::from(i32::MAX));
            errors.invalid(&path.child(key).child("errorCode"), code, detail);
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        make(
            "Attacher",
            "string",
            "name",
            "The driver that attaches the volume",
            0,
        ),
        text("PV", "The volume"),
        text("Node", "The node it is attached to"),
        boolean("Attached", "Whether it is attached"),
        AGE,
    ],
    paths: "spec.attacher spec.nodeName spec.source.persistentVolumeName status.attached",
    fill: |row| {
        row.name()
            .text("/spec/attacher")
            .text("/spec/source/persistentVolumeName")
            .text("/spec/nodeName");
        row.bool_or("/status/attached", false).age();
    },
};
