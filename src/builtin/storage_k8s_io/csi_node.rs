//! CSINodes: the storage drivers of a node.

use std::collections::BTreeSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, integer};
use crate::builtin::pod_spec::volume_sources::check_csi_driver_name;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, json, names};
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each, not_negative, same};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `csinodes`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "csinodes",
    traits: ResourceTraits {
        meta_checks: MetaChecks::State,
        unconditional_update: false,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &CsiNodeStrategy,
    printer: &PRINTER,
};

/// The longest name that a driver has for a node, in bytes.
const NODE_ID_MAX: usize = 256;

pub struct CsiNodeStrategy;

impl Strategy for CsiNodeStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut seen = BTreeSet::new();
        let path = Path::new("spec").child("drivers");
        for (index, driver) in object.array_at("/spec/drivers").iter().enumerate() {
            let path = path.index(index);
            check_driver(&mut errors, &path, driver);
            if !seen.insert(driver.str("name")) {
                errors.duplicate(&path.child("name"), driver.str("name"));
            }
            check_topology_keys(&mut errors, &path, driver.list("topologyKeys"));
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.validate(ctx, object);
        let path = Path::new("spec").child("drivers");
        for before in old.array_at("/spec/drivers") {
            let drivers = object.array_at("/spec/drivers").iter();
            for driver in drivers.filter(|driver| driver.str("name") == before.str("name")) {
                if ["nodeID", "topologyKeys"]
                    .iter()
                    .any(|key| !same(driver.field(key), before.field(key)))
                {
                    errors.invalid(&path, driver_shown(driver), IMMUTABLE);
                }
            }
        }
        errors
    }
}

/// A driver as upstream's own type prints it, without what may change.
fn driver_shown(driver: &Value) -> Value {
    json!({
        "Name": driver.str("name"),
        "NodeID": driver.str("nodeID"),
        "TopologyKeys": driver.field("topologyKeys"),
        "Allocatable": null,
    })
}

fn check_driver(errors: &mut ErrorList, path: &Path, driver: &Value) {
    check_csi_driver_name(errors, &path.child("name"), driver.str("name"));
    let id = driver.str("nodeID");
    if id.is_empty() {
        errors.required(&path.child("nodeID"), "");
    }
    if id.len() > NODE_ID_MAX {
        errors.invalid(
            &path.child("nodeID"),
            id,
            format!("must be {NODE_ID_MAX} characters or less"),
        );
    }
    let count = driver
        .map("allocatable")
        .and_then(|allocatable| allocatable.int("count"));
    not_negative(
        errors,
        &path.child("allocatable").child("count"),
        count.unwrap_or(0),
    );
}

fn check_topology_keys(errors: &mut ErrorList, path: &Path, keys: &[Value]) {
    let mut seen = BTreeSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        if key.is_empty() {
            errors.required(path, "");
        }
        if !seen.insert(key) {
            errors.duplicate(path, key);
        }
        invalid_each(errors, path, key, names::qualified_name(key));
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        integer("Drivers", "The number of drivers on the node"),
        AGE,
    ],
    paths: "spec.drivers.name",
    fill: |row| {
        row.name().count("/spec/drivers").age();
    },
};
