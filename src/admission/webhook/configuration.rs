//! The webhooks of configurations, read from objects once (apiserver
//! `admission/plugin/webhook/accessors.go`).

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use crate::admission::cel::{self, Compiler, Declarations, MatchCondition, Variables};
use crate::admission::matching::MatchResources;
use crate::meta::{Object, Value, array_at, i64_at, str_at};
use crate::webhook::ClientConfig;

/// The time that a webhook has where it says nothing about it (`pkg/apis/admissionregistration/v1`
/// defaults).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    /// The apiVersion of such reviews.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// A webhook of a configuration.
pub struct Hook {
    pub name: String,
    pub configuration: String,
    /// Unique among all webhooks: a configuration may name two alike.
    pub uid: String,
    pub client: ClientConfig,
    /// The requests that it is asked about. The error is that of selectors that are missing.
    pub resources: Result<MatchResources, String>,
    /// True if requests are refused that it cannot be asked about.
    pub fails: bool,
    /// True if it may be asked about dry runs; `None` where it does not say.
    pub takes_dry_runs: Option<bool>,
    pub timeout: Duration,
    /// The version of the reviews that it gets; `None` if it takes none that is known here.
    pub review: Option<ReviewVersion>,
    /// True if it wants to see what others change after it.
    pub reinvokes: bool,
    match_conditions: Vec<Value>,
    compiled: OnceLock<(Vec<MatchCondition>, Variables)>,
}

impl Hook {
    /// Reads the webhooks of a configuration.
    pub fn read_all(configuration: &Object) -> Vec<Self> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        configuration
            .array_at("/webhooks")
            .iter()
            .map(|webhook| {
                let name = str_at(webhook, "/name");
                let number = seen.entry(name).or_default();
                let uid = format!("{}/{name}/{number}", configuration.name());
                *number += 1;
                Self::read(webhook, configuration.name(), uid)
            })
            .collect()
    }

    fn read(webhook: &Value, configuration: &str, uid: String) -> Self {
        let seconds = i64_at(webhook, "/timeoutSeconds").and_then(|it| u64::try_from(it).ok());
        let versions = array_at(webhook, "/admissionReviewVersions").iter();
        let nothing = Value::Null;
        Self {
            name: str_at(webhook, "/name").to_owned(),
            configuration: configuration.to_owned(),
            uid,
            client: ClientConfig::read(webhook.get("clientConfig").unwrap_or(&nothing)),
            resources: MatchResources::of_webhook(webhook),
            fails: str_at(webhook, "/failurePolicy") != "Ignore",
            takes_dry_runs: match str_at(webhook, "/sideEffects") {
                "" => None,
                effects => Some(matches!(effects, "None" | "NoneOnDryRun")),
            },
            timeout: seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            review: versions
                .filter_map(Value::as_str)
                .find_map(|version| match version {
                    "v1" => Some(ReviewVersion::V1),
                    "v1beta1" => Some(ReviewVersion::V1beta1),
                    _ => None,
                }),
            reinvokes: str_at(webhook, "/reinvocationPolicy") == "IfNeeded",
            match_conditions: array_at(webhook, "/matchConditions").to_vec(),
            compiled: OnceLock::new(),
        }
    }

    /// Returns the conditions under which it is asked, with what they share; `None` if there are
    /// none.
    pub fn conditions(&self) -> Option<&(Vec<MatchCondition>, Variables)> {
        if self.match_conditions.is_empty() {
            return None;
        }
        Some(self.compiled.get_or_init(|| {
            let compiler = Compiler::new();
            let declarations = Declarations {
                params: false,
                authorizer: true,
                patch_types: false,
            };
            let conditions =
                cel::compile_conditions(&compiler, &self.match_conditions, declarations);
            (conditions, compiler.finish())
        }))
    }
}
