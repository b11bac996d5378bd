//! Nodes: taints, addresses, capacity, and the ranges of their pods.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, RowBuilder, condition, text, wide};
use crate::builtin::compute_resources::check_quantity;
use crate::builtin::defaulting::part;
use crate::builtin::internal_types;
use crate::builtin::pod_spec::scheduling::EFFECTS;
use crate::builtin::quantities::round_amounts;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, FieldError, Map, Object, Path, Value, go, json, names, str_at};
use crate::registry::strategy::text_or;
use crate::registry::validation::{Fields, cidr_warnings, invalid_each, same};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `nodes`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "nodes",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        status_on_create: true,
        selectable: &["spec.unschedulable"],
        ..WITH_STATUS
    },
    strategy: &NodeStrategy,
    printer: &PRINTER,
};

const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

pub struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(status) = part(object, "status") {
            round_amounts(status, "capacity");
            match status.map("capacity").cloned() {
                Some(capacity) if status.field("allocatable").is_none() => {
                    status.insert("allocatable", capacity.into());
                }
                _ => round_amounts(status, "allocatable"),
            }
        }
        pod_ranges(object);
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        drop_config_source(object, None);
        pod_ranges(object);
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        if ctx.subresource == Subresource::Main {
            drop_config_source(object, Some(old));
        } else if ctx.subresource == Subresource::Status {
            drop_config_status(object, Some(old));
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_annotations(&mut errors, object);
        check_taints(&mut errors, object);
        check_capacity(&mut errors, object);
        check_features(&mut errors, object);
        check_pod_ranges(&mut errors, object);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = if ctx.subresource == Subresource::Main {
            self.validate(ctx, object)
        } else {
            ErrorList::new()
        };
        check_annotations(&mut errors, object);
        check_capacity(&mut errors, object);
        check_features(&mut errors, object);
        let mut seen = HashSet::new();
        for (index, address) in object.array_at("/status/addresses").iter().enumerate() {
            if !seen.insert((address.str("type"), address.str("address"))) {
                let path = Path::new("status").child("addresses").index(index);
                errors.duplicate(
                    &path,
                    json!({"Type": address.str("type"), "Address": address.str("address")}),
                );
            }
        }
        check_unchanged(&mut errors, object, old);
        check_taints(&mut errors, object);
        if object.str_at("/spec/externalID") != old.str_at("/spec/externalID") {
            errors.forbidden(&Path::new("spec").child("externalID"), "may not be updated");
        }
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        if object
            .at("/spec/configSource")
            .is_some_and(|source| !source.is_null())
        {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !object.str_at("/spec/externalID").is_empty() {
            warnings.push(
                "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
            );
        }
        for (index, range) in object.array_at("/spec/podCIDRs").iter().enumerate() {
            let path = Path::new("spec").child("podCIDRs").index(index);
            warnings.extend(cidr_warnings(&path, range.as_str().unwrap_or("")));
        }
        warnings
    }

    fn selectable_value<'a>(&self, object: &'a dyn FieldReader, field: &str) -> Cow<'a, str> {
        match field {
            "spec.unschedulable" => text_or(object, field, "false"),
            other => object.text_at(other),
        }
    }
}

/// `podCIDR` is the first of `podCIDRs`, whichever was given.
fn pod_ranges(object: &mut Object) {
    let Some(spec) = part(object, "spec") else {
        return;
    };
    let first = spec
        .list("podCIDRs")
        .first()
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let single = spec.str("podCIDR").to_owned();
    match (single.is_empty(), first.is_empty()) {
        (false, true) => spec.insert("podCIDRs", json!([single])),
        (true, false) => spec.insert("podCIDR", first.into()),
        // The singular wins: an old client changed it and left the list alone.
        (false, false) if single != first => spec.insert("podCIDRs", json!([single])),
        _ => None,
    };
}

/// The kubelet's dynamic configuration is gone; what refers to it stays only where it is.
fn drop_config_source(object: &mut Object, old: Option<&Object>) {
    if old.is_some_and(|old| old.at("/spec/configSource").is_some()) {
        return;
    }
    if let Some(spec) = part(object, "spec") {
        spec.shift_remove("configSource");
    }
    if old.is_none() {
        drop_config_status(object, old);
    }
}

/// The same of what the kubelet told of it.
fn drop_config_status(object: &mut Object, old: Option<&Object>) {
    if old.is_some_and(|old| old.at("/status/config").is_some()) {
        return;
    }
    if let Some(status) = part(object, "status") {
        status.shift_remove("config");
    }
}

fn check_annotations(errors: &mut ErrorList, object: &Object) {
    let avoid = object
        .annotations()
        .map_or("", |annotations| annotations.str(AVOID_PODS));
    if avoid.is_empty() {
        return;
    }
    if let Err(error) = serde_json::from_str::<Map>(avoid) {
        let why = if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            error.to_string()
        };
        let path = Path::new("metadata")
            .child("annotations")
            .child("AvoidPods");
        errors.invalid(&path, AVOID_PODS, why);
    }
}

/// Taints, at the path where upstream sees them.
fn check_taints(errors: &mut ErrorList, object: &Object) {
    let mut seen = HashSet::new();
    for (index, taint) in object.array_at("/spec/taints").iter().enumerate() {
        let path = Path::new("metadata").child("taints").index(index);
        let (key, value, effect) = (taint.str("key"), taint.str("value"), taint.str("effect"));
        invalid_each(errors, &path.child("key"), key, names::qualified_name(key));
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(&path.child("value"), value, problems.join(";"));
        }
        if effect.is_empty() {
            errors.required(&path.child("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.not_supported(&path.child("effect"), effect, &EFFECTS);
        }
        if !seen.insert((effect, key)) {
            let empty = Map::new();
            let mut error = FieldError::duplicate(
                &path,
                internal_types::json("Taint", taint.as_object().unwrap_or(&empty)),
            );
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
}

fn check_capacity(errors: &mut ErrorList, object: &Object) {
    let Some(status) = object.map("status") else {
        return;
    };
    for key in ["capacity", "allocatable"] {
        for (name, amount) in status.entries(key) {
            check_quantity(
                errors,
                &Path::new("status").child(key).child(name),
                name,
                amount,
            );
        }
    }
}

/// Returns what is wrong with the name of a feature: words between slashes, the first of which
/// begins with a capital.
fn feature_problem(feature: &str) -> Option<String> {
    let word = |part: &str| part.bytes().all(|c| c.is_ascii_alphanumeric()) && !part.is_empty();
    let fine = feature
        .bytes()
        .next()
        .is_some_and(|c| c.is_ascii_uppercase())
        && feature.split('/').all(word)
        && feature
            .split('/')
            .all(|part| part.bytes().next().is_some_and(|c| c.is_ascii_alphabetic()));
    let quoted = go::quote(feature);
    if feature.len() > names::SUBDOMAIN_MAX {
        let problem = names::max_len_error(names::SUBDOMAIN_MAX);
        Some(format!("invalid feature name {quoted}: {problem}"))
    } else if fine {
        None
    } else {
        Some(format!(
            "invalid feature name {quoted}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
        ))
    }
}

fn check_features(errors: &mut ErrorList, object: &Object) {
    let features = object.array_at("/status/declaredFeatures");
    let path = Path::new("status").child("declaredFeatures");
    for (index, feature) in features.iter().filter_map(Value::as_str).enumerate() {
        if let Some(problem) = feature_problem(feature) {
            errors.invalid(&path.index(index), feature, problem);
        }
    }
    for (index, pair) in features.windows(2).enumerate() {
        let (one, next) = (
            pair[0].as_str().unwrap_or(""),
            pair[1].as_str().unwrap_or(""),
        );
        match one.cmp(next) {
            std::cmp::Ordering::Equal => errors.duplicate(&path.index(index + 1), next),
            std::cmp::Ordering::Greater => {
                errors.invalid(
                    &path.index(index + 1),
                    next,
                    "list must be sorted alphabetically",
                );
            }
            std::cmp::Ordering::Less => {}
        }
    }
}

fn check_pod_ranges(errors: &mut ErrorList, object: &Object) {
    let ranges = object.array_at("/spec/podCIDRs");
    let path = Path::new("spec").child("podCIDRs");
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        invalid_each(errors, &path.index(index), range, names::legacy_cidr(range));
    }
    let bad = ranges
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
        .find(|(_, range)| names::parse_cidr_sloppy(range).is_none());
    if let (Some((index, range)), true) = (bad, ranges.len() > 1) {
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {range})"
        );
        errors.internal(&path, detail);
    }
    let families: Vec<bool> = ranges
        .iter()
        .filter_map(Value::as_str)
        .filter_map(names::parse_cidr_sloppy)
        .map(|(ip, _)| ip.is_ipv6())
        .collect();
    let dual = families.contains(&true) && families.contains(&false);
    if ranges.len() > 1 && (!dual || ranges.len() > 2) {
        errors.invalid(
            &path,
            ranges,
            "may specify no more than one CIDR for each IP family",
        );
    }
}

/// Checks the fields that may be set once.
fn check_unchanged(errors: &mut ErrorList, object: &Object, old: &Object) {
    let (new_ranges, old_ranges) = (object.at("/spec/podCIDRs"), old.at("/spec/podCIDRs"));
    if old_ranges
        .and_then(Value::as_array)
        .is_some_and(|ranges| !ranges.is_empty())
        && !same(new_ranges, old_ranges)
    {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&Path::new("spec").child("podCIDRs"), detail);
    }
    let (new_id, old_id) = (
        object.str_at("/spec/providerID"),
        old.str_at("/spec/providerID"),
    );
    if !old_id.is_empty() && new_id != old_id {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&Path::new("spec").child("providerID"), detail);
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Status", "Whether the node is ready and takes new pods"),
        text("Roles", "The roles that the node's labels name"),
        AGE,
        text("Version", "The version of its kubelet"),
        wide("Internal-IP", "Its address inside the cluster's network"),
        wide("External-IP", "Its address outside the cluster's network"),
        wide("OS-Image", "Its operating system"),
        wide("Kernel-Version", "Its kernel"),
        wide("Container-Runtime", "Its container runtime and version"),
    ],
    paths: "metadata.labels spec.unschedulable status.conditions.type \
        status.conditions.status status.addresses status.nodeInfo",
    fill: node,
};

fn node(row: &mut RowBuilder) {
    let object = row.object;
    let mut status = match condition(object, "/status/conditions", "Ready")
        .map(|condition| str_at(condition, "/status"))
    {
        None => "Unknown".to_owned(),
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if object.bool_at("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind| {
        let addresses = object.array_at("/status/addresses").iter();
        addresses
            .filter(|one| str_at(one, "/type") == kind)
            .map(|one| str_at(one, "/address"))
            .next()
            .unwrap_or(NONE)
    };
    let info = |field| match object.str_at(field) {
        "" => "<unknown>",
        text => text,
    };
    let mut kernel = info("/status/nodeInfo/kernelVersion").to_owned();
    if let Some(architecture) =
        Some(object.str_at("/status/nodeInfo/architecture")).filter(|text| !text.is_empty())
    {
        kernel = format!("{kernel} ({architecture})");
    }
    row.name()
        .cell(status)
        .cell(node_roles(object))
        .age()
        .text("/status/nodeInfo/kubeletVersion");
    row.cell(address("InternalIP")).cell(address("ExternalIP"));
    row.cell(info("/status/nodeInfo/osImage"))
        .cell(kernel)
        .cell(info("/status/nodeInfo/containerRuntimeVersion"));
}

/// Roles are labels of the form `node-role.kubernetes.io/ROLE` or `kubernetes.io/role=ROLE`.
fn node_roles(object: &Object) -> String {
    let labels = object.labels().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.join(",")
    }
}
