//! Ingresses (`pkg/apis/networking/validation`, ValidateIngress).

use std::collections::HashSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, ingress_points, text};
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::meta::{ErrorList, Object, Path, Value, names, str_at};
use crate::registry::validation::{Fields, invalid_each, invalid_number, one_of, required_segment};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `ingresses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "ingresses",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        ..WORKLOAD
    },
    strategy: &IngressStrategy,
    printer: &PRINTER,
};

/// The annotation that named the class before there was a field for it.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const NOT_AN_ADDRESS: &str = "must be a DNS name, not an IP address";
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
const BAD_IN_PATHS: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const BAD_ENDS: &[&str] = &["/..", "/."];

/// Invalid values that an update may keep although a new object may not have them.
#[derive(Clone, Copy, Default)]
struct ValidationOptions {
    secret_names: bool,
    wildcard_rules: bool,
}

pub struct IngressStrategy;

impl Strategy for IngressStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = check_spec(object, ValidationOptions::default());
        let annotation = object
            .annotations()
            .and_then(|annotations| annotations.opt_str(CLASS_ANNOTATION));
        let class = object.at("/spec/ingressClassName").and_then(Value::as_str);
        if let (Some(annotation), Some(class)) = (annotation, class)
            && annotation != class
        {
            let path = Path::new("annotations").child(CLASS_ANNOTATION);
            errors.invalid(
                &path,
                annotation,
                "must match `ingressClassName` when both are specified",
            );
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Status {
            check_status(object, old)
        } else {
            check_spec(object, leniency(old))
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let annotated = object
            .annotations()
            .is_some_and(|annotations| annotations.field(CLASS_ANNOTATION).is_some());
        if old.is_some()
            || !annotated
            || object
                .at("/spec/ingressClassName")
                .is_some_and(|class| !class.is_null())
        {
            return Vec::new();
        }
        vec![format!(
            "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
        )]
    }
}

fn leniency(old: &Object) -> ValidationOptions {
    let broken = |rule: &Value| {
        let mut errors = ErrorList::new();
        check_rule_value(&mut errors, &Path::default(), rule);
        rule.str("host").contains('*') && !errors.is_empty()
    };
    ValidationOptions {
        secret_names: old
            .array_at("/spec/tls")
            .iter()
            .any(|tls| !secret_name_problems(tls.str("secretName")).is_empty()),
        wildcard_rules: old.array_at("/spec/rules").iter().any(broken),
    }
}

fn secret_name_problems(name: &str) -> names::Problems {
    if name.is_empty() {
        Vec::new()
    } else {
        names::dns1123_subdomain(name)
    }
}

fn check_spec(object: &Object, leniency: ValidationOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    let rules = spec.list("rules");
    let backend = spec.field("defaultBackend");
    if rules.is_empty() && backend.is_none() {
        let shown = spec.field("rules").cloned().unwrap_or_default();
        errors.invalid(
            &path,
            shown,
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if let Some(backend) = backend {
        check_backend(&mut errors, &path.child("defaultBackend"), backend);
    }
    for (index, rule) in rules.iter().enumerate() {
        check_rule(
            &mut errors,
            &path.child("rules").index(index),
            rule,
            leniency,
        );
    }
    for (index, tls) in spec.list("tls").iter().enumerate() {
        let path = path.child("tls").index(index);
        for (index, host) in tls.list("hosts").iter().enumerate() {
            check_host(
                &mut errors,
                &path.child("hosts").index(index),
                host.as_str().unwrap_or(""),
            );
        }
        if !leniency.secret_names {
            let name = tls.str("secretName");
            invalid_each(
                &mut errors,
                &path.child("secretName"),
                name,
                secret_name_problems(name),
            );
        }
    }
    if let Some(class) = spec.opt_str("ingressClassName") {
        invalid_each(
            &mut errors,
            &path.child("ingressClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
    errors
}

fn check_host(errors: &mut ErrorList, path: &Path, host: &str) {
    let problems = if host.contains('*') {
        names::wildcard_dns1123_subdomain(host)
    } else {
        names::dns1123_subdomain(host)
    };
    invalid_each(errors, path, host, problems);
}

fn check_rule(errors: &mut ErrorList, path: &Path, rule: &Value, leniency: ValidationOptions) {
    let host = rule.str("host");
    if !host.is_empty() {
        let path = path.child("host");
        if names::parse_ip_sloppy(host).is_some() {
            errors.invalid(&path, host, NOT_AN_ADDRESS);
        }
        check_host(errors, &path, host);
    }
    if !host.contains('*') || !leniency.wildcard_rules {
        check_rule_value(errors, path, rule);
    }
}

fn check_rule_value(errors: &mut ErrorList, path: &Path, rule: &Value) {
    let Some(http) = rule.map("http") else { return };
    let path = path.child("http").child("paths");
    let paths = http.list("paths");
    if paths.is_empty() {
        errors.required(&path, "");
    }
    for (index, one) in paths.iter().enumerate() {
        check_path(errors, &path.index(index), one);
    }
}

fn check_path(errors: &mut ErrorList, path: &Path, entry: &Value) {
    let Some(kind) = entry.opt_str("pathType") else {
        errors.required(&path.child("pathType"), "pathType must be specified");
        return;
    };
    let (text, text_path) = (entry.str("path"), path.child("path"));
    let absolute = text.starts_with('/');
    let mut refuse = |detail: String| errors.invalid(&text_path, text, detail);
    match kind {
        "Exact" | "Prefix" => {
            if !absolute {
                refuse("must be an absolute path".to_owned());
            }
            for bad in BAD_IN_PATHS.iter().filter(|bad| text.contains(**bad)) {
                refuse(format!("must not contain '{bad}'"));
            }
            for bad in BAD_ENDS.iter().filter(|bad| text.ends_with(**bad)) {
                refuse(format!("cannot end with '{bad}'"));
            }
        }
        "ImplementationSpecific" if !text.is_empty() && !absolute => {
            refuse("must be an absolute path".to_owned())
        }
        other => one_of(errors, &path.child("pathType"), other, PATH_TYPES),
    }
    let none = Value::Null;
    check_backend(
        errors,
        &path.child("backend"),
        entry.field("backend").unwrap_or(&none),
    );
}

fn check_backend(errors: &mut ErrorList, path: &Path, backend: &Value) {
    match (backend.field("resource"), backend.field("service")) {
        (Some(_), Some(_)) => {
            errors.invalid(path, "", "cannot set both resource and service backends")
        }
        (Some(resource), None) => check_resource(errors, &path.child("resource"), resource),
        (None, Some(service)) => check_service(errors, path, service),
        (None, None) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

/// A reference to an object of the same namespace.
pub fn check_resource(errors: &mut ErrorList, path: &Path, reference: &Value) {
    if let Some(group) = reference.opt_str("apiGroup") {
        invalid_each(
            errors,
            &path.child("apiGroup"),
            group,
            names::dns1123_subdomain(group),
        );
    }
    required_segment(errors, &path.child("kind"), reference.str("kind"));
    required_segment(errors, &path.child("name"), reference.str("name"));
}

fn check_service(errors: &mut ErrorList, path: &Path, service: &Value) {
    let (name, service_path) = (service.str("name"), path.child("service"));
    if name.is_empty() {
        errors.required(&service_path.child("name"), "");
    } else {
        invalid_each(
            errors,
            &service_path.child("name"),
            name,
            names::dns1123_label(name),
        );
    }
    let none = Value::Null;
    let port = service.field("port").unwrap_or(&none);
    let port_path = service_path.child("port");
    match (port.str("name"), port.int("number").unwrap_or(0)) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => invalid_number(
            errors,
            &port_path.child("number"),
            number,
            names::port_number(number),
        ),
        (name, 0) => invalid_each(
            errors,
            &port_path.child("name"),
            name,
            names::port_name(name),
        ),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn check_status(object: &Object, old: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let known: HashSet<&str> = old
        .array_at("/status/loadBalancer/ingress")
        .iter()
        .map(|one| one.str("ip"))
        .collect();
    for (index, entry) in object
        .array_at("/status/loadBalancer/ingress")
        .iter()
        .enumerate()
    {
        let path = path.index(index);
        let (ip, host) = (entry.str("ip"), entry.str("hostname"));
        if !ip.is_empty() && !known.contains(ip) {
            invalid_each(&mut errors, &path.child("ip"), ip, names::legacy_ip(ip));
        }
        if !host.is_empty() {
            let path = path.child("hostname");
            invalid_each(&mut errors, &path, host, names::dns1123_subdomain(host));
            if names::parse_ip_sloppy(host).is_some() {
                errors.invalid(&path, host, NOT_AN_ADDRESS);
            }
        }
    }
    errors
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Class", "The ingress class"),
        text("Hosts", "The hosts that its rules are for"),
        text("Address", "The addresses of its load balancer"),
        text("Ports", "The ports it listens on"),
        AGE,
    ],
    paths: "spec.ingressClassName spec.rules.host spec.tls status.loadBalancer",
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
            .cell(ingress_points(object))
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
