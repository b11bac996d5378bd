//! The AuthenticationConfiguration of a server, as its file is now.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::authentication::SetupError;
use super::reload::WatchedFiles;
use super::run::ServerDeps;
use crate::auth::authn::Chain;
use crate::auth::authn::openid::configuration::{Anonymous, Configuration};
use crate::auth::authn::openid::validation::{self, Mapper};
use crate::auth::authn::openid::{JwtAuthenticators, forget};
use crate::auth::authz::aggregate;
use crate::auth::authz::configuration::AuthorizerType;
use crate::base::clock::Clock;
use crate::base::dial::Egress;
use crate::meta::{ErrorList, Path, go};
use crate::options::authentication::Jwt;
use crate::options::config::Config;
use crate::options::credential_files::{CredentialFile, FileContent};
use crate::telemetry::config_reloads::ConfigReloads;
use crate::telemetry::metrics::Declared;

static RELOADS: ConfigReloads = ConfigReloads::new(
    (
        "apiserver_authentication_config_controller_automatic_reloads_total",
        "[BETA] Total number of automatic reloads of authentication configuration split by status and apiserver identity.",
    ),
    (
        "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
        "[BETA] Timestamp of the last automatic reload of authentication configuration split by status and apiserver identity.",
    ),
    (
        "apiserver_authentication_config_controller_last_config_info",
        "[ALPHA] Information about the last applied authentication configuration with hash as label, split by apiserver identity.",
    ),
);
pub static METRICS: [&dyn Declared; 3] = RELOADS.metrics();

/// The time in which the keys of new issuers must be known (kubernetes
/// `UpdateAuthenticationConfigTimeout`).
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A configuration that is valid, and the file that it comes from.
struct Loaded {
    configuration: Configuration,
    mappers: Vec<Mapper>,
    file: Option<FileContent>,
}

/// Sets up the authenticators of tokens and of anonymous requests; returns the configuration file,
/// to be followed.
///
/// # Errors
/// Files that cannot be read, and configurations that are not valid, with the paths of the fields.
pub fn set_up(
    deps: &ServerDeps,
    chain: &Arc<Chain>,
    server: &str,
    clock: &Clock,
) -> Result<Option<WatchedFiles>, SetupError> {
    let config = &deps.config;
    let jwt = &config.authentication.jwt;
    let disallowed = &config.service_accounts.issuers;
    let Loaded {
        configuration,
        mappers,
        file,
    } = load(jwt, disallowed)?;
    let anonymous = anonymous(config, configuration.anonymous.as_ref())?;
    let algorithms = &jwt.signing_algorithms;
    let authenticators = JwtAuthenticators::start(
        &configuration,
        mappers,
        algorithms,
        &deps.egress,
        clock,
        server,
    )
    .map_err(SetupError::Configuration)?;
    chain.change(|options| {
        options.jwt = Some(Arc::new(authenticators));
        options.anonymous = anonymous;
        Ok::<_, SetupError>(())
    })?;
    let follower = Follower {
        chain: chain.clone(),
        issuers: Mutex::new(issuers(&configuration)),
        anonymous: configuration.anonymous,
        disallowed: disallowed.clone(),
        algorithms: algorithms.clone(),
        server: server.to_owned(),
        egress: deps.egress.clone(),
        clock: clock.clone(),
        pending: Mutex::default(),
    };
    Ok(file.map(|file| watch(&file, follower)))
}

/// The anonymous requests that are let in: as the file says, or else the flags.
fn anonymous(config: &Config, file: Option<&Anonymous>) -> Result<Anonymous, SetupError> {
    let flags = &config.authentication;
    if let Some(file) = file {
        if flags.anonymous_is_given {
            let why = "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
            return Err(SetupError::Configuration(format!(
                "anonymous: Forbidden: {why}"
            )));
        }
        return Ok(file.clone());
    }
    // Nobody in particular must not be allowed everything.
    let open = config
        .authorization
        .from_flags
        .has(AuthorizerType::AlwaysAllow);
    if flags.anonymous && open {
        tracing::warn!(
            "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should use a different authorizer"
        );
    }
    Ok(match flags.anonymous && !open {
        true => Anonymous::everywhere(),
        false => Anonymous::default(),
    })
}

/// Reads the configuration of the file, or of the flags that stand for one. `disallowed` are the
/// issuers of service account tokens.
fn load(config: &Jwt, disallowed: &[String]) -> Result<Loaded, SetupError> {
    let (configuration, file) = match &config.file {
        Some(path) => {
            let content = CredentialFile::of_flag("authentication-config", path).read()?;
            let configuration = Configuration::parse(&content.bytes).map_err(|why| {
                let file = go::quote(&path.display().to_string());
                SetupError::Configuration(format!(
                    "failed to load authentication configuration from file {file}: {why}"
                ))
            })?;
            (configuration, Some(content))
        }
        None => (of_flags(config)?, None),
    };
    let mappers = validation::validate(&configuration, disallowed).map_err(|errors| {
        let why = texts(&errors);
        SetupError::Configuration(format!("invalid authentication configuration: {why}"))
    })?;
    Ok(Loaded {
        configuration,
        mappers,
        file,
    })
}

fn of_flags(config: &Jwt) -> Result<Configuration, SetupError> {
    let mut configuration = config.from_flags.clone();
    if let (Some(path), Some(one)) = (&config.ca_file, configuration.jwt.first_mut()) {
        let content = CredentialFile::of_flag("oidc-ca-file", path).read()?;
        content
            .text()?
            .clone_into(&mut one.issuer.certificate_authority);
    }
    Ok(configuration)
}

fn texts(errors: &ErrorList) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    aggregate(&texts)
}

/// The facts that stay while a file is followed.
struct Follower {
    chain: Arc<Chain>,
    anonymous: Option<Anonymous>,
    disallowed: Vec<String>,
    algorithms: Vec<String>,
    server: String,
    egress: Egress,
    clock: Clock,
    issuers: Mutex<Vec<String>>,
    /// The configuration whose issuers are not ready yet.
    pending: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Follows the file: what changes in it counts as soon as the keys of its issuers are known.
fn watch(file: &FileContent, follower: Follower) -> WatchedFiles {
    RELOADS.loaded(&follower.server, &file.bytes);
    let failing = follower.server.clone();
    let follower = Arc::new(follower);
    let watched = WatchedFiles::new(std::slice::from_ref(file), move |contents| {
        contents
            .first()
            .map_or(Ok(()), |content| follower.apply(&content.bytes))
    });
    watched.on_failure(move || RELOADS.failed(&failing))
}

fn issuers(configuration: &Configuration) -> Vec<String> {
    let jwt = configuration.jwt.iter();
    jwt.map(|one| one.issuer.url.clone()).collect()
}

impl Follower {
    /// Checks a configuration, and begins to look for the keys of its issuers.
    fn apply(self: &Arc<Self>, bytes: &[u8]) -> Result<(), String> {
        let configuration = Configuration::parse(bytes)?;
        let validated = validation::validate(&configuration, &self.disallowed);
        let mut errors = validated.as_ref().err().cloned().unwrap_or_default();
        if configuration.anonymous != self.anonymous {
            let why = "changed from initial configuration file";
            errors.forbidden(&Path::new("anonymous"), why);
        }
        let mappers = match validated {
            Ok(mappers) if errors.is_empty() => mappers,
            _ => return Err(texts(&errors)),
        };
        let authenticators = JwtAuthenticators::start(
            &configuration,
            mappers,
            &self.algorithms,
            &self.egress,
            &self.clock,
            &self.server,
        )?;
        let (follower, bytes) = (self.clone(), bytes.to_vec());
        let task = Handle::current().spawn(async move {
            let authenticators = Arc::new(authenticators);
            while let Err(why) = authenticators.ready(READY_TIMEOUT).await {
                tracing::error!("failed to update authentication config: {why}");
                RELOADS.failed(&follower.server);
            }
            follower.take(authenticators, &configuration, &bytes);
        });
        *self.pending.lock() = Some(AbortOnDropHandle::new(task));
        Ok(())
    }

    fn take(
        &self,
        authenticators: Arc<JwtAuthenticators>,
        configuration: &Configuration,
        bytes: &[u8],
    ) {
        let changed = self.chain.change(|options| {
            options.jwt = Some(authenticators);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = changed;
        tracing::info!("reloaded authentication config");
        RELOADS.succeeded(&self.server, bytes);
        let new = issuers(configuration);
        let old = std::mem::replace(&mut *self.issuers.lock(), new.clone());
        for gone in old.iter().filter(|issuer| !new.contains(issuer)) {
            forget(gone, &self.server);
        }
    }
}
