//! Authentication as the configuration asks for it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::config::Config;
use super::run::Parts;
use crate::auth::ObjectSource;
use crate::auth::authn::keys::{KeyError, KeySet, SigningKey};
use crate::auth::authn::oidc::{self, Documents};
use crate::auth::authn::request_header::FrontProxy;
use crate::auth::authn::service_account::{Issuer, ServiceAccounts};
use crate::auth::authn::static_token::{StaticTokens, TokenFileError};
use crate::auth::authn::x509::{CaBundle, X509Error};
use crate::auth::authn::{Chain, Options};
use crate::base::clock::Clock;
use crate::registry::builtin::authentication::{TokenReviewer, TokenVerdict};

/// Why authentication could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("unable to load client CA file: {0}")]
    Authorities(#[from] X509Error),
    /// Any client could name any user in headers.
    #[error(
        "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be \
         specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
    )]
    Overlap,
    #[error("service account keys: {0}")]
    Keys(#[from] KeyError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}")]
    Tokens { path: PathBuf, source: TokenFileError },
}

/// What the rest of the server needs of authentication.
pub struct Authentication {
    pub chain: Arc<Chain>,
    /// Signs tokens for TokenRequest; `None` without a signing key.
    pub issuer: Option<Arc<Issuer>>,
    /// The OpenID discovery documents; `None` if the issuer is no URL for them.
    pub discovery: Option<Documents>,
}

/// Sets up authentication; `objects` is where secrets, accounts, pods and nodes are looked up.
///
/// # Errors
/// Files that cannot be read or understood.
pub fn build(parts: &Parts, objects: Arc<dyn ObjectSource>, clock: &Clock) -> Result<Authentication, SetupError> {
    let (config, identity) = (&parts.config, &parts.identity);
    let accounts = &config.service_accounts;
    let keys = KeySet::from_pem(&identity.public_keys)?;
    let api_audiences = match config.authentication.api_audiences.as_slice() {
        [] => accounts.issuers.clone(),
        given => given.to_vec(),
    };
    let issuer_name = accounts.issuers.first().cloned().unwrap_or_default();
    let discovery = oidc::render(&issuer_name, &accounts.jwks_uri, &external_address(config, parts), &keys);
    let signing_key = identity.signing_key.as_deref().map(SigningKey::from_pem).transpose()?;
    let front_proxy = match &identity.request_header {
        Some((header, pem)) => Some(FrontProxy {
            authorities: CaBundle::from_pem(pem)?,
            allowed_names: header.allowed_names.clone(),
            username_headers: header.username_headers.clone(),
            uid_headers: header.uid_headers.clone(),
            group_headers: header.group_headers.clone(),
            extra_prefixes: header.extra_prefixes.clone(),
        }),
        None => None,
    };
    let client_authorities = CaBundle::from_pem(&identity.client_ca)?;
    if front_proxy.as_ref().is_some_and(|proxy| proxy.allowed_names.is_empty() && proxy.authorities.overlaps(&client_authorities)) {
        return Err(SetupError::Overlap);
    }
    let options = Options {
        front_proxy,
        client_authorities: Some(client_authorities),
        uid_from_certificate: config.feature_gates.enabled("AllowParsingUserUIDFromCertAuth"),
        static_tokens: static_tokens(config)?,
        service_accounts: Some(ServiceAccounts {
            issuers: accounts.issuers.clone(),
            keys,
            api_audiences: api_audiences.clone(),
            lookup: accounts.lookup,
            objects: objects.clone(),
        }),
        bootstrap_tokens: config.authentication.bootstrap_tokens.then_some(objects),
        api_audiences,
        anonymous: config.authentication.anonymous,
    };
    Ok(Authentication {
        chain: Arc::new(Chain::new(options, clock.clone())),
        issuer: signing_key.map(|key| Arc::new(Issuer::new(issuer_name, key, clock.clone()))),
        discovery,
    })
}

/// The host and port in URLs that lead back here.
fn external_address(config: &Config, parts: &Parts) -> String {
    match config.serving.external_hostname.as_str() {
        "" => parts.advertise.to_string(),
        host if host.parse::<http::uri::Authority>().is_ok_and(|authority| authority.port().is_some()) => host.to_owned(),
        host => format!("{host}:{}", parts.advertise.port()),
    }
}

fn static_tokens(config: &Config) -> Result<Option<StaticTokens>, SetupError> {
    let Some(path) = &config.authentication.token_file else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|source| SetupError::File { path: path.clone(), source })?;
    let tokens = StaticTokens::from_csv(&text).map_err(|source| SetupError::Tokens { path: path.clone(), source })?;
    Ok(Some(tokens))
}

#[async_trait]
impl TokenReviewer for Chain {
    async fn review(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        match Chain::review(self, token, audiences).await {
            Ok(known) => TokenVerdict { user: Some(known.user), audiences: known.audiences, error: String::new() },
            Err(why) => TokenVerdict { user: None, audiences: Vec::new(), error: why.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::flags::{Command, parse};
    use super::super::shutdown::Shutdown;
    use super::*;
    use crate::meta::{Gvr, Object};
    use crate::server::certs;
    use crate::storage::embedded::Embedded;

    struct Nothing;

    #[async_trait]
    impl ObjectSource for Nothing {
        async fn get(&self, _: &Gvr, _: &str, _: &str) -> Option<Object> {
            None
        }
    }

    /// What a server on `folder` with these flags makes of authentication.
    fn set_up(folder: &std::path::Path, flags: &[String]) -> Result<Authentication, SetupError> {
        let args = flags.iter().cloned().chain([format!("--data-dir={}", folder.display())]);
        let Ok(Command::Run(flags)) = parse(args) else { panic!("flags") };
        let config = Arc::new(Config::from_flags(&flags).expect("a configuration"));
        let advertise = SocketAddr::from(([10, 0, 0, 1], 6443));
        let parts = Parts {
            identity: Arc::new(certs::prepare(&config, advertise.ip()).expect("an identity")),
            config,
            advertise,
            storage: Arc::new(Embedded::open(folder).expect("a store")),
            feed: None,
            apart: Default::default(),
            health: Arc::default(),
            shutdown: Shutdown::new(),
        };
        build(&parts, Arc::new(Nothing), &Clock::system())
    }

    #[test]
    fn no_flags_give_tokens_and_discovery() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = set_up(folder.path(), &[]).expect("set up");
        assert!(made.issuer.is_some());
        let discovery = made.discovery.expect("an issuer with a URL");
        assert!(discovery.configuration.contains(r#""jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks""#), "{discovery:?}");
        assert!(discovery.configuration.contains(r#"["ES256"]"#), "{discovery:?}");
    }

    #[test]
    fn a_front_proxy_of_the_clients_authority_needs_a_name() {
        let folder = tempfile::tempdir().expect("a folder");
        set_up(folder.path(), &[]).expect("the files");
        let ca = folder.path().join("pki/ca.crt").display().to_string();
        let flags = [format!("--client-ca-file={ca}"), format!("--requestheader-client-ca-file={ca}")];
        assert!(matches!(set_up(folder.path(), &flags), Err(SetupError::Overlap)));
        let named = [flags.as_slice(), &["--requestheader-allowed-names=proxy".to_owned()]].concat();
        assert!(set_up(folder.path(), &named).is_ok());
    }
}
