//! The configuration of JWT authenticators and of anonymous requests: an
//! AuthenticationConfiguration (apiserver `apis/apiserver`, kubernetes
//! `kubeapiserver/options/authentication.go`).

use crate::codec::configuration::FileType;
use crate::meta::{Object, Value, array_at, bool_at, str_at, value_at};

const TYPE: FileType = FileType::of_server("AuthenticationConfiguration");

/// A configuration that has been decoded; [`super::validation`] says whether it is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub jwt: Vec<JwtAuthenticator>,
    /// `None` where the flags count.
    pub anonymous: Option<Anonymous>,
}

/// The configuration of anonymous requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anonymous {
    pub enabled: bool,
    /// The paths that they are let in for; any if empty.
    pub paths: Vec<String>,
}

impl Anonymous {
    /// Returns one that lets all of them in.
    pub fn everywhere() -> Self {
        Self {
            enabled: true,
            paths: Vec::new(),
        }
    }

    /// Reports whether a request for a path is let in.
    pub fn allows(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|one| one == path))
    }
}

/// An issuer of tokens, and who the users are that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JwtAuthenticator {
    pub issuer: Issuer,
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    pub username: Mapping,
    pub groups: Mapping,
    pub uid: Mapping,
    pub extra: Vec<ExtraMapping>,
    pub user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuer {
    pub url: String,
    /// The URL of the discovery document; empty if it is below `url`.
    pub discovery_url: String,
    /// PEM certificates; the system's count where it is empty.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
}

/// A claim with a prefix, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub claim: String,
    pub prefix: Option<String>,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraMapping {
    pub key: String,
    pub value_expression: String,
}

/// A claim that must have a value, or an expression that must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimValidationRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserValidationRule {
    pub expression: String,
    pub message: String,
}

impl Configuration {
    /// Decodes a file.
    ///
    /// # Errors
    /// Upstream's text.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("empty config data".to_owned());
        }
        TYPE.decode(bytes).map(|object| Self::of(&object))
    }

    fn of(object: &Object) -> Self {
        let anonymous = object.at("/anonymous").filter(|given| given.is_object());
        Self {
            jwt: object
                .array_at("/jwt")
                .iter()
                .map(JwtAuthenticator::of)
                .collect(),
            anonymous: anonymous.map(|given| Anonymous {
                enabled: bool_at(given, "/enabled"),
                paths: array_at(given, "/conditions")
                    .iter()
                    .map(|condition| str_at(condition, "/path").to_owned())
                    .collect(),
            }),
        }
    }
}

fn text(value: &Value, path: &str) -> String {
    str_at(value, path).to_owned()
}

impl JwtAuthenticator {
    fn of(value: &Value) -> Self {
        let audiences = array_at(value, "/issuer/audiences").iter();
        let mapping = |name: &str| {
            let at = |field: &str| format!("/claimMappings/{name}/{field}");
            let prefix = value_at(value, &at("prefix")).and_then(Value::as_str);
            Mapping {
                claim: text(value, &at("claim")),
                prefix: prefix.map(str::to_owned),
                expression: text(value, &at("expression")),
            }
        };
        Self {
            issuer: Issuer {
                url: text(value, "/issuer/url"),
                discovery_url: text(value, "/issuer/discoveryURL"),
                certificate_authority: text(value, "/issuer/certificateAuthority"),
                audiences: audiences
                    .map(|audience| audience.as_str().unwrap_or_default().to_owned())
                    .collect(),
                audience_match_policy: text(value, "/issuer/audienceMatchPolicy"),
                egress_selector_type: text(value, "/issuer/egressSelectorType"),
            },
            claim_validation_rules: array_at(value, "/claimValidationRules")
                .iter()
                .map(|rule| ClaimValidationRule {
                    claim: text(rule, "/claim"),
                    required_value: text(rule, "/requiredValue"),
                    expression: text(rule, "/expression"),
                    message: text(rule, "/message"),
                })
                .collect(),
            username: mapping("username"),
            groups: mapping("groups"),
            uid: mapping("uid"),
            extra: array_at(value, "/claimMappings/extra")
                .iter()
                .map(|extra| ExtraMapping {
                    key: text(extra, "/key"),
                    value_expression: text(extra, "/valueExpression"),
                })
                .collect(),
            user_validation_rules: array_at(value, "/userValidationRules")
                .iter()
                .map(|rule| UserValidationRule {
                    expression: text(rule, "/expression"),
                    message: text(rule, "/message"),
                })
                .collect(),
        }
    }
}
