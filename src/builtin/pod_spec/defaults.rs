//! Defaults of pods and of templates of pods (upstream `pkg/apis/core/v1/defaults.go`).

use super::image::is_latest;
use super::volume_defaults::{default_field_ref, default_volume};
use crate::builtin::defaulting::{fill, fill_number, fill_text, part, parts};
use crate::builtin::quantities::{round_amounts, round_requirements};
use crate::meta::{Key, Map, Value, json};
use crate::registry::validation::Fields;

const OLD_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];
const TERMINATION_GRACE_SECONDS: i64 = 30;
/// Seconds and counts of a probe: timeout, period, successes, failures.
const PROBE: [(&str, i64); 4] = [
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
];

/// Defaults of a pod itself: those of its spec, and those that a template does not get.
pub fn default_pod(pod: &mut Map) {
    if let Some(status) = part(pod, "status") {
        default_status(status);
    }
    drop_old_annotations(pod);
    let Some(spec) = part(pod, "spec") else {
        return;
    };
    for key in ["containers", "initContainers"] {
        for container in parts(spec, key) {
            requests_from_limits(container);
        }
    }
    crate::builtin::pod_spec::pod_level_resources::default_resources(spec);
    fill(spec, "enableServiceLinks", true);
    if spec
        .int("terminationGracePeriodSeconds")
        .is_some_and(|seconds| seconds < 0)
    {
        spec.insert("terminationGracePeriodSeconds", 1.into());
    }
    if spec.flag("hostNetwork") {
        for key in ["containers", "initContainers"] {
            for container in parts(spec, key) {
                host_ports(container);
            }
        }
    }
    default_spec(spec);
}

/// Annotations that stood for init containers before they had a field are not kept.
fn drop_old_annotations(pod: &mut Map) {
    let Some(metadata) = part(pod, "metadata") else {
        return;
    };
    let Some(annotations) = part(metadata, "annotations") else {
        return;
    };
    if !annotations
        .keys()
        .any(|key| OLD_ANNOTATIONS.contains(&key.as_str()))
    {
        return;
    }
    annotations.retain(|key, _| !OLD_ANNOTATIONS.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.shift_remove("annotations");
    }
}

fn default_status(status: &mut Map) {
    round_amounts(status, "allocatedResources");
    round_requirements(status, "resources");
    for key in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in parts(status, key) {
            round_amounts(container, "allocatedResources");
            round_requirements(container, "resources");
        }
    }
}

/// Defaults of a pod template (the struct with `metadata` and `spec`).
pub fn default_template(template: &mut Map) {
    drop_old_annotations(template);
    default_spec(crate::builtin::defaulting::part_or_new(template, "spec"));
}

fn default_spec(spec: &mut Map) {
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(
        spec,
        "terminationGracePeriodSeconds",
        TERMINATION_GRACE_SECONDS,
    );
    fill_text(spec, "schedulerName", "default-scheduler");
    // The old name of the service account follows the new one.
    service_account_alias(spec);
    round_amounts(spec, "overhead");
    round_requirements(spec, "resources");
    for volume in parts(spec, "volumes") {
        default_volume(volume);
    }
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for container in parts(spec, key) {
            default_container(container);
        }
    }
}

/// `serviceAccount` is the deprecated twin of `serviceAccountName`: upstream keeps one and shows it
/// twice.
pub fn service_account_alias(spec: &mut Map) {
    let name = match (spec.str("serviceAccountName"), spec.str("serviceAccount")) {
        ("", "") => return,
        (name, alias) if name == alias => return,
        ("", alias) => alias,
        (name, _) => name,
    };
    let name = Value::from(name);
    spec.insert("serviceAccountName", name.clone());
    spec.insert("serviceAccount", name);
}

fn default_container(container: &mut Map) {
    if container.str("imagePullPolicy").is_empty() {
        let policy = if is_latest(container.str("image")) {
            "Always"
        } else {
            "IfNotPresent"
        };
        container.insert("imagePullPolicy", policy.into());
    }
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    round_requirements(container, "resources");
    for port in parts(container, "ports") {
        fill_text(port, "protocol", "TCP");
    }
    for variable in parts(container, "env") {
        if let Some(source) = part(variable, "valueFrom") {
            default_field_ref(source);
            if let Some(file) = part(source, "fileKeyRef") {
                fill(file, "optional", false);
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = part(container, key) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = part(container, "lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(handler) = part(lifecycle, key) {
                default_http_get(handler);
            }
        }
    }
}

fn default_probe(probe: &mut Map) {
    for (key, number) in PROBE {
        fill_number(probe, key, number);
    }
    default_http_get(probe);
    if let Some(grpc) = part(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Map) {
    if let Some(action) = part(handler, "httpGet") {
        fill_text(action, "path", "/");
        fill_text(action, "scheme", "HTTP");
    }
}

/// A limit without a request is also the request.
fn requests_from_limits(container: &mut Map) {
    let Some(resources) = part(container, "resources") else {
        return;
    };
    let missing: Vec<(Key, Value)> = resources
        .entries("limits")
        .filter(|(name, _)| {
            resources
                .map("requests")
                .is_none_or(|requests| !requests.contains_key(name))
        })
        .map(|(name, quantity)| (name.clone(), quantity.clone()))
        .collect();
    if !missing.is_empty() {
        crate::builtin::defaulting::part_or_new(resources, "requests").extend(missing);
    }
}

/// With the network of the host, container ports are host ports.
fn host_ports(container: &mut Map) {
    for port in parts(container, "ports") {
        if let Some(number) = port.int("containerPort") {
            fill_number(port, "hostPort", number);
        }
    }
}
