//! Rules that select the requests of a webhook or policy.

use std::collections::BTreeSet;

use super::admission_policy::expressions::invalid;
use crate::admission::cel::{Compiler, Declarations, Returns};
use crate::builtin::defaulting::{fill, parts};
use crate::builtin::resource_traits::{DEFAULT, ResourceTraits};
use crate::meta::{ErrorList, Map, Object, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, one_of};

/// Webhooks and policies: they count changes of anything, and no write may be blind.
pub const ADMISSION: ResourceTraits = ResourceTraits {
    generation: true,
    any_finalizer: true,
    unconditional_update: false,
    ..DEFAULT
};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
/// The maximum number of conditions of one webhook or policy.
const CONDITIONS_MAX: usize = 64;

/// Rules without a scope are about all scopes.
pub fn default_rules(holder: &mut Map, key: &str) {
    for rule in parts(holder, key) {
        fill(rule, "scope", "*");
    }
}

fn texts<'a>(rule: &'a Value, key: &str) -> Vec<&'a str> {
    rule.list(key)
        .iter()
        .map(|one| one.as_str().unwrap_or(""))
        .collect()
}

pub fn check_rule(errors: &mut ErrorList, path: &Path, rule: &Value) {
    check_wildcard(
        errors,
        &path.child("operations"),
        rule.list("operations"),
        "operations",
    );
    for (index, operation) in texts(rule, "operations").into_iter().enumerate() {
        one_of(
            errors,
            &path.child("operations").index(index),
            operation,
            OPERATIONS,
        );
    }
    check_wildcard(
        errors,
        &path.child("apiGroups"),
        rule.list("apiGroups"),
        "API groups",
    );
    let versions = path.child("apiVersions");
    check_wildcard(errors, &versions, rule.list("apiVersions"), "API versions");
    for (index, _) in texts(rule, "apiVersions")
        .iter()
        .enumerate()
        .filter(|(_, version)| version.is_empty())
    {
        errors.required(&versions.index(index), "");
    }
    check_resources(
        errors,
        &path.child("resources"),
        &texts(rule, "resources"),
        rule.list("resources"),
    );
    if let Some(scope) = rule.opt_str("scope") {
        one_of(errors, &path.child("scope"), scope, SCOPES);
    }
}

/// A list that is not empty, where `*` stands alone.
fn check_wildcard(errors: &mut ErrorList, path: &Path, list: &[Value], what: &str) {
    if list.is_empty() {
        errors.required(path, "");
    }
    if list.len() > 1 && list.iter().any(|one| one.as_str() == Some("*")) {
        errors.invalid(
            path,
            list,
            format!("if '*' is present, must not specify other {what}"),
        );
    }
}

fn check_resources(errors: &mut ErrorList, path: &Path, resources: &[&str], shown: &[Value]) {
    if resources.is_empty() {
        errors.required(path, "");
    }
    let (mut of_resource, mut of_subresource) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (index, &entry) in resources.iter().enumerate() {
        let path = path.index(index);
        if entry.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let Some((resource, sub)) = entry.split_once('/') else {
            plain = entry != "*";
            continue;
        };
        for (present, pattern) in [
            (of_resource.contains(resource), format!("{resource}/*")),
            (of_subresource.contains(sub), format!("*/{sub}")),
        ] {
            if present {
                errors.invalid(
                    &path,
                    entry,
                    format!("if '{pattern}' is present, must not specify {entry}"),
                );
            }
        }
        if sub == "*" {
            of_resource.insert(resource);
        }
        if resource == "*" {
            of_subresource.insert(sub);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        errors.invalid(
            path,
            shown,
            "if '*/*' is present, must not specify other resources",
        );
    }
    if plain && resources.contains(&"*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, shown, detail);
    }
}

/// A rule that may also name objects.
pub fn check_named_rule(errors: &mut ErrorList, path: &Path, rule: &Value) {
    let mut seen = BTreeSet::new();
    for (index, name) in texts(rule, "resourceNames").into_iter().enumerate() {
        let path = path.child("resourceNames").index(index);
        invalid_each(errors, &path, name, names::path_segment_name(name));
        if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
    }
    check_rule(errors, path, rule);
}

/// The end of names of configurations that the server reads from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// Returns the warnings about an object that has the name of a configuration in a file.
pub fn static_name_warnings(object: &Object) -> Vec<String> {
    if !object.name().ends_with(STATIC_SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
    )]
}

/// Conditions on requests: each has a name of its own and an expression, which may name the
/// parameters of a policy that has `params`.
pub fn check_conditions(errors: &mut ErrorList, path: &Path, conditions: &[Value], params: bool) {
    let compiler = Compiler::without_variables();
    let declarations = Declarations {
        params,
        authorizer: true,
        patch_types: false,
    };
    if conditions.len() > CONDITIONS_MAX {
        errors.too_many(path, conditions.len(), CONDITIONS_MAX);
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression = condition.str("expression").trim();
        if expression.is_empty() {
            errors.required(&path.child("expression"), "");
        } else {
            let compiled = compiler.compile(expression, Returns::Bool, declarations);
            let why = compiled.error();
            errors.extend(why.map(|why| invalid(&path.child("expression"), expression, why)));
        }
        let name = condition.str("name");
        let path = path.child("name");
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        invalid_each(errors, &path, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
    }
}
