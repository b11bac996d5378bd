//! Assembly of the authenticators that the configuration asks for.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;

use super::authentication_config;
use super::reload::WatchedFiles;
use super::run::ServerDeps;
use crate::auth::ObjectSource;
use crate::auth::authn::external_signer::ExternalSigner;
use crate::auth::authn::keys::{KeySet, SigningKey};
use crate::auth::authn::oidc::{self, Documents};
use crate::auth::authn::openid::configuration::Anonymous;
use crate::auth::authn::request_header::FrontProxy;
use crate::auth::authn::service_account::{Issuer, ServiceAccounts};
use crate::auth::authn::static_token::StaticTokens;
use crate::auth::authn::token_webhook::TokenWebhook;
use crate::auth::authn::x509::CaBundle;
use crate::auth::authn::{Chain, Options};
use crate::base::clock::Clock;
use crate::base::dial::Network;
use crate::base::latch::Latch;
use crate::builtin::authentication::{TokenReviewer, TokenVerdict};
use crate::meta::go;
use crate::options::certificates::Identity;
use crate::options::config::Config;
use crate::options::credential_files::{CertError, CredentialFile, FileContent};

/// An error of setting up authentication.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Cert(#[from] CertError),
    /// Any client could name any user in headers.
    #[error(
        "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be \
         specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
    )]
    Overlap,
    #[error("{0}")]
    Configuration(String),
}

/// The authentication of a server. Clones share it.
#[derive(Clone)]
pub struct Authentication {
    pub chain: Arc<Chain>,
    /// Signs tokens for TokenRequest; `None` without a signing key.
    pub issuer: Option<Arc<Issuer>>,
    /// The OpenID discovery documents; `None` if the issuer is no URL for them.
    pub discovery: Arc<ArcSwapOption<Documents>>,
    discovered: Discovered,
    /// The longest lifetime of a token that an external signer supports, in seconds.
    pub longest_token: Option<i64>,
    external: Option<Arc<ExternalSigner>>,
}

/// Connects to the external signer, if the configuration names one.
///
/// # Errors
/// It does not answer, or supports shorter lifetimes than the configuration allows.
pub async fn external_signer(config: &Config) -> Result<Option<Arc<ExternalSigner>>, SetupError> {
    let accounts = &config.service_accounts;
    let Some(endpoint) = &accounts.signing_endpoint else {
        return Ok(None);
    };
    let signer = ExternalSigner::connect(endpoint).await;
    let signer = signer.map_err(SetupError::Configuration)?;
    let longest = Duration::from_secs(u64::try_from(signer.max_seconds()).unwrap_or(0));
    if let Some(given) = accounts.max_expiration
        && given > longest
    {
        let shown = |time: Duration| {
            go::format_duration(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
        };
        return Err(SetupError::Configuration(format!(
            "service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: {} > {}",
            shown(given),
            shown(longest)
        )));
    }
    Ok(Some(signer))
}

/// The facts in the discovery documents besides the keys.
#[derive(Clone)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
    address: String,
}

impl Discovered {
    fn render(&self, keys: &KeySet) -> Option<Arc<Documents>> {
        oidc::render(&self.issuer, &self.jwks_uri, &self.address, keys).map(Arc::new)
    }
}

/// Sets up authentication; `objects` is where secrets, accounts, pods and nodes are looked up.
/// `server` is the identity under which metrics name this server. The configuration file that is to
/// be followed comes along.
///
/// # Errors
/// Files that cannot be understood.
pub fn build(
    deps: &ServerDeps,
    objects: Arc<dyn ObjectSource>,
    clock: &Clock,
    server: &str,
    external: Option<Arc<ExternalSigner>>,
) -> Result<(Authentication, Option<WatchedFiles>), SetupError> {
    let (config, identity) = (&deps.config, &deps.identity);
    let accounts = &config.service_accounts;
    let keys = match &external {
        Some(external) => external.shown_keys(),
        None => key_set(&identity.public_keys)?,
    };
    let api_audiences = match config.authentication.api_audiences.as_slice() {
        [] => accounts.issuers.clone(),
        given => given.to_vec(),
    };
    let issuer_name = accounts.issuers.first().cloned().unwrap_or_default();
    let discovered = Discovered {
        issuer: issuer_name.clone(),
        jwks_uri: accounts.jwks_uri.clone(),
        address: external_address(config, deps),
    };
    let discovery = Arc::new(ArcSwapOption::new(discovered.render(&keys)));
    let signing_key = identity.signing_key.as_ref().map(signing_key).transpose()?;
    let options = Options {
        front_proxy: front_proxy(identity)?,
        client_authorities: Some(bundle(&identity.client_ca)?),
        uid_from_certificate: config
            .feature_gates
            .enabled("AllowParsingUserUIDFromCertAuth"),
        static_tokens: identity
            .token_file
            .as_ref()
            .map(static_tokens)
            .transpose()?,
        service_accounts: Some(ServiceAccounts {
            issuers: accounts.issuers.clone(),
            keys,
            external: external.clone(),
            api_audiences: api_audiences.clone(),
            lookup: accounts.lookup,
            objects: objects.clone(),
        }),
        bootstrap_tokens: config.authentication.bootstrap_tokens.then_some(objects),
        jwt: None,
        token_webhook: token_webhook(deps, &api_audiences, clock)?,
        anonymous: Anonymous::default(),
        api_audiences,
    };
    check_overlap(&options)?;
    let chain = Arc::new(Chain::new(options, clock.clone()));
    let watched = authentication_config::set_up(deps, &chain, server, clock)?;
    let made = Authentication {
        chain,
        issuer: match (&external, signing_key) {
            (Some(external), _) => Some(Issuer::external(
                &issuer_name,
                external.clone(),
                clock.clone(),
            )),
            (None, Some(key)) => Some(Issuer::new(issuer_name, key, clock.clone())),
            (None, None) => None,
        }
        .map(Arc::new),
        longest_token: external.as_ref().map(|external| external.max_seconds()),
        external,
        discovery,
        discovered,
    };
    Ok((made, watched))
}

fn front_proxy(identity: &Identity) -> Result<Option<FrontProxy>, CertError> {
    let Some((header, ca)) = &identity.request_header else {
        return Ok(None);
    };
    Ok(Some(FrontProxy {
        authorities: bundle(ca)?,
        allowed_names: header.allowed_names.clone(),
        username_headers: header.username_headers.clone(),
        uid_headers: header.uid_headers.clone(),
        group_headers: header.group_headers.clone(),
        extra_prefixes: header.extra_prefixes.clone(),
    }))
}

fn token_webhook(
    deps: &ServerDeps,
    api_audiences: &[String],
    clock: &Clock,
) -> Result<Option<Arc<TokenWebhook>>, SetupError> {
    let Some(given) = &deps.config.authentication.token_webhook else {
        return Ok(None);
    };
    let made = TokenWebhook::new(
        &given.kubeconfig,
        given.version,
        given.cache_ttl,
        api_audiences.to_vec(),
        clock.clone(),
    );
    let flag = "authentication-token-webhook-config-file";
    let made = made.map_err(|why| CredentialFile::of_flag(flag, &given.kubeconfig).error(why))?;
    let dialer = deps.egress.dialer(Network::ControlPlane);
    Ok(Some(Arc::new(made.with_dialer(dialer))))
}

/// Each judges by another file from now on, unless that cannot be understood: then by the one
/// before.
impl Authentication {
    /// # Errors
    /// There is no certificate in it, or anybody with one of them could name any user in headers.
    pub fn replace_client_ca(&self, ca: &FileContent) -> Result<(), SetupError> {
        let authorities = bundle(ca)?;
        self.chain.change(|options| {
            options.client_authorities = Some(authorities);
            check_overlap(options)
        })
    }

    /// # Errors
    /// Those of [`Authentication::replace_client_ca`].
    pub fn replace_front_proxy_ca(&self, ca: &FileContent) -> Result<(), SetupError> {
        let authorities = bundle(ca)?;
        self.chain.change(|options| {
            if let Some(proxy) = &mut options.front_proxy {
                proxy.authorities = authorities;
            }
            check_overlap(options)
        })
    }

    /// Keeps the keys of the external signer up to date until the server stops.
    pub async fn follow_external_signer(self, stopping: Latch) {
        let Some(external) = self.external.clone() else {
            return;
        };
        let changed = |shown: KeySet| {
            self.discovery.store(self.discovered.render(&shown));
            // What was found valid is looked at again.
            let Ok(()) = self.chain.change(|_| Ok::<_, std::convert::Infallible>(()));
        };
        tokio::select! {
            () = external.follow(changed) => {}
            () = stopping.wait() => {}
        }
    }

    /// # Errors
    /// The file is no list of tokens.
    pub fn replace_static_tokens(&self, file: &FileContent) -> Result<(), SetupError> {
        let tokens = static_tokens(file)?;
        self.chain.change(|options| {
            options.static_tokens = Some(tokens);
            Ok(())
        })
    }

    /// # Errors
    /// A file has no key in it, or one that cannot be used.
    pub fn replace_account_keys(&self, files: &[FileContent]) -> Result<(), SetupError> {
        let keys = key_set(files)?;
        self.discovery.store(self.discovered.render(&keys));
        self.chain.change(|options| {
            if let Some(accounts) = &mut options.service_accounts {
                accounts.keys = keys;
            }
            Ok(())
        })
    }

    /// # Errors
    /// There is no key in it that can sign.
    pub fn replace_signing_key(&self, file: &FileContent) -> Result<(), SetupError> {
        let key = signing_key(file)?;
        if let Some(issuer) = &self.issuer {
            issuer.replace_key(key);
        }
        Ok(())
    }
}

/// Refuses a front proxy of any name whose authority is the clients', too.
fn check_overlap(options: &Options) -> Result<(), SetupError> {
    match (&options.front_proxy, &options.client_authorities) {
        (Some(proxy), Some(clients))
            if proxy.allowed_names.is_empty() && proxy.authorities.overlaps(clients) =>
        {
            Err(SetupError::Overlap)
        }
        _ => Ok(()),
    }
}

fn bundle(file: &FileContent) -> Result<CaBundle, CertError> {
    CaBundle::from_pem(&file.bytes).map_err(|why| file.file.error(why))
}

fn key_set(files: &[FileContent]) -> Result<KeySet, CertError> {
    let mut keys = KeySet::default();
    for file in files {
        keys.extend(KeySet::from_pem(&[&file.bytes]).map_err(|why| file.file.error(why))?);
    }
    Ok(keys)
}

fn signing_key(file: &FileContent) -> Result<SigningKey, CertError> {
    SigningKey::from_pem(&file.bytes).map_err(|why| file.file.error(why))
}

fn static_tokens(file: &FileContent) -> Result<StaticTokens, CertError> {
    StaticTokens::from_csv(file.text()?).map_err(|why| file.file.error(why))
}

/// The host and port in URLs that lead back here.
fn external_address(config: &Config, deps: &ServerDeps) -> String {
    match config.serving.external_hostname.as_str() {
        "" => deps.advertise.to_string(),
        host if host
            .parse::<http::uri::Authority>()
            .is_ok_and(|authority| authority.port().is_some()) =>
        {
            host.to_owned()
        }
        host => format!("{host}:{}", deps.advertise.port()),
    }
}

#[async_trait]
impl TokenReviewer for Chain {
    async fn review(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        match Chain::review(self, token, audiences).await {
            Ok(known) => TokenVerdict {
                user: Some((*known.user).clone()),
                audiences: known.audiences,
                warnings: known.warnings,
                annotations: known.annotations,
                ..TokenVerdict::default()
            },
            Err(why) => TokenVerdict {
                error: why.to_string(),
                ..TokenVerdict::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::shutdown::Shutdown;
    use super::*;
    use crate::meta::{Gvr, Object};
    use crate::options::certificates;
    use crate::options::flags::{Command, parse};
    use crate::storage::embedded::Embedded;

    struct Nothing;

    #[async_trait]
    impl ObjectSource for Nothing {
        async fn get(&self, _: &Gvr, _: &str, _: &str) -> Option<Object> {
            None
        }
    }

    /// Sets up authentication of a server on `folder` with these flags.
    fn set_up(folder: &std::path::Path, flags: &[String]) -> Result<Authentication, SetupError> {
        let args = flags
            .iter()
            .cloned()
            .chain([format!("--data-dir={}", folder.display())]);
        let Ok(Command::Run(flags)) = parse(args) else {
            panic!("flags")
        };
        let config = Arc::new(Config::from_flags(&flags).expect("a configuration"));
        let advertise = SocketAddr::from(([10, 0, 0, 1], 6443));
        let deps = ServerDeps {
            identity: Arc::new(
                certificates::prepare(&config, advertise.ip(), jiff::Timestamp::now())
                    .expect("an identity"),
            ),
            config,
            advertise,
            storage: Arc::new(Embedded::open(folder).expect("a store")),
            reflector: None,
            storage_overrides: Default::default(),
            health: Arc::default(),
            egress: Default::default(),
            tracer: Default::default(),
            auditor: None,
            shutdown: Shutdown::new(),
        };
        build(&deps, Arc::new(Nothing), &Clock::system(), "server", None).map(|(made, _)| made)
    }

    #[test]
    fn default_flags_enable_tokens_and_discovery() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = set_up(folder.path(), &[]).expect("set up");
        assert!(made.issuer.is_some());
        let discovery = made.discovery.load_full().expect("an issuer with a URL");
        assert!(
            discovery
                .configuration
                .contains(r#""jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks""#),
            "{discovery:?}"
        );
        assert!(
            discovery.configuration.contains(r#"["ES256"]"#),
            "{discovery:?}"
        );
    }

    #[test]
    fn a_front_proxy_of_the_clients_authority_needs_a_name() {
        let folder = tempfile::tempdir().expect("a folder");
        set_up(folder.path(), &[]).expect("the files");
        let ca = folder.path().join("pki/ca.crt").display().to_string();
        let flags = [
            format!("--client-ca-file={ca}"),
            format!("--requestheader-client-ca-file={ca}"),
        ];
        assert!(matches!(
            set_up(folder.path(), &flags),
            Err(SetupError::Overlap)
        ));
        let named = [
            flags.as_slice(),
            &["--requestheader-allowed-names=proxy".to_owned()],
        ]
        .concat();
        assert!(set_up(folder.path(), &named).is_ok());
    }
}
