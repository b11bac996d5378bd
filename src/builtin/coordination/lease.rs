//! Leases: who holds what, until when.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::Fields;
use crate::registry::{Context, Strategy};

/// The entry of `leases`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "leases",
    traits: ResourceTraits {
        any_finalizer: true,
        create_on_update: true,
        unconditional_update: false,
        ..DEFAULT
    },
    strategy: &LeaseStrategy,
    printer: &PRINTER,
};

pub struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        drop_coordination(object, None);
    }

    fn prepare_for_update(&self, _ctx: &Context, object: &mut Object, old: &Object) {
        drop_coordination(object, Some(old));
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let Some(spec) = object.map("spec") else {
            return errors;
        };
        let path = Path::new("spec");
        if let Some(seconds) = spec
            .int("leaseDurationSeconds")
            .filter(|seconds| *seconds <= 0)
        {
            errors.invalid(
                &path.child("leaseDurationSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if let Some(count) = spec.int("leaseTransitions").filter(|count| *count < 0) {
            errors.invalid(
                &path.child("leaseTransitions"),
                count,
                "must be greater than or equal to 0",
            );
        }
        errors
    }
}

/// Coordinated leader election is behind a gate that is closed: its fields stay only where they
/// are.
fn drop_coordination(object: &mut Object, old: Option<&Object>) {
    for key in ["strategy", "preferredHolder"] {
        let in_use = old
            .and_then(|old| old.map("spec"))
            .is_some_and(|spec| spec.field(key).is_some());
        if !in_use
            && object
                .map("spec")
                .is_some_and(|spec| spec.contains_key(key))
        {
            object.section_mut("spec").shift_remove(key);
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, text("Holder", "Who holds it"), AGE],
    paths: "spec.holderIdentity",
    fill: |row| {
        row.name().text("/spec/holderIdentity").age();
    },
};
