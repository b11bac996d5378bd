//! Tables of the groups storage and resource.

use crate::meta::Value;

use super::networking::with_default;
use super::{AGE, NAME, NONE, Printer, TablePrinter, UNSET, boolean, integer, join, make, text};
use crate::meta::{Object, str_at};

pub fn printer(resource: &str) -> Option<&'static dyn TablePrinter> {
    Some(match resource {
        "csidrivers" => &CSI_DRIVER,
        "csinodes" => &CSI_NODE,
        "storageclasses" => &STORAGE_CLASS,
        "volumeattachments" => &VOLUME_ATTACHMENT,
        "volumeattributesclasses" => &VOLUME_ATTRIBUTES_CLASS,
        "deviceclasses" | "resourceclaimtemplates" => &NAME_AND_AGE,
        "resourceclaims" => &RESOURCE_CLAIM,
        "resourceslices" => &RESOURCE_SLICE,
        _ => return None,
    })
}

static NAME_AND_AGE: Printer = Printer {
    columns: &[NAME, AGE],
    fill: |row| {
        row.name().age();
    },
};

static CSI_DRIVER: Printer = Printer {
    columns: &[
        NAME,
        boolean(
            "AttachRequired",
            "Whether volumes are attached before they are mounted",
        ),
        boolean(
            "PodInfoOnMount",
            "Whether it is told about the pod when it mounts",
        ),
        boolean(
            "StorageCapacity",
            "Whether it publishes the capacity that is left",
        ),
        text("TokenRequests", "The audiences of the tokens it wants"),
        boolean(
            "RequiresRepublish",
            "Whether it is called again and again for mounted volumes",
        ),
        text("Modes", "The kinds of volumes it supports"),
        AGE,
    ],
    fill: |row| {
        let audiences = row
            .object
            .at("/spec/tokenRequests")
            .and_then(Value::as_array);
        let audiences = audiences.map_or(UNSET.to_owned(), |list| {
            join(list.iter().map(|one| str_at(one, "/audience")), ",")
        });
        let modes = join(
            row.object
                .array_at("/spec/volumeLifecycleModes")
                .iter()
                .filter_map(Value::as_str),
            ",",
        );
        row.name()
            .bool_or("/spec/attachRequired", true)
            .bool_or("/spec/podInfoOnMount", false)
            .bool_or("/spec/storageCapacity", false);
        row.cell(audiences)
            .bool_or("/spec/requiresRepublish", false)
            .cell(if modes.is_empty() { NONE } else { &modes })
            .age();
    },
};

static CSI_NODE: Printer = Printer {
    columns: &[
        NAME,
        integer("Drivers", "The number of drivers on the node"),
        AGE,
    ],
    fill: |row| {
        row.name().count("/spec/drivers").age();
    },
};

static STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner", "What makes its volumes"),
        text(
            "ReclaimPolicy",
            "What happens to a volume once it is released",
        ),
        text("VolumeBindingMode", "When a claim is bound"),
        text("AllowVolumeExpansion", "Whether its volumes may grow"),
        AGE,
    ],
    fill: |row| {
        let default = is_default_class(row.object);
        row.cell(with_default(row.object.name(), default))
            .text("/provisioner")
            .text_or("/reclaimPolicy", "Delete");
        row.text_or("/volumeBindingMode", "Immediate")
            .bool_or("/allowVolumeExpansion", false)
            .age();
    },
};

fn is_default_class(object: &Object) -> bool {
    const MARKS: [&str; 2] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    object.annotations().is_some_and(|all| {
        MARKS
            .iter()
            .any(|mark| all.get(mark).and_then(Value::as_str) == Some("true"))
    })
}

static VOLUME_ATTACHMENT: Printer = Printer {
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
    fill: |row| {
        row.name()
            .text("/spec/attacher")
            .text("/spec/source/persistentVolumeName")
            .text("/spec/nodeName");
        row.bool_or("/status/attached", false).age();
    },
};

static VOLUME_ATTRIBUTES_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("DriverName", "The driver that knows its parameters"),
        AGE,
    ],
    fill: |row| {
        row.name().text("/driverName").age();
    },
};

static RESOURCE_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text("State", "Pending, allocated, reserved or deleted"),
        AGE,
    ],
    fill: |row| {
        let object = row.object;
        let deleted = object.deletion_timestamp().is_some();
        let allocated = object
            .at("/status/allocation")
            .is_some_and(Value::is_object);
        let reserved = allocated && !object.array_at("/status/reservedFor").is_empty();
        let states = [
            (deleted, "deleted"),
            (!allocated && !deleted, "pending"),
            (allocated, "allocated"),
            (reserved, "reserved"),
        ];
        let state = join(
            states
                .into_iter()
                .filter(|(holds, _)| *holds)
                .map(|(_, name)| name),
            ",",
        );
        row.name().cell(state).age();
    },
};

static RESOURCE_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text("Node", "The node that has the devices"),
        text("Driver", "The driver that manages them"),
        text("Pool", "The pool they belong to"),
        AGE,
    ],
    fill: |row| {
        row.name()
            .text("/spec/nodeName")
            .text("/spec/driver")
            .text("/spec/pool/name")
            .age();
    },
};
