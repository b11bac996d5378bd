//! Columns of the Table.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, UNSET, text, wide};
use crate::builtin::core::persistent_volume_claim::{access_modes, storage_class, volume_phase};
use crate::meta::str_at;

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Capacity", "The size of the volume"),
        text("Access Modes", "The ways in which it can be mounted"),
        text("Reclaim Policy", "What happens to it once it is released"),
        text("Status", "Whether it is available, bound or released"),
        text("Claim", "The claim it is bound to"),
        text("StorageClass", "The storage class it belongs to"),
        text(
            "VolumeAttributesClass",
            "The volume attributes class it belongs to",
        ),
        text("Reason", "Why it failed"),
        AGE,
        wide("VolumeMode", "Filesystem or Block"),
    ],
    paths: "metadata.annotations spec.capacity spec.accessModes \
        spec.persistentVolumeReclaimPolicy spec.claimRef spec.storageClassName \
        spec.volumeAttributesClassName spec.volumeMode status.phase status.reason",
    fill: |row| {
        let object = row.object;
        let claim = match object.at("/spec/claimRef") {
            Some(claim) if claim.is_object() => {
                format!("{}/{}", str_at(claim, "/namespace"), str_at(claim, "/name"))
            }
            _ => String::new(),
        };
        row.name()
            .text_or("/spec/capacity/storage", "0")
            .cell(access_modes(object, "/spec/accessModes"));
        row.text("/spec/persistentVolumeReclaimPolicy")
            .cell(volume_phase(object))
            .cell(claim)
            .cell(storage_class(object));
        row.text_or("/spec/volumeAttributesClassName", UNSET)
            .text("/status/reason")
            .age()
            .text_or("/spec/volumeMode", UNSET);
    },
};
