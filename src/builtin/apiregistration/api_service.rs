//! apiregistration.k8s.io: APIServices (kube-aggregator `pkg/apis/apiregistration/validation`).

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, condition, text};
use crate::builtin::defaulting::{fill, part};
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, STATUS_ALONE};
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names, str_at, time};
use crate::registry::validation::{Fields, invalid_each, one_of};
use crate::registry::{Context, NameRule, Strategy, Subresource};

/// The entry of `apiservices`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "apiservices",
    traits: ResourceTraits {
        any_finalizer: true,
        name: NameRule::PathSegment,
        unconditional_update: false,
        ..STATUS_ALONE
    },
    strategy: &ApiServiceStrategy,
    printer: &PRINTER,
};

/// The highest priorities of a group and of a version.
const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

pub struct ApiServiceStrategy;

impl Strategy for ApiServiceStrategy {
    fn default(&self, object: &mut Object) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return;
        };
        if let Some(service) = part(spec, "service") {
            fill(service, "port", 443);
        }
    }

    fn prepare_for_create(&self, ctx: &Context, object: &mut Object) {
        if object.at("/spec/service").is_none_or(Value::is_null) {
            let condition = json!({
                "type": "Available",
                "status": "True",
                "lastTransitionTime": time::format(ctx.now.as_second()),
                "reason": "Local",
                "message": "Local APIServices are always available",
            });
            object.insert("status", json!({"conditions": [condition]}));
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check(object)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, _old: &Object) -> ErrorList {
        if ctx.subresource != Subresource::Status {
            return check(object);
        }
        let mut errors = ErrorList::new();
        for (index, condition) in object.array_at("/status/conditions").iter().enumerate() {
            let path = Path::new("status")
                .child("conditions")
                .index(index)
                .child("status");
            one_of(
                &mut errors,
                &path,
                condition.str("status"),
                &["True", "False", "Unknown"],
            );
        }
        errors
    }
}

fn check(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    let (group, version) = (spec.str("group"), spec.str("version"));
    let wanted = format!("{version}.{group}");
    if object.name() != wanted && !object.name().is_empty() {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.invalid(&Path::new("metadata").child("name"), object.name(), detail);
    }
    if !group.is_empty() {
        invalid_each(
            &mut errors,
            &path.child("group"),
            group,
            names::dns1123_subdomain(group),
        );
    } else if version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.required(&path.child("group"), detail);
    }
    invalid_each(
        &mut errors,
        &path.child("version"),
        version,
        names::dns1035_label(version),
    );
    for (key, max) in [
        ("groupPriorityMinimum", GROUP_PRIORITY_MAX),
        ("versionPriority", VERSION_PRIORITY_MAX),
    ] {
        let priority = spec.int(key).unwrap_or(0);
        if !(1..=max).contains(&priority) {
            errors.invalid(
                &path.child(key),
                priority,
                format!("must be positive and less than {max}"),
            );
        }
    }
    check_service(&mut errors, &path, spec);
    errors
}

/// Checks the service behind an APIService, or the absence of one.
fn check_service(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let bundle = decoded_len(spec.str("caBundle"));
    let insecure = spec.flag("insecureSkipTLSVerify");
    let Some(service) = spec.map("service") else {
        if bundle > 0 {
            let shown = format!("{bundle} bytes");
            errors.invalid(
                &path.child("caBundle"),
                shown,
                "local APIServices may not have a caBundle",
            );
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
        }
        return;
    };
    for key in ["namespace", "name"] {
        if service.str(key).is_empty() {
            errors.required(&path.child("service").child(key), "");
        }
    }
    let port = service.int("port").unwrap_or(0);
    let problems = names::port_number(port);
    if !problems.is_empty() {
        let detail = format!("port is not valid: {}", problems.join(", "));
        errors.invalid(&path.child("service").child("port"), port, detail);
    }
    if insecure && bundle > 0 {
        errors.invalid(
            &path.child("insecureSkipTLSVerify"),
            true,
            "may not be true if caBundle is present",
        );
    }
}

/// Returns the number of bytes that a base64 text decodes to.
fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take(2).filter(|&c| c == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Service", "The service that serves the group"),
        text("Available", "Whether it can be reached"),
        AGE,
    ],
    paths: "spec.service status.conditions",
    fill: |row| {
        let object = row.object;
        let service = match object
            .at("/spec/service")
            .filter(|service| service.is_object())
        {
            Some(service) => format!(
                "{}/{}",
                str_at(service, "/namespace"),
                str_at(service, "/name")
            ),
            None => "Local".to_owned(),
        };
        let available = match condition(object, "/status/conditions", "Available")
            .map(|one| (str_at(one, "/status"), str_at(one, "/reason")))
        {
            None => "Unknown".to_owned(),
            Some(("True", _)) => "True".to_owned(),
            Some((status, "")) => status.to_owned(),
            Some((status, reason)) => format!("{status} ({reason})"),
        };
        row.name().cell(service).cell(available).age();
    },
};
