//! The configuration of the chain of authorizers: an AuthorizationConfiguration, or the flags that
//! stand for one (apiserver `apis/apiserver`, kubernetes `kubeapiserver/authorizer`).

use std::path::PathBuf;
use std::time::Duration;

use super::{aggregate, validation};
use crate::codec::configuration::FileType;
use crate::meta::{Object, Value, array_at, go, str_at, value_at};

const KIND: &str = "AuthorizationConfiguration";
const TYPE: FileType = FileType::of_server(KIND);
/// The TTLs of caches that are not given (apiserver `apis/apiserver/v1/defaults.go`).
const AUTHORIZED_TTL: i64 = 300_000_000_000;
const UNAUTHORIZED_TTL: i64 = 30_000_000_000;

/// The type of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuthorizerType {
    Abac,
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Webhook,
}

impl AuthorizerType {
    /// All types, by name.
    pub const ALL: [Self; 6] = [
        Self::Abac,
        Self::AlwaysAllow,
        Self::AlwaysDeny,
        Self::Node,
        Self::Rbac,
        Self::Webhook,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Abac => "ABAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::Webhook => "Webhook",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The version of the reviews that a webhook gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

/// The decision where a webhook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    NoOpinion,
    Deny,
}

/// A webhook that authorizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfiguration {
    pub kubeconfig: PathBuf,
    pub timeout: Duration,
    /// The time for which what it allowed is allowed; 0 for none.
    pub authorized_ttl: Duration,
    /// The time for which what it did not allow is not; 0 for none.
    pub unauthorized_ttl: Duration,
    pub review_version: ReviewVersion,
    pub failure_policy: FailurePolicy,
    /// Expressions that must all hold for the webhook to be asked.
    pub match_conditions: Vec<String>,
}

/// One authorizer of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerConfiguration {
    pub kind: AuthorizerType,
    pub name: String,
    /// Of the type Webhook.
    pub webhook: Option<WebhookConfiguration>,
}

/// The authorizers, asked in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub authorizers: Vec<AuthorizerConfiguration>,
}

impl AuthorizerConfiguration {
    /// Returns one that has nothing to configure.
    pub fn plain(kind: AuthorizerType) -> Self {
        Self {
            kind,
            name: kind.name().to_lowercase(),
            webhook: None,
        }
    }
}

impl Configuration {
    pub fn has(&self, kind: AuthorizerType) -> bool {
        self.authorizers.iter().any(|one| one.kind == kind)
    }

    /// Reads a file. The types of `required`, which a running server has, must be there.
    ///
    /// # Errors
    /// Upstream's text, with the path of the field.
    pub fn parse(bytes: &[u8], required: &[AuthorizerType]) -> Result<Self, String> {
        let object = match bytes.is_empty() {
            true => Object::default(),
            false => with_durations(bytes)
                .map_err(|why| format!("failed to load {KIND} from file: {why}"))?,
        };
        let errors = validation::validate(&object);
        if !errors.is_empty() {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(aggregate(&texts));
        }
        let authorizers: Vec<AuthorizerConfiguration> = object
            .array_at("/authorizers")
            .iter()
            .filter_map(authorizer)
            .collect();
        let found = Self { authorizers };
        let mut errors: Vec<String> = found
            .authorizers
            .iter()
            .filter(|one| one.kind != AuthorizerType::Webhook)
            .filter_map(|one| {
                let (kind, name) = (one.kind.name(), &one.name);
                let expected = kind.to_lowercase();
                (expected != *name).then(|| {
                    format!("expected name {expected} for authorizer {kind} instead of {name}")
                })
            })
            .collect();
        let mut missing: Vec<&str> = required
            .iter()
            .filter(|kind| !found.has(**kind))
            .map(|kind| kind.name())
            .collect();
        missing.sort_unstable();
        if !missing.is_empty() {
            errors.push(format!("missing required types: [{}]", missing.join(" ")));
        }
        match errors.is_empty() {
            true => Ok(found),
            false => Err(aggregate(&errors)),
        }
    }
}

/// The fields of a webhook that are durations.
pub(super) const DURATIONS: [&str; 3] = ["authorizedTTL", "unauthorizedTTL", "timeout"];

/// Decodes a file whose durations are durations.
fn with_durations(bytes: &[u8]) -> Result<Object, String> {
    let object = TYPE.decode(bytes)?;
    for one in object.array_at("/authorizers") {
        for field in DURATIONS {
            let text = str_at(one, &format!("/webhook/{field}"));
            if !text.is_empty() {
                go::parse_duration(text)?;
            }
        }
    }
    Ok(object)
}

/// The nanoseconds of a duration of a webhook: 0 where it is not given and has no default.
pub(super) fn nanos(webhook: &Value, field: &str) -> i64 {
    let given = go::parse_duration(str_at(webhook, &format!("/{field}"))).unwrap_or(0);
    match (given, field) {
        (0, "authorizedTTL") => AUTHORIZED_TTL,
        (0, "unauthorizedTTL") => UNAUTHORIZED_TTL,
        (given, _) => given,
    }
}

/// Reads an authorizer that is valid.
fn authorizer(value: &Value) -> Option<AuthorizerConfiguration> {
    let webhook = value_at(value, "/webhook").filter(|webhook| webhook.is_object());
    Some(AuthorizerConfiguration {
        kind: AuthorizerType::named(str_at(value, "/type"))?,
        name: str_at(value, "/name").to_owned(),
        webhook: webhook.map(read_webhook),
    })
}

fn read_webhook(webhook: &Value) -> WebhookConfiguration {
    let time = |field| Duration::from_nanos(u64::try_from(nanos(webhook, field)).unwrap_or(0));
    let ttl = |field, caches| match value_at(webhook, caches) {
        Some(Value::Bool(false)) => Duration::ZERO,
        _ => time(field),
    };
    let conditions = array_at(webhook, "/matchConditions");
    WebhookConfiguration {
        kubeconfig: str_at(webhook, "/connectionInfo/kubeConfigFile").into(),
        timeout: time("timeout"),
        authorized_ttl: ttl("authorizedTTL", "/cacheAuthorizedRequests"),
        unauthorized_ttl: ttl("unauthorizedTTL", "/cacheUnauthorizedRequests"),
        review_version: match str_at(webhook, "/subjectAccessReviewVersion") {
            "v1beta1" => ReviewVersion::V1Beta1,
            _ => ReviewVersion::V1,
        },
        failure_policy: match str_at(webhook, "/failurePolicy") {
            "NoOpinion" => FailurePolicy::NoOpinion,
            _ => FailurePolicy::Deny,
        },
        match_conditions: conditions
            .iter()
            .map(|condition| str_at(condition, "/expression").to_owned())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";

    fn parse(authorizers: &str) -> Result<Configuration, String> {
        Configuration::parse(format!("{HEADER}{authorizers}").as_bytes(), &[])
    }

    /// A webhook with a field replaced.
    fn webhook(field: &str, value: &str) -> String {
        let mut fields = vec![
            ("timeout", "3s"),
            ("subjectAccessReviewVersion", "v1"),
            ("matchConditionSubjectAccessReviewVersion", "v1"),
            ("failurePolicy", "Deny"),
            (
                "connectionInfo",
                "{type: KubeConfigFile, kubeConfigFile: /dev/null}",
            ),
        ];
        fields.retain(|(name, _)| *name != field);
        fields.push((field, value));
        let fields: Vec<String> = fields
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        format!(
            "- {{type: Webhook, name: w, webhook: {{{}}}}}",
            fields.join(", ")
        )
    }

    #[test]
    fn a_webhook_is_read_with_its_defaults() {
        let file = std::env::current_exe().expect("a file");
        let connection = format!(
            "{{type: KubeConfigFile, kubeConfigFile: {}}}",
            file.display()
        );
        let text = format!(
            "{}\n- {{type: Node, name: node}}\n- {{type: RBAC, name: rbac}}",
            webhook("connectionInfo", &connection)
        );
        let found = parse(&text).expect("valid");
        let webhook = found.authorizers[0].webhook.as_ref().expect("a webhook");
        assert_eq!(webhook.authorized_ttl, Duration::from_secs(300));
        assert_eq!(webhook.unauthorized_ttl, Duration::from_secs(30));
        assert_eq!(webhook.timeout, Duration::from_secs(3));
        assert_eq!(webhook.failure_policy, FailurePolicy::Deny);
        let kinds: Vec<_> = found
            .authorizers
            .iter()
            .map(|one| one.kind.name())
            .collect();
        assert_eq!(kinds, ["Webhook", "Node", "RBAC"]);
    }

    #[test]
    fn mistakes_are_told_with_their_paths() {
        let checks = [
            (
                "  []".to_owned(),
                "authorizers: Required value: at least one authorization mode must be defined",
            ),
            (
                "- {name: x}".to_owned(),
                "authorizers[0].type: Required value",
            ),
            (
                "- {type: Foo, name: x}".to_owned(),
                r#"authorizers[0].type: Unsupported value: "Foo": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook""#,
            ),
            (
                "- {type: RBAC, name: rbac}\n- {type: RBAC, name: b}".to_owned(),
                r#"authorizers[1].type: Duplicate value: "RBAC""#,
            ),
            (
                "- {type: RBAC}".to_owned(),
                "authorizers[0].name: Required value",
            ),
            (
                "- {type: RBAC, name: a}".to_owned(),
                "expected name rbac for authorizer RBAC instead of a",
            ),
            (
                "- {type: Webhook, name: w}".to_owned(),
                "authorizers[0].webhook: Required value: required when type=Webhook",
            ),
            (
                "- {type: RBAC, name: rbac, webhook: {}}".to_owned(),
                r#"authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook"#,
            ),
            (
                webhook("timeout", ""),
                "authorizers[0].timeout: Required value",
            ),
            (
                webhook("timeout", "31s"),
                r#"authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s"#,
            ),
            (
                webhook("timeout", "3"),
                r#"failed to load AuthorizationConfiguration from file: json: cannot unmarshal number into Go struct field WebhookConfiguration.authorizers.webhook.timeout of type string"#,
            ),
            (
                webhook("authorizedTTL", "-1s"),
                r#"authorizers[0].authorizedTTL: Invalid value: "-1s": must be > 0s"#,
            ),
            (
                webhook("subjectAccessReviewVersion", "v2"),
                r#"authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1""#,
            ),
            (
                webhook("failurePolicy", "Allow"),
                r#"authorizers[0].failurePolicy: Unsupported value: "Allow": supported values: "NoOpinion", "Deny""#,
            ),
            (
                webhook(
                    "connectionInfo",
                    "{type: KubeConfigFile, kubeConfigFile: /no/such}",
                ),
                r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "/no/such": error loading file: stat /no/such: no such file or directory"#,
            ),
            (
                webhook(
                    "connectionInfo",
                    "{type: KubeConfigFile, kubeConfigFile: a}",
                ),
                r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "a": must be an absolute path"#,
            ),
            (
                webhook("connectionInfo", "{type: InClusterConfig}"),
                "authorizers[0].connectionInfo.type",
            ),
            (
                webhook("matchConditions", "[{expression: 'request.user'}]"),
                r#"authorizers[0].matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool but got string"#,
            ),
            (
                webhook("matchConditions", "[{expression: ' '}]"),
                "authorizers[0].matchConditions[0].expression: Required value",
            ),
        ];
        for (text, want) in checks {
            let why = parse(&text).expect_err(&text);
            assert!(why.contains(want), "{text}:\n{why}\n{want}");
        }
    }

    #[test]
    fn types_that_run_cannot_go() {
        let text = format!("{HEADER}- {{type: AlwaysAllow, name: alwaysallow}}");
        let running = [AuthorizerType::Rbac, AuthorizerType::Node];
        assert_eq!(
            Configuration::parse(text.as_bytes(), &running),
            Err("missing required types: [Node RBAC]".to_owned())
        );
        assert_eq!(
            Configuration::parse(b"", &[]),
            Err(
                "authorizers: Required value: at least one authorization mode must be defined"
                    .to_owned()
            )
        );
    }
}
