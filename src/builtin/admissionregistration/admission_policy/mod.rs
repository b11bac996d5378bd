//! Admission policies and their bindings.

pub mod columns;
pub mod expressions;

use std::collections::BTreeSet;

use self::expressions::Expressions;
use super::rules::{
    ADMISSION, check_conditions, check_named_rule, default_rules, static_name_warnings,
};
use crate::builtin::defaulting::{fill, part};
use crate::builtin::resource_traits::{METADATA_FIELDS, ResourceEntry, ResourceTraits};
use crate::cel::RESERVED;
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{
    Fields, SelectorOptions, invalid_each, one_of, required_one_of, same, validate_conditions,
    validate_label_selector,
};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `mutatingadmissionpolicies`.
pub static MUTATING_ADMISSION_POLICY: ResourceEntry = ResourceEntry {
    resource: "mutatingadmissionpolicies",
    traits: ADMISSION,
    strategy: &MutatingAdmissionPolicyStrategy,
    printer: &columns::MUTATING_POLICY,
};

/// The entry of `mutatingadmissionpolicybindings`.
pub static MUTATING_ADMISSION_POLICY_BINDING: ResourceEntry = ResourceEntry {
    resource: "mutatingadmissionpolicybindings",
    traits: ADMISSION,
    strategy: &MutatingAdmissionPolicyBindingStrategy,
    printer: &columns::POLICY_BINDING,
};

/// The entry of `validatingadmissionpolicies`.
pub static VALIDATING_ADMISSION_POLICY: ResourceEntry = ResourceEntry {
    resource: "validatingadmissionpolicies",
    traits: ResourceTraits {
        any_finalizer: true,
        status: true,
        status_keeps: METADATA_FIELDS,
        status_resets: &["/spec", "/metadata"],
        ..ADMISSION
    },
    strategy: &ValidatingAdmissionPolicyStrategy,
    printer: &columns::VALIDATING_POLICY,
};

/// The entry of `validatingadmissionpolicybindings`.
pub static VALIDATING_ADMISSION_POLICY_BINDING: ResourceEntry = ResourceEntry {
    resource: "validatingadmissionpolicybindings",
    traits: ADMISSION,
    strategy: &ValidatingAdmissionPolicyBindingStrategy,
    printer: &columns::POLICY_BINDING,
};

const RULES: [&str; 2] = ["resourceRules", "excludeResourceRules"];
/// The maximum number of audit annotations of a policy.
const ANNOTATIONS_MAX: usize = 20;
/// The longest expression of an audit annotation, in bytes.
const ANNOTATION_MAX: usize = 5 * 1024;
const NOTHING_TO_CHECK: &str = "validations or auditAnnotations must contain at least one item";
const EXCLUSIVE: &str = "name and selector are mutually exclusive";

pub struct ValidatingAdmissionPolicyStrategy;

pub struct MutatingAdmissionPolicyStrategy;

pub struct ValidatingAdmissionPolicyBindingStrategy;

pub struct MutatingAdmissionPolicyBindingStrategy;

impl Strategy for ValidatingAdmissionPolicyStrategy {
    fn default(&self, object: &mut Object) {
        default_policy(object);
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check_validating(object, None)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Status {
            check_status(object)
        } else {
            check_validating(object, Some(old))
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        static_name_warnings(object)
    }
}

impl Strategy for MutatingAdmissionPolicyStrategy {
    fn default(&self, object: &mut Object) {
        default_policy(object);
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check_mutating(object, None)
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        check_mutating(object, Some(old))
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        static_name_warnings(object)
    }
}

impl Strategy for ValidatingAdmissionPolicyBindingStrategy {
    fn default(&self, object: &mut Object) {
        default_resources(object.section_mut("spec"), "matchResources");
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = check_binding(object);
        let path = Path::new("spec").child("validationActions");
        let actions = object.array_at("/spec/validationActions");
        let mut seen = BTreeSet::new();
        for (index, action) in actions.iter().enumerate() {
            let action = action.as_str().unwrap_or("");
            one_of(
                &mut errors,
                &path.index(index),
                action,
                &["Audit", "Deny", "Warn"],
            );
            if !seen.insert(action) {
                errors.duplicate(&path.index(index), action);
            }
        }
        if seen.contains("Deny") && seen.contains("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and \
                          headers serves no purpose)";
            errors.invalid(&path, actions, detail);
        }
        if seen.is_empty() {
            errors.required(&path, "at least one validation action is required");
        }
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        static_name_warnings(object)
    }
}

impl Strategy for MutatingAdmissionPolicyBindingStrategy {
    fn default(&self, object: &mut Object) {
        default_resources(object.section_mut("spec"), "matchResources");
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = check_binding(object);
        if let Some(resources) = object
            .at("/spec/matchResources")
            .filter(|it| it.is_object())
        {
            let path = Path::new("spec").child("matchResources");
            check_mutating_operations(&mut errors, &path, resources);
        }
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        static_name_warnings(object)
    }
}

/// Checks that there is something to change in what rules select: not in what is deleted.
fn check_mutating_operations(errors: &mut ErrorList, path: &Path, resources: &Value) {
    let rules = resources.list("resourceRules").iter();
    for operation in rules.flat_map(|rule| rule.list("operations")) {
        one_of(
            errors,
            &path.child("resourceRules").child("operations"),
            operation.as_str().unwrap_or(""),
            &["*", "CONNECT", "CREATE", "UPDATE"],
        );
    }
}

fn default_policy(object: &mut Object) {
    let spec = object.section_mut("spec");
    fill(spec, "failurePolicy", "Fail");
    default_resources(spec, "matchConstraints");
}

fn default_resources(spec: &mut Map, key: &str) {
    let Some(resources) = part(spec, key) else {
        return;
    };
    fill(resources, "matchPolicy", "Equivalent");
    fill(resources, "namespaceSelector", json!({}));
    fill(resources, "objectSelector", json!({}));
    for key in RULES {
        default_rules(resources, key);
    }
}

/// Checks the fields that both kinds of policies have.
fn check_policy(
    errors: &mut ErrorList,
    path: &Path,
    spec: &Map,
    old: Option<&Object>,
    expressions: &mut Expressions,
    mutating: bool,
) {
    required_one_of(
        errors,
        &path.child("failurePolicy"),
        spec.str("failurePolicy"),
        &["Fail", "Ignore"],
    );
    if let Some(kind) = spec.map("paramKind") {
        check_param_kind(errors, &path.child("paramKind"), kind);
    }
    let constraints_path = path.child("matchConstraints");
    match spec.field("matchConstraints") {
        None => errors.required(&constraints_path, ""),
        Some(constraints) => {
            check_resources(errors, &constraints_path, constraints);
            let rules = constraints.list("resourceRules");
            if rules.is_empty() {
                errors.required(&constraints_path.child("resourceRules"), "");
            }
            if mutating {
                check_mutating_operations(errors, &constraints_path, constraints);
            }
        }
    }
    let unchanged =
        |key: &str| old.is_some_and(|old| same(old.at(&format!("/spec/{key}")), spec.field(key)));
    if !unchanged("paramKind") || !unchanged("matchConditions") {
        check_conditions(
            errors,
            &path.child("matchConditions"),
            spec.list("matchConditions"),
            spec.map("paramKind").is_some(),
        );
    }
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let path = path.child("variables").index(index);
        let name = variable.str("name");
        if name.trim().is_empty() {
            errors.required(&path.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
        }
        expressions.check_variable(errors, &path.child("expression"), name, variable);
    }
}

fn is_identifier(name: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    name.bytes().all(word)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !RESERVED.contains(&name)
}

fn check_validating(object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    let mut expressions = Expressions::of(spec, !spec.list("variables").is_empty());
    check_policy(&mut errors, &path, spec, old, &mut expressions, false);
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            errors.required(&path.child(key), NOTHING_TO_CHECK);
        }
    }
    for (index, validation) in validations.iter().enumerate() {
        check_validation(
            &mut errors,
            &path.child("validations").index(index),
            validation,
            &expressions,
        );
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let shown = annotations.iter().map(
            |one| json!({"Key": one.str("key"), "ValueExpression": one.str("valueExpression")}),
        );
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(&path, shown.collect::<Value>(), detail);
    }
    let mut seen = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let (path, key) = (path.index(index), annotation.str("key"));
        let full = format!("{}/{key}", object.name());
        invalid_each(
            &mut errors,
            &path.child("key"),
            &full,
            names::qualified_name(&full),
        );
        let expression = annotation.str("valueExpression").trim();
        if expression.is_empty() {
            errors.required(
                &path.child("valueExpression"),
                "valueExpression is not specified",
            );
        } else if expression.len() > ANNOTATION_MAX {
            let detail = format!("must not exceed {ANNOTATION_MAX} bytes in length");
            errors.required(&path.child("valueExpression"), detail);
        } else {
            expressions.check_annotation(&mut errors, &path.child("valueExpression"), annotation);
        }
        if !seen.insert(key) {
            errors.duplicate(&path.child("key"), key);
        }
    }
    errors
}

fn check_validation(
    errors: &mut ErrorList,
    path: &Path,
    validation: &Value,
    expressions: &Expressions,
) {
    expressions.check_validation(errors, &path.child("expression"), validation);
    for key in ["messageExpression", "message"] {
        let text = validation.str(key);
        if !text.is_empty() && text.trim().is_empty() {
            errors.invalid(&path.child(key), text, "must be non-empty if specified");
        } else if key == "messageExpression" {
            expressions.check_message(errors, &path.child(key), text);
        } else if key == "message" && text.trim().contains(['\n', '\r']) {
            errors.invalid(&path.child(key), text, "must not contain line breaks");
        }
    }
    if let Some(reason) = validation.opt_str("reason") {
        one_of(
            errors,
            &path.child("reason"),
            reason,
            &["Forbidden", "Invalid", "RequestEntityTooLarge"],
        );
    }
}

fn check_mutating(object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    let mut expressions = Expressions::of(spec, true);
    check_policy(&mut errors, &path, spec, old, &mut expressions, true);
    let mutations = spec.list("mutations");
    if mutations.is_empty() {
        errors.required(
            &path.child("mutations"),
            "mutations must contain at least one item",
        );
    }
    for (index, mutation) in mutations.iter().enumerate() {
        let path = path.child("mutations").index(index);
        check_mutation(&mut errors, &path, mutation, &expressions);
    }
    required_one_of(
        &mut errors,
        &path.child("reinvocationPolicy"),
        spec.str("reinvocationPolicy"),
        &["IfNeeded", "Never"],
    );
    errors
}

fn check_mutation(
    errors: &mut ErrorList,
    path: &Path,
    mutation: &Value,
    expressions: &Expressions,
) {
    let kind = mutation.str("patchType");
    let (own, other) = match kind {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        _ => {
            return required_one_of(
                errors,
                &path.child("patchType"),
                kind,
                &["ApplyConfiguration", "JSONPatch"],
            );
        }
    };
    match mutation.map(own) {
        None => errors.required(
            &path.child(own),
            format!("must be specified when patchType is {kind}"),
        ),
        Some(patch) if patch.str("expression").trim().is_empty() => {
            errors.required(&path.child(own).child("expression"), "");
        }
        Some(patch) => {
            let path = path.child(own).child("expression");
            expressions.check_patch(errors, &path, kind, patch.str("expression"));
        }
    }
    if mutation.map(other).is_some() {
        let detail = format!("must not be specified when patchType is {kind}");
        errors.invalid(&path.child(other), format!("{{{other}}}"), detail);
    }
}

fn check_param_kind(errors: &mut ErrorList, path: &Path, kind: &Map) {
    let version = kind.str("apiVersion");
    let version_path = path.child("apiVersion");
    let mut refuse = |value: &str, detail: String| errors.invalid(&version_path, value, detail);
    match version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.required(&version_path, ""),
        ["", ""] | [_, ""] => refuse(version, "version must be specified".to_owned()),
        [_] | [_, _] => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let problems = names::dns1123_subdomain(group);
            if !group.is_empty() && !problems.is_empty() {
                refuse(group, problems.join(","));
            }
            let problems = names::dns1035_label(version);
            if !problems.is_empty() {
                refuse(version, problems.join(","));
            }
        }
        _ => refuse(
            version,
            format!("unexpected GroupVersion string: {version}"),
        ),
    }
    let name = kind.str("kind");
    let problems = names::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&path.child("kind"), "");
    } else if !problems.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.invalid(&path.child("kind"), name, detail);
    }
}

fn check_resources(errors: &mut ErrorList, path: &Path, resources: &Value) {
    required_one_of(
        errors,
        &path.child("matchPolicy"),
        resources.str("matchPolicy"),
        &["Equivalent", "Exact"],
    );
    for key in ["namespaceSelector", "objectSelector"] {
        match resources.map(key) {
            None => errors.required(&path.child(key), ""),
            selector => validate_label_selector(
                errors,
                &path.child(key),
                selector,
                SelectorOptions::default(),
            ),
        }
    }
    for key in RULES {
        for (index, rule) in resources.list(key).iter().enumerate() {
            check_named_rule(errors, &path.child(key).index(index), rule);
        }
    }
}

fn check_binding(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let path = Path::new("spec");
    let policy = spec.str("policyName");
    if policy.is_empty() {
        errors.required(&path.child("policyName"), "");
    } else {
        invalid_each(
            &mut errors,
            &path.child("policyName"),
            policy,
            names::dns1123_subdomain(policy),
        );
    }
    if let Some(reference) = spec.field("paramRef") {
        check_param_ref(&mut errors, &path.child("paramRef"), reference);
    }
    if let Some(resources) = spec.field("matchResources") {
        check_resources(&mut errors, &path.child("matchResources"), resources);
    }
    errors
}

fn check_param_ref(errors: &mut ErrorList, path: &Path, reference: &Value) {
    let (name, selector) = (reference.str("name"), reference.map("selector"));
    if !name.is_empty() {
        invalid_each(
            errors,
            &path.child("name"),
            name,
            names::path_segment_name(name),
        );
        if selector.is_some() {
            errors.forbidden(&path.child("name"), EXCLUSIVE);
        }
    }
    validate_label_selector(
        errors,
        &path.child("selector"),
        selector,
        SelectorOptions::default(),
    );
    match (name.is_empty(), selector.is_some()) {
        (false, true) => errors.forbidden(&path.child("selector"), EXCLUSIVE),
        (true, false) => errors.required(path, "one of name or selector must be specified"),
        _ => {}
    }
    let action = reference.str("parameterNotFoundAction");
    required_one_of(
        errors,
        &path.child("parameterNotFoundAction"),
        action,
        &["Deny", "Allow"],
    );
}

fn check_status(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    for (index, warning) in object
        .array_at("/status/typeChecking/expressionWarnings")
        .iter()
        .enumerate()
    {
        let path = path
            .child("typeChecking")
            .child("expressionWarnings")
            .index(index);
        for key in ["warning", "fieldRef"] {
            if warning.str(key).trim().is_empty() {
                errors.required(&path.child(key), "");
            }
        }
    }
    validate_conditions(
        &mut errors,
        &path.child("conditions"),
        object.array_at("/status/conditions"),
    );
    errors
}
