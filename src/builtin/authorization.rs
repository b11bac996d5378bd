//! authorization.k8s.io: reviews of what somebody may do (`pkg/registry/authorization`,
//! `pkg/apis/authorization/validation`). A review is answered, never stored.

use crate::auth::User;
use crate::auth::authz::{Attributes, Authorizer, Rule, Verdict, aggregate};
use crate::meta::selector::fields::{FieldSelector, Term};
use crate::meta::selector::labels::{LabelSelector, Requirement};
use crate::meta::status::Result;
use crate::meta::{ErrorList, Gvk, Map, Object, Path, Status, Value, json, names};
use crate::registry::validation::{Fields, invalid_each};

const GROUP: &str = "authorization.k8s.io";

/// The subject of a review, and its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Review {
    /// Of the user that the review names.
    Subject,
    /// The same, about one namespace, that of the review.
    Local,
    /// Of who asks.
    Own,
}

/// Answers a SubjectAccessReview.
///
/// # Errors
/// 422 if the review does not ask one complete question.
pub async fn subject_access_review(object: Object, authorizer: &dyn Authorizer) -> Result<Object> {
    let user = named_user(&object);
    answer(object, Review::Subject, user, authorizer).await
}

/// Answers a LocalSubjectAccessReview, whose metadata has the namespace of the request.
///
/// # Errors
/// 422 if the review does not ask one complete question about its namespace.
pub async fn local_subject_access_review(
    object: Object,
    authorizer: &dyn Authorizer,
) -> Result<Object> {
    let user = named_user(&object);
    answer(object, Review::Local, user, authorizer).await
}

/// Answers a SelfSubjectAccessReview of `user`.
///
/// # Errors
/// 422 if the review does not ask one complete question.
pub async fn self_subject_access_review(
    object: Object,
    user: &User,
    authorizer: &dyn Authorizer,
) -> Result<Object> {
    answer(object, Review::Own, user.clone(), authorizer).await
}

/// Answers a SelfSubjectRulesReview of `user`: every rule that is known to apply to it in a
/// namespace.
///
/// # Errors
/// 400 if the review names no namespace.
pub async fn self_subject_rules_review(
    object: Object,
    user: &User,
    authorizer: &dyn Authorizer,
) -> Result<Object> {
    let namespace = object.str_at("/spec/namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let found = authorizer.rules_for(user, namespace).await;
    let members = |rule: &Rule, names: &[&str]| {
        let mut value = rule.to_value();
        if let Some(map) = value.as_object_mut() {
            map.retain(|key, _| names.contains(&key.as_str()));
        }
        value
    };
    let resource = found.rules.iter().filter(|rule| !rule.resources.is_empty());
    let resource: Vec<Value> = resource
        .map(|rule| members(rule, &["verbs", "apiGroups", "resources", "resourceNames"]))
        .collect();
    let paths = found
        .rules
        .iter()
        .filter(|rule| !rule.non_resource_urls.is_empty());
    let paths: Vec<Value> = paths
        .map(|rule| members(rule, &["verbs", "nonResourceURLs"]))
        .collect();
    let mut status = json!({"resourceRules": resource, "nonResourceRules": paths, "incomplete": found.incomplete});
    if !found.errors.is_empty() {
        status["evaluationError"] = aggregate(&found.errors).into();
    }
    // The answer is a new object: it repeats nothing of the question.
    let mut out = Object::default();
    for key in ["kind", "apiVersion"] {
        out.insert(key.to_owned(), object.get(key).cloned().unwrap_or_default());
    }
    out.insert("metadata", json!({}));
    out.insert("spec", json!({}));
    out.insert("status", status);
    Ok(out)
}

async fn answer(
    mut object: Object,
    review: Review,
    user: User,
    authorizer: &dyn Authorizer,
) -> Result<Object> {
    let errors = validate(&object, review);
    if !errors.is_empty() {
        // Upstream names no kind here.
        return Err(Status::invalid(&Gvk::new(GROUP, "v1", ""), "", errors));
    }
    let (asked, unread) = asked(&object, user);
    let decision = authorizer.authorize(&asked).await;
    let mut status = Map::new();
    status.insert("allowed", decision.is_allowed().into());
    if decision.verdict == Verdict::Deny {
        status.insert("denied", true.into());
    }
    if !decision.reason.is_empty() {
        status.insert("reason", decision.reason.into());
    }
    let problems: Vec<String> = decision.error.into_iter().chain(unread).collect();
    if !problems.is_empty() {
        status.insert("evaluationError", problems.join("; ").into());
    }
    object.insert("status", Value::Object(status));
    Ok(object)
}

fn strings(values: &[Value]) -> Vec<String> {
    values
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The user that the spec names.
fn named_user(object: &Object) -> User {
    let extra = object
        .at("/spec/extra")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    User {
        name: object.str_at("/spec/user").to_owned(),
        uid: object.str_at("/spec/uid").to_owned(),
        groups: strings(object.array_at("/spec/groups")),
        extra: extra
            .map(|(key, values)| {
                (
                    key.to_string(),
                    strings(values.as_array().map_or(&[], Vec::as_slice)),
                )
            })
            .collect(),
    }
}

/// The question of a review, and what of its selectors was not understood.
fn asked(object: &Object, user: User) -> (Attributes, Vec<String>) {
    let user = user.into();
    let Some(resource) = object
        .at("/spec/resourceAttributes")
        .filter(|resource| resource.is_object())
    else {
        let of = |key: &str| {
            object
                .at("/spec/nonResourceAttributes")
                .map_or("", |paths| paths.str(key))
                .to_owned()
        };
        let asked = Attributes {
            user,
            verb: of("verb"),
            path: of("path"),
            ..Attributes::default()
        };
        return (asked, Vec::new());
    };
    let mut unread = Vec::new();
    let raw_fields = |text: &str| FieldSelector::parse(text).map(|selector| selector.terms);
    let field_selector = requirements(
        resource,
        "fieldSelector",
        raw_fields,
        field_term,
        &mut unread,
    );
    let raw_labels = |text: &str| LabelSelector::parse(text).map(|selector| selector.requirements);
    let label_selector = requirements(
        resource,
        "labelSelector",
        raw_labels,
        Requirement::from_expression,
        &mut unread,
    );
    let of = |key: &str| resource.str(key).to_owned();
    let asked = Attributes {
        user,
        verb: of("verb"),
        group: of("group"),
        version: if resource.str("version").is_empty() {
            "*".to_owned()
        } else {
            of("version")
        },
        resource: of("resource"),
        subresource: of("subresource"),
        namespace: of("namespace"),
        name: of("name"),
        resource_request: true,
        field_selector,
        label_selector,
        ..Attributes::default()
    };
    (asked, unread)
}

fn validate(object: &Object, review: Review) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let member = |key: &str| object.get("spec").and_then(|spec| spec.map(key));
    let (resource, paths) = (
        member("resourceAttributes"),
        member("nonResourceAttributes"),
    );
    // The value is told as the server's own type spells its members.
    let told = |paths: &Map| json!({"Path": paths.str("path"), "Verb": paths.str("verb")});
    let path = spec.child("nonResourceAttributes");
    match (resource, paths) {
        (Some(_), Some(paths)) => {
            errors.invalid(
                &path,
                told(paths),
                "cannot be specified in combination with resourceAttributes",
            );
        }
        (None, None) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid(&spec.child("resourceAttributes"), Value::Null, why);
        }
        _ => {}
    }
    if review != Review::Own
        && object.str_at("/spec/user").is_empty()
        && object.array_at("/spec/groups").is_empty()
    {
        errors.invalid(
            &spec.child("user"),
            "",
            "at least one of user or group must be specified",
        );
    }
    if let Some(resource) = resource {
        validate_selectors(&mut errors, &spec.child("resourceAttributes"), resource);
    }
    validate_metadata(&mut errors, object, review);
    if review == Review::Local {
        if let Some(namespace) = resource
            .map(|resource| resource.str("namespace"))
            .filter(|namespace| *namespace != object.namespace())
        {
            let path = spec.child("resourceAttributes").child("namespace");
            errors.invalid(&path, namespace, "must match metadata.namespace");
        }
        if let Some(paths) = paths {
            errors.invalid(&path, told(paths), "disallowed on this kind of request");
        }
    }
    errors
}

fn validate_metadata(errors: &mut ErrorList, object: &Object, review: Review) {
    let allowed: &[&str] = if review == Review::Local {
        &["managedFields", "namespace"]
    } else {
        &["managedFields"]
    };
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let Some(metadata) = object.metadata() else {
        return;
    };
    if metadata
        .iter()
        .any(|(key, value)| !allowed.contains(&key.as_str()) && !empty(value))
    {
        let why = if review == Review::Local {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        errors.invalid(&Path::new("metadata"), Value::Object(metadata.clone()), why);
    }
}

fn validate_selectors(errors: &mut ErrorList, path: &Path, resource: &Map) {
    for (key, labels) in [("fieldSelector", false), ("labelSelector", true)] {
        let Some(selector) = resource.map(key) else {
            continue;
        };
        let path = path.child(key);
        let (raw, requirements) = (selector.str("rawSelector"), selector.list("requirements"));
        if !raw.is_empty() && !requirements.is_empty() {
            errors.invalid(
                &path.child("rawSelector"),
                raw,
                "may not specified at the same time as requirements",
            );
        }
        if raw.is_empty() && requirements.is_empty() {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.required(&path.child("requirements"), why);
        }
        for (index, requirement) in requirements.iter().enumerate() {
            validate_requirement(
                errors,
                &path.child("requirements").index(index),
                requirement,
                labels,
            );
        }
    }
}

/// Operators that the server does not know are let pass, so that newer clients can ask.
fn validate_requirement(errors: &mut ErrorList, path: &Path, requirement: &Value, labels: bool) {
    let (key, values) = (requirement.str("key"), requirement.list("values"));
    if !labels && key.is_empty() {
        errors.required(&path.child("key"), "must be specified");
    }
    match requirement.str("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(
                &path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            );
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(
                &path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        _ => {}
    }
    if labels {
        invalid_each(errors, &path.child("key"), key, names::qualified_name(key));
        for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
            invalid_each(
                errors,
                &path.child("values").index(index),
                value,
                names::label_value(value),
            );
        }
    }
}

/// The requirements of a selector of a review, as far as they are understood: to leave one out
/// asks for more (kubernetes `registry/authorization/util`). `unread` gets a text if one is.
fn requirements<T>(
    resource: &Value,
    key: &str,
    raw: impl Fn(&str) -> std::result::Result<Vec<T>, String>,
    read: impl Fn(&Value) -> std::result::Result<T, String>,
    unread: &mut Vec<String>,
) -> Vec<T> {
    let Some(selector) = resource.map(key) else {
        return Vec::new();
    };
    let given = selector.list("requirements");
    let (found, complete) = match given {
        [] => {
            let parsed = raw(selector.str("rawSelector"));
            let complete = parsed.is_ok();
            (parsed.unwrap_or_default(), complete)
        }
        given => {
            let found: Vec<T> = given.iter().filter_map(|one| read(one).ok()).collect();
            let complete = found.len() == given.len();
            (found, complete)
        }
    };
    if !complete {
        let how = match found.is_empty() {
            true => "ignored",
            false => "partially ignored",
        };
        unread.push(format!(
            "spec.resourceAttributes.{key} {how} due to parse error"
        ));
    }
    found
}

/// A requirement on a field; only one value is supported.
fn field_term(requirement: &Value) -> std::result::Result<Term, String> {
    let negated = match requirement.str("operator") {
        "In" => false,
        "NotIn" => true,
        other => return Err(format!("fieldSelectors do not yet support {other}")),
    };
    match requirement.list("values") {
        [value] => Ok(Term {
            field: requirement.str("key").to_owned(),
            value: value.as_str().unwrap_or_default().to_owned(),
            negated,
        }),
        _ => Err("fieldSelectors in must have one value".to_owned()),
    }
}
