//! The flags of what browsers are told: CORS and strict transport security (apiserver
//! `server/options/server_run_options.go`).

use http::HeaderValue;
use regex::Regex;

use super::flags::{FlagError, Flags};
use crate::meta::go::regexp;

const CORS_HELP: &str = "help: List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression to support subdomain matching. If this list is empty CORS will not be enabled. Please ensure each expression matches the entire hostname by anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with '$' or including the ':' port separator suffix. Examples of valid expressions are '//example\\.com(:|$)' and '^https://example\\.com(:|$)'";

/// The configuration of headers for browsers.
#[derive(Clone, Debug, Default)]
pub struct Browsers {
    /// The origins whose pages may see answers; none if empty.
    pub(crate) allowed_origins: Vec<Regex>,
    /// The value of the header Strict-Transport-Security.
    pub(crate) transport_security: Option<HeaderValue>,
}

impl Browsers {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// A pattern that is none, or would match a part of a host, and unknown directives.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let origins = flags.list("cors-allowed-origins");
        let origins = origins.iter().map(|pattern| origin(pattern));
        let directives = flags.list("strict-transport-security-directives");
        directives.iter().try_for_each(|one| check_directive(one))?;
        let transport_security = match directives.is_empty() {
            true => None,
            false => Some(HeaderValue::try_from(directives.join("; ")).map_err(|_| unknown())?),
        };
        Ok(Self {
            allowed_origins: origins.collect::<Result<_, _>>()?,
            transport_security,
        })
    }
}

fn origin(pattern: &str) -> Result<Regex, FlagError> {
    if pattern.is_empty() {
        return Err(FlagError::new(format!(
            "empty value in --cors-allowed-origins, {CORS_HELP}"
        )));
    }
    let invalid = |why: &str| {
        FlagError::new(format!(
            "--cors-allowed-origins has an invalid regular expression: {why}, {CORS_HELP}"
        ))
    };
    let program = regexp::compile(pattern).map_err(|why| invalid(&why))?;
    // One that matches a part of a host lets others in (CVE-2022-1996).
    let has = |parts: [&str; 2]| parts.iter().any(|part| pattern.contains(part));
    if !has(["^", "//"]) || !has(["$", ":"]) {
        let why = "regular expression does not pin to start/end of host in the origin header";
        return Err(invalid(why));
    }
    Ok(program.regex)
}

fn unknown() -> FlagError {
    FlagError::new(
        "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information",
    )
}

fn check_directive(directive: &str) -> Result<(), FlagError> {
    if directive.trim().is_empty() {
        return Err(FlagError::new(
            "empty value in strict-transport-security-directives",
        ));
    }
    let is_max_age = directive
        .strip_prefix("max-age=")
        .is_some_and(|rest| !rest.contains('='));
    match directive {
        "includeSubDomains" | "preload" => Ok(()),
        _ if is_max_age => Ok(()),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    fn read(arg: &str) -> Result<Browsers, FlagError> {
        match parse([arg.to_owned()])? {
            Command::Run(flags) => Browsers::from_flags(&flags),
            other => panic!("{arg} gave {other:?}"),
        }
    }

    #[test]
    fn patterns_of_origins_must_match_whole_hosts() {
        for good in [
            r"//example\.com(:|$)",
            r"^https://example\.com(:|$)",
            r"^https://a$,^https://b$",
        ] {
            assert!(
                read(&format!("--cors-allowed-origins={good}")).is_ok(),
                "{good}"
            );
        }
        for (wrong, want) in [
            ("example.com", "does not pin to start/end of host"),
            ("//example.com", "does not pin to start/end of host"),
            ("//a$,", "empty value in --cors-allowed-origins"),
            (
                "^($",
                "has an invalid regular expression: error parsing regexp",
            ),
        ] {
            let why = read(&format!("--cors-allowed-origins={wrong}")).expect_err(wrong);
            assert!(why.to_string().contains(want), "{why}");
        }
    }

    #[test]
    fn directives_of_transport_security_are_known_ones() {
        let read = |text: &str| read(&format!("--strict-transport-security-directives={text}"));
        let good = read("max-age=31536000,includeSubDomains,preload").expect("valid");
        let value = good.transport_security.expect("a header");
        assert_eq!(value, "max-age=31536000; includeSubDomains; preload");
        assert!(read("max-age=1,").is_err() && read("max-age").is_err() && read("x").is_err());
    }
}
