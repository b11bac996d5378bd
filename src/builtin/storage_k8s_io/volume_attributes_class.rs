//! VolumeAttributesClass.

use super::storage_class::{check_parameters, check_provisioner};
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::{Fields, same};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `volumeattributesclasses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "volumeattributesclasses",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &VolumeAttributesClassStrategy,
    printer: &PRINTER,
};

pub struct VolumeAttributesClassStrategy;

impl Strategy for VolumeAttributesClassStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_provisioner(
            &mut errors,
            &Path::new("driverName"),
            object.str("driverName"),
        );
        check_parameters(&mut errors, object.map("parameters"), false);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        for key in ["driverName", "parameters"] {
            if !same(object.field(key), old.field(key)) {
                errors.forbidden(&Path::new(key), format!("updates to {key} are forbidden."));
            }
        }
        errors.extend(self.validate(ctx, object));
        errors
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("DriverName", "The driver that knows its parameters"),
        AGE,
    ],
    paths: "driverName",
    fill: |row| {
        row.name().text("/driverName").age();
    },
};
