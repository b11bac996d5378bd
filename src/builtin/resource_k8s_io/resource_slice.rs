//! ResourceSlices: the devices that a driver has to offer.

use std::collections::BTreeMap;

use super::device::{check_counters, check_device, drop_gated_fields};
use super::device_rules::{check_size, check_unique};
use super::resource_claim::check_pool;
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text};
use crate::builtin::defaulting::{fill, parts};
use crate::builtin::pod_spec::affinity::check_node_selector;
use crate::builtin::pod_spec::volume_sources::check_csi_driver_name;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Map, Object, Path, Value, go, names, time};
use crate::registry::validation::{Fields, immutable_field, immutable_text, invalid_each};
use crate::registry::{Context, Strategy};

/// The entry of `resourceslices`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "resourceslices",
    traits: ResourceTraits {
        generation: true,
        returns_deleted: true,
        selectable: &["spec.nodeName", "spec.driver"],
        ..DEFAULT
    },
    strategy: &ResourceSliceStrategy,
    printer: &PRINTER,
};

/// The maximum number of devices of a slice, and of one whose devices have taints or consume
/// counters.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;
/// The maximum number of sets of counters.
const COUNTER_SETS_MAX: usize = 8;
const ONE_PLACE: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

pub struct ResourceSliceStrategy;

impl Strategy for ResourceSliceStrategy {
    fn prepare_for_create(&self, ctx: &Context, object: &mut Object) {
        prepare(ctx, object, None);
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        prepare(ctx, object, old.map("spec"));
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let driver = object.str_at("/spec/driver");
        if driver == driver.to_lowercase() {
            return Vec::new();
        }
        let quoted = go::quote(driver);
        vec![format!(
            "spec.driver: driver names should be lowercase; {quoted} contains uppercase characters"
        )]
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check(object, None)
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        check(object, Some(old))
    }
}

/// Drops what belongs to gates that are off, and dates the taints that came without a time.
fn prepare(ctx: &Context, object: &mut Object, old: Option<&Map>) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    drop_gated_fields(spec, old);
    for device in parts(spec, "devices") {
        for taint in parts(device, "taints") {
            fill(taint, "timeAdded", time::format(ctx.now.as_second()));
        }
    }
}

fn check(object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    check_csi_driver_name(&mut errors, &path.child("driver"), spec.str("driver"));
    let pool = spec.section("pool");
    let pool_path = path.child("pool");
    check_pool(&mut errors, &pool_path.child("name"), pool.str("name"));
    let (count, generation) = (
        pool.int("resourceSliceCount").unwrap_or(0),
        pool.int("generation").unwrap_or(0),
    );
    if count <= 0 {
        errors.invalid(
            &pool_path.child("resourceSliceCount"),
            count,
            "must be greater than zero",
        );
    }
    if generation < 0 {
        errors.invalid(
            &pool_path.child("generation"),
            generation,
            "must be greater than or equal to zero",
        );
    }
    if let Some(old) = old {
        immutable_text(
            &mut errors,
            &pool_path.child("name"),
            object.str_at("/spec/pool/name"),
            old.str_at("/spec/pool/name"),
        );
        immutable_text(
            &mut errors,
            &path.child("driver"),
            object.str_at("/spec/driver"),
            old.str_at("/spec/driver"),
        );
        immutable_field(
            &mut errors,
            &path,
            "nodeName",
            object.section("spec"),
            old.section("spec"),
        );
    }
    check_place(&mut errors, &path, spec);
    if spec.field("sharedCounters").is_some() && spec.field("devices").is_some() {
        errors.invalid(
            &path,
            "",
            "only one of `sharedCounters` or `devices` is allowed",
        );
    }
    check_devices(&mut errors, &path.child("devices"), spec, old);
    let sets = spec.list("sharedCounters");
    let path = path.child("sharedCounters");
    if check_size(&mut errors, &path, sets, COUNTER_SETS_MAX) {
        for (index, set) in sets.iter().enumerate() {
            check_counters(&mut errors, &path.index(index), set, "name");
        }
        check_unique(&mut errors, &path, sets.iter().map(|set| set.str("name")));
    }
    errors
}

/// Checks the nodes that the devices can be reached from.
fn check_place(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let mut set = Vec::new();
    if let Some(node) = spec.opt_str("nodeName") {
        if node.is_empty() {
            errors.invalid(
                &path.child("nodeName"),
                node,
                "must be either unset or set to a non-empty string",
            );
        } else {
            set.push("`nodeName`");
            invalid_each(
                errors,
                &path.child("nodeName"),
                node,
                names::dns1123_subdomain(node),
            );
        }
    }
    if let Some(selector) = spec.map("nodeSelector") {
        set.push("`nodeSelector`");
        let path = path.child("nodeSelector");
        check_node_selector(errors, &path, selector, false);
        if selector.list("nodeSelectorTerms").len() != 1 {
            let shown = selector
                .field("nodeSelectorTerms")
                .cloned()
                .unwrap_or_default();
            errors.invalid(
                &path.child("nodeSelectorTerms"),
                shown,
                "must have exactly one node selector term",
            );
        }
    }
    for (key, told) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec.opt_flag(key) {
            Some(true) => set.push(told),
            Some(false) => errors.invalid(
                &path.child(key),
                false,
                "must be either unset or set to true",
            ),
            None => {}
        }
    }
    match set.len() {
        0 => errors.required(path, ONE_PLACE),
        1 => {}
        _ => {
            let detail = format!("{ONE_PLACE}, but multiple fields are set");
            errors.invalid(path, format!("{{{}}}", set.join(", ")), detail);
        }
    }
}

fn check_devices(errors: &mut ErrorList, path: &Path, spec: &Map, old: Option<&Object>) {
    let devices = spec.list("devices");
    let advanced = |device: &Value| {
        !device.list("taints").is_empty() || !device.list("consumesCounters").is_empty()
    };
    let max = if devices.iter().any(advanced) {
        ADVANCED_DEVICES_MAX
    } else {
        DEVICES_MAX
    };
    if !check_size(errors, path, devices, max) {
        return;
    }
    let before: BTreeMap<&str, &Value> = old
        .map_or(&[][..], |old| old.array_at("/spec/devices"))
        .iter()
        .rev()
        .map(|device| (device.str("name"), device))
        .collect();
    let chosen = spec.flag("perDeviceNodeSelection");
    for (index, device) in devices.iter().enumerate() {
        let old = before.get(device.str("name")).copied();
        check_device(errors, &path.index(index), device, old, chosen);
    }
    let names = devices.iter().map(|device| device.str("name"));
    check_unique(errors, path, names);
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Node", "The node that has the devices"),
        text("Driver", "The driver that manages them"),
        text("Pool", "The pool they belong to"),
        AGE,
    ],
    paths: "spec.nodeName spec.driver spec.pool.name",
    fill: |row| {
        row.name()
            .text("/spec/nodeName")
            .text("/spec/driver")
            .text("/spec/pool/name")
            .age();
    },
};
