//! Endpoints: the addresses behind a service, before there were slices of them.

use std::net::IpAddr;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, text};
use crate::builtin::defaulting::{fill_text, parts};
use crate::builtin::pod_spec::containers::PROTOCOLS;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, array_at, i64_at, names, str_at};
use crate::registry::validation::{Fields, invalid_each, invalid_number, ip_warning, same};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `endpoints`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "endpoints",
    traits: ResourceTraits {
        create_on_update: true,
        meta_checks: MetaChecks::Everything,
        ..DEFAULT
    },
    strategy: &EndpointsStrategy,
    printer: &PRINTER,
};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

pub struct EndpointsStrategy;

impl Strategy for EndpointsStrategy {
    fn default(&self, object: &mut Object) {
        for subset in parts(object, "subsets") {
            for port in parts(subset, "ports") {
                fill_text(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        for (index, subset) in object.list("subsets").iter().enumerate() {
            check_subset(&mut errors, &Path::new("subsets").index(index), subset);
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let errors = self.validate(ctx, object);
        // What was there before may stay, right or wrong.
        if !errors.is_empty() && same(object.field("subsets"), old.field("subsets")) {
            ErrorList::new()
        } else {
            errors
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        // The controller writes addresses as they should be.
        if object
            .labels()
            .is_some_and(|labels| labels.str(MANAGED_BY) == CONTROLLER)
        {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for (at, subset) in object.list("subsets").iter().enumerate() {
            for key in ["addresses", "notReadyAddresses"] {
                for (index, address) in subset.list(key).iter().enumerate() {
                    let path = || {
                        Path::new("subsets")
                            .index(at)
                            .child(key)
                            .index(index)
                            .child("ip")
                    };
                    warnings.extend(ip_warning(path, address.str("ip")));
                }
            }
        }
        warnings
    }
}

fn check_subset(errors: &mut ErrorList, path: &Path, subset: &Value) {
    if subset.list("addresses").is_empty() && subset.list("notReadyAddresses").is_empty() {
        errors.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    for key in ["addresses", "notReadyAddresses"] {
        for (index, address) in subset.list(key).iter().enumerate() {
            check_address(errors, &path.child(key).index(index), address);
        }
    }
    let ports = subset.list("ports");
    for (index, port) in ports.iter().enumerate() {
        check_port(
            errors,
            &path.child("ports").index(index),
            port,
            ports.len() > 1,
        );
    }
}

fn check_address(errors: &mut ErrorList, path: &Path, address: &Value) {
    let (ip, hostname) = (address.str("ip"), address.str("hostname"));
    invalid_each(errors, &path.child("ip"), ip, names::legacy_ip(ip));
    if !hostname.is_empty() {
        invalid_each(
            errors,
            &path.child("hostname"),
            hostname,
            names::dns1123_label(hostname),
        );
    }
    if let Some(node) = address.opt_str("nodeName") {
        invalid_each(
            errors,
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
    }
    invalid_each(errors, &path.child("ip"), ip, endpoint_problems(ip));
}

/// An endpoint is a host that others can reach: no special address.
pub fn endpoint_problems(text: &str) -> names::Problems {
    let Some(ip) = names::parse_ip_sloppy(text) else {
        return vec!["must be a valid IP address".to_owned()];
    };
    let ip = ip.to_canonical();
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (
            v6.is_unicast_link_local(),
            v6.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let mut problems = Vec::new();
    if ip.is_unspecified() {
        problems.push(format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        problems.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if link_local {
        problems.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if link_local_multicast {
        problems.push(
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        );
    }
    problems
}

fn check_port(errors: &mut ErrorList, path: &Path, port: &Value, needs_name: bool) {
    let (name, protocol) = (port.str("name"), port.str("protocol"));
    if name.is_empty() {
        if needs_name {
            errors.required(&path.child("name"), "");
        }
    } else {
        invalid_each(
            errors,
            &path.child("name"),
            name,
            names::dns1123_label(name),
        );
    }
    let number = port.int("port").unwrap_or(0);
    invalid_number(
        errors,
        &path.child("port"),
        number,
        names::port_number(number),
    );
    if protocol.is_empty() {
        errors.required(&path.child("protocol"), "");
    } else if !PROTOCOLS.contains(&protocol) {
        errors.not_supported(&path.child("protocol"), protocol, &PROTOCOLS);
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

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Endpoints", "The addresses and ports that are ready"),
        AGE,
    ],
    paths: "subsets",
    fill: |row| {
        let addresses = endpoint_addresses(row.object);
        row.name().cell(addresses).age();
    },
};

/// At most three addresses of an Endpoints object. Once more than three were seen the rest is only
/// counted.
fn endpoint_addresses(object: &Object) -> String {
    const MAX_SHOWN: usize = 3;
    let subsets = object.array_at("/subsets");
    if subsets.is_empty() {
        return NONE.to_owned();
    }
    let (mut shown, mut count) = (Vec::new(), 0);
    for subset in subsets {
        let addresses = array_at(subset, "/addresses");
        let ips = addresses.iter().map(|address| str_at(address, "/ip"));
        let ports = array_at(subset, "/ports");
        if ports.is_empty() {
            count += addresses.len();
            shown.extend(ips.take(MAX_SHOWN - shown.len()).map(str::to_owned));
            continue;
        }
        for port in ports {
            count += addresses.len();
            let port = i64_at(port, "/port").unwrap_or(0);
            let joined = ips.clone().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            });
            shown.extend(joined.take(MAX_SHOWN - shown.len()));
        }
    }
    let text = shown.join(",");
    if count > MAX_SHOWN {
        format!("{text} + {} more...", count - MAX_SHOWN)
    } else {
        text
    }
}
