//! Containers of all three kinds: those that run, those that prepare, and those that come later.

use std::collections::HashSet;

use super::env::{check_env, check_env_from};
use super::mounts::check_mounts;
use super::probes::check_handlers;
use super::scope::PodScope;
use super::security::check_container_security;
use crate::builtin::compute_resources::{Requirements, check_container_name};
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, invalid_number};

pub const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESTART_ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
/// Restart rules of a container, and exit codes of a rule.
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
/// Fields that an ephemeral container may not have, in their order.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Checks the containers that run.
pub fn check_containers(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let containers = pod.spec.list("containers");
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = HashSet::new();
    for (index, container) in objects(containers) {
        let path = path.index(index);
        check_common(errors, &path, container, pod);
        if !seen.insert(container.str("name")) {
            errors.duplicate(&path.child("name"), container.str("name"));
        }
        check_handlers(errors, &path, container, pod);
        check_restart(errors, &path, container);
    }
    check_host_ports(errors, path, containers);
}

/// Checks the containers that prepare, and those among them that go on running.
pub fn check_init_containers(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let mut seen: HashSet<&str> = pod
        .spec
        .list("containers")
        .iter()
        .map(|container| container.str("name"))
        .collect();
    for (index, container) in objects(pod.spec.list("initContainers")) {
        let item = path.index(index);
        check_common(errors, &item, container, pod);
        if container.field("restartPolicy").is_some() {
            check_restart(errors, &item, container);
        } else if !container.list("restartPolicyRules").is_empty() {
            let path = item.child("restartPolicy");
            errors.required(&path, RULES_NEED_POLICY);
        }
        let name = container.str("name");
        if seen.contains(name) {
            errors.duplicate(&item.child("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        check_host_ports(
            errors,
            path,
            std::slice::from_ref(&pod.spec.list("initContainers")[index]),
        );
        let sidecar = container.str("restartPolicy") == "Always";
        if sidecar {
            check_handlers(errors, &item, container, pod);
            continue;
        }
        for key in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            if container.field(key).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&item.child(key), detail);
            }
        }
        for (index, policy) in container.list("resizePolicy").iter().enumerate() {
            if policy.str("restartPolicy") == "RestartContainer" {
                let path = item
                    .child("resizePolicy")
                    .index(index)
                    .child("restartPolicy");
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.invalid(&path, "RestartContainer", detail);
            }
        }
    }
}

/// Checks the containers that came later.
pub fn check_ephemeral_containers(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let others: HashSet<&str> = pod
        .spec
        .list("containers")
        .iter()
        .chain(pod.spec.list("initContainers"))
        .map(|container| container.str("name"))
        .collect();
    let mut seen = others.clone();
    for (index, container) in objects(pod.spec.list("ephemeralContainers")) {
        let path = path.index(index);
        check_common(errors, &path, container, pod);
        check_image_spaces(errors, &path, container);
        let name = container.str("name");
        if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let target = container.str("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target);
        }
        let set = |key: &&&str| match container.field(key) {
            None => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(map)) => **key != "resources" || !map.is_empty(),
            Some(_) => true,
        };
        for key in NOT_EPHEMERAL.iter().filter(set) {
            errors.forbidden(&path.child(key), "cannot be set for an Ephemeral Container");
        }
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !mount.str(key).is_empty() {
                    let path = path.child("volumeMounts").index(index).child(key);
                    errors.forbidden(&path, "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

fn objects(list: &[Value]) -> impl Iterator<Item = (usize, &Map)> {
    list.iter()
        .enumerate()
        .filter_map(|(index, value)| value.as_object().map(|map| (index, map)))
}

/// Names of images may not begin or end with white space; templates got away with it for too long
/// to refuse it there.
pub fn check_image_spaces(errors: &mut ErrorList, path: &Path, container: &Map) {
    let image = container.str("image");
    if image.trim() != image {
        errors.invalid(
            &path.child("image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
}

/// Checks the fields that all kinds of containers have.
fn check_common(errors: &mut ErrorList, path: &Path, container: &Map, pod: &PodScope) {
    let name = container.str("name");
    let problems = names::dns1123_label(name);
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !problems.is_empty() {
        invalid_each(errors, &path.child("name"), name, problems);
    }
    if container.str("image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    match container.str("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors.required(&path.child("terminationMessagePolicy"), ""),
        other => {
            let path = path.child("terminationMessagePolicy");
            errors.not_supported(&path, other, &["File", "FallbackToLogsOnError"]);
        }
    }
    check_ports(errors, path, container.list("ports"));
    check_env(errors, path, container);
    check_env_from(errors, path, container);
    if !container.list("volumeMounts").is_empty() || !container.list("volumeDevices").is_empty() {
        check_mounts(errors, path, container, pod);
    }
    check_pull_policy(
        errors,
        &path.child("imagePullPolicy"),
        container.str("imagePullPolicy"),
    );
    if let Some(resources) = container
        .map("resources")
        .filter(|resources| !resources.is_empty())
    {
        let rules = Requirements {
            check_name: check_container_name,
            claims: &pod.claims,
            allow_indivisible_huge_pages: pod.options.allow_indivisible_huge_pages,
        };
        rules.check(errors, &path.child("resources"), resources);
    }
    check_resize_policy(errors, path, container.list("resizePolicy"), pod);
    if let Some(context) = container.map("securityContext") {
        check_container_security(errors, &path.child("securityContext"), context, pod);
    }
}

pub fn check_pull_policy(errors: &mut ErrorList, path: &Path, policy: &str) {
    if policy.is_empty() {
        errors.required(path, "");
    } else if !PULL_POLICIES.contains(&policy) {
        errors.not_supported(path, policy, &PULL_POLICIES);
    }
}

fn check_ports(errors: &mut ErrorList, path: &Path, ports: &[Value]) {
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let item = || path.child("ports").index(index);
        let name = port.str("name");
        if !name.is_empty() {
            let problems = names::port_name(name);
            if !problems.is_empty() {
                invalid_each(errors, &item().child("name"), name, problems);
            } else if !seen.insert(name) {
                errors.duplicate(&item().child("name"), name);
            }
        }
        let number = port.int("containerPort").unwrap_or(0);
        if number == 0 {
            errors.required(&item().child("containerPort"), "");
        } else {
            let problems = names::port_number(number);
            invalid_number(errors, &item().child("containerPort"), number, problems);
        }
        if let Some(number) = port.int("hostPort").filter(|number| *number != 0) {
            invalid_number(
                errors,
                &item().child("hostPort"),
                number,
                names::port_number(number),
            );
        }
        match port.str("protocol") {
            "" => errors.required(&item().child("protocol"), ""),
            protocol if !PROTOCOLS.contains(&protocol) => {
                errors.not_supported(&item().child("protocol"), protocol, &PROTOCOLS);
            }
            _ => {}
        }
    }
}

/// No two ports of the host are the same.
fn check_host_ports(errors: &mut ErrorList, path: &Path, containers: &[Value]) {
    let mut taken = HashSet::new();
    for (at, container) in containers.iter().enumerate() {
        for (index, port) in container.list("ports").iter().enumerate() {
            let Some(number) = port.int("hostPort").filter(|number| *number != 0) else {
                continue;
            };
            let key = format!("{}/{}/{number}", port.str("protocol"), port.str("hostIP"));
            if taken.contains(&key) {
                errors.duplicate(
                    &path.index(at).child("ports").index(index).child("hostPort"),
                    key,
                );
            } else {
                taken.insert(key);
            }
        }
    }
}

fn check_resize_policy(errors: &mut ErrorList, path: &Path, policies: &[Value], pod: &PodScope) {
    let path = || path.child("resizePolicy");
    let mut seen = HashSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (policy.str("resourceName"), policy.str("restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path().index(index), resource);
        }
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(&path(), ""),
            other => errors.not_supported(&path(), other, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(&path(), ""),
            other => errors.not_supported(&path(), other, &["NotRequired", "RestartContainer"]),
        }
        if pod.spec.str("restartPolicy") == "Never" && restart != "NotRequired" {
            errors.invalid(
                &path(),
                restart,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

const RULES_NEED_POLICY: &str = "must specify restartPolicy when restart rules are used";

/// A container's own restart policy and its rules.
fn check_restart(errors: &mut ErrorList, path: &Path, container: &Map) {
    let rules = container.list("restartPolicyRules");
    match container.opt_str("restartPolicy") {
        None if rules.is_empty() => return,
        None => {
            errors.required(&path.child("restartPolicy"), RULES_NEED_POLICY);
        }
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            errors.not_supported(&path.child("restartPolicy"), policy, &RESTART_POLICIES);
        }
        Some(_) => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > RULES_MAX {
        errors.too_many(&path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let action = rule.str("action");
        if !RESTART_ACTIONS.contains(&action) {
            errors.not_supported(&path.child("action"), action, &RESTART_ACTIONS);
        }
        let path = path.child("exitCodes");
        let Some(codes) = rule.map("exitCodes") else {
            errors.required(&path, "must be specified");
            continue;
        };
        let operator = codes.str("operator");
        if !matches!(operator, "In" | "NotIn") {
            errors.not_supported(&path.child("operator"), operator, &["In", "NotIn"]);
        }
        let count = codes.list("values").len();
        if count > EXIT_CODES_MAX {
            errors.too_many(&path.child("values"), count, EXIT_CODES_MAX);
        }
    }
}
