//! ResourceClaims and their templates: which devices a pod needs.

pub mod columns;

use std::collections::BTreeSet;

use super::device_rules::{
    CONFIGS_MAX, check_binding, check_json, check_label, check_opaque, check_qualified_name,
    check_selectors, check_size, check_unique, check_uuid,
};
use super::internal_claim;
use crate::builtin::columns::NAME_AND_AGE;
use crate::builtin::defaulting::{fill_number, fill_text, part, parts};
use crate::builtin::pod_spec::affinity::check_node_selector;
use crate::builtin::pod_spec::volume_sources::check_csi_driver_name;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits, STATUS_ALONE};
use crate::builtin::template_meta::check_template_meta;
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{
    Fields, IMMUTABLE, invalid_each, one_of, required_one_of, same, validate_conditions,
};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `resourceclaims`.
pub static RESOURCE_CLAIMS: ResourceEntry = ResourceEntry {
    resource: "resourceclaims",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        returns_deleted: true,
        ..STATUS_ALONE
    },
    strategy: &ResourceClaimStrategy,
    printer: &columns::PRINTER,
};

/// The entry of `resourceclaimtemplates`.
pub static RESOURCE_CLAIM_TEMPLATES: ResourceEntry = ResourceEntry {
    resource: "resourceclaimtemplates",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &ResourceClaimTemplateStrategy,
    printer: &NAME_AND_AGE,
};

/// Bounds of lists: requests, alternatives of one, constraints, users and allocated devices of a
/// claim.
const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const CONSTRAINTS_MAX: usize = 32;
const USERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
/// Bounds of what a driver tells of a device: conditions, addresses, and names in bytes.
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_NAME_MAX: usize = 256;
const HARDWARE_ADDRESS_MAX: usize = 128;
/// The longest name of a pool, in bytes.
const POOL_MAX: usize = 253;
const ONE_FORM: &str = "exactly one of `exactly` or `firstAvailable` is required";
const NO_SUCH_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

pub struct ResourceClaimStrategy;

pub struct ResourceClaimTemplateStrategy;

impl Strategy for ResourceClaimStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            default_spec(spec);
        }
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        if ctx.subresource == Subresource::Status {
            drop_deallocated(object, old);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(
            &mut errors,
            &Path::new("spec"),
            object.field("spec").unwrap_or(&Value::Null),
        );
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if ctx.subresource == Subresource::Status {
            check_status(&mut errors, object, old);
        } else if !same(object.field("spec"), old.field("spec")) {
            let shown = internal_claim::claim(object.field("spec").unwrap_or(&Value::Null));
            errors.invalid(&Path::new("spec"), shown, IMMUTABLE);
        }
        errors
    }
}

impl Strategy for ResourceClaimTemplateStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        if let Some(spec) = spec.and_then(|spec| part(spec, "spec")) {
            default_spec(spec);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        check_template_meta(
            &mut errors,
            &path.child("metadata"),
            object.at("/spec/metadata").and_then(Value::as_object),
        );
        check_spec(
            &mut errors,
            &path.child("spec"),
            object.at("/spec/spec").unwrap_or(&Value::Null),
        );
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.validate(ctx, object);
        if same(object.field("spec"), old.field("spec")) {
            return errors;
        }
        let mut shown: Map = object
            .at("/spec/metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        shown.retain(|_, value| !value.is_null());
        shown.insert(
            "Spec",
            internal_claim::claim(object.at("/spec/spec").unwrap_or(&Value::Null)),
        );
        errors.invalid(&Path::new("spec"), shown, IMMUTABLE);
        errors
    }
}

/// Forgets what is told of devices that were allocated and no longer are
/// (`dropDeallocatedStatusDevices`).
fn drop_deallocated(object: &mut Object, old: &Object) {
    let results = "/status/allocation/devices/results";
    let allocated: BTreeSet<DeviceId> = object.array_at(results).iter().map(device_id).collect();
    let gone: BTreeSet<DeviceId> = old
        .array_at(results)
        .iter()
        .map(device_id)
        .filter(|id| !allocated.contains(id))
        .collect();
    let kept: Vec<Value> = object
        .array_at("/status/devices")
        .iter()
        .filter(|device| !gone.contains(&device_id(device)))
        .cloned()
        .collect();
    if kept.len() == object.array_at("/status/devices").len() {
        return;
    }
    let status = object.section_mut("status");
    if kept.is_empty() {
        status.shift_remove("devices");
    } else {
        status.insert("devices", kept.into());
    }
}

fn default_spec(spec: &mut Map) {
    let Some(devices) = part(spec, "devices") else {
        return;
    };
    for request in parts(devices, "requests") {
        if let Some(exactly) = part(request, "exactly") {
            default_request(exactly);
        }
        for alternative in parts(request, "firstAvailable") {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Map) {
    fill_text(request, "allocationMode", "ExactCount");
    if request.str("allocationMode") == "ExactCount" {
        fill_number(request, "count", 1);
    }
    for toleration in parts(request, "tolerations") {
        fill_text(toleration, "operator", "Equal");
    }
}

fn check_spec(errors: &mut ErrorList, path: &Path, spec: &Value) {
    let path = path.child("devices");
    let none = Value::Null;
    let devices = spec.field("devices").unwrap_or(&none);
    let requests = devices.list("requests");
    let requests_path = path.child("requests");
    if check_size(errors, &requests_path, requests, REQUESTS_MAX) {
        for (index, request) in requests.iter().enumerate() {
            check_request(errors, &requests_path.index(index), request);
        }
        let names = requests.iter().map(|request| request.str("name"));
        check_unique(errors, &requests_path, names);
    }
    let (constraints, constraints_path) = (devices.list("constraints"), path.child("constraints"));
    if check_size(errors, &constraints_path, constraints, CONSTRAINTS_MAX) {
        for (index, constraint) in constraints.iter().enumerate() {
            check_constraint(errors, &constraints_path.index(index), constraint, requests);
        }
    }
    check_configs(
        errors,
        &path.child("config"),
        devices.list("config"),
        requests,
    );
}

fn check_configs(errors: &mut ErrorList, path: &Path, configs: &[Value], requests: &[Value]) {
    if !check_size(errors, path, configs, CONFIGS_MAX) {
        return;
    }
    for (index, config) in configs.iter().enumerate() {
        let path = path.index(index);
        check_names(
            errors,
            &path.child("requests"),
            config.list("requests"),
            requests,
        );
        check_opaque(errors, &path, config);
    }
}

fn check_request(errors: &mut ErrorList, path: &Path, request: &Value) {
    check_label(errors, &path.child("name"), request.str("name"));
    let alternatives = request.list("firstAvailable");
    match (request.field("exactly"), alternatives.is_empty()) {
        (None, true) => errors.required(path, ONE_FORM),
        (Some(_), false) => {
            errors.invalid(
                path,
                Value::Null,
                format!("{ONE_FORM}, but multiple fields are set"),
            );
        }
        (Some(exactly), true) => check_devices(errors, &path.child("exactly"), exactly),
        (None, false) => {
            let path = path.child("firstAvailable");
            if !check_size(errors, &path, alternatives, ALTERNATIVES_MAX) {
                return;
            }
            for (index, alternative) in alternatives.iter().enumerate() {
                check_label(
                    errors,
                    &path.index(index).child("name"),
                    alternative.str("name"),
                );
                check_devices(errors, &path.index(index), alternative);
            }
            check_unique(
                errors,
                &path,
                alternatives.iter().map(|one| one.str("name")),
            );
        }
    }
}

fn check_devices(errors: &mut ErrorList, path: &Path, request: &Value) {
    let class = request.str("deviceClassName");
    if class.is_empty() {
        errors.required(&path.child("deviceClassName"), "");
    } else {
        invalid_each(
            errors,
            &path.child("deviceClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
    check_selectors(errors, &path.child("selectors"), request.list("selectors"));
    let count = request.int("count").unwrap_or(0);
    match request.str("allocationMode") {
        "All" if count != 0 => {
            errors.invalid(
                &path.child("count"),
                count,
                "must not be specified when allocationMode is 'All'",
            );
        }
        "ExactCount" if count <= 0 => {
            errors.invalid(&path.child("count"), count, "must be greater than zero")
        }
        mode => one_of(
            errors,
            &path.child("allocationMode"),
            mode,
            &["All", "ExactCount"],
        ),
    }
    for (index, toleration) in request.list("tolerations").iter().enumerate() {
        check_toleration(errors, &path.child("tolerations").index(index), toleration);
    }
}

fn check_toleration(errors: &mut ErrorList, path: &Path, toleration: &Value) {
    let (key, value, effect) = (
        toleration.str("key"),
        toleration.str("value"),
        toleration.str("effect"),
    );
    if !key.is_empty() {
        invalid_each(errors, &path.child("key"), key, names::qualified_name(key));
    }
    match toleration.str("operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(
                &path.child("value"),
                value,
                "must be empty for operator `Exists`",
            );
        }
        "Equal" => invalid_each(
            errors,
            &path.child("value"),
            value,
            names::label_value(value),
        ),
        operator => required_one_of(
            errors,
            &path.child("operator"),
            operator,
            &["Equal", "Exists"],
        ),
    }
    if !effect.is_empty() {
        one_of(
            errors,
            &path.child("effect"),
            effect,
            &["NoExecute", "NoSchedule", "None"],
        );
    }
}

fn check_constraint(errors: &mut ErrorList, path: &Path, constraint: &Value, requests: &[Value]) {
    check_names(
        errors,
        &path.child("requests"),
        constraint.list("requests"),
        requests,
    );
    let given = ["matchAttribute", "distinctAttribute"]
        .into_iter()
        .find(|key| constraint.opt_str(key).is_some());
    let Some(key) = given else {
        let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errors.required(path, detail);
        return;
    };
    let (name, path) = (constraint.str(key), path.child(key));
    check_qualified_name(errors, &path, name);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(&path, name, detail);
    }
}

/// Names of requests, or of alternatives of one.
fn check_names(errors: &mut ErrorList, path: &Path, names: &[Value], requests: &[Value]) {
    if !check_size(errors, path, names, REQUESTS_MAX) {
        return;
    }
    for (index, name) in names.iter().enumerate() {
        if errors.is_full() {
            return;
        }
        check_name(
            errors,
            &path.index(index),
            name.as_str().unwrap_or(""),
            requests,
        );
    }
    check_unique(
        errors,
        path,
        names.iter().map(|name| name.as_str().unwrap_or("")),
    );
}

fn check_name(errors: &mut ErrorList, path: &Path, name: &str, requests: &[Value]) {
    if name.matches('/').count() > 1 {
        errors.invalid(path, name, NO_SUCH_REQUEST);
        return;
    }
    for part in name.split('/') {
        check_label(errors, path, part);
    }
    let known = requests.iter().any(|request| match name.split_once('/') {
        None => request.str("name") == name,
        Some((outer, inner)) => {
            request.str("name") == outer
                && request
                    .list("firstAvailable")
                    .iter()
                    .any(|alternative| alternative.str("name") == inner)
        }
    });
    if !known {
        errors.invalid(path, name, NO_SUCH_REQUEST);
    }
}

fn check_status(errors: &mut ErrorList, object: &Object, old: &Object) {
    let path = Path::new("status");
    let users = object.array_at("/status/reservedFor");
    let users_path = path.child("reservedFor");
    if check_size(errors, &users_path, users, USERS_MAX) {
        check_users(errors, &users_path, users);
    }
    check_allocated_devices(errors, &path.child("devices"), object);
    let given = |object: &Object| {
        object
            .at("/status/allocation")
            .filter(|one| !one.is_null())
            .cloned()
    };
    let (allocation, before) = (given(object), given(old));
    if !users.is_empty() {
        let known = old.array_at("/status/reservedFor");
        if allocation.is_none() {
            errors.forbidden(
                &users_path,
                "may not be specified when `allocated` is not set",
            );
        } else if object.deletion_timestamp().is_some()
            && users.len() <= USERS_MAX
            && users.iter().any(|user| !known.contains(user))
        {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&users_path, detail);
        }
    }
    let path = path.child("allocation");
    match (allocation, before) {
        (Some(new), Some(old)) if !same(Some(&new), Some(&old)) => {
            errors.invalid(&path, new, IMMUTABLE)
        }
        (Some(new), None) => check_allocation(
            errors,
            &path,
            &new,
            object.array_at("/spec/devices/requests"),
        ),
        _ => {}
    }
}

fn check_users(errors: &mut ErrorList, path: &Path, users: &[Value]) {
    for (index, user) in users.iter().enumerate() {
        for key in ["resource", "name", "uid"] {
            if user.str(key).is_empty() {
                errors.required(&path.index(index).child(key), "");
            }
        }
    }
    check_unique(errors, path, users.iter().map(|user| user.str("uid")));
}

/// The driver, the pool, the name and the share of a device.
type DeviceId<'a> = [&'a str; 4];

fn device_id(device: &Value) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|key| device.str(key))
}

/// Checks what drivers tell of the devices that the claim was given.
fn check_allocated_devices(errors: &mut ErrorList, path: &Path, object: &Object) {
    let allocated: BTreeSet<DeviceId> = object
        .array_at("/status/allocation/devices/results")
        .iter()
        .map(device_id)
        .collect();
    let mut seen = BTreeSet::new();
    for (index, device) in object.array_at("/status/devices").iter().enumerate() {
        if errors.is_full() {
            return;
        }
        let (path, id) = (path.index(index), device_id(device));
        let [driver, pool, name, share] = id;
        let shown = json!({"Driver": driver, "Pool": pool, "Device": name, "ShareID": share});
        check_csi_driver_name(errors, &path.child("driver"), driver);
        check_pool(errors, &path.child("pool"), pool);
        check_label(errors, &path.child("device"), name);
        if let Some(share) = device.opt_str("shareID") {
            check_uuid(errors, &path.child("shareID"), share);
        }
        if !allocated.contains(&id) {
            let detail = "must be an allocated device in the claim";
            errors.invalid(&path, shown.clone(), detail);
        }
        let conditions = device.list("conditions");
        check_size(
            errors,
            &path.child("conditions"),
            conditions,
            CONDITIONS_MAX,
        );
        validate_conditions(errors, &path.child("conditions"), conditions);
        if let Some(data) = device.field("data") {
            check_json(errors, &path.child("data"), Some(data));
        }
        if let Some(network) = device.map("networkData") {
            check_network(errors, &path.child("networkData"), network);
        }
        if !seen.insert(id) {
            errors.duplicate(&path, shown);
        }
    }
}

fn check_network(errors: &mut ErrorList, path: &Path, network: &Map) {
    for (key, max) in [
        ("interfaceName", INTERFACE_NAME_MAX),
        ("hardwareAddress", HARDWARE_ADDRESS_MAX),
    ] {
        if network.str(key).len() > max {
            errors.too_long(&path.child(key), max);
        }
    }
    let (path, addresses) = (path.child("ips"), network.list("ips"));
    if !check_size(errors, &path, addresses, ADDRESSES_MAX) {
        return;
    }
    let texts = || {
        addresses
            .iter()
            .map(|address| address.as_str().unwrap_or(""))
    };
    for (index, address) in texts().enumerate() {
        let problems = names::interface_address(address);
        invalid_each(errors, &path.index(index), address, problems);
    }
    check_unique(errors, &path, texts());
}

fn check_allocation(errors: &mut ErrorList, path: &Path, allocation: &Value, requests: &[Value]) {
    let none = Value::Null;
    let devices = allocation.field("devices").unwrap_or(&none);
    let devices_path = path.child("devices");
    let results = devices.list("results");
    if check_size(errors, &devices_path.child("results"), results, RESULTS_MAX) {
        for (index, result) in results.iter().enumerate() {
            let path = devices_path.child("results").index(index);
            check_result(errors, &path, result, requests);
        }
    }
    let (configs, configs_path) = (devices.list("config"), devices_path.child("config"));
    // Those of the class and those of the claim.
    let fits = check_size(errors, &configs_path, configs, 2 * CONFIGS_MAX);
    for (index, config) in configs.iter().enumerate().filter(|_| fits) {
        let path = configs_path.index(index);
        required_one_of(
            errors,
            &path.child("source"),
            config.str("source"),
            &["FromClaim", "FromClass"],
        );
        check_names(
            errors,
            &path.child("requests"),
            config.list("requests"),
            requests,
        );
        check_opaque(errors, &path, config);
    }
    if let Some(selector) = allocation.map("nodeSelector") {
        check_node_selector(errors, &path.child("nodeSelector"), selector, false);
    }
}

fn check_result(errors: &mut ErrorList, path: &Path, result: &Value, requests: &[Value]) {
    check_name(
        errors,
        &path.child("request"),
        result.str("request"),
        requests,
    );
    check_csi_driver_name(errors, &path.child("driver"), result.str("driver"));
    check_pool(errors, &path.child("pool"), result.str("pool"));
    check_label(errors, &path.child("device"), result.str("device"));
    check_binding(errors, path, result);
    if let Some(share) = result.opt_str("shareID") {
        check_uuid(errors, &path.child("shareID"), share);
    }
}

/// The name of a pool: subdomains joined by slashes.
pub fn check_pool(errors: &mut ErrorList, path: &Path, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > POOL_MAX {
        errors.too_long(path, POOL_MAX);
    }
    for part in name.split('/') {
        invalid_each(errors, path, part, names::dns1123_subdomain(part));
    }
}
