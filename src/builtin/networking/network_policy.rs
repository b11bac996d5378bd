//! NetworkPolicies (`pkg/apis/networking/validation`, ValidateNetworkPolicy).

use std::collections::HashSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text};
use crate::builtin::defaulting::{fill, parts};
use crate::builtin::ip_strings::cidr_warnings;
use crate::builtin::pod_spec::containers::PROTOCOLS;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::names::{network_address, parse_cidr_sloppy};
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{
    Fields, SelectorOptions, invalid_each, invalid_number, validate_label_selector,
};
use crate::registry::{Context, Strategy};

/// The entry of `networkpolicies`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "networkpolicies",
    traits: ResourceTraits {
        generation: true,
        ..DEFAULT
    },
    strategy: &NetworkPolicyStrategy,
    printer: &PRINTER,
};

const TYPES: &[&str] = &["Ingress", "Egress"];
/// The direction of a rule, and where its peers are.
const RULES: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// Invalid values that an update may keep although a new object may not have them.
#[derive(Default)]
struct ValidationOptions<'a> {
    selectors: SelectorOptions,
    cidrs: HashSet<&'a str>,
}

pub struct NetworkPolicyStrategy;

impl Strategy for NetworkPolicyStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        for (direction, _) in RULES {
            for rule in parts(spec, direction) {
                for port in parts(rule, "ports") {
                    fill(port, "protocol", "TCP");
                }
            }
        }
        if spec.list("policyTypes").is_empty() {
            let types = if spec.list("egress").is_empty() {
                json!(["Ingress"])
            } else {
                json!(["Ingress", "Egress"])
            };
            spec.insert("policyTypes", types);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check_spec(object, &ValidationOptions::default())
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut before = ErrorList::new();
        let selector = old.at("/spec/podSelector").and_then(Value::as_object);
        validate_label_selector(
            &mut before,
            &Path::default(),
            selector,
            SelectorOptions::default(),
        );
        let blocks: Vec<(Path, &Map)> = blocks(old);
        let cidrs = blocks.into_iter().flat_map(|(_, block)| {
            let except = block.list("except").iter().filter_map(Value::as_str);
            std::iter::once(block.str("cidr")).chain(except)
        });
        let selectors = SelectorOptions {
            allow_invalid_values: !before.is_empty(),
        };
        check_spec(
            object,
            &ValidationOptions {
                selectors,
                cidrs: cidrs.collect(),
            },
        )
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (path, block) in blocks(object) {
            warnings.extend(cidr_warnings(&path.child("cidr"), block.str("cidr")));
            for (index, except) in block.list("except").iter().enumerate() {
                warnings.extend(cidr_warnings(
                    &path.child("except").index(index),
                    except.as_str().unwrap_or(""),
                ));
            }
        }
        warnings
    }
}

/// Every block of addresses, and where it is.
fn blocks(object: &Object) -> Vec<(Path, &Map)> {
    let mut found = Vec::new();
    let Some(spec) = object.map("spec") else {
        return found;
    };
    for (direction, peers) in RULES {
        for (index, rule) in spec.list(direction).iter().enumerate() {
            for (at, peer) in rule.list(peers).iter().enumerate() {
                if let Some(block) = peer.map("ipBlock") {
                    found.push((
                        Path::new("spec")
                            .child(direction)
                            .index(index)
                            .child(peers)
                            .index(at)
                            .child("ipBlock"),
                        block,
                    ));
                }
            }
        }
    }
    found
}

fn check_spec(object: &Object, leniency: &ValidationOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    validate_label_selector(
        &mut errors,
        &path.child("podSelector"),
        spec.map("podSelector"),
        leniency.selectors,
    );
    for (direction, peers) in RULES {
        for (index, rule) in spec.list(direction).iter().enumerate() {
            let path = path.child(direction).index(index);
            for (index, port) in rule.list("ports").iter().enumerate() {
                check_port(&mut errors, &path.child("ports").index(index), port);
            }
            for (index, peer) in rule.list(peers).iter().enumerate() {
                check_peer(&mut errors, &path.child(peers).index(index), peer, leniency);
            }
        }
    }
    let types = spec.list("policyTypes");
    let path = path.child("policyTypes");
    if types.len() > TYPES.len() {
        errors.invalid(&path, types, "may not specify more than two policyTypes");
        return errors;
    }
    for (index, kind) in types
        .iter()
        .enumerate()
        .filter(|(_, kind)| !TYPES.contains(&kind.as_str().unwrap_or("")))
    {
        errors.not_supported(&path.index(index), kind.clone(), TYPES);
    }
    errors
}

fn check_port(errors: &mut ErrorList, path: &Path, port: &Value) {
    if let Some(protocol) = port
        .opt_str("protocol")
        .filter(|protocol| !PROTOCOLS.contains(protocol))
    {
        errors.not_supported(&path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let end = port.int("endPort");
    let end_path = path.child("endPort");
    match (port.field("port"), end) {
        (Some(Value::String(name)), end) => {
            if let Some(end) = end {
                errors.invalid(
                    &end_path,
                    end,
                    "may not be specified when `port` is non-numeric",
                );
            }
            invalid_each(errors, &path.child("port"), name, names::port_name(name));
        }
        (Some(number), end) => {
            let number = number.as_i64().unwrap_or(0);
            invalid_number(
                errors,
                &path.child("port"),
                number,
                names::port_number(number),
            );
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&end_path, number, "must be greater than or equal to `port`");
                }
                invalid_number(errors, &end_path, end, names::port_number(end));
            }
        }
        (None, Some(end)) => errors.invalid(
            &end_path,
            end,
            "may not be specified when `port` is not specified",
        ),
        (None, None) => {}
    }
}

fn check_peer(errors: &mut ErrorList, path: &Path, peer: &Value, leniency: &ValidationOptions) {
    let mut selectors = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.map(key) {
            selectors += 1;
            validate_label_selector(errors, &path.child(key), Some(selector), leniency.selectors);
        }
    }
    let block = peer.map("ipBlock");
    if let Some(block) = block {
        check_block(errors, &path.child("ipBlock"), block, leniency);
    }
    if selectors == 0 && block.is_none() {
        errors.required(path, "must specify a peer");
    } else if selectors > 0 && block.is_some() {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn check_block(errors: &mut ErrorList, path: &Path, block: &Map, leniency: &ValidationOptions) {
    let cidr = block.str("cidr");
    if cidr.is_empty() {
        errors.required(&path.child("cidr"), "");
        return;
    }
    let mut check = |path: &Path, cidr: &str| {
        if !leniency.cidrs.contains(cidr) {
            invalid_each(errors, path, cidr, names::legacy_cidr(cidr));
        }
    };
    check(&path.child("cidr"), cidr);
    let Some((address, length)) = parse_cidr_sloppy(cidr) else {
        return;
    };
    for (index, except) in block.list("except").iter().enumerate() {
        let (except, path) = (
            except.as_str().unwrap_or(""),
            path.child("except").index(index),
        );
        if !leniency.cidrs.contains(except) {
            invalid_each(errors, &path, except, names::legacy_cidr(except));
        }
        let Some((inner, inner_length)) = parse_cidr_sloppy(except) else {
            continue;
        };
        let inside = inner.is_ipv4() == address.is_ipv4()
            && network_address(inner, length) == network_address(address, length);
        if !inside || length >= inner_length {
            errors.invalid(&path, except, "must be a strict subset of `cidr`");
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, text("Pod-Selector", "The pods it applies to"), AGE],
    paths: "spec.podSelector",
    fill: |row| {
        row.name().selector("/spec/podSelector").age();
    },
};
