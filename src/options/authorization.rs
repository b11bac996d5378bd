//! The flags of authorization (kubernetes `kubeapiserver/options/authorization.go`).

use std::path::PathBuf;
use std::time::Duration;

use super::flags::{FlagError, Flags};
use crate::auth::authz::configuration::{
    AuthorizerConfiguration, AuthorizerType, Configuration, FailurePolicy, ReviewVersion,
    WebhookConfiguration,
};
use crate::meta::go;

/// The name of the webhook of the flags.
const WEBHOOK_NAME: &str = "default";
/// The time that the webhook of the flags has to answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// The flags that a configuration file stands for.
const LEGACY: [&str; 5] = [
    "authorization-mode",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
];

/// The configuration of authorization.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// The AuthorizationConfiguration, which is followed while the server runs.
    pub(crate) file: Option<PathBuf>,
    /// The authorizers where there is no file.
    pub(crate) from_flags: Configuration,
    /// The policies of ABAC.
    pub(crate) policy_file: Option<PathBuf>,
}

impl Authorization {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// Modes that are unknown or come twice, and flags that miss, or exclude, each other.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let path = |name| Some(flags.text(name)).filter(|text| !text.is_empty());
        let policy_file = path("authorization-policy-file").map(PathBuf::from);
        if let Some(file) = path("authorization-config") {
            if flags.given().any(|(flag, _)| LEGACY.contains(&flag.name)) {
                return Err(FlagError::new(
                    "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
                ));
            }
            return Ok(Self {
                file: Some(file.into()),
                from_flags: Configuration::default(),
                policy_file,
            });
        }
        let modes = modes(&flags.list("authorization-mode"))?;
        check_files(
            &modes,
            policy_file.is_some(),
            path("authorization-webhook-config-file").is_some(),
        )?;
        let authorizers: Result<_, _> = modes
            .into_iter()
            .map(|mode| match mode {
                AuthorizerType::Webhook => webhook(flags),
                other => Ok(AuthorizerConfiguration::plain(other)),
            })
            .collect();
        Ok(Self {
            file: None,
            from_flags: Configuration {
                authorizers: authorizers?,
            },
            policy_file,
        })
    }
}

fn modes(names: &[String]) -> Result<Vec<AuthorizerType>, FlagError> {
    if names.is_empty() {
        return Err(FlagError::new(
            "at least one authorization-mode must be passed",
        ));
    }
    let mut modes = Vec::new();
    for name in names {
        let mode = AuthorizerType::named(name).ok_or_else(|| {
            FlagError::new(format!(
                "authorization-mode {} is not a valid mode",
                go::quote(name)
            ))
        })?;
        if modes.contains(&mode) {
            return Err(FlagError::new(format!(
                "authorization-mode {} has mode specified more than once",
                go::quote_all(names)
            )));
        }
        modes.push(mode);
    }
    Ok(modes)
}

/// Checks that the modes with a file have it, and no others.
fn check_files(
    modes: &[AuthorizerType],
    has_policy: bool,
    has_webhook: bool,
) -> Result<(), FlagError> {
    let has = |mode| modes.contains(&mode);
    let why = match (
        has(AuthorizerType::Abac),
        has_policy,
        has(AuthorizerType::Webhook),
        has_webhook,
    ) {
        (true, false, ..) => "authorization-mode ABAC's authorization policy file not passed",
        (_, _, true, false) => "authorization-mode Webhook's authorization config file not passed",
        (false, true, ..) => "cannot specify --authorization-policy-file without mode ABAC",
        (_, _, false, true) => {
            "cannot specify --authorization-webhook-config-file without mode Webhook"
        }
        _ => return Ok(()),
    };
    Err(FlagError::new(why))
}

fn webhook(flags: &Flags) -> Result<AuthorizerConfiguration, FlagError> {
    let review_version = match flags.text("authorization-webhook-version") {
        "v1" => ReviewVersion::V1,
        "v1beta1" => ReviewVersion::V1Beta1,
        other => {
            return Err(FlagError::new(format!(
                "unsupported webhook authorizer version {}, supported versions are \"v1\", \"v1beta1\"",
                go::quote(other)
            )));
        }
    };
    Ok(AuthorizerConfiguration {
        kind: AuthorizerType::Webhook,
        name: WEBHOOK_NAME.to_owned(),
        webhook: Some(WebhookConfiguration {
            kubeconfig: flags.text("authorization-webhook-config-file").into(),
            timeout: WEBHOOK_TIMEOUT,
            authorized_ttl: flags.duration("authorization-webhook-cache-authorized-ttl"),
            unauthorized_ttl: flags.duration("authorization-webhook-cache-unauthorized-ttl"),
            review_version,
            failure_policy: FailurePolicy::NoOpinion,
            match_conditions: Vec::new(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    fn read(args: &[&str]) -> Result<Authorization, FlagError> {
        match parse(args.iter().map(ToString::to_string))? {
            Command::Run(flags) => Authorization::from_flags(&flags),
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    #[test]
    fn flags_stand_for_a_configuration() {
        let found = read(&[
            "--authorization-mode=Node,Webhook,ABAC",
            "--authorization-webhook-config-file=/w",
            "--authorization-webhook-cache-authorized-ttl=0s",
            "--authorization-policy-file=/p",
        ])
        .expect("valid");
        let names: Vec<_> = found
            .from_flags
            .authorizers
            .iter()
            .map(|one| (one.kind.name(), one.name.as_str()))
            .collect();
        assert_eq!(
            names,
            [("Node", "node"), ("Webhook", "default"), ("ABAC", "abac")]
        );
        let webhook = found.from_flags.authorizers[1].webhook.as_ref();
        let webhook = webhook.expect("a webhook");
        assert_eq!(webhook.authorized_ttl, Duration::ZERO);
        assert_eq!(webhook.unauthorized_ttl, Duration::from_secs(30));
        assert_eq!(webhook.review_version, ReviewVersion::V1Beta1);
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let checks: &[(&[&str], &str)] = &[
            (
                &["--authorization-mode=Nope"],
                r#"authorization-mode "Nope" is not a valid mode"#,
            ),
            (
                &["--authorization-mode=RBAC,RBAC"],
                r#"authorization-mode ["RBAC" "RBAC"] has mode specified more than once"#,
            ),
            (
                &["--authorization-mode=Webhook"],
                "authorization-mode Webhook's authorization config file not passed",
            ),
            (
                &["--authorization-mode=ABAC"],
                "authorization-mode ABAC's authorization policy file not passed",
            ),
            (
                &["--authorization-policy-file=/p"],
                "cannot specify --authorization-policy-file without mode ABAC",
            ),
            (
                &["--authorization-webhook-config-file=/w"],
                "cannot specify --authorization-webhook-config-file without mode Webhook",
            ),
            (
                &["--authorization-config=/c", "--authorization-mode=RBAC"],
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
            ),
            (
                &[
                    "--authorization-mode=Webhook",
                    "--authorization-webhook-config-file=/w",
                    "--authorization-webhook-version=v2",
                ],
                r#"unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1""#,
            ),
        ];
        for (args, want) in checks {
            assert_eq!(read(args).expect_err("refused").to_string(), *want);
        }
    }
}
