//! The spec of a pod, of an object or of a template: everything below it is checked from here.

use super::affinity::check_affinity;
use super::containers::{check_containers, check_ephemeral_containers, check_init_containers};
use super::pod_level_resources::aggregate;
use super::scheduling::{check_gates, check_resource_claims, check_spread, check_tolerations};
use super::scope::{PodScope, each_container};
use super::security::{check_pod_security, check_subdomain};
use super::validation_options::PodValidationOptions;
use super::volumes::check_volumes;
use super::windows::{check_host_process, check_os};
use crate::builtin::compute_resources::{
    Requirements, check_container_name, check_pod_name, is_huge_page, shown,
};
use crate::builtin::quantities::quantity;
use crate::meta::{ErrorList, FieldError, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, validate_labels};

const DEADLINE_MAX: i64 = i32::MAX as i64;
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
/// Characters of all search paths, with a space between each two.
const SEARCH_LIST_MAX: usize = 2048;
const HOSTNAME_MAX: usize = 64;

/// Checks a spec. `metadata` is that of the pod where there is one, of which only the name and the
/// mirror annotation matter.
pub fn check_spec(
    errors: &mut ErrorList,
    path: &Path,
    spec: &Map,
    metadata: Option<&Map>,
    options: &PodValidationOptions,
) {
    let grace_seconds = spec.int("terminationGracePeriodSeconds");
    if grace_seconds.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let name = metadata.map(|metadata| metadata.str("name"));
    let pod = PodScope {
        spec,
        options,
        volumes: check_volumes(
            errors,
            &path.child("volumes"),
            spec.list("volumes"),
            name,
            options,
        ),
        claims: spec
            .list("resourceClaims")
            .iter()
            .map(|claim| claim.str("name"))
            .filter(|name| !name.is_empty())
            .collect(),
        grace_seconds,
        os: spec.map("os").map(|os| os.str("name")),
        host_users: spec.opt_flag("hostUsers").unwrap_or(true),
    };
    let annotations = metadata.and_then(|metadata| metadata.map("annotations"));
    let mirror = annotations.is_some_and(|annotations| {
        annotations.contains_key(crate::builtin::pod_spec::annotations::MIRROR)
    });
    check_resource_claims(
        errors,
        &path.child("resourceClaims"),
        spec.list("resourceClaims"),
        mirror,
    );
    check_containers(errors, &path.child("containers"), &pod);
    check_init_containers(errors, &path.child("initContainers"), &pod);
    check_ephemeral_containers(errors, &path.child("ephemeralContainers"), &pod);
    check_level_resources(errors, path, &pod);
    check_host_network(errors, path, &pod);
    check_policies(errors, path, spec);
    check_placement(errors, path, &pod);
    check_host_process(errors, path, &pod);
    check_host_users(errors, path, &pod);
    check_hostname_override(errors, path, spec);
    check_names(errors, path, spec);
    check_rest(errors, path, &pod);
}

/// Checks the nodes that the pod may go to, and what it shares with them.
fn check_placement(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let (spec, options) = (pod.spec, pod.options);
    validate_labels(
        errors,
        &path.child("nodeSelector"),
        spec.map("nodeSelector"),
    );
    if let Some(context) = spec.map("securityContext") {
        check_pod_security(
            errors,
            &path.child("securityContext"),
            context,
            spec,
            options,
        );
    }
    check_process_namespace(errors, path, spec);
    if let Some(affinity) = spec.map("affinity") {
        check_affinity(errors, &path.child("affinity"), affinity, options);
    }
    check_dns(errors, &path.child("dnsConfig"), spec);
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        let condition = gate.str("conditionType");
        let path = path
            .child("readinessGates")
            .index(index)
            .child("conditionType");
        invalid_each(errors, &path, condition, names::qualified_name(condition));
    }
    check_gates(
        errors,
        &path.child("schedulingGates"),
        spec.list("schedulingGates"),
    );
    check_spread(
        errors,
        &path.child("topologySpreadConstraints"),
        spec.list("topologySpreadConstraints"),
        options,
    );
}

/// Fields that are one of a few words.
fn check_policies(errors: &mut ErrorList, path: &Path, spec: &Map) {
    const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
    const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    for (key, supported) in [("restartPolicy", &RESTART[..]), ("dnsPolicy", &DNS[..])] {
        match spec.str(key) {
            "" => errors.required(&path.child(key), ""),
            value if !supported.contains(&value) => {
                errors.not_supported(&path.child(key), value, supported)
            }
            _ => {}
        }
    }
}

fn check_process_namespace(errors: &mut ErrorList, path: &Path, spec: &Map) {
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let path = path.child("securityContext").child("shareProcessNamespace");
        errors.invalid(
            &path,
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
}

/// Names of other things, and of the pod in DNS.
fn check_names(errors: &mut ErrorList, path: &Path, spec: &Map) {
    for key in ["serviceAccountName", "nodeName"] {
        let name = spec.str(key);
        if !name.is_empty() {
            check_subdomain(errors, &path.child(key), name);
        }
    }
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        let problems = names::in_range(seconds, 1, DEADLINE_MAX);
        errors.extend(
            problems
                .into_iter()
                .map(|why| FieldError::invalid(&path.child("activeDeadlineSeconds"), seconds, why)),
        );
    }
    for key in ["hostname", "subdomain"] {
        let name = spec.str(key);
        if !name.is_empty() {
            invalid_each(errors, &path.child(key), name, names::dns1123_label(name));
        }
    }
}

fn check_rest(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let spec = pod.spec;
    check_tolerations(errors, &path.child("tolerations"), spec.list("tolerations"));
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        invalid_each(
            errors,
            &path.child("ip"),
            alias.str("ip"),
            names::legacy_ip(alias.str("ip")),
        );
        for (index, name) in alias
            .list("hostnames")
            .iter()
            .filter_map(Value::as_str)
            .enumerate()
        {
            invalid_each(
                errors,
                &path.child("hostnames").index(index),
                name,
                names::dns1123_subdomain(name),
            );
        }
    }
    let priority = spec.str("priorityClassName");
    if !priority.is_empty() {
        check_subdomain(errors, &path.child("priorityClassName"), priority);
    }
    if let Some(class) = spec.opt_str("runtimeClassName") {
        check_subdomain(errors, &path.child("runtimeClassName"), class);
    }
    match spec.opt_str("preemptionPolicy") {
        None | Some("PreemptLowerPriority" | "Never") => {}
        Some("") => errors.required(&path.child("preemptionPolicy"), ""),
        Some(other) => {
            let path = path.child("preemptionPolicy");
            errors.not_supported(&path, other, &["PreemptLowerPriority", "Never"]);
        }
    }
    if let Some(overhead) = spec.map("overhead") {
        let limits: Map = [("limits".to_owned(), Value::Object(overhead.clone()))]
            .into_iter()
            .collect();
        let lenient = pod.options.allow_indivisible_huge_pages;
        let rules = Requirements {
            check_name: check_container_name,
            claims: &[],
            allow_indivisible_huge_pages: lenient,
        };
        rules.check(errors, &path.child("overhead"), &limits);
    }
    check_os(errors, path, pod);
    check_file_keys(errors, path, pod);
}

/// Variables from files come from volumes that start empty.
fn check_file_keys(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    for (path, container) in each_container(pod.spec, path) {
        for (index, variable) in container.list("env").iter().enumerate() {
            let Some(file) = variable
                .map("valueFrom")
                .and_then(|source| source.map("fileKeyRef"))
            else {
                continue;
            };
            let name = file.str("volumeName");
            let path = path
                .child("env")
                .index(index)
                .child("valueFrom")
                .child("fileKeyRef")
                .child("volumeName");
            match pod
                .spec
                .list("volumes")
                .iter()
                .rev()
                .find(|volume| volume.str("name") == name)
            {
                None => errors.not_found(&path, name),
                Some(volume) if volume.map("emptyDir").is_none() => {
                    errors.invalid(&path, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

/// The pod's own requests and limits: well formed, and enough for its containers.
fn check_level_resources(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let Some(resources) = pod.spec.map("resources") else {
        return;
    };
    let path = path.child("resources");
    if pod.os == Some("windows") {
        errors.forbidden(&path, "may not be set for a windows pod");
        return;
    }
    if resources.field("claims").is_some() {
        errors.forbidden(
            &path.child("claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    let rules = Requirements {
        check_name: check_pod_name,
        claims: &pod.claims,
        allow_indivisible_huge_pages: pod.options.allow_indivisible_huge_pages,
    };
    rules.check(errors, &path, resources);
    for (key, what, only_huge) in [("requests", "requests", false), ("limits", "limits", true)] {
        for (name, sum) in aggregate(pod.spec, key) {
            let Some(own) = resources.map(key).and_then(|amounts| amounts.field(&name)) else {
                continue;
            };
            if sum > quantity(own) && (!only_huge || is_huge_page(&name)) {
                let detail =
                    format!("must be greater than or equal to aggregate container {what} of {sum}");
                errors.invalid(&path.child(key).key(&name), shown(own), detail);
            }
        }
    }
    let Some(limits) = resources.map("limits") else {
        return;
    };
    for (index, container) in pod.spec.list("containers").iter().enumerate() {
        for (name, limit) in container
            .map("resources")
            .into_iter()
            .flat_map(|one| one.entries("limits"))
        {
            let Some(own) = limits.field(name) else {
                continue;
            };
            if quantity(limit) > quantity(own) {
                let path = path
                    .child("containers")
                    .index(index)
                    .key(name)
                    .child("limits");
                let detail = format!(
                    "must be less than or equal to pod limits of {}",
                    quantity(own)
                );
                errors.invalid(&path, shown(limit), detail);
            }
        }
    }
}

/// On the network of the host, a container's port is the host's.
fn check_host_network(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    if !pod.spec.flag("hostNetwork") {
        return;
    }
    for (at, container) in pod.spec.list("containers").iter().enumerate() {
        for (index, port) in container.list("ports").iter().enumerate() {
            let (host, own) = (
                port.int("hostPort").unwrap_or(0),
                port.int("containerPort").unwrap_or(0),
            );
            if (pod.options.is_pod || host != 0) && host != own {
                let path = path
                    .child("containers")
                    .index(at)
                    .child("ports")
                    .index(index)
                    .child("hostPort");
                errors.invalid(
                    &path,
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

/// Users of their own do not go with other namespaces of the host.
fn check_host_users(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    const DETAIL: &str = "when `hostUsers` is false";
    if pod.host_users {
        return;
    }
    for (key, named) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if pod.spec.flag(key) {
            errors.forbidden(&path.child(named), DETAIL);
        }
    }
    for (path, container) in each_container(pod.spec, path) {
        if !container.list("volumeDevices").is_empty() {
            errors.forbidden(&path.child("volumeDevices"), DETAIL);
        }
    }
}

fn check_hostname_override(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let Some(name) = spec.opt_str("hostnameOverride") else {
        return;
    };
    let path = path.child("hostnameOverride");
    for (key, when) in [
        ("setHostnameAsFQDN", "setHostnameAsFQDN"),
        ("hostNetwork", "hostNetwork"),
    ] {
        if spec.flag(key) {
            errors.forbidden(&path, format!("may not be specified when {when} is true"));
        }
    }
    if name.len() > HOSTNAME_MAX {
        errors.too_long(&path, HOSTNAME_MAX);
    }
    check_subdomain(errors, &path, name);
}

fn check_dns(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let config = spec.map("dnsConfig");
    let servers = config.map_or(&[][..], |config| config.list("nameservers"));
    if spec.str("dnsPolicy") == "None" {
        if config.is_none() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&path.child("nameservers"), detail);
            return;
        }
    }
    let Some(config) = config else { return };
    let servers_path = path.child("nameservers");
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.invalid(&servers_path, servers, detail);
    }
    for (index, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        invalid_each(
            errors,
            &servers_path.index(index),
            server,
            names::legacy_ip(server),
        );
    }
    let searches = config.list("searches");
    let searches_path = path.child("searches");
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.invalid(&searches_path, searches, detail);
    }
    let length: usize = searches
        .iter()
        .filter_map(Value::as_str)
        .map(|search| search.len() + 1)
        .sum();
    if length > SEARCH_LIST_MAX + 1 {
        let detail = format!(
            "must not have more than {SEARCH_LIST_MAX} characters (including spaces) in the search list"
        );
        errors.invalid(&searches_path, searches, detail);
    }
    for (index, search) in searches.iter().filter_map(Value::as_str).enumerate() {
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            invalid_each(
                errors,
                &searches_path.index(index),
                search,
                names::dns1123_subdomain_with_underscore(search),
            );
        }
    }
    for (index, option) in config.list("options").iter().enumerate() {
        if option.str("name").is_empty() {
            errors.required(&path.child("options").index(index), "must not be empty");
        }
    }
}
