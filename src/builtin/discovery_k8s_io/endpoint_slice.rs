//! discovery.k8s.io: EndpointSlices (`pkg/apis/discovery/validation`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, join_some, text};
use crate::builtin::defaulting::{fill, parts};
use crate::builtin::ip_strings::ip_warning;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, FieldError, Object, Path, Value, array_at, i64_at, names};
use crate::registry::validation::{
    Fields, immutable_text, invalid_each, one_of, required_one_of, same, validate_labels,
};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `endpointslices`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "endpointslices",
    traits: ResourceTraits {
        meta_checks: MetaChecks::State,
        generation: true,
        ..DEFAULT
    },
    strategy: &EndpointSliceStrategy,
    printer: &PRINTER,
};

/// Bounds of a slice.
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The controllers whose addresses need no second look.
const CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];
const HOSTNAME: &str = "kubernetes.io/hostname";

pub struct EndpointSliceStrategy;

impl Strategy for EndpointSliceStrategy {
    fn default(&self, object: &mut Object) {
        for port in parts(object, "ports") {
            fill(port, "name", "");
            fill(port, "protocol", "TCP");
        }
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        drop_topology(object, None);
    }

    fn prepare_for_update(&self, _ctx: &Context, object: &mut Object, old: &Object) {
        let labels = |object: &Object| object.at("/metadata/labels").cloned();
        if !same(labels(object).as_ref(), labels(old).as_ref()) {
            object.set_generation(old.generation() + 1);
        }
        drop_topology(object, Some(old));
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check(object, None)
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = check(object, Some(old));
        immutable_text(
            &mut errors,
            &Path::new("addressType"),
            object.str("addressType"),
            old.str("addressType"),
        );
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() && object.str("addressType") == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        if object
            .labels()
            .is_some_and(|labels| CONTROLLERS.contains(&labels.str(MANAGED_BY)))
        {
            return warnings;
        }
        for (index, endpoint) in object.list("endpoints").iter().enumerate() {
            for (at, address) in endpoint.list("addresses").iter().enumerate() {
                let text = address.as_str().unwrap_or("");
                if names::ip(text).is_empty() {
                    continue;
                }
                let path = Path::new("endpoints")
                    .index(index)
                    .child("addresses")
                    .index(at);
                warnings.extend(ip_warning(&path, text));
            }
        }
        warnings
    }
}

/// The topology of beta days cannot be written; what it said of the node moves to `nodeName`.
fn drop_topology(object: &mut Object, old: Option<&Object>) {
    if old.is_some_and(|old| same(old.field("endpoints"), object.field("endpoints"))) {
        return;
    }
    let node = |endpoint: &Value| {
        endpoint
            .map("deprecatedTopology")
            .map(|topology| topology.str(HOSTNAME).to_owned())
    };
    let known: BTreeSet<String> = old
        .into_iter()
        .flat_map(|old| old.list("endpoints"))
        .filter_map(node)
        .collect();
    for endpoint in parts(object, "endpoints") {
        let Some(Value::Object(topology)) = endpoint.shift_remove("deprecatedTopology") else {
            continue;
        };
        let name = topology.str(HOSTNAME);
        if !name.is_empty()
            && endpoint.field("nodeName").is_none()
            && known.contains(name)
            && names::dns1123_subdomain(name).is_empty()
        {
            endpoint.insert("nodeName", name.into());
        }
    }
}

fn check(object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let kind = object.str("addressType");
    required_one_of(
        &mut errors,
        &Path::new("addressType"),
        kind,
        &["FQDN", "IPv4", "IPv6"],
    );
    check_ports(&mut errors, &Path::new("ports"), object.list("ports"));
    let mut found = ErrorList::new();
    check_endpoints(
        &mut found,
        &Path::new("endpoints"),
        object.list("endpoints"),
        kind,
    );
    if found.is_empty()
        || old.is_some_and(|old| same(old.field("endpoints"), object.field("endpoints")))
    {
        return errors;
    }
    errors.extend(found);
    errors
}

fn check_ports(errors: &mut ErrorList, path: &Path, ports: &[Value]) {
    if ports.len() > PORTS_MAX {
        errors.too_many(path, ports.len(), PORTS_MAX);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.str("name");
        if !name.is_empty() {
            invalid_each(
                errors,
                &path.child("name"),
                name,
                names::dns1123_label(name),
            );
        }
        if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        match port.opt_str("protocol") {
            None => errors.required(&path.child("protocol"), ""),
            Some(protocol) => one_of(
                errors,
                &path.child("protocol"),
                protocol,
                &["SCTP", "TCP", "UDP"],
            ),
        }
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

fn check_endpoints(errors: &mut ErrorList, path: &Path, endpoints: &[Value], kind: &str) {
    if endpoints.len() > ENDPOINTS_MAX {
        errors.too_many(path, endpoints.len(), ENDPOINTS_MAX);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        check_endpoint(errors, &path.index(index), endpoint, kind);
    }
}

fn check_endpoint(errors: &mut ErrorList, path: &Path, endpoint: &Value, kind: &str) {
    let addresses = endpoint.list("addresses");
    let addresses_path = path.child("addresses");
    if addresses.is_empty() {
        errors.required(&addresses_path, "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        errors.too_many(&addresses_path, addresses.len(), ADDRESSES_MAX);
    }
    for (index, address) in addresses.iter().enumerate() {
        check_address(
            errors,
            &addresses_path,
            index,
            address.as_str().unwrap_or(""),
            kind,
        );
    }
    if let Some(node) = endpoint.opt_str("nodeName") {
        invalid_each(
            errors,
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
    }
    let topology = endpoint.map("deprecatedTopology");
    let count = topology.map_or(0, crate::meta::Map::len);
    if count > TOPOLOGY_MAX {
        errors.too_many(&path.child("deprecatedTopology"), count, TOPOLOGY_MAX);
    }
    validate_labels(errors, &path.child("deprecatedTopology"), topology);
    if let Some(host) = endpoint.opt_str("hostname") {
        invalid_each(
            errors,
            &path.child("hostname"),
            host,
            names::dns1123_label(host),
        );
    }
    if let Some(hints) = endpoint.field("hints") {
        check_hints(errors, &path.child("hints"), hints);
    }
}

fn check_address(errors: &mut ErrorList, path: &Path, index: usize, address: &str, kind: &str) {
    let at = path.index(index);
    let (problems, four) = match kind {
        "IPv4" => (names::legacy_ip(address), true),
        "IPv6" => (names::ip(address), false),
        "FQDN" => return check_domain(errors, &at, address),
        _ => return,
    };
    if !problems.is_empty() {
        return invalid_each(errors, &at, address, problems);
    }
    let Some(ip) = names::parse_ip_sloppy(address) else {
        return;
    };
    if ip.is_ipv4() != four {
        let detail = if four {
            "must be an IPv4 address"
        } else {
            "must be an IPv6 address"
        };
        errors.invalid(path, address, detail);
    }
    errors.extend(endpoint_problem(ip).map(|detail| FieldError::invalid(&at, address, detail)));
}

/// The reason traffic cannot be sent to an address (`pkg/apis/core/validation`,
/// ValidateEndpointIP).
fn endpoint_problem(ip: IpAddr) -> Option<String> {
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (
            v6.is_unicast_link_local(),
            v6.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let problem = if ip.is_unspecified() {
        return Some(format!("may not be unspecified ({ip})"));
    } else if ip.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if link_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

/// A domain of at least two labels (apimachinery `IsFullyQualifiedDomainName`).
fn check_domain(errors: &mut ErrorList, path: &Path, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if !name.contains('.') {
        errors.invalid(
            path,
            name,
            "should be a domain with at least two segments separated by dots",
        );
    } else if let Some(label) = name
        .split('.')
        .find(|label| !names::dns1123_label(label).is_empty())
    {
        errors.invalid(path, label, names::dns1123_label(label).join(","));
    }
}

/// A check of a name.
type Check = fn(&str) -> names::Problems;

fn check_hints(errors: &mut ErrorList, path: &Path, hints: &Value) {
    let checks: [(&str, Check); 2] = [
        ("forZones", names::label_value),
        ("forNodes", names::dns1123_subdomain),
    ];
    for (key, problems) in checks {
        let (path, list) = (path.child(key), hints.list(key));
        if list.len() > HINTS_MAX {
            errors.too_many(&path, list.len(), HINTS_MAX);
            return;
        }
        let mut seen = BTreeSet::new();
        for (index, hint) in list.iter().enumerate() {
            let (path, name) = (path.index(index).child("name"), hint.str("name"));
            if !seen.insert(name) {
                errors.duplicate(&path, name);
            }
            invalid_each(errors, &path, name, problems(name));
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("AddressType", "IPv4, IPv6 or FQDN"),
        text("Ports", "The ports of the endpoints"),
        text("Endpoints", "The addresses of the endpoints"),
        AGE,
    ],
    paths: "addressType ports endpoints.addresses",
    fill: |row| {
        let ports = row.object.array_at("/ports").iter().map(|port| {
            match (
                i64_at(port, "/port"),
                port.get("name").and_then(Value::as_str),
            ) {
                (Some(number), _) => Cow::Owned(number.to_string()),
                (None, Some(name)) => Cow::Borrowed(name),
                (None, None) => Cow::Borrowed("*"),
            }
        });
        let endpoints = row.object.array_at("/endpoints").iter();
        let addresses = endpoints
            .flat_map(|endpoint| array_at(endpoint, "/addresses"))
            .filter_map(Value::as_str)
            .map(Cow::Borrowed);
        row.name()
            .text("/addressType")
            .cell(join_some(ports))
            .cell(join_some(addresses))
            .age();
    },
};
