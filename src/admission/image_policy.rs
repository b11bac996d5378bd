//! ImagePolicyWebhook: asks a server whether the images of a pod may run
//! (`plugin/pkg/admission/imagepolicy`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use moka::sync::Cache;
use tokio::time::timeout_at;

use super::{Attributes, Operation, Plugin};
use crate::codec::json::encode_value;
use crate::meta::status::Result;
use crate::meta::{Map, Object, Value, bool_at, i64_at, json, map_at, str_at};
use crate::webhook::{Expected, Remote};

/// The time that an answer may take (apiserver `util/webhook`, `defaultRequestTimeout`).
const TIMEOUT: Duration = Duration::from_secs(30);
/// The answers that are kept.
const MAX_ANSWERS: u64 = 1024;
/// The length of the answers that are kept: a larger one is asked for each time.
const MAX_CACHED_BYTES: usize = 16 * 1024;
const KIND: &str = "ImageReview";
const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
/// A part of the annotations of pods that the server is told.
const ANNOTATIONS: &str = ".image-policy.k8s.io/";
/// The error of the plugin without a configuration.
pub const NO_CONFIGURATION: &str = "no config specified";
/// The prefix of audit annotations.
const AUDIT: &str = "imagepolicywebhook.image-policy.k8s.io/";

/// The configuration of the plugin, which has no version.
#[derive(Clone, Debug)]
pub struct Configuration {
    policy: Policy,
    remote: Arc<Remote>,
}

impl Configuration {
    /// Reads the configuration, and the kubeconfig file that it names.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(value: &Value) -> std::result::Result<Self, String> {
        let policy = Policy::read(value)?;
        let remote = Remote::read(&policy.kubeconfig, TIMEOUT)?;
        let remote = Arc::new(remote.with_first_delay(policy.retry_backoff));
        Ok(Self { policy, remote })
    }
}

#[derive(Clone, Debug)]
struct Policy {
    kubeconfig: PathBuf,
    /// The time for which an answer is kept; none are where it is zero.
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry_backoff: Duration,
    /// True if images run that the server cannot be asked about.
    default_allow: bool,
}

impl Policy {
    /// Reads `imagePolicy`. Other fields belong to other plugins.
    fn read(value: &Value) -> std::result::Result<Self, String> {
        let Some(policy) = map_at(value, "/imagePolicy") else {
            return Err("imagePolicy is not an object".to_owned());
        };
        let policy = Value::Object(policy.clone());
        let time =
            |field: &str, unit: Duration, usual: Duration, least: Duration, most: Duration| {
                match i64_at(&policy, &format!("/{field}")).unwrap_or(0) {
                    -1 => Ok(Duration::ZERO),
                    0 => Ok(usual),
                    given => {
                        let given = u32::try_from(given).unwrap_or(u32::MAX);
                        let time = unit.saturating_mul(given);
                        let fits = (least..=most).contains(&time);
                        fits.then_some(time).ok_or_else(|| {
                        format!(
                            "{field}: valid value is between {least:?} and {most:?}, got {time:?}"
                        )
                    })
                    }
                }
            };
        let (second, milli) = (Duration::from_secs(1), Duration::from_millis(1));
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Ok(Self {
            kubeconfig: str_at(&policy, "/kubeConfigFile").into(),
            retry_backoff: time(
                "retryBackoff",
                milli,
                500 * milli,
                Duration::from_nanos(1),
                minutes(5),
            )?,
            allow_ttl: time("allowTTL", second, minutes(5), second, minutes(30))?,
            deny_ttl: time("denyTTL", second, 30 * second, second, minutes(30))?,
            default_allow: bool_at(&policy, "/defaultAllow"),
        })
    }
}

/// An answer of the server.
#[derive(Debug)]
struct Answer {
    allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
}

impl Answer {
    /// Returns the length of its texts in bytes.
    fn bytes(&self) -> usize {
        let annotations = self.annotations.iter();
        let annotations = annotations.map(|(key, value)| key.len() + value.len());
        self.reason.len() + annotations.sum::<usize>()
    }

    fn read(review: &Value) -> Self {
        let annotations = map_at(review, "/status/auditAnnotations").into_iter();
        Self {
            allowed: bool_at(review, "/status/allowed"),
            reason: str_at(review, "/status/reason").to_owned(),
            annotations: annotations
                .flat_map(Map::iter)
                .filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_owned())))
                .collect(),
        }
    }
}

/// The answers to reviews, by the digest of what was asked.
type Answers = Cache<[u8; 32], Arc<Answer>>;

/// The plugin.
pub struct ImagePolicyWebhook {
    /// Without one nothing runs; the server does not start like that.
    configuration: Option<Configuration>,
    /// The answers that are kept, those that allow and those that do not.
    answers: [Option<Answers>; 2],
}

impl ImagePolicyWebhook {
    pub fn new(configuration: Option<Configuration>) -> Self {
        let cache = |ttl: Duration| {
            let builder = Cache::builder().max_capacity(MAX_ANSWERS);
            (!ttl.is_zero()).then(|| builder.time_to_live(ttl).build())
        };
        let ttls = configuration
            .as_ref()
            .map(|it| [it.policy.deny_ttl, it.policy.allow_ttl]);
        Self {
            configuration,
            answers: ttls.unwrap_or_default().map(cache),
        }
    }

    /// Returns the answer to a review, a kept one if there is one.
    async fn ask(&self, remote: &Remote, spec: Value) -> std::result::Result<Arc<Answer>, String> {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, &encoded(&spec)).as_ref());
        let mut caches = self.answers.iter().flatten();
        if let Some(kept) = caches.find_map(|answers| answers.get(&key)) {
            return Ok(kept);
        }
        let review = json!({
            "kind": KIND, "apiVersion": API_VERSION, "metadata": {}, "spec": spec,
            "status": {"allowed": false},
        });
        let expected = Expected {
            api_version: API_VERSION,
            kind: KIND,
        };
        let body = encoded(&review).into();
        let answer = remote.post(body, expected, |_, _| {}).await;
        let answer = Arc::new(Answer::read(&answer.map_err(|why| why.text)?));
        if answer.bytes() < MAX_CACHED_BYTES
            && let Some(answers) = &self.answers[usize::from(answer.allowed)]
        {
            answers.insert(key, answer.clone());
        }
        Ok(answer)
    }
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_value(value, &mut bytes);
    bytes
}

/// The part of a review that says what is asked.
fn spec(attributes: &Attributes<'_>, pod: &Object) -> Value {
    let lists: &[&str] = match attributes.subresource {
        "" => &["/spec/containers", "/spec/initContainers"],
        _ => &["/spec/ephemeralContainers"],
    };
    let containers = lists.iter().flat_map(|list| pod.array_at(list));
    let images: Vec<Value> = containers
        .map(|container| match str_at(container, "/image") {
            "" => json!({}),
            image => json!({"image": image}),
        })
        .collect();
    let told = pod.annotations().into_iter().flat_map(Map::iter);
    let mut annotations: Map = told
        .filter(|(key, _)| key.as_str().contains(ANNOTATIONS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    annotations.sort_keys();
    let mut spec = Map::new();
    if !images.is_empty() {
        spec.insert("containers", images.into());
    }
    if !annotations.is_empty() {
        spec.insert("annotations", Value::Object(annotations));
    }
    spec.insert("namespace", attributes.namespace.into());
    Value::Object(spec)
}

#[async_trait]
impl Plugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is_any("", "pods")
            && matches!(attributes.subresource, "" | "ephemeralcontainers")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        let Some(Configuration { policy, remote }) = &self.configuration else {
            return Err(attributes.forbidden(NO_CONFIGURATION));
        };
        let asked = self.ask(remote, spec(attributes, pod));
        let answer = timeout_at(attributes.deadline.into(), asked).await;
        let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) if policy.default_allow => {
                tracing::warn!("the image policy webhook cannot be asked: {why}");
                attributes
                    .notes
                    .annotate(format!("{AUDIT}failed-open"), "true".to_owned());
                return Ok(());
            }
            Err(why) => return Err(attributes.forbidden(&why)),
        };
        for (key, value) in &answer.annotations {
            attributes
                .notes
                .annotate(format!("{AUDIT}{key}"), value.clone());
        }
        match (answer.allowed, answer.reason.as_str()) {
            (true, _) => Ok(()),
            (false, "") => {
                Err(attributes.forbidden("one or more images rejected by webhook backend"))
            }
            (false, reason) => {
                let why =
                    format!("image policy webhook backend denied one or more images: {reason}");
                Err(attributes.forbidden(&why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_defaults_and_ranges() {
        let read = |policy: Value| Policy::read(&json!({"imagePolicy": policy}));
        let usual = read(json!({"kubeConfigFile": "/a"})).expect("a configuration");
        assert_eq!(usual.kubeconfig, PathBuf::from("/a"));
        let times = [usual.retry_backoff, usual.allow_ttl, usual.deny_ttl];
        assert_eq!(times.map(|time| time.as_millis()), [500, 300_000, 30_000]);
        let given =
            json!({"retryBackoff": 7, "allowTTL": -1, "denyTTL": 1800, "defaultAllow": true});
        let given = read(given).expect("a configuration");
        let times = [given.retry_backoff, given.allow_ttl, given.deny_ttl];
        assert_eq!(times.map(|time| time.as_millis()), [7, 0, 1_800_000]);
        assert!(given.default_allow && !usual.default_allow);
        let long = read(json!({"denyTTL": 1801})).expect_err("too long");
        assert_eq!(
            long,
            "denyTTL: valid value is between 1s and 1800s, got 1801s"
        );
        assert!(read(json!({"allowTTL": -2})).is_err());
        assert!(Policy::read(&json!({})).is_err());
    }
}
