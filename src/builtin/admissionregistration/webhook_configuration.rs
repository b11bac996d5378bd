//! Webhook configurations.

use std::collections::BTreeSet;

use super::rules::{ADMISSION, check_conditions, check_rule, default_rules, static_name_warnings};
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, integer};
use crate::builtin::defaulting::{fill, part, parts};
use crate::builtin::resource_traits::ResourceEntry;
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{
    Fields, SelectorOptions, invalid_each, one_of, validate_label_selector,
};
use crate::registry::{Context, Strategy};

/// The entry of `mutatingwebhookconfigurations`.
pub static MUTATING_WEBHOOK_CONFIGURATION: ResourceEntry = ResourceEntry {
    resource: "mutatingwebhookconfigurations",
    traits: ADMISSION,
    strategy: &MutatingWebhookConfigurationStrategy,
    printer: &PRINTER,
};

/// The entry of `validatingwebhookconfigurations`.
pub static VALIDATING_WEBHOOK_CONFIGURATION: ResourceEntry = ResourceEntry {
    resource: "validatingwebhookconfigurations",
    traits: ADMISSION,
    strategy: &ValidatingWebhookConfigurationStrategy,
    printer: &PRINTER,
};

const URL_FORM: &str = "; desired format: https://host[/path]";
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];
const SELECTORS: [&str; 2] = ["namespaceSelector", "objectSelector"];

/// Invalid values that an update may keep although a new object may not have them.
#[derive(Clone, Copy, Default)]
struct ValidationOptions {
    side_effects: bool,
    review_versions: bool,
    repeated_names: bool,
    selectors: SelectorOptions,
    conditions: bool,
}

pub struct MutatingWebhookConfigurationStrategy;

pub struct ValidatingWebhookConfigurationStrategy;

impl Strategy for MutatingWebhookConfigurationStrategy {
    fn default(&self, object: &mut Object) {
        default_webhooks(object, true);
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check(object, ValidationOptions::default())
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        check(object, validation_options(object, old))
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        static_name_warnings(object)
    }
}

impl Strategy for ValidatingWebhookConfigurationStrategy {
    fn default(&self, object: &mut Object) {
        default_webhooks(object, false);
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check(object, ValidationOptions::default())
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        check(object, validation_options(object, old))
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        static_name_warnings(object)
    }
}

fn default_webhooks(object: &mut Object, mutating: bool) {
    for hook in parts(object, "webhooks") {
        fill(hook, "failurePolicy", "Fail");
        fill(hook, "matchPolicy", "Equivalent");
        for key in SELECTORS {
            fill(hook, key, json!({}));
        }
        fill(hook, "timeoutSeconds", 10);
        if mutating {
            fill(hook, "reinvocationPolicy", "Never");
        }
        default_rules(hook, "rules");
        if let Some(service) = part(hook, "clientConfig").and_then(|config| part(config, "service"))
        {
            fill(service, "port", 443);
        }
    }
}

fn validation_options(object: &Object, old: &Object) -> ValidationOptions {
    let hooks = old.list("webhooks");
    let mut selectors = ErrorList::new();
    for hook in hooks {
        for key in SELECTORS {
            validate_label_selector(
                &mut selectors,
                &Path::default(),
                hook.map(key),
                SelectorOptions::default(),
            );
        }
    }
    let names: Vec<&str> = hooks.iter().map(|hook| hook.str("name")).collect();
    let accepted = |hook: &Value| {
        hook.list("admissionReviewVersions")
            .iter()
            .any(is_review_version)
    };
    let conditions = |hooks: &[Value]| {
        hooks
            .iter()
            .map(|hook| hook.list("matchConditions").to_vec())
            .collect::<Vec<_>>()
    };
    ValidationOptions {
        side_effects: !hooks
            .iter()
            .all(|hook| NO_SIDE_EFFECTS.contains(&hook.str("sideEffects"))),
        review_versions: !hooks.iter().all(accepted),
        repeated_names: names.iter().collect::<BTreeSet<_>>().len() != names.len(),
        selectors: SelectorOptions {
            allow_invalid_values: !selectors.is_empty(),
        },
        conditions: conditions(hooks) == conditions(object.list("webhooks")),
    }
}

fn is_review_version(version: &Value) -> bool {
    REVIEW_VERSIONS.contains(&version.as_str().unwrap_or(""))
}

fn check(object: &Object, validation_options: ValidationOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (index, hook) in object.list("webhooks").iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        check_hook(&mut errors, &path, hook, validation_options);
        check_review_versions(
            &mut errors,
            &path.child("admissionReviewVersions"),
            hook,
            validation_options,
        );
        let name = hook.str("name");
        if !validation_options.repeated_names && !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
    errors
}

fn check_hook(
    errors: &mut ErrorList,
    path: &Path,
    hook: &Value,
    validation_options: ValidationOptions,
) {
    check_name(errors, &path.child("name"), hook.str("name"));
    for (index, rule) in hook.list("rules").iter().enumerate() {
        check_rule(errors, &path.child("rules").index(index), rule);
    }
    for (key, supported) in [
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
    ] {
        if let Some(policy) = hook.opt_str(key) {
            one_of(errors, &path.child(key), policy, supported);
        }
    }
    let allowed = if validation_options.side_effects {
        SIDE_EFFECTS
    } else {
        NO_SIDE_EFFECTS
    };
    match hook.opt_str("sideEffects") {
        None => errors.required(
            &path.child("sideEffects"),
            format!("must specify one of {}", allowed.join(", ")),
        ),
        Some(effects) => one_of(errors, &path.child("sideEffects"), effects, allowed),
    }
    if let Some(seconds) = hook
        .int("timeoutSeconds")
        .filter(|seconds| !(1..=30).contains(seconds))
    {
        errors.invalid(
            &path.child("timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        );
    }
    for key in SELECTORS {
        validate_label_selector(
            errors,
            &path.child(key),
            hook.map(key),
            validation_options.selectors,
        );
    }
    if let Some(policy) = hook.opt_str("reinvocationPolicy") {
        one_of(
            errors,
            &path.child("reinvocationPolicy"),
            policy,
            &["IfNeeded", "Never"],
        );
    }
    let (path_of_config, config) = (path.child("clientConfig"), hook.section("clientConfig"));
    match (config.opt_str("url"), config.map("service")) {
        (Some(url), None) => check_url(errors, &path_of_config.child("url"), url),
        (None, Some(service)) => check_service(errors, &path_of_config.child("service"), service),
        _ => errors.required(&path_of_config, "exactly one of url or service is required"),
    }
    if !validation_options.conditions {
        check_conditions(
            errors,
            &path.child("matchConditions"),
            hook.list("matchConditions"),
            false,
        );
    }
}

/// A name of at least three labels (apimachinery `IsFullyQualifiedName`).
fn check_name(errors: &mut ErrorList, path: &Path, name: &str) {
    let problems = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        );
    }
}

fn check_review_versions(
    errors: &mut ErrorList,
    path: &Path,
    hook: &Value,
    validation_options: ValidationOptions,
) {
    let versions = hook.list("admissionReviewVersions");
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.required(path, format!("must specify one of {known}"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or("");
        if !seen.insert(version) {
            errors.invalid(&path.index(index), version, "duplicate version");
            continue;
        }
        invalid_each(
            errors,
            &path.index(index),
            version,
            names::dns1035_label(version),
        );
    }
    if !validation_options.review_versions && !versions.iter().any(is_review_version) {
        errors.invalid(
            path,
            versions,
            format!("must include at least one of {known}"),
        );
    }
}

/// The URL of a webhook: https, a host, perhaps a path, nothing else (apiserver
/// `ValidateWebhookURL`).
pub fn check_url(errors: &mut ErrorList, path: &Path, url: &str) {
    let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let scheme_end = url.find(':').filter(|&end| {
        end > 0
            && url[..end]
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
    });
    let (scheme, rest) = scheme_end.map_or(("", url), |end| (&url[..end], &url[end + 1..]));
    let authority = rest
        .strip_prefix("//")
        .map_or("", |rest| rest.split('/').next().unwrap_or(""));
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    let scheme = scheme.to_ascii_lowercase();
    let mut refuse = |value: &str, detail: String| errors.invalid(path, value, detail);
    if scheme != "https" {
        refuse(
            &scheme,
            format!("'https' is the only allowed URL scheme{URL_FORM}"),
        );
    }
    if host.is_empty() {
        refuse(host, format!("host must be specified{URL_FORM}"));
    }
    if let Some(user) = user {
        refuse(
            user,
            "user information is not permitted in the URL".to_owned(),
        );
    }
    if !fragment.is_empty() {
        refuse(
            fragment,
            "fragments are not permitted in the URL".to_owned(),
        );
    }
    if !query.is_empty() {
        refuse(
            query,
            "query parameters are not permitted in the URL".to_owned(),
        );
    }
}

/// The service of a webhook. Upstream asks for the name and the namespace with their places
/// swapped.
pub fn check_service(errors: &mut ErrorList, path: &Path, service: &Map) {
    for (checked, told) in [("namespace", "name"), ("name", "namespace")] {
        if service.str(checked).is_empty() {
            errors.required(&path.child(told), "");
        }
    }
    let port = service.int("port").unwrap_or(0);
    let problems = names::port_number(port);
    if !problems.is_empty() {
        errors.invalid(
            &path.child("port"),
            port,
            format!("port is not valid: {}", problems.join(", ")),
        );
    }
    let url_path = service.str("path");
    let path = path.child("path");
    let mut refuse = |detail: String| errors.invalid(&path, url_path, detail);
    match url_path {
        "" | "/" => return,
        "//" => return refuse("segment[0] may not be empty".to_owned()),
        _ => {}
    }
    if !url_path.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    // Upstream drops the first byte, whatever it is.
    let steps = url_path.get(1..).unwrap_or("");
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (index, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::dns1123_subdomain(step) {
            refuse(format!("segment[{index}]: {problem}"));
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, integer("Webhooks", "The number of webhooks"), AGE],
    paths: "webhooks.name",
    fill: |row| {
        row.name().count("/webhooks").age();
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let cases = [
            ("https://h/p", 0),
            ("https://h:8443", 0),
            ("http://x", 1),
            ("https://u@x/?q#f", 3),
            ("https:///p", 1),
            ("x", 2),
            ("", 2),
        ];
        for (url, wrong) in cases {
            let mut errors = ErrorList::new();
            check_url(&mut errors, &Path::new("url"), url);
            assert_eq!(errors.len(), wrong, "{url}: {errors:?}");
        }
    }
}
