//! Validation of an AuthorizationConfiguration (apiserver `apis/apiserver/validation`).

use std::collections::HashSet;
use std::fs;
use std::path::Path as FilePath;

use super::configuration::{AuthorizerType, nanos};
use crate::auth::cel::{self, Returns, Variable};
use crate::meta::field::FieldError;
use crate::meta::{ErrorList, Object, Path, Value, array_at, go, json, names, str_at, value_at};

/// The conditions of a webhook.
const MAX_MATCH_CONDITIONS: usize = 64;
/// The longest time that a webhook may be given.
const MAX_TIMEOUT: i64 = 30_000_000_000;

/// Returns what is wrong with a configuration.
pub fn validate(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let list = Path::new("authorizers");
    let authorizers = object.array_at("/authorizers");
    if authorizers.is_empty() {
        errors.required(&list, "at least one authorization mode must be defined");
    }
    let (mut types, mut seen) = (HashSet::new(), HashSet::new());
    for (at, one) in authorizers.iter().enumerate() {
        let path = list.index(at);
        let (kind, name) = (str_at(one, "/type"), str_at(one, "/name"));
        let path_of_type = path.child("type");
        let Some(known) = AuthorizerType::named(kind) else {
            match kind {
                "" => errors.required(&path_of_type, ""),
                kind => {
                    let supported = AuthorizerType::ALL.map(AuthorizerType::name);
                    errors.not_supported(&path_of_type, kind, &supported);
                }
            }
            continue;
        };
        if !types.insert(kind) && known != AuthorizerType::Webhook {
            errors.duplicate(&path_of_type, kind);
            continue;
        }
        validate_name(&mut errors, &path.child("name"), name, seen.contains(name));
        seen.insert(name);
        let webhook = value_at(one, "/webhook").filter(|webhook| webhook.is_object());
        let path_of_webhook = path.child("webhook");
        match (known, webhook) {
            (AuthorizerType::Webhook, Some(webhook)) => {
                validate_webhook(&mut errors, &path, webhook);
            }
            (AuthorizerType::Webhook, None) => {
                errors.required(&path_of_webhook, "required when type=Webhook");
            }
            (_, Some(_)) => {
                let why = "may only be specified when type=Webhook";
                errors.invalid(&path_of_webhook, "non-null", why);
            }
            (_, None) => {}
        }
    }
    errors
}

fn validate_name(errors: &mut ErrorList, path: &Path, name: &str, is_taken: bool) {
    let wrong = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if is_taken {
        errors.duplicate(path, name);
    } else if !wrong.is_empty() {
        let why = format!("authorizer name is invalid: {}", wrong.join(", "));
        errors.invalid(path, name, why);
    }
}

fn validate_webhook(errors: &mut ErrorList, path: &Path, webhook: &Value) {
    let timeout = nanos(webhook, "timeout");
    let path_of_timeout = path.child("timeout");
    if timeout == 0 {
        errors.required(&path_of_timeout, "");
    } else if !(0..=MAX_TIMEOUT).contains(&timeout) {
        let shown = go::format_duration(timeout);
        errors.invalid(&path_of_timeout, shown, "must be > 0s and <= 30s");
    }
    for field in ["authorizedTTL", "unauthorizedTTL"] {
        let ttl = nanos(webhook, field);
        if ttl < 0 {
            errors.invalid(&path.child(field), go::format_duration(ttl), "must be > 0s");
        }
    }
    choice(
        errors,
        path,
        webhook,
        "subjectAccessReviewVersion",
        &["v1", "v1beta1"],
    );
    let conditions = array_at(webhook, "/matchConditions");
    let field = "matchConditionSubjectAccessReviewVersion";
    match (str_at(webhook, &format!("/{field}")), conditions) {
        ("", []) => {}
        ("", _) => {
            let why = "required if match conditions are specified";
            errors.required(&path.child(field), why);
        }
        _ => choice(errors, path, webhook, field, &["v1"]),
    }
    choice(
        errors,
        path,
        webhook,
        "failurePolicy",
        &["NoOpinion", "Deny"],
    );
    validate_connection(errors, &path.child("connectionInfo"), webhook);
    validate_conditions(errors, &path.child("matchConditions"), conditions);
}

/// A field that must have one of some values.
fn choice(errors: &mut ErrorList, path: &Path, webhook: &Value, field: &str, supported: &[&str]) {
    let (path, value) = (path.child(field), str_at(webhook, &format!("/{field}")));
    match value {
        "" => errors.required(&path, ""),
        value if supported.contains(&value) => {}
        value => errors.not_supported(&path, value, supported),
    }
}

fn validate_connection(errors: &mut ErrorList, path: &Path, webhook: &Value) {
    let (path_of_type, path_of_file) = (path.child("type"), path.child("kubeConfigFile"));
    let file = value_at(webhook, "/connectionInfo/kubeConfigFile").and_then(Value::as_str);
    match str_at(webhook, "/connectionInfo/type") {
        "" => errors.required(&path_of_type, ""),
        "InClusterConfig" => {
            if let Some(file) = file {
                let why = "can only be set when type=KubeConfigFile";
                errors.invalid(&path_of_file, file, why);
            }
            // Upstream's type has it for other servers, and kube-apiserver does not start with it.
            let why = "not allowed for kube-apiserver";
            errors.invalid(&path_of_type, "InClusterConfig", why);
        }
        "KubeConfigFile" => match file.unwrap_or_default() {
            "" => errors.required(&path_of_file, ""),
            file => {
                if let Some(why) = unusable(file) {
                    errors.invalid(&path_of_file, file, why);
                }
            }
        },
        other => {
            let shown = json!({"Type": other, "KubeConfigFile": file});
            errors.not_supported(&path_of_type, shown, &["InClusterConfig", "KubeConfigFile"]);
        }
    }
}

/// Returns why a file cannot be a kubeconfig file.
fn unusable(file: &str) -> Option<String> {
    if !FilePath::new(file).is_absolute() {
        return Some("must be an absolute path".to_owned());
    }
    match fs::metadata(file) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Some(format!(
            "error loading file: stat {file}: no such file or directory"
        )),
        Err(why) => Some(format!("error loading file: stat {file}: {why}")),
        Ok(about) if !about.is_file() => Some("must be a regular file".to_owned()),
        Ok(_) => None,
    }
}

fn validate_conditions(errors: &mut ErrorList, path: &Path, conditions: &[Value]) {
    if conditions.len() > MAX_MATCH_CONDITIONS {
        errors.push(FieldError::too_many(
            path,
            conditions.len(),
            MAX_MATCH_CONDITIONS,
        ));
        return;
    }
    let mut seen = HashSet::new();
    for (at, condition) in conditions.iter().enumerate() {
        let path = path.index(at).child("expression");
        let expression = str_at(condition, "/expression");
        if expression.trim().is_empty() {
            errors.required(&path, "");
        } else if !seen.insert(expression) {
            errors.duplicate(&path, expression);
        } else if let Err(why) = cel::compile(expression, Variable::Request, Returns::Bool) {
            errors.invalid(&path, expression, why.to_string());
        }
    }
}
