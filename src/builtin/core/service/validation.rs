//! Validation of services, new and changed (`ValidateService*` in `pkg/apis/core/validation`).

use std::collections::{BTreeSet, HashSet};

use super::spec::{externally_accessible, headless, kind, needs_health_check_port, spec};
use crate::meta::{ErrorList, FieldError, Map, Object, Path, Value, json, names};
use crate::registry::validation::{Fields, invalid_each, invalid_number, validate_labels};

const MAX_AFFINITY_SECONDS: i64 = 86_400;
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// Checks a service; `old` is what it was, for values that may stay although they would be refused
/// today.
pub fn validate(service: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    check_topology(service, &mut errors);
    check_type(service, &path, &mut errors);
    check_ports(service, &path.child("ports"), &mut errors);
    let spec = spec(service);
    if let Some(selector) = spec.map("selector") {
        validate_labels(&mut errors, &path.child("selector"), Some(selector));
    }
    check_affinity(spec, &path, &mut errors);
    errors.extend(cluster_ips(service, old));
    check_external_ips(service, old, &path.child("externalIPs"), &mut errors);
    one_of(
        spec.str("type"),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        &path.child("type"),
        &mut errors,
    );
    check_port_numbers(service, &path.child("ports"), &mut errors);
    check_source_ranges(service, &path, &mut errors);
    check_load_balancer(service, None, &path, &mut errors);
    check_external_traffic(service, &path, &mut errors);
    check_internal_traffic(spec, &path, &mut errors);
    errors
}

/// Checks a changed service.
pub fn validate_update(service: &Object, old: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    if kind(service) != "ExternalName" && kind(old) != "ExternalName" {
        let (is, was) = (headless(service), headless(old));
        if !(is && was) {
            check_kept(
                service,
                old,
                "clusterIPs",
                "primary clusterIP can not be unset",
                "secondary clusterIP",
                &mut errors,
            );
        }
        if !is && !was {
            check_kept(
                service,
                old,
                "ipFamilies",
                "primary ipFamily can not be unset",
                "secondary ipFamily",
                &mut errors,
            );
        }
    }
    check_load_balancer(service, Some(old), &Path::new("spec"), &mut errors);
    let port = |service: &Object| spec(service).int("healthCheckNodePort").unwrap_or(0);
    if needs_health_check_port(old)
        && needs_health_check_port(service)
        && port(service) != port(old)
    {
        errors.forbidden(&Path::new("spec.healthCheckNodePort"), "field is immutable");
    }
    errors.extend(validate(service, Some(old)));
    errors
}

/// Checks the load balancer status.
pub fn validate_status(service: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status.loadBalancer.ingress");
    let ingresses = service.array_at("/status/loadBalancer/ingress");
    if kind(service) != "LoadBalancer" && !ingresses.is_empty() {
        errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
        return errors;
    }
    for (index, ingress) in ingresses.iter().enumerate() {
        check_ingress(ingress, &path.index(index), &mut errors);
    }
    errors
}

fn check_ingress(ingress: &Value, path: &Path, errors: &mut ErrorList) {
    let (ip, hostname, mode) = (
        ingress.str("ip"),
        ingress.str("hostname"),
        ingress.opt_str("ipMode"),
    );
    if !ip.is_empty() {
        invalid_each(errors, &path.child("ip"), ip, names::legacy_ip(ip));
    }
    match mode {
        None if !ip.is_empty() => {
            errors.required(&path.child("ipMode"), "must be specified when `ip` is set")
        }
        Some(_) if ip.is_empty() => errors.forbidden(
            &path.child("ipMode"),
            "may not be specified when `ip` is not set",
        ),
        Some(mode) if !["Proxy", "VIP"].contains(&mode) => {
            errors.not_supported(&path.child("ipMode"), mode, &["Proxy", "VIP"]);
        }
        _ => {}
    }
    if !hostname.is_empty() {
        invalid_each(
            errors,
            &path.child("hostname"),
            hostname,
            names::dns1123_subdomain(hostname),
        );
        if names::parse_ip_sloppy(hostname).is_some() {
            errors.invalid(
                &path.child("hostname"),
                hostname,
                "must be a DNS name, not an IP address",
            );
        }
    }
}

fn one_of(value: &str, supported: &[&str], path: &Path, errors: &mut ErrorList) {
    if value.is_empty() {
        errors.required(path, "");
    } else if !supported.contains(&value) {
        errors.not_supported(path, value, supported);
    }
}

fn check_topology(service: &Object, errors: &mut ErrorList) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let value = |key: &str| {
        service
            .annotations()
            .and_then(|all| all.get(key))
            .and_then(Value::as_str)
    };
    if let (Some(hints), Some(mode)) = (value(HINTS), value(MODE))
        && hints != mode
    {
        let why = format!("must match annotations[{HINTS}] when both are specified");
        errors.invalid(&Path::new("metadata.annotations").key(MODE), mode, why);
    }
}

fn check_type(service: &Object, path: &Path, errors: &mut ErrorList) {
    let (spec, kind) = (spec(service), kind(service));
    if spec.list("ports").is_empty() && !headless(service) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    if matches!(kind, "LoadBalancer" | "NodePort") && headless(service) {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&path.child("clusterIPs").index(0), "None", why);
    }
    if kind != "ExternalName" {
        return;
    }
    let forbidden = "may not be set for ExternalName services";
    for (key, set) in [
        ("clusterIPs", !spec.list("clusterIPs").is_empty()),
        ("ipFamilies", !spec.list("ipFamilies").is_empty()),
        ("ipFamilyPolicy", spec.opt_str("ipFamilyPolicy").is_some()),
    ] {
        if set {
            errors.forbidden(&path.child(key), forbidden);
        }
    }
    let name = spec.str("externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.required(&path.child("externalName"), "");
    } else {
        invalid_each(
            errors,
            &path.child("externalName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
}

fn check_ports(service: &Object, path: &Path, errors: &mut ErrorList) {
    let ports = spec(service).list("ports");
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.str("name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&path.child("name"), "");
            }
        } else {
            invalid_each(
                errors,
                &path.child("name"),
                name,
                names::dns1123_label(name),
            );
            if !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        let number = port.int("port").unwrap_or(0);
        invalid_number(
            errors,
            &path.child("port"),
            number,
            names::port_number(number),
        );
        one_of(
            port.str("protocol"),
            &["SCTP", "TCP", "UDP"],
            &path.child("protocol"),
            errors,
        );
        check_target(port.field("targetPort"), &path.child("targetPort"), errors);
        if let Some(protocol) = port.opt_str("appProtocol") {
            invalid_each(
                errors,
                &path.child("appProtocol"),
                protocol,
                names::qualified_name(protocol),
            );
        }
    }
}

fn check_target(target: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    match target {
        Some(Value::String(name)) => invalid_each(errors, path, name, names::port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            invalid_number(errors, path, number, names::port_number(number));
        }
    }
}

/// Node ports only where the type has them; each node port and each port once per protocol.
fn check_port_numbers(service: &Object, path: &Path, errors: &mut ErrorList) {
    let ports = spec(service).list("ports");
    let node_port = |port: &Value| port.int("nodePort").unwrap_or(0);
    if kind(service) == "ClusterIP" {
        for (index, _) in ports
            .iter()
            .enumerate()
            .filter(|(_, port)| node_port(port) != 0)
        {
            errors.forbidden(
                &path.index(index).child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports
        .iter()
        .enumerate()
        .filter(|(_, port)| node_port(port) != 0)
    {
        if !seen.insert((port.str("protocol"), node_port(port))) {
            errors.duplicate(&path.index(index).child("nodePort"), node_port(port));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (protocol, number) = (port.str("protocol"), port.int("port").unwrap_or(0));
        if !seen.insert((protocol, number)) {
            let key = json!({"Name": "", "Protocol": protocol, "AppProtocol": null, "Port": number, "TargetPort": 0, "NodePort": 0});
            errors.duplicate(&path.index(index), key);
        }
    }
}

fn check_affinity(spec: &Map, path: &Path, errors: &mut ErrorList) {
    let affinity = spec.str("sessionAffinity");
    one_of(
        affinity,
        &["ClientIP", "None"],
        &path.child("sessionAffinity"),
        errors,
    );
    let (config, path) = (
        spec.map("sessionAffinityConfig"),
        path.child("sessionAffinityConfig"),
    );
    match (affinity, config) {
        ("None", Some(_)) => {
            errors.forbidden(&path, "must not be set when session affinity is None")
        }
        ("ClientIP", config) => {
            let why = "when session affinity type is ClientIP";
            let Some(config) = config else {
                return errors.required(&path, why);
            };
            let path = path.child("clientIP");
            let Some(client_ip) = config.map("clientIP") else {
                return errors.required(&path, why);
            };
            let path = path.child("timeoutSeconds");
            match client_ip.int("timeoutSeconds") {
                None => errors.required(&path, why),
                Some(seconds) if seconds <= 0 || seconds > MAX_AFFINITY_SECONDS => {
                    let why =
                        format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                    errors.invalid(&path, seconds, why);
                }
                Some(_) => {}
            }
        }
        _ => {}
    }
}

/// The cluster IPs and families among themselves; also asked before addresses are allocated.
pub fn cluster_ips(service: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    if kind(service) == "ExternalName" {
        return errors;
    }
    let (spec, path) = (spec(service), Path::new("spec"));
    let (single, ips) = (spec.str("clusterIP"), spec.list("clusterIPs"));
    let (ips_path, families_path) = (path.child("clusterIPs"), path.child("ipFamilies"));
    let all = || Value::Array(ips.to_vec());
    if single.is_empty() {
        if !ips.is_empty() {
            errors.invalid(
                &ips_path,
                all(),
                "must be empty when `clusterIP` is not specified",
            );
        }
    } else if ips.is_empty() {
        errors.required(&ips_path, "");
    } else if ips[0] != single {
        errors.invalid(&ips_path, all(), "first value must match `clusterIP`");
    }
    let mut seen = BTreeSet::new();
    let families: Vec<&str> = spec
        .list("ipFamilies")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for (index, family) in families.iter().enumerate() {
        if !["IPv4", "IPv6"].contains(family) {
            errors.not_supported(&families_path.index(index), *family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(*family) {
            errors.duplicate(&families_path.index(index), *family);
        }
    }
    const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = spec
        .opt_str("ipFamilyPolicy")
        .filter(|policy| !POLICIES.contains(policy))
    {
        errors.not_supported(&path.child("ipFamilyPolicy"), policy, &POLICIES);
    }
    check_addresses(ips, &families, old, &ips_path, &mut errors);
    errors
}

fn check_addresses(
    ips: &[Value],
    families: &[&str],
    old: Option<&Object>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let all = || Value::Array(ips.to_vec());
    let before = errors.len();
    let texts: Vec<&str> = ips.iter().map(|ip| ip.as_str().unwrap_or("")).collect();
    for (index, text) in texts.iter().enumerate() {
        if index == 0 && *text == "None" {
            if ips.len() > 1 {
                errors.invalid(path, all(), "'None' must be the first and only value");
            }
            continue;
        }
        let kept = old.is_some_and(|old| {
            crate::builtin::core::service::spec::spec(old)
                .list("clusterIPs")
                .iter()
                .any(|ip| ip == text)
        });
        if !kept {
            invalid_each(errors, &path.index(index), text, names::legacy_ip(text));
        }
    }
    let malformed = errors.len() > before;
    if ips.len() > 2 {
        errors.invalid(path, all(), "may only hold up to 2 values");
    }
    if malformed {
        return;
    }
    let parsed: Vec<_> = texts
        .iter()
        .filter_map(|text| names::parse_ip_sloppy(text))
        .collect();
    if texts.len() > 1
        && !(parsed.iter().any(std::net::IpAddr::is_ipv4)
            && parsed.iter().any(std::net::IpAddr::is_ipv6))
    {
        errors.invalid(
            path,
            all(),
            "may specify no more than one IP for each IP family",
        );
    }
    for (index, (ip, family)) in parsed.iter().zip(families).enumerate() {
        if matches!(*family, "IPv4" | "IPv6")
            && *family != crate::builtin::core::service::ip_family::family_of(*ip)
        {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&path.index(index), texts[index], why);
        }
    }
}

/// The first address and family stay; a second one may come, and go when the service becomes
/// single-stack.
fn check_kept(
    service: &Object,
    old: &Object,
    key: &str,
    unset: &str,
    second: &str,
    errors: &mut ErrorList,
) {
    let (now, was) = (spec(service).list(key), spec(old).list(key));
    let path = Path::new("spec").child(key);
    let value = || Value::Array(now.to_vec());
    let changed =
        |index: usize| FieldError::invalid(&path.index(index), value(), "may not change once set");
    if now.len() == was.len() {
        let differ = (0..now.len()).filter(|index| now[*index] != was[*index]);
        errors.extend(differ.map(|index| changed(if key == "ipFamilies" { 0 } else { index })));
        return;
    }
    if now.is_empty() {
        errors.invalid(&path.index(0), value(), unset);
    } else if !was.is_empty() && now[0] != was[0] {
        errors.push(changed(0));
    }
    if was.len() > now.len()
        && now.len() == 1
        && spec(service).str("ipFamilyPolicy") != "SingleStack"
    {
        let policy = spec(service)
            .field("ipFamilyPolicy")
            .cloned()
            .unwrap_or_default();
        let why = format!("must be set to 'SingleStack' when releasing the {second}");
        errors.invalid(&Path::new("spec.ipFamilyPolicy"), policy, why);
    }
}

fn check_external_ips(service: &Object, old: Option<&Object>, path: &Path, errors: &mut ErrorList) {
    let before: HashSet<&str> = old
        .into_iter()
        .flat_map(|old| spec(old).list("externalIPs"))
        .filter_map(Value::as_str)
        .collect();
    for (index, ip) in spec(service).list("externalIPs").iter().enumerate() {
        let (path, text) = (path.index(index), ip.as_str().unwrap_or(""));
        let kept = before.contains(text);
        let problems = if kept {
            Vec::new()
        } else {
            names::legacy_ip(text).into_iter().collect()
        };
        if !problems.is_empty() {
            errors.extend(
                problems
                    .into_iter()
                    .map(|problem| FieldError::invalid(&path, text, problem)),
            );
            continue;
        }
        let Some(ip) = names::parse_ip_sloppy(text) else {
            continue;
        };
        let mut refuse = |why: &str| errors.invalid(&path, text, why);
        if ip.is_unspecified() {
            refuse(&format!("may not be unspecified ({text})"));
        }
        if ip.is_loopback() {
            refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
        }
        let (unicast, multicast) = match ip {
            std::net::IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
            std::net::IpAddr::V6(ip) => (
                ip.is_unicast_link_local(),
                ip.segments()[0] & 0xff0f == 0xff02,
            ),
        };
        if unicast {
            refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
        }
        if multicast {
            refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
        }
    }
}

fn check_source_ranges(service: &Object, path: &Path, errors: &mut ErrorList) {
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let ranges = spec(service).list("loadBalancerSourceRanges");
    let (path, ranges): (Path, Vec<&str>) = if ranges.is_empty() {
        let Some(text) = service
            .annotations()
            .and_then(|all| all.get(ANNOTATION))
            .and_then(Value::as_str)
        else {
            return;
        };
        let path = Path::new("metadata.annotations").key(ANNOTATION);
        (
            path,
            text.split(',')
                .filter(|_| !text.trim().is_empty())
                .collect(),
        )
    } else {
        (
            path.child("LoadBalancerSourceRanges"),
            ranges
                .iter()
                .map(|range| range.as_str().unwrap_or(""))
                .collect(),
        )
    };
    if kind(service) != "LoadBalancer" {
        errors.forbidden(&path, ONLY_LOAD_BALANCER);
    }
    let indexed = path.as_str().starts_with("spec");
    for (index, range) in ranges.into_iter().enumerate() {
        let path = if indexed {
            path.index(index)
        } else {
            path.clone()
        };
        invalid_each(
            errors,
            &path,
            range.trim(),
            names::legacy_cidr(range.trim()),
        );
    }
}

fn check_load_balancer(
    service: &Object,
    old: Option<&Object>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let (spec, balanced) = (spec(service), kind(service) == "LoadBalancer");
    let class = spec.opt_str("loadBalancerClass");
    let path_class = path.child("loadBalancerClass");
    if old.is_none() {
        match (spec.opt_flag("allocateLoadBalancerNodePorts"), balanced) {
            (Some(_), false) => errors.forbidden(
                &path.child("allocateLoadBalancerNodePorts"),
                ONLY_LOAD_BALANCER,
            ),
            (None, true) => errors.required(&Path::new("allocateLoadBalancerNodePorts"), ""),
            _ => {}
        }
    }
    if let Some(old) = old
        && balanced
        && kind(old) == "LoadBalancer"
        && crate::builtin::core::service::spec::spec(old).opt_str("loadBalancerClass") != class
    {
        errors.invalid(
            &path_class,
            class.map_or(Value::Null, Value::from),
            "may not change once set",
        );
    }
    match class {
        Some(class) if balanced => {
            invalid_each(errors, &path_class, class, names::qualified_name(class))
        }
        Some(_) => errors.forbidden(&path_class, ONLY_LOAD_BALANCER),
        None => {}
    }
}

fn check_external_traffic(service: &Object, path: &Path, errors: &mut ErrorList) {
    let spec = spec(service);
    let (policy, policy_path) = (
        spec.str("externalTrafficPolicy"),
        path.child("externalTrafficPolicy"),
    );
    if externally_accessible(service) {
        one_of(policy, &["Cluster", "Local"], &policy_path, errors);
    } else if !policy.is_empty() {
        errors.invalid(
            &policy_path,
            policy,
            "may only be set for externally-accessible services",
        );
    }
    let (port, port_path) = (
        spec.int("healthCheckNodePort").unwrap_or(0),
        path.child("healthCheckNodePort"),
    );
    if needs_health_check_port(service) {
        if port == 0 {
            errors.required(&port_path, "");
        } else {
            invalid_number(errors, &port_path, port, names::port_number(port));
        }
    } else if port != 0 {
        let why =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&port_path, port, why);
    }
}

fn check_internal_traffic(spec: &Map, path: &Path, errors: &mut ErrorList) {
    let path_policy = path.child("internalTrafficPolicy");
    match spec.opt_str("internalTrafficPolicy") {
        None if matches!(spec.str("type"), "NodePort" | "LoadBalancer" | "ClusterIP") => {
            errors.required(&path_policy, "")
        }
        Some(policy) if !["Cluster", "Local"].contains(&policy) => {
            errors.not_supported(&path_policy, policy, &["Cluster", "Local"]);
        }
        _ => {}
    }
    const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(distribution) = spec
        .opt_str("trafficDistribution")
        .filter(|one| !DISTRIBUTIONS.contains(one))
    {
        errors.not_supported(
            &path.child("trafficDistribution"),
            distribution,
            &DISTRIBUTIONS,
        );
    }
}
