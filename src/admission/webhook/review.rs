//! Reviews: the JSON that a webhook is asked with, and the checks of its answer (apiserver
//! `admission/plugin/webhook/request`).

use super::configuration::ReviewVersion;
use crate::admission::Attributes;
use crate::admission::matching::Matched;
use crate::auth::User;
use crate::codec::json::{encode, encode_value};
use crate::meta::status::{Cause, Details};
use crate::meta::{
    Gvk, Gvr, Map, Object, Status, Value, array_at, go, i64_at, json, str_at, value_at,
};

/// The objects that a webhook is shown.
pub struct Shown<'a> {
    pub matched: &'a Matched<'a>,
    pub object: Option<&'a Object>,
    pub old: Option<&'a Object>,
    /// The options of the request.
    pub options: Option<&'a Value>,
}

/// Returns the review of a request.
pub fn request(
    version: ReviewVersion,
    uid: &str,
    attributes: &Attributes<'_>,
    shown: &Shown<'_>,
) -> Vec<u8> {
    let matched = shown.matched;
    let mut head = Map::new();
    let put_text = |head: &mut Map, key: &'static str, text: &str| {
        if !text.is_empty() {
            head.insert(key, text.into());
        }
    };
    head.insert("uid", uid.into());
    head.insert("kind", kind(&matched.gvk));
    head.insert("resource", resource(&matched.gvr));
    put_text(&mut head, "subResource", attributes.subresource);
    head.insert("requestKind", kind(attributes.gvk));
    head.insert("requestResource", resource(attributes.gvr));
    put_text(&mut head, "requestSubResource", attributes.subresource);
    put_text(&mut head, "name", attributes.name);
    put_text(&mut head, "namespace", attributes.namespace);
    head.insert("operation", attributes.operation.as_str().into());
    head.insert("userInfo", user(attributes.user));
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(br#"{"kind":"AdmissionReview","apiVersion":""#);
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(br#"","request":"#);
    encode_value(&Value::Object(head), &mut out);
    // The objects go in as they are, in place of the brace that ends the head.
    out.pop();
    let object = |object: Option<&Object>| object.map_or(b"null".to_vec(), encode);
    out.extend_from_slice(br#","object":"#);
    out.extend_from_slice(&object(shown.object));
    out.extend_from_slice(br#","oldObject":"#);
    out.extend_from_slice(&object(shown.old));
    out.extend_from_slice(br#","dryRun":"#);
    encode_value(&Value::Bool(attributes.dry_run), &mut out);
    out.extend_from_slice(br#","options":"#);
    encode_value(shown.options.unwrap_or(&Value::Null), &mut out);
    out.extend_from_slice(b"}}");
    out
}

fn kind(gvk: &Gvk) -> Value {
    json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
}

fn resource(gvr: &Gvr) -> Value {
    json!({"group": gvr.group, "version": gvr.version, "resource": gvr.resource})
}

fn user(user: &User) -> Value {
    let mut out = Map::new();
    for (key, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            out.insert(key, text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        out.insert("groups", json!(user.groups));
    }
    if !user.extra.is_empty() {
        let mut extra = Map::new();
        for (key, values) in &user.extra {
            extra.insert(key.clone(), json!(values));
        }
        out.insert("extra", Value::Object(extra));
    }
    Value::Object(out)
}

/// The answer of a webhook.
#[derive(Debug, Default)]
pub struct Response {
    pub allowed: bool,
    /// The reason of a refusal (`Status`).
    pub result: Option<Value>,
    /// The operations of a JSON patch, as text; empty for none.
    pub patch: Vec<u8>,
    pub patch_type: String,
    pub annotations: Vec<(String, String)>,
    pub warnings: Vec<String>,
}

impl Response {
    /// Reads and checks the answer to a review.
    ///
    /// # Errors
    /// It is no answer to this review.
    pub fn read(
        review: &Value,
        version: ReviewVersion,
        uid: &str,
        mutating: bool,
    ) -> Result<Self, Invalid> {
        let kind = Gvk::from_api_version(str_at(review, "/apiVersion"), str_at(review, "/kind"));
        let expected = Gvk::from_api_version(version.api_version(), "AdmissionReview");
        let invalid = |why: String| Err(Invalid::Response(why));
        let response = value_at(review, "/response").filter(|value| !value.is_null());
        if version == ReviewVersion::V1beta1 && kind != expected {
            let why = format!("expected webhook response of {expected}, got {kind}");
            return Err(Invalid::Undecodable(why));
        }
        let Some(response) = response.filter(|_| {
            // Of another kind nothing is read.
            kind.kind == expected.kind && kind.group == expected.group
        }) else {
            return invalid("webhook response was absent".to_owned());
        };
        let read = Self::decode(response).map_err(Invalid::Undecodable)?;
        let patch_type = value_at(response, "/patchType").filter(|value| !value.is_null());
        if version == ReviewVersion::V1beta1 {
            let patch_type = match read.patch.is_empty() || !mutating {
                true => "",
                false => "JSONPatch",
            };
            return Ok(Self {
                patch_type: patch_type.to_owned(),
                patch: if mutating { read.patch } else { Vec::new() },
                ..read
            });
        }
        let found = str_at(response, "/uid");
        if found != uid {
            return invalid(format!(
                "expected response.uid={}, got {}",
                go::quote(uid),
                go::quote(found)
            ));
        }
        if kind != expected {
            return invalid(format!(
                "expected webhook response of {expected}, got {kind}"
            ));
        }
        let wrong = match (mutating, read.patch.is_empty(), patch_type.is_some()) {
            (true, false, false) => "webhook returned response.patch but not response.patchType",
            (true, true, true) => "webhook returned response.patchType but not response.patch",
            (true, false, true) if read.patch_type.is_empty() => {
                r#"webhook returned invalid response.patchType of """#
            }
            (false, false, _) => "validating webhook may not return response.patch",
            (false, true, true) => "validating webhook may not return response.patchType",
            _ => return Ok(read),
        };
        invalid(wrong.to_owned())
    }

    /// Reads the fields of a response, each of which must be of its type.
    fn decode(response: &Value) -> Result<Self, String> {
        let mismatch = |value: &Value, field: &str, ty: &str| {
            format!(
                "json: cannot unmarshal {} into Go struct field AdmissionResponse.response.{field} of type {ty}",
                go::json_type(value)
            )
        };
        let field = |name: &str| response.get(name).filter(|value| !value.is_null());
        let text = |name: &'static str, ty: &str| match field(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(mismatch(other, name, ty)),
        };
        if !response.is_object() {
            return Err(mismatch(response, "", "v1.AdmissionResponse"));
        }
        text("uid", "types.UID")?;
        let allowed = match field("allowed") {
            None => false,
            Some(Value::Bool(allowed)) => *allowed,
            Some(other) => return Err(mismatch(other, "allowed", "bool")),
        };
        let result = match field("status") {
            Some(other) if !other.is_object() => {
                return Err(mismatch(other, "status", "v1.Status"));
            }
            result => result.cloned(),
        };
        let patch = go::base64::normalise(&text("patch", "[]uint8")?)
            .map(|text| go::base64::decode(&text))?;
        let mut annotations = Vec::new();
        match field("auditAnnotations") {
            None => {}
            Some(Value::Object(map)) => {
                for (key, value) in map.iter() {
                    let Some(text) = value.as_str() else {
                        return Err(mismatch(value, "auditAnnotations", "string"));
                    };
                    annotations.push((key.to_string(), text.to_owned()));
                }
            }
            Some(other) => {
                return Err(mismatch(other, "auditAnnotations", "map[string]string"));
            }
        }
        let mut warnings = Vec::new();
        match field("warnings") {
            None => {}
            Some(Value::Array(items)) => {
                for item in items {
                    let Some(text) = item.as_str() else {
                        return Err(mismatch(item, "warnings", "string"));
                    };
                    warnings.push(text.to_owned());
                }
            }
            Some(other) => return Err(mismatch(other, "warnings", "[]string")),
        }
        Ok(Self {
            allowed,
            result,
            patch,
            patch_type: text("patchType", "v1.PatchType")?,
            annotations,
            warnings,
        })
    }

    /// Returns the refusal of the webhook of that name (apiserver
    /// `admission/plugin/webhook/errors.ToStatusErr`).
    pub fn refusal(&self, name: &str) -> Status {
        let result = self.result.as_ref().unwrap_or(&Value::Null);
        let denied = format!("admission webhook {} denied the request", go::quote(name));
        let reason = str_at(result, "/reason");
        let message = match (str_at(result, "/message"), reason) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        // What is no status of a failure is not answered with.
        let code = i64_at(result, "/code").unwrap_or_default();
        let code = u16::try_from(code.max(400))
            .ok()
            .filter(|code| *code < 1000);
        let mut status = Status::failure(code.unwrap_or(500), "", message);
        status.reason = reason.to_owned().into();
        let details = value_at(result, "/details").filter(|details| details.is_object());
        status.details = details.map(|details| Box::new(read_details(details)));
        status
    }
}

fn read_details(details: &Value) -> Details {
    let text = |key: &str| str_at(details, key).to_owned();
    let causes = array_at(details, "/causes").iter();
    Details {
        name: text("/name"),
        group: text("/group"),
        kind: text("/kind"),
        uid: text("/uid"),
        causes: causes
            .map(|cause| Cause {
                reason: str_at(cause, "/reason").to_owned(),
                message: str_at(cause, "/message").to_owned(),
                field: str_at(cause, "/field").to_owned(),
            })
            .collect(),
        retry_after_seconds: i64_at(details, "/retryAfterSeconds")
            .and_then(|seconds| u32::try_from(seconds).ok())
            .unwrap_or_default(),
    }
}

/// The fault of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It cannot be read.
    Undecodable(String),
    /// It does not belong to the review, or has what it must not have.
    Response(String),
}
