//! Warnings about services (`pkg/api/service/warnings.go`), and about how addresses are written
//! (`k8s.io/apimachinery/pkg/util/validation/ip.go`).

use std::net::IpAddr;

use super::spec::{kind, spec};
use crate::meta::{Object, Path, Value, names};
use crate::registry::validation::Fields;

/// Returns the warnings about a service (`pkg/api/service/warnings.go`).
pub fn of_service(service: &Object) -> Vec<String> {
    let mut out = Vec::new();
    if service
        .annotations()
        .is_some_and(|all| all.contains_key("service.kubernetes.io/topology-aware-hints"))
    {
        let [old, new] = ["topology-aware-hints", "topology-mode"]
            .map(|name| format!("service.kubernetes.io/{name}"));
        out.push(format!(
            "annotation {old} is deprecated, please use {new} instead"
        ));
    }
    let (spec, external_name, path) = (
        spec(service),
        kind(service) == "ExternalName",
        Path::new("spec"),
    );
    let external_ips = !spec.list("externalIPs").is_empty();
    for (index, ip) in crate::builtin::core::service::spec::cluster_ips(service)
        .iter()
        .enumerate()
    {
        out.extend(of_ip(&path.child("clusterIPs").index(index), ip));
    }
    if headless(service) {
        if !spec.str("loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if external_ips {
            out.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec.str("sessionAffinity") != "None" {
            out.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    for (index, ip) in spec
        .list("externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        out.extend(of_ip(&path.child("externalIPs").index(index), ip));
    }
    if external_ips && !external_name && !headless(service) {
        out.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    out.extend(of_ip(
        &path.child("loadBalancerIP"),
        spec.str("loadBalancerIP"),
    ));
    for (index, cidr) in spec
        .list("loadBalancerSourceRanges")
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        out.extend(of_cidr(
            &path.child("loadBalancerSourceRanges").index(index),
            cidr,
        ));
    }
    if external_name && external_ips {
        out.push(r#"spec.externalIPs is ignored when spec.type is "ExternalName""#.to_owned());
    }
    if !external_name && !spec.str("externalName").is_empty() {
        out.push(r#"spec.externalName is ignored when spec.type is not "ExternalName""#.to_owned());
    }
    if spec.opt_str("trafficDistribution") == Some("PreferClose") {
        out.push(
            r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#
                .to_owned(),
        );
    }
    out
}

fn headless(service: &Object) -> bool {
    kind(service) == "ClusterIP" && spec(service).str("clusterIP") == "None"
}

/// Returns the warnings about an update of the status.
pub fn of_status(service: &Object) -> Vec<String> {
    let path = Path::new("status.loadBalancer.ingress");
    let ingresses = service
        .array_at("/status/loadBalancer/ingress")
        .iter()
        .enumerate();
    ingresses
        .filter_map(|(index, ingress)| of_ip(&path.index(index), ingress.get("ip")?.as_str()?))
        .collect()
}

/// A warning of an address that is not written as it should be. Values that are no addresses at all
/// are none of its business.
fn of_ip(path: &Path, value: &str) -> Option<String> {
    let ip = names::parse_ip_sloppy(value)?;
    let canonical = names::canonical_ip(ip);
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_none() => (canonical != value).then(|| {
            format!(
                "{}: IPv6 address {value:?} should be in RFC 5952 canonical format ({canonical:?})",
                path.as_str()
            )
        }),
        Ok(IpAddr::V4(_)) => None,
        _ => Some(format!(
            "{}: non-standard IP address {value:?} is invalid: use {canonical:?}",
            path.as_str()
        )),
    }
}

/// Warnings of a CIDR that is not written as it should be, or could mean two things.
fn of_cidr(path: &Path, value: &str) -> Vec<String> {
    let Some((address, length)) = names::parse_cidr_sloppy(value) else {
        return Vec::new();
    };
    let network = names::network_address(address, length);
    let (path, network_text) = (
        path.as_str(),
        format!("{}/{length}", names::canonical_ip(network)),
    );
    let mut out = Vec::new();
    if network != address {
        let single = format!(
            "{}/{}",
            names::canonical_ip(address),
            if address.is_ipv4() { 32 } else { 128 }
        );
        out.push(format!("{path}: CIDR value {value:?} is ambiguous in this context (should be {network_text:?} or {single:?}?)"));
    }
    let (ip, bits) = value.split_once('/').unwrap_or((value, ""));
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    if mapped || ip.parse::<IpAddr>().is_err() || bits != length.to_string() {
        out.push(format!(
            "{path}: non-standard CIDR value {value:?} is invalid: use {network_text:?}"
        ));
    }
    if out.is_empty() && address.is_ipv6() && network_text != value {
        out.push(format!("{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({network_text:?})"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn addresses_that_are_not_written_as_they_should_be_are_told_of() {
        let spec = json!({
            "type": "LoadBalancer", "clusterIP": "FD00::1", "clusterIPs": ["FD00::1", "10.0.0.1"], "loadBalancerIP": "010.0.0.1",
            "loadBalancerSourceRanges": ["10.0.0.0/8", "10.0.0.1/8", "FD00::/64", "10.0.0.0/08"],
        });
        let status = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"ip": "::ffff:10.0.0.1"}, {"hostname": "a"}]}});
        let service = Object::from_value(json!({"spec": spec, "status": status})).unwrap();
        let want = [
            r#"spec.clusterIPs[0]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")"#,
            r#"spec.loadBalancerIP: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1""#,
            r#"spec.loadBalancerSourceRanges[1]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#,
            r#"spec.loadBalancerSourceRanges[2]: IPv6 CIDR value "FD00::/64" should be in RFC 5952 canonical format ("fd00::/64")"#,
            r#"spec.loadBalancerSourceRanges[3]: non-standard CIDR value "10.0.0.0/08" is invalid: use "10.0.0.0/8""#,
        ];
        assert_eq!(of_service(&service), want);
        let want = [
            r#"status.loadBalancer.ingress[1]: non-standard IP address "::ffff:10.0.0.1" is invalid: use "10.0.0.1""#,
        ];
        assert_eq!(of_status(&service), want);
    }
}
