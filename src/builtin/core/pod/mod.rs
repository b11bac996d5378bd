//! Pods: creation, status, grace, selectors. The checks of their spec are next door, by noun.

pub mod columns;
pub mod status;
pub mod update;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use crate::builtin::defaulting::{fill, part, part_or_new, parts};
use crate::builtin::pod_spec::defaults::default_pod;
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::pod_spec::{
    annotations, defaults, feature_gates, pod_level_resources, warnings,
};
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD, keep_meta};
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names, time};
use crate::registry::strategy::text_or;
use crate::registry::validation::Fields;
use crate::registry::{Context, MetaChecks, Strategy, Subresource};
use update::check_pod;

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

pub use status::set_condition;

/// The entry of `pods`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "pods",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        pod_spec: Some("/spec"),
        returns_deleted: true,
        selectable: POD_FIELDS,
        status_keeps: &["ownerReferences"],
        status_resets: &[
            "/spec",
            "/metadata/deletionTimestamp",
            "/metadata/ownerReferences",
        ],
        ..WORKLOAD
    },
    strategy: &PodStrategy,
    printer: &columns::PodPrinter,
};

pub struct PodStrategy;

/// `podIP` is the first of `podIPs`; older clients know only the one
/// (`pkg/apis/core/v1/conversion.go`).
fn sync_ips(object: &mut Object) {
    let first = object.str_at("/status/podIPs/0/ip").to_owned();
    let single = object.str_at("/status/podIP").to_owned();
    if !first.is_empty() && first != single {
        object.section_mut("status").insert("podIP", first.into());
    } else if first.is_empty() && !single.is_empty() {
        object
            .section_mut("status")
            .insert("podIPs", json!([{ "ip": single }]));
    }
}

impl Strategy for PodStrategy {
    fn default(&self, object: &mut Object) {
        default_pod(object);
        sync_ips(object);
    }

    fn prepare_for_create(&self, ctx: &Context, object: &mut Object) {
        let mut status = json!({"phase": "Pending"});
        if let Some(spec) = object.map("spec") {
            status["qosClass"] = pod_level_resources::qos_class(spec).into();
            if !spec.list("schedulingGates").is_empty() {
                status["conditions"] = json!([{
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": null,
                    "lastTransitionTime": time::format(ctx.now.as_second()),
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }]);
            }
        }
        object.insert("status", status);
        // Admission may have chosen the service account since the defaults ran.
        defaults::service_account_alias(object.section_mut("spec"));
        merge_label_keys(object);
        for (container, profile) in annotations::app_armor_of_annotations(object) {
            if let Some(profile) = profile {
                set_app_armor(object.section_mut("spec"), &container, &profile);
            }
        }
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        match ctx.subresource {
            Subresource::Main => {}
            Subresource::Status => {
                prepare_status(object, old);
                feature_gates::drop_gated_status(object, old);
            }
            Subresource::Other("ephemeralcontainers") => {
                keep_all_but_ephemeral_containers(object, old)
            }
            Subresource::Other("resize") => keep_all_but_resources(object, old),
            Subresource::Other(_) => {}
        }
    }

    fn warnings_before_create(&self, object: &Object) -> Vec<String> {
        let path = Path::new("metadata").child("annotations");
        let say = |(container, _)| {
            let key = format!("{}{container}", annotations::APP_ARMOR);
            format!("{}: {}", path.key(&key), warnings::FIELD_FOR_APP_ARMOR)
        };
        annotations::app_armor_of_annotations(object)
            .into_iter()
            .map(say)
            .collect()
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let options = PodValidationOptions::of_pods(ctx, None);
        let mut errors = check_pod(object, &options);
        let path = Path::new("spec");
        let spec = object.section("spec");
        if !spec.list("ephemeralContainers").is_empty() {
            errors.forbidden(
                &path.child("ephemeralContainers"),
                "cannot be set on create",
            );
        }
        if !spec.str("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.forbidden(&path.child("nodeName"), detail);
        }
        annotations::check_profiles_match(&mut errors, &path, object.annotations(), spec);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        match ctx.subresource {
            Subresource::Main => update::check_update(ctx, object, old),
            Subresource::Status => update::check_status_update(ctx, object, old),
            Subresource::Other("ephemeralcontainers") => {
                update::check_ephemeral_update(ctx, object, old)
            }
            Subresource::Other("resize") => update::check_resize(ctx, object, old),
            Subresource::Other(_) => ErrorList::new(),
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        let problems = names::dns1123_label(object.name());
        if !problems.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
                problems.join(" ")
            ));
        }
        warnings.extend(warnings::pod_warnings(&Path::default(), object, false));
        warnings
    }

    /// The field that each kubelet selects its pods by.
    fn indexed_field(&self) -> Option<&'static str> {
        Some("spec.nodeName")
    }

    fn selectable_value<'a>(&self, object: &'a dyn FieldReader, field: &str) -> Cow<'a, str> {
        match field {
            "spec.hostNetwork" => text_or(object, field, "false"),
            // Upstream takes the label but knows no value of it (`ToSelectableFields`).
            "status.podIPs" => Cow::Borrowed(""),
            "status.podIP" => match object.text_at("status.podIPs.0.ip") {
                first if first.is_empty() => object.text_at("status.podIP"),
                first => first,
            },
            other => object.text_at(other),
        }
    }

    fn grace_period(&self, object: &Object, requested: Option<i64>) -> Option<i64> {
        let seconds = requested
            .or_else(|| object.i64_at("/spec/terminationGracePeriodSeconds"))
            .unwrap_or(0);
        let phase = object.str_at("/status/phase");
        if object.str_at("/spec/nodeName").is_empty() || phase == "Failed" || phase == "Succeeded" {
            return Some(0);
        }
        Some(if seconds < 0 { 1 } else { seconds })
    }
}

/// A status write may not clear what the server alone knows: the class of service and observed
/// generations.
fn prepare_status(object: &mut Object, old: &Object) {
    let qos = old.str_at("/status/qosClass");
    let observed = old.i64_at("/status/observedGeneration").unwrap_or(0);
    // Of conditions of one type, the first stands for the first.
    let mut earlier: HashMap<&str, VecDeque<i64>> = HashMap::new();
    for condition in old.array_at("/status/conditions") {
        earlier
            .entry(condition.str("type"))
            .or_default()
            .push_back(condition.int("observedGeneration").unwrap_or(0));
    }
    let status = object.section_mut("status");
    if status.str("qosClass").is_empty() && !qos.is_empty() {
        status.insert("qosClass", qos.into());
    }
    if status.int("observedGeneration").unwrap_or(0) == 0 && observed != 0 {
        status.insert("observedGeneration", observed.into());
    }
    for condition in parts(status, "conditions") {
        let Some(generation) = earlier
            .get_mut(condition.str("type"))
            .and_then(VecDeque::pop_front)
        else {
            continue;
        };
        if condition.int("observedGeneration").unwrap_or(0) == 0 && generation != 0 {
            condition.insert("observedGeneration", generation.into());
        }
    }
}

/// The ephemeralcontainers subresource changes nothing but that list.
fn keep_all_but_ephemeral_containers(object: &mut Object, old: &Object) {
    let containers = object.at("/spec/ephemeralContainers").cloned();
    for key in ["spec", "status"] {
        if let Some(value) = old.get(key) {
            object.insert(key.to_owned(), value.clone());
        }
    }
    for key in crate::builtin::resource_traits::METADATA_FIELDS {
        keep_meta(object, old, key);
    }
    let spec = object.section_mut("spec");
    match containers {
        Some(containers) => spec.insert("ephemeralContainers", containers),
        None => spec.shift_remove("ephemeralContainers"),
    };
}

/// The resize subresource changes nothing but resources, and how containers take to changes of
/// them. What renames or counts containers anew is left for the checks to refuse.
fn keep_all_but_resources(object: &mut Object, old: &Object) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let (Some(mut new), Some(old_spec)) = (object.map("spec").cloned(), old.map("spec")) else {
        return;
    };
    if LISTS
        .iter()
        .any(|key| new.list(key).len() != old_spec.list(key).len())
    {
        return;
    }
    for key in LISTS {
        let names = |spec: &Map| -> Vec<String> {
            spec.list(key)
                .iter()
                .map(|one| one.str("name").to_owned())
                .collect()
        };
        if names(&new) != names(old_spec) {
            continue;
        }
        for (container, old) in parts(&mut new, key).zip(old_spec.list(key)) {
            let mut whole = old.as_object().cloned().unwrap_or_default();
            for member in ["resources", "resizePolicy"] {
                put(&mut whole, member, container.shift_remove(member));
            }
            *container = whole;
        }
    }
    let mut spec = old_spec.clone();
    for key in ["containers", "initContainers", "resources"] {
        put(&mut spec, key, new.shift_remove(key));
    }
    object.insert("spec", spec.into());
    put(object, "status", old.get("status").cloned());
    for key in crate::builtin::resource_traits::METADATA_FIELDS {
        keep_meta(object, old, key);
    }
}

fn put(map: &mut Map, key: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.shift_remove(key),
    };
}

/// Gives the container of that name its profile.
fn set_app_armor(spec: &mut Map, name: &str, profile: &Value) {
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for container in parts(spec, key).filter(|container| container.str("name") == name) {
            fill(
                part_or_new(container, "securityContext"),
                "appArmorProfile",
                profile.clone(),
            );
        }
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` of affinity terms and spread constraints become
/// requirements of their selectors, with the values that the pod's labels have now.
fn merge_label_keys(object: &mut Object) {
    let Some(labels) = object.labels().cloned() else {
        return;
    };
    let spec = object.section_mut("spec");
    if let Some(affinity) = part(spec, "affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(affinity) = part(affinity, kind) else {
                continue;
            };
            for preferred in parts(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = part(preferred, "podAffinityTerm") {
                    require_label_keys(term, &labels);
                }
            }
            for term in parts(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
                require_label_keys(term, &labels);
            }
        }
    }
    for constraint in parts(spec, "topologySpreadConstraints") {
        require_label_keys(constraint, &labels);
    }
}

fn require_label_keys(term: &mut Map, labels: &Map) {
    let mut added = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.list(keys).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    let Some(selector) = part(term, "labelSelector") else {
        return;
    };
    let requirements = selector
        .entry("matchExpressions")
        .or_insert_with(|| json!([]));
    if let Value::Array(requirements) = requirements {
        requirements.extend(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn defaults_are_complete_and_idempotent() {
        let mut object = pod(json!({"spec": {
            "containers": [{
                "name": "a", "image": "nginx",
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "resources": {"limits": {"cpu": "1"}},
            }],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
        }}));
        PodStrategy.default(&mut object);
        let want = json!({"spec": {
            "containers": [{
                "name": "a", "image": "nginx",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                },
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}],
            "enableServiceLinks": true,
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
        }});
        assert_eq!(Value::from(object.clone()), want);
        PodStrategy.default(&mut object);
        assert_eq!(Value::from(object), want);
    }

    #[test]
    fn a_resize_changes_resources_only() {
        let old = pod(
            json!({"spec": {"nodeName": "n", "containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}),
        );
        let mut new = pod(
            json!({"spec": {"containers": [{"name": "a", "image": "y", "resources": {"requests": {"cpu": "2"}}}]}}),
        );
        keep_all_but_resources(&mut new, &old);
        let want = json!({"nodeName": "n", "containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "2"}}}]});
        assert_eq!(new.at("/spec"), Some(&want));
        // A renamed container is left for the checks.
        let renamed = json!([{"name": "b", "image": "y"}]);
        let mut new = pod(json!({"spec": {"containers": renamed}}));
        keep_all_but_resources(&mut new, &old);
        assert_eq!(new.at("/spec/containers"), Some(&renamed));
        assert_eq!(new.str_at("/spec/nodeName"), "n");
    }

    #[test]
    fn only_a_scheduled_running_pod_has_grace() {
        let cases = [
            (
                json!({"spec": {"terminationGracePeriodSeconds": 30}}),
                None,
                0,
            ),
            (
                json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}}),
                None,
                30,
            ),
            (
                json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}}),
                Some(5),
                5,
            ),
            (json!({"spec": {"nodeName": "n"}}), Some(-1), 1),
            (
                json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Failed"}}),
                Some(5),
                0,
            ),
        ];
        for (value, requested, want) in cases {
            assert_eq!(
                PodStrategy.grace_period(&pod(value.clone()), requested),
                Some(want),
                "{value}"
            );
        }
    }
}
