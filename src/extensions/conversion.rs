//! Conversion webhooks: a ConversionReview with the objects goes out, and what comes back is
//! checked (apiextensions `apiserver/conversion`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::KeyValue;

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::base::random;
use crate::codec;
use crate::extensions::definition::{Definition, WebhookConversion};
use crate::meta::field::{ErrorList, Path};
use crate::meta::{Gvk, Map, Object, Value, go, json, str_at};
use crate::registry::resource::Converter;
use crate::registry::validation::{validate_annotations, validate_labels};
use crate::telemetry::metrics::{Counter, Declared, Histogram};
use crate::telemetry::trace;
use crate::webhook::{Client, Limits};

/// The time that a webhook has for one review (apiserver `util/webhook`).
const TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes of an answer. Those of a question are limited where objects are read or written.
const MAX_ANSWER_BYTES: usize = 32 << 20;

const GROUP: &str = "apiextensions.k8s.io";
/// The versions of ConversionReview that this server speaks.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The span of a call, which is logged if it takes longer than this for itself and each object.
const SPAN: &str = "Call conversion webhook";
const SLOW_CALL: Duration = Duration::from_millis(50);
const SLOW_OBJECT: Duration = Duration::from_millis(8);

static REVIEWS: Counter = Counter::new(
    "apiserver_conversion_webhook_request_total",
    "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
    &["result", "failure_type"],
);
static REVIEW_SECONDS: Histogram = Histogram::new(
    "apiserver_conversion_webhook_duration_seconds",
    "[ALPHA] Conversion webhook request latency",
    &["result", "failure_type"],
    &[
        0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
    ],
);
static CONVERSION_SECONDS: Histogram = Histogram::new(
    "apiserver_crd_conversion_webhook_duration_seconds",
    "[ALPHA] CRD webhook conversion duration in seconds",
    &["crd_name", "from_version", "to_version", "succeeded"],
    &[
        0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
        8.192, 16.384,
    ],
);

pub static METRICS: &[&dyn Declared] = &[&REVIEWS, &REVIEW_SECONDS, &CONVERSION_SECONDS];

/// The client of conversion webhooks; `None` where none can be called.
pub type Webhooks = Option<Client>;

/// Converts the objects of one definition.
pub struct WebhookConverter {
    webhooks: Webhooks,
    webhook: WebhookConversion,
    /// The name of the definition.
    definition: String,
    /// All versions of the kind, such as `example.com/v1`.
    api_versions: BTreeSet<String>,
}

/// A review that failed: the type of failure that metrics count, and the text.
struct Failure(&'static str, String);

impl WebhookConverter {
    /// Returns the converter of a definition; `None` where no webhook is to convert.
    pub fn of(definition: &Definition, webhooks: &Webhooks) -> Option<Arc<dyn Converter>> {
        let group = &definition.group;
        let versions = definition.versions.iter();
        Some(Arc::new(Self {
            webhooks: webhooks.clone(),
            webhook: definition.conversion.clone()?,
            definition: definition.name.clone(),
            api_versions: versions
                .map(|version| format!("{group}/{}", version.name))
                .collect(),
        }))
    }

    fn span_attributes(&self, objects: usize, api_version: &str, uid: &str) -> Vec<KeyValue> {
        let count = i64::try_from(objects).unwrap_or(i64::MAX);
        vec![
            KeyValue::new("custom-resource-definition", self.definition.clone()),
            KeyValue::new("desired-api-version", api_version.to_owned()),
            KeyValue::new("object-count", count),
            KeyValue::new("UID", uid.to_owned()),
        ]
    }

    /// Sends the objects to the webhook, and returns them as it converted them.
    async fn review(&self, objects: &[Object], api_version: &str) -> Result<Vec<Object>, Failure> {
        let Some(first) = objects.first() else {
            return Ok(Vec::new());
        };
        let kind = Gvk::from_api_version(first.api_version(), first.kind());
        let failed = |why: &str| format!("conversion webhook for {kind} failed: {why}");
        let call = |why: &str| Failure("conversion_webhook_call_failure", failed(why));
        let spoken = self.webhook.review_versions.iter();
        let version = spoken
            .map(String::as_str)
            .find(|version| REVIEW_VERSIONS.contains(version))
            .ok_or_else(|| call("no supported conversion review versions"))?;
        let client = self.webhooks.as_ref();
        let client = client.ok_or_else(|| call("there is no client of webhooks"))?;
        let uid = random::uuid();
        let body = run_blocking_if(objects.len() > 1, || {
            question(version, &uid, objects, api_version)
        });
        let large = body.len() > LARGE_BYTES;
        let limits = Limits {
            timeout: TIMEOUT,
            answer_bytes: MAX_ANSWER_BYTES,
        };
        let slow = SLOW_CALL + SLOW_OBJECT * u32::try_from(objects.len()).unwrap_or(u32::MAX);
        let attributes = || self.span_attributes(objects.len(), api_version, &uid);
        let answer = trace::in_span(SPAN, slow, attributes, async {
            let answer = client.post(&self.webhook.client, body, limits).await;
            if answer.is_ok() {
                trace::step("Request completed");
            }
            answer
        });
        let answer = answer
            .await
            .map_err(|why| call(&with_timeout(why.to_string())))?;
        run_blocking_if(large, || {
            let converted = converted_objects(answer, version, &uid).map_err(|why| {
                Failure(
                    "conversion_webhook_malformed_response_failure",
                    failed(&why),
                )
            })?;
            if converted.len() != objects.len() {
                return Err(Failure(
                    "conversion_webhook_partial_response_failure",
                    format!(
                        "conversion webhook for {kind} returned {} objects, expected {}",
                        converted.len(),
                        objects.len()
                    ),
                ));
            }
            let checked = objects.iter().zip(converted).enumerate();
            let checked = checked.map(|(index, (original, converted))| {
                let index = (objects.len() > 1).then_some(index);
                checked_object(&kind, index, original, converted, api_version)
            });
            checked
                .collect::<Result<_, _>>()
                .map_err(|why| Failure("conversion_webhook_invalid_converted_object_failure", why))
        })
    }

    fn check_versions(&self, objects: &[Object], api_version: &str) -> Result<(), String> {
        if !self.api_versions.contains(api_version) {
            return Err(format!(
                "request to convert CR to an invalid group/version: {api_version}"
            ));
        }
        let mut versions = objects.iter().map(Object::api_version);
        match versions.find(|version| !self.api_versions.contains(*version)) {
            Some(version) => Err(format!(
                "request to convert CR from an invalid group/version: {version}"
            )),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Converter for WebhookConverter {
    async fn convert(
        &self,
        mut objects: Vec<Object>,
        api_version: &str,
    ) -> Result<Vec<Object>, String> {
        self.check_versions(&objects, api_version)?;
        // Nobody is called for an object with nothing in it.
        if objects.iter().all(is_empty) {
            for object in &mut objects {
                object.insert("apiVersion", api_version.into());
            }
            return Ok(objects);
        }
        let began = Instant::now();
        let reviewed = self.review(&objects, api_version).await;
        let seconds = began.elapsed().as_secs_f64();
        let labels = match &reviewed {
            Ok(_) => ["success", ""],
            Err(Failure(kind, _)) => ["failure", kind],
        };
        REVIEWS.inc(&labels);
        REVIEW_SECONDS.observe(&labels, seconds);
        let version = |api_version: &str| Gvk::from_api_version(api_version, "").version;
        let from = version(objects.first().map_or("", Object::api_version));
        let succeeded = if reviewed.is_ok() { "true" } else { "false" };
        CONVERSION_SECONDS.observe(
            &[&self.definition, &from, &version(api_version), succeeded],
            seconds,
        );
        reviewed.map_err(|Failure(_, why)| why)
    }
}

/// An error of a call as upstream's client words it, which has a timeout of its own.
fn with_timeout(mut why: String) -> String {
    if why.ends_with("context deadline exceeded") {
        why.push_str(match why.starts_with("Post ") {
            true => " (Client.Timeout exceeded while awaiting headers)",
            false => " (Client.Timeout or context cancellation while reading body)",
        });
    }
    why
}

/// Reports whether an object has its kind and apiVersion only.
fn is_empty(object: &Object) -> bool {
    object.len() == 2 && object.contains_key("kind") && object.contains_key("apiVersion")
}

/// The review of some objects.
fn question(version: &str, uid: &str, objects: &[Object], api_version: &str) -> Bytes {
    let head = format!(
        "{{\"kind\":\"ConversionReview\",\"apiVersion\":\"{GROUP}/{version}\",\"request\":{{\"uid\":\"{uid}\",\"desiredAPIVersion\":{},\"objects\":[",
        Value::from(api_version)
    );
    // Upstream sends the answer along that it has not got yet.
    let tail =
        b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}";
    let mut body = head.into_bytes();
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend(codec::json::encode(object));
    }
    body.extend_from_slice(tail);
    body.into()
}

/// The objects in the answer to a review.
fn converted_objects(answer: Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let of = |api_version: &str, kind: &str| Gvk::from_api_version(api_version, kind).to_string();
    let expected = of(&format!("{GROUP}/{version}"), "ConversionReview");
    let got = of(str_at(&answer, "/apiVersion"), str_at(&answer, "/kind"));
    if got != expected {
        return Err(format!(
            "expected webhook response of {expected}, got {got}"
        ));
    }
    let Value::Object(mut answer) = answer else {
        return Err("no response provided".to_owned());
    };
    let Some(Value::Object(mut response)) = answer.shift_remove("response") else {
        return Err("no response provided".to_owned());
    };
    let response_uid = response.get("uid").and_then(Value::as_str).unwrap_or("");
    // v1beta1 has never been checked for that.
    if version == "v1" && response_uid != uid {
        return Err(format!(
            "expected response.uid={}, got {}",
            go::quote(uid),
            go::quote(response_uid)
        ));
    }
    let result = response.shift_remove("result").unwrap_or_else(|| json!({}));
    match (str_at(&result, "/status"), str_at(&result, "/message")) {
        ("Success", _) => {}
        (status, "") => {
            return Err(format!(
                "response.result.status was '{status}', not 'Success'"
            ));
        }
        (_, message) => return Err(message.to_owned()),
    }
    Ok(match response.shift_remove("convertedObjects") {
        Some(Value::Array(converted)) => converted,
        _ => Vec::new(),
    })
}

/// A converted object with the metadata of the original. `index` is its place if it is one of many.
fn checked_object(
    kind: &Gvk,
    index: Option<usize>,
    original: &Object,
    converted: Value,
    api_version: &str,
) -> Result<Object, String> {
    let invalid = |of_many: &str, alone: &str, why: &str| {
        let what = match index {
            Some(index) => format!("{of_many} at index {index}"),
            None => alone.to_owned(),
        };
        format!("conversion webhook for {kind} returned invalid {what}: {why}")
    };
    let many = "converted object";
    let at_index = |why: &str| invalid(many, "object at index 0", why);
    let shown = json_text(&converted);
    let nameless = || format!("Object 'Kind' is missing in '{shown}'");
    let mut converted = Object::from_value(converted)
        .filter(|object| !object.kind().is_empty())
        .ok_or_else(|| match index {
            Some(_) => at_index(&nameless()),
            None => nameless(),
        })?;
    if converted.api_version() != api_version {
        return Err(at_index(&format!(
            "invalid groupVersion (expected {api_version}, received {})",
            converted.api_version()
        )));
    }
    if converted.kind() != original.kind() {
        return Err(at_index(&format!(
            "invalid kind (expected {}, received {})",
            original.kind(),
            converted.kind()
        )));
    }
    check_identity(original, &converted).map_err(|why| invalid(many, "object", &why))?;
    let metadata = restored_metadata(original, &converted)
        .map_err(|why| invalid("metadata in object", "metadata", &why))?;
    converted.insert("metadata", Value::Object(metadata));
    Ok(converted)
}

fn json_text(value: &Value) -> String {
    codec::json::text_of(value)
}

fn check_identity(original: &Object, converted: &Object) -> Result<(), String> {
    let parts = [
        ("name", original.name(), converted.name()),
        ("namespace", original.namespace(), converted.namespace()),
        ("UID", original.uid(), converted.uid()),
    ];
    match parts.into_iter().find(|(_, was, is)| was != is) {
        Some((what, was, is)) => Err(format!("must have the same {what}: {was} != {is}")),
        None => Ok(()),
    }
}

/// The metadata of the original with the labels and annotations of the converted object.
fn restored_metadata(original: &Object, converted: &Object) -> Result<Map, String> {
    let given = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(given)) => given,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                go::type_name(other)
            ));
        }
    };
    let mut metadata = original.metadata().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let given = match given.get(field) {
            None | Some(Value::Null) => {
                metadata.shift_remove(field);
                continue;
            }
            Some(Value::Object(given)) => given,
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    go::type_name(other)
                ));
            }
        };
        if let Some((key, value)) = given.iter().find(|(_, value)| !value.is_string()) {
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {} in converted object",
                go::type_name(value)
            ));
        }
        if metadata.get(field).and_then(Value::as_object) != Some(given) {
            check_changed(field, given)?;
        }
        metadata.insert(field, Value::Object(given.clone()));
    }
    Ok(metadata)
}

fn check_changed(field: &str, given: &Map) -> Result<(), String> {
    let (mut errors, path) = (ErrorList::new(), Path::new("metadata"));
    match field {
        "labels" => validate_labels(&mut errors, &path.child("labels"), Some(given)),
        // As upstream calls it here.
        _ => validate_annotations(&mut errors, &path.child("annotation"), Some(given)),
    }
    let mut texts: Vec<String> = Vec::new();
    for error in &errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn reviews_are_those_of_upstream() {
        let first = object(json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "x"}}));
        let asked = question("v1", "u", &[first.clone(), first], "a/v2");
        assert_eq!(
            String::from_utf8_lossy(&asked),
            concat!(
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","#,
                r#""request":{"uid":"u","desiredAPIVersion":"a/v2","objects":["#,
                r#"{"apiVersion":"a/v1","kind":"A","metadata":{"name":"x"}},"#,
                r#"{"apiVersion":"a/v1","kind":"A","metadata":{"name":"x"}}]},"#,
                r#""response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#
            )
        );
    }

    #[test]
    fn errors_name_the_timeout_of_the_client() {
        let late = "Post \"https://a/\": context deadline exceeded";
        let want = format!("{late} (Client.Timeout exceeded while awaiting headers)");
        assert_eq!(with_timeout(late.to_owned()), want);
        assert_eq!(with_timeout("refused".to_owned()), "refused");
    }

    #[test]
    fn one_of_many_is_named_by_its_place() {
        let original =
            object(json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "x"}}));
        let kind = Gvk::new("a", "v1", "A");
        let check = |converted: Value| {
            checked_object(&kind, Some(3), &original, converted, "a/v2").expect_err("refused")
        };
        let named =
            |name: &str| json!({"apiVersion": "a/v2", "kind": "A", "metadata": {"name": name}});
        assert_eq!(
            check(named("y")),
            "conversion webhook for a/v1, Kind=A returned invalid converted object at index 3: \
             must have the same name: x != y"
        );
        let mut labelled = named("x");
        labelled["metadata"]["labels"] = json!([]);
        assert_eq!(
            check(labelled),
            "conversion webhook for a/v1, Kind=A returned invalid metadata in object at index 3: \
             invalid metadata.labels of type []interface {} in converted object"
        );
    }
}
