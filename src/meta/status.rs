//! Status: the response to every request that returns no object (apimachinery `api/errors`).

use crate::meta::go;
use std::borrow::Cow;
use std::collections::BTreeSet;

use super::field::ErrorList;
use super::gvk::{Gvk, Gvr};
use crate::meta::{Map, Value};

/// One cause in `details.causes`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// `details` of a Status. Empty members are left out of its JSON.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The resource or kind that the request was about.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// A failure (or, for some deletes, success) with its HTTP code.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub code: u16,
    pub success: bool,
    /// CamelCase, empty for unknown.
    pub reason: Cow<'static, str>,
    pub message: String,
    /// Boxed: a Status travels as the `Err` of most functions.
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: where a client may go on after an expired page.
    pub continue_token: String,
}

/// The result of most request handling: a value, or the Status to answer with.
pub type Result<T> = std::result::Result<T, Status>;

impl Status {
    /// A failure without details.
    pub fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            success: false,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            continue_token: String::new(),
        }
    }

    fn with(code: u16, reason: &'static str, message: String, details: Details) -> Self {
        Self {
            code,
            success: false,
            reason: Cow::Borrowed(reason),
            message,
            details: Some(Box::new(details)),
            continue_token: String::new(),
        }
    }

    fn about(code: u16, reason: &'static str, gvr: &Gvr, name: &str, message: String) -> Self {
        let details = Details {
            group: gvr.group.clone(),
            kind: gvr.resource.clone(),
            name: name.to_owned(),
            ..Details::default()
        };
        Self::with(code, reason, message, details)
    }

    /// The answer of a delete whose object is gone for good.
    pub fn deleted(gvr: &Gvr, name: &str, uid: &str) -> Self {
        let details = Details {
            group: gvr.group.clone(),
            kind: gvr.resource.clone(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..Details::default()
        };
        Self {
            success: true,
            ..Self::with(200, "", String::new(), details)
        }
    }

    pub fn not_found(gvr: &Gvr, name: &str) -> Self {
        Self::about(
            404,
            "NotFound",
            gvr,
            name,
            format!("{} {} not found", gvr.group_resource(), go::quote(name)),
        )
    }

    pub fn already_exists(gvr: &Gvr, name: &str) -> Self {
        Self::about(
            409,
            "AlreadyExists",
            gvr,
            name,
            format!(
                "{} {} already exists",
                gvr.group_resource(),
                go::quote(name)
            ),
        )
    }

    /// No free name was found for a generateName.
    pub fn generate_name_conflict(gvr: &Gvr, name: &str) -> Self {
        let message = format!(
            "{} {} already exists, the server was not able to generate a unique name for the object",
            gvr.group_resource(),
            go::quote(name)
        );
        let mut status = Self::about(409, "AlreadyExists", gvr, name, message);
        status.details_mut().retry_after_seconds = 1;
        status
    }

    pub fn conflict(gvr: &Gvr, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {}: {why}",
            gvr.group_resource(),
            go::quote(name)
        );
        Self::about(409, "Conflict", gvr, name, message)
    }

    /// A conflict because the object moved on since the client read it.
    pub fn modified(gvr: &Gvr, name: &str) -> Self {
        Self::conflict(
            gvr,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(gvr: &Gvr, name: &str, why: &str) -> Self {
        let resource = gvr.group_resource();
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", go::quote(name)),
        };
        Self::about(403, "Forbidden", gvr, name, message)
    }

    /// 422 with one cause for each error; a repeated message is included once.
    pub fn invalid(gvk: &Gvk, name: &str, errors: ErrorList) -> Self {
        let kind = if gvk.group.is_empty() {
            gvk.kind.clone()
        } else {
            format!("{}.{}", gvk.kind, gvk.group)
        };
        let mut seen = BTreeSet::new();
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let lines: Vec<&str> = shown
            .iter()
            .map(String::as_str)
            .filter(|line| seen.insert(*line))
            .collect();
        let mut message = format!("{kind} {} is invalid", go::quote(name));
        match lines.as_slice() {
            [] => {}
            [one] => message = format!("{message}: {one}"),
            many => message = format!("{message}: [{}]", many.join(", ")),
        }
        if errors.is_full() {
            message.push_str(&format!(
                " (only the first {} errors are shown)",
                errors.len()
            ));
        }
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason().to_owned(),
                message: error.body(),
                field: error.field.clone(),
            })
            .collect();
        let details = Details {
            group: gvk.group.clone(),
            kind: gvk.kind.clone(),
            name: name.to_owned(),
            causes,
            ..Details::default()
        };
        Self::with(422, "Invalid", message, details)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    pub fn method_not_supported(gvr: &Gvr, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            go::quote(&gvr.group_resource())
        );
        Self::about(405, "MethodNotAllowed", gvr, "", message)
    }

    /// 404 for a path that leads nowhere.
    pub fn no_such_path() -> Self {
        let mut status = Self::failure(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        status.details_mut();
        status
    }

    /// 405 for a method that no route of the path takes.
    pub fn no_such_method() -> Self {
        let mut status = Self::failure(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        status.details_mut();
        status
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::failure(415, "UnsupportedMediaType", message)
    }

    pub fn too_large(message: &str) -> Self {
        Self::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {message}"),
        )
    }

    /// 410: the revision asked for is compacted away.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    pub fn internal(why: impl std::fmt::Display) -> Self {
        let cause = Cause {
            message: why.to_string(),
            ..Cause::default()
        };
        let details = Details {
            causes: vec![cause],
            ..Details::default()
        };
        Self::with(
            500,
            "InternalError",
            format!("Internal error occurred: {why}"),
            details,
        )
    }

    pub fn timeout(message: &str, retry_after_seconds: u32) -> Self {
        let details = Details {
            retry_after_seconds,
            ..Details::default()
        };
        Self::with(504, "Timeout", format!("Timeout: {message}"), details)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = Details {
            retry_after_seconds,
            ..Details::default()
        };
        Self::with(429, "TooManyRequests", message.into(), details)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
    }

    /// The details, made where there are none.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// The Status object as clients see it (`v1/Status`).
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("kind", "Status".into());
        out.insert("apiVersion", "v1".into());
        let mut metadata = Map::new();
        put_str(&mut metadata, "continue", &self.continue_token);
        out.insert("metadata", Value::Object(metadata));
        out.insert(
            "status",
            if self.success { "Success" } else { "Failure" }.into(),
        );
        put_str(&mut out, "message", &self.message);
        put_str(&mut out, "reason", &self.reason);
        if let Some(details) = &self.details {
            out.insert("details", Value::Object(details.to_map()));
        }
        if !self.success || self.code == 201 {
            out.insert("code", self.code.into());
        }
        Value::Object(out)
    }
}

impl Details {
    fn to_map(&self) -> Map {
        let mut out = Map::new();
        put_str(&mut out, "name", &self.name);
        put_str(&mut out, "group", &self.group);
        put_str(&mut out, "kind", &self.kind);
        put_str(&mut out, "uid", &self.uid);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut one = Map::new();
                put_str(&mut one, "reason", &cause.reason);
                put_str(&mut one, "message", &cause.message);
                put_str(&mut one, "field", &cause.field);
                Value::Object(one)
            });
            out.insert("causes", causes.collect());
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds", self.retry_after_seconds.into());
        }
        out
    }
}

fn put_str(out: &mut Map, key: &str, value: &str) {
    if !value.is_empty() {
        out.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::{FieldError, Path};
    use super::*;

    #[test]
    fn invalid_lists_each_cause_and_says_each_message_once() {
        let path = Path::new("metadata").child("name");
        let errors = [
            FieldError::required(&path, "name is needed"),
            FieldError::required(&path, "name is needed"),
        ]
        .into();
        let status = Status::invalid(&Gvk::new("apps", "v1", "Deployment"), "", errors);
        assert_eq!(
            status.message,
            r#"Deployment.apps "" is invalid: metadata.name: Required value: name is needed"#
        );
        assert_eq!(
            status.details.as_ref().map(|details| details.causes.len()),
            Some(2)
        );
    }
}
