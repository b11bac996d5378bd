//! Tables of the groups networking and discovery.

use std::borrow::Cow;

use crate::meta::Value;

use super::{AGE, NAME, NONE, Printer, TablePrinter, core, join, join_some, text};
use crate::meta::{Object, array_at, i64_at, str_at};

pub fn printer(resource: &str) -> Option<&'static dyn TablePrinter> {
    Some(match resource {
        "endpointslices" => &ENDPOINT_SLICE,
        "ingressclasses" => &INGRESS_CLASS,
        "ingresses" => &INGRESS,
        "ipaddresses" => &IP_ADDRESS,
        "networkpolicies" => &NETWORK_POLICY,
        "servicecidrs" => &SERVICE_CIDR,
        _ => return None,
    })
}

static ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text("AddressType", "IPv4, IPv6 or FQDN"),
        text("Ports", "The ports of the endpoints"),
        text("Endpoints", "The addresses of the endpoints"),
        AGE,
    ],
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

static INGRESS_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Controller", "The controller that serves this class"),
        text("Parameters", "The object with further parameters"),
        AGE,
    ],
    fill: |row| {
        let object = row.object;
        let default = object.annotations().is_some_and(|all| {
            all.get("ingressclass.kubernetes.io/is-default-class") == Some(&"true".into())
        });
        let parameters = match object
            .at("/spec/parameters")
            .filter(|parameters| parameters.is_object())
        {
            None => NONE.to_owned(),
            Some(parameters) => {
                let group = parameters
                    .get("apiGroup")
                    .and_then(Value::as_str)
                    .map_or(String::new(), |group| format!(".{group}"));
                format!(
                    "{}{group}/{}",
                    str_at(parameters, "/kind"),
                    str_at(parameters, "/name")
                )
            }
        };
        row.cell(with_default(object.name(), default))
            .text("/spec/controller")
            .cell(parameters)
            .age();
    },
};

/// The name of a class, marked where it is the default one.
pub fn with_default(name: &str, default: bool) -> String {
    if default {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}

static INGRESS: Printer = Printer {
    columns: &[
        NAME,
        text("Class", "The ingress class"),
        text("Hosts", "The hosts that its rules are for"),
        text("Address", "The addresses of its load balancer"),
        text("Ports", "The ports it listens on"),
        AGE,
    ],
    fill: |row| {
        let object = row.object;
        let ports = if object.array_at("/spec/tls").is_empty() {
            "80"
        } else {
            "80, 443"
        };
        row.name()
            .text_or("/spec/ingressClassName", NONE)
            .cell(hosts(object))
            .cell(core::ingress_points(object))
            .cell(ports)
            .age();
    },
};

/// At most three hosts. How many more there are counts rules, those without a host included.
fn hosts(object: &Object) -> String {
    const MAX_SHOWN: usize = 3;
    let rules = object.array_at("/spec/rules");
    let (mut shown, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= shown.len() == MAX_SHOWN;
        match str_at(rule, "/host") {
            host if !more && !host.is_empty() => shown.push(host),
            _ => {}
        }
    }
    match shown.join(",") {
        hosts if hosts.is_empty() => "*".to_owned(),
        hosts if more => format!("{hosts} + {} more...", rules.len() - MAX_SHOWN),
        hosts => hosts,
    }
}

/// Its rows have one cell more than there are columns: the age, as upstream has it.
static IP_ADDRESS: Printer = Printer {
    columns: &[NAME, text("ParentRef", "The object the address belongs to")],
    fill: |row| {
        let parent = match row
            .object
            .at("/spec/parentRef")
            .filter(|parent| parent.is_object())
        {
            None => NONE.to_owned(),
            Some(parent) => {
                let (group, namespace) = (str_at(parent, "/group"), str_at(parent, "/namespace"));
                let mut text = str_at(parent, "/resource").to_lowercase();
                if !group.is_empty() {
                    text = format!("{text}.{}", group.to_lowercase());
                }
                if !namespace.is_empty() {
                    text = format!("{text}/{namespace}");
                }
                format!("{text}/{}", str_at(parent, "/name"))
            }
        };
        row.name().cell(parent).age();
    },
};

static NETWORK_POLICY: Printer = Printer {
    columns: &[NAME, text("Pod-Selector", "The pods it applies to"), AGE],
    fill: |row| {
        row.name().selector("/spec/podSelector").age();
    },
};

static SERVICE_CIDR: Printer = Printer {
    columns: &[
        NAME,
        text("CIDRs", "The ranges that service addresses are taken from"),
        AGE,
    ],
    fill: |row| {
        let cidrs = join(
            row.object
                .array_at("/spec/cidrs")
                .iter()
                .filter_map(Value::as_str),
            ",",
        );
        row.name().cell(cidrs).age();
    },
};
