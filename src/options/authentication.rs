//! The flags of authenticators that trust others: OpenID providers and token webhooks (kubernetes
//! `kubeapiserver/options/authentication.go`).

use std::path::PathBuf;
use std::time::Duration;

use super::flags::{FlagError, Flags};
use crate::auth::authn::openid::ALGORITHMS;
use crate::auth::authn::openid::configuration::{
    ClaimValidationRule, Configuration, Issuer, JwtAuthenticator, Mapping,
};
use crate::auth::authn::token_webhook::ReviewVersion;
use crate::meta::go;

/// The authenticators of JSON Web Tokens.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// The AuthenticationConfiguration, which is followed while the server runs.
    pub(crate) file: Option<PathBuf>,
    /// The issuer of the flags, where there is no file.
    pub(crate) from_flags: Configuration,
    /// The certificates of that issuer's authority.
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) signing_algorithms: Vec<String>,
}

/// A webhook that knows tokens.
#[derive(Clone, Debug)]
pub struct TokenWebhook {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) version: ReviewVersion,
    pub(crate) cache_ttl: Duration,
}

impl Jwt {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// Flags that miss, or exclude, each other, and algorithms that no token may be signed with.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let path = |name| Some(flags.text(name)).filter(|text| !text.is_empty());
        let any = flags
            .given()
            .any(|(flag, _)| flag.name.starts_with("oidc-"));
        if let Some(file) = path("authentication-config") {
            if any {
                return Err(FlagError::new(
                    "authentication-config file and oidc-* flags are mutually exclusive",
                ));
            }
            return Ok(Self {
                file: Some(file.into()),
                from_flags: Configuration::default(),
                ca_file: None,
                signing_algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
            });
        }
        let (url, client) = (flags.text("oidc-issuer-url"), flags.text("oidc-client-id"));
        if any && (url.is_empty() || client.is_empty()) {
            return Err(FlagError::new(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ));
        }
        let signing_algorithms = flags.list("oidc-signing-algs");
        if let Some(unknown) = signing_algorithms
            .iter()
            .find(|name| !ALGORITHMS.contains(&name.as_str()))
        {
            return Err(FlagError::new(format!(
                "oidc: unsupported signing alg: {}",
                go::quote(unknown)
            )));
        }
        let jwt = match any {
            true => vec![issuer(flags, url, client)?],
            false => Vec::new(),
        };
        Ok(Self {
            file: None,
            from_flags: Configuration {
                jwt,
                anonymous: None,
            },
            ca_file: path("oidc-ca-file").map(PathBuf::from),
            signing_algorithms,
        })
    }
}

fn issuer(flags: &Flags, url: &str, client: &str) -> Result<JwtAuthenticator, FlagError> {
    let claim = flags.text("oidc-username-claim");
    let prefix = match flags.text("oidc-username-prefix") {
        // Names of different issuers must not be the same, unless they are addresses.
        "" if claim != "email" => format!("{url}#"),
        "-" => String::new(),
        given => given.to_owned(),
    };
    let groups = flags.text("oidc-groups-claim");
    let required = flags.array("oidc-required-claim").into_iter().map(|pair| {
        let wrong = || {
            let why = "malformed pair, expect string=string";
            FlagError::invalid("oidc-required-claim", &pair, why)
        };
        let (claim, value) = pair.split_once('=').ok_or_else(wrong)?;
        Ok(ClaimValidationRule {
            claim: claim.to_owned(),
            required_value: value.to_owned(),
            ..ClaimValidationRule::default()
        })
    });
    let mut rules = required.collect::<Result<Vec<_>, FlagError>>()?;
    // The last of a name counts.
    rules.reverse();
    let mut seen = std::collections::HashSet::new();
    rules.retain(|rule| seen.insert(rule.claim.clone()));
    let mut authenticator = JwtAuthenticator {
        issuer: Issuer {
            url: url.to_owned(),
            audiences: vec![client.to_owned()],
            ..Issuer::default()
        },
        username: Mapping {
            claim: claim.to_owned(),
            prefix: Some(prefix),
            ..Mapping::default()
        },
        claim_validation_rules: rules,
        ..JwtAuthenticator::default()
    };
    if !groups.is_empty() {
        authenticator.groups = Mapping {
            claim: groups.to_owned(),
            prefix: Some(flags.text("oidc-groups-prefix").to_owned()),
            ..Mapping::default()
        };
    }
    Ok(authenticator)
}

impl TokenWebhook {
    /// Returns the webhook of the flags; `None` where they name none.
    ///
    /// # Errors
    /// A version that there is not.
    pub fn from_flags(flags: &Flags) -> Result<Option<Self>, FlagError> {
        let file = flags.text("authentication-token-webhook-config-file");
        if file.is_empty() {
            return Ok(None);
        }
        let version = match flags.text("authentication-token-webhook-version") {
            "v1" => ReviewVersion::V1,
            "v1beta1" => ReviewVersion::V1Beta1,
            other => {
                return Err(FlagError::new(format!(
                    "unsupported authentication webhook version {}, supported versions are \"v1\", \"v1beta1\"",
                    go::quote(other)
                )));
            }
        };
        Ok(Some(Self {
            kubeconfig: file.into(),
            version,
            cache_ttl: flags.duration("authentication-token-webhook-cache-ttl"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    fn flags(args: &[&str]) -> Flags {
        match parse(args.iter().map(ToString::to_string)) {
            Ok(Command::Run(flags)) => flags,
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    const ISSUER: [&str; 2] = ["--oidc-issuer-url=https://a", "--oidc-client-id=x"];

    #[test]
    fn the_flags_of_openid_stand_for_one_issuer() {
        let read = |more: &[&str]| {
            let all = [&ISSUER, more].concat();
            let found = Jwt::from_flags(&flags(&all)).expect("valid");
            found.from_flags.jwt.into_iter().next().expect("an issuer")
        };
        let one = read(&["--oidc-required-claim=a=b,c", "--oidc-required-claim=d=e=f"]);
        assert_eq!(one.username.prefix.as_deref(), Some("https://a#"));
        let mut rules: Vec<_> = one
            .claim_validation_rules
            .iter()
            .map(|rule| (rule.claim.as_str(), rule.required_value.as_str()))
            .collect();
        rules.sort_unstable();
        assert_eq!(rules, [("a", "b,c"), ("d", "e=f")]);
        let prefix = |args: &[&str]| read(args).username.prefix.unwrap_or_default();
        assert_eq!(prefix(&["--oidc-username-claim=email"]), "");
        assert_eq!(prefix(&["--oidc-username-prefix=-"]), "");
        assert_eq!(prefix(&["--oidc-username-prefix=p:"]), "p:");
        let one = read(&["--oidc-groups-claim=g", "--oidc-groups-prefix=p:"]);
        assert_eq!(one.groups.prefix.as_deref(), Some("p:"));
        let none = Jwt::from_flags(&flags(&[])).expect("valid");
        assert!(none.from_flags.jwt.is_empty());
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let checks: &[(&[&str], &str)] = &[
            (
                &["--oidc-issuer-url=https://a"],
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ),
            (
                &["--authentication-config=/c", ISSUER[0], ISSUER[1]],
                "authentication-config file and oidc-* flags are mutually exclusive",
            ),
            (
                &[ISSUER[0], ISSUER[1], "--oidc-signing-algs=HS256"],
                r#"oidc: unsupported signing alg: "HS256""#,
            ),
            (
                &[ISSUER[0], ISSUER[1], "--oidc-required-claim=a"],
                r#"invalid argument "a" for "--oidc-required-claim" flag: malformed pair, expect string=string"#,
            ),
        ];
        for (args, want) in checks {
            let why = Jwt::from_flags(&flags(args)).expect_err("refused");
            assert_eq!(why.to_string(), *want);
        }
        let args = [
            "--authentication-token-webhook-config-file=/w",
            "--authentication-token-webhook-version=v2",
        ];
        let why = TokenWebhook::from_flags(&flags(&args)).expect_err("refused");
        assert_eq!(
            why.to_string(),
            r#"unsupported authentication webhook version "v2", supported versions are "v1", "v1beta1""#
        );
    }
}
