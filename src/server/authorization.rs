//! Assembly of the authorizers that the configuration asks for.

use std::sync::Arc;

use super::build::BuildError;
use super::reload::WatchedFiles;
use crate::auth::authz::abac::PolicyList;
use crate::auth::authz::configuration::{AuthorizerType, Configuration};
use crate::auth::authz::node::{NodeAuthorizer, NodeGraph};
use crate::auth::authz::{Persistent, RbacStore, ReloadableAuthorizer};
use crate::base::clock::Clock;
use crate::base::dial::{Egress, Network};
use crate::controlplane::bootstrap;
use crate::controlplane::event_handlers::watch_node_graph;
use crate::controlplane::informer::Informers;
use crate::options::authorization as options;
use crate::options::credential_files::{CertError, CredentialFile, FileContent};
use crate::registry::Registry;
use crate::telemetry::config_reloads::ConfigReloads;
use crate::telemetry::metrics::Declared;

static RELOADS: ConfigReloads = ConfigReloads::new(
    (
        "apiserver_authorization_config_controller_automatic_reloads_total",
        "[BETA] Total number of automatic reloads of authorization configuration split by status and apiserver identity.",
    ),
    (
        "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
        "[BETA] Timestamp of the last automatic reload of authorization configuration split by status and apiserver identity.",
    ),
    (
        "apiserver_authorization_config_controller_last_config_info",
        "[ALPHA] Information about the last applied authorization configuration with hash as label, split by apiserver identity.",
    ),
);
pub static METRICS: [&dyn Declared; 3] = RELOADS.metrics();

/// The authorization of a server.
pub struct Authorization {
    pub authorizer: Arc<ReloadableAuthorizer>,
    /// The configuration file, where there is one.
    pub watched: Option<WatchedFiles>,
}

/// A configuration, and the file that it comes from.
struct Loaded {
    configuration: Configuration,
    file: Option<FileContent>,
}

fn load(config: &options::Authorization) -> Result<Loaded, CertError> {
    let Some(path) = &config.file else {
        return Ok(Loaded {
            configuration: config.from_flags.clone(),
            file: None,
        });
    };
    let content = CredentialFile::of_flag("authorization-config", path).read()?;
    let configuration = Configuration::parse(&content.bytes, &[]);
    Ok(Loaded {
        configuration: configuration.map_err(|why| content.file.error(why))?,
        file: Some(content),
    })
}

fn policies(config: &options::Authorization) -> Result<PolicyList, CertError> {
    let path = config.policy_file.clone().unwrap_or_default();
    let content = CredentialFile::of_flag("authorization-policy-file", &path).read()?;
    let parsed = PolicyList::parse(content.text()?, &path.display().to_string());
    parsed.map_err(|why| content.file.error(why))
}

/// Sets up the authorizers; `rbac` and what the node authorizer knows follow the informers.
/// `server` is the identity under which metrics name this server.
///
/// # Errors
/// Files that cannot be read or understood, and the store's.
pub async fn build(
    config: &options::Authorization,
    egress: &Egress,
    registry: &Registry,
    rbac: &Arc<RbacStore>,
    informers: &Informers,
    server: &str,
) -> Result<Authorization, BuildError> {
    let Loaded {
        configuration,
        file,
    } = load(config)?;
    let mut persistent = Persistent {
        webhooks: egress.dialer(Network::ControlPlane),
        ..Persistent::default()
    };
    if configuration.has(AuthorizerType::Rbac) {
        persistent.rbac = Some(rbac.clone());
    }
    if configuration.has(AuthorizerType::Abac) {
        persistent.abac = Some(Arc::new(policies(config)?));
    }
    if configuration.has(AuthorizerType::Node) {
        let graph = Arc::new(NodeGraph::default());
        watch_node_graph(registry, &graph, informers).await?;
        let node = NodeAuthorizer::new(graph, bootstrap::node_rules());
        persistent.node = Some(Arc::new(node));
    }
    let authorizer = ReloadableAuthorizer::new(configuration, persistent, Clock::system());
    let authorizer = Arc::new(authorizer.map_err(BuildError::Authorization)?);
    let watched = file.map(|file| watch(&file, &authorizer, server));
    Ok(Authorization {
        authorizer,
        watched,
    })
}

/// Follows the configuration file.
fn watch(file: &FileContent, authorizer: &Arc<ReloadableAuthorizer>, server: &str) -> WatchedFiles {
    RELOADS.loaded(server, &file.bytes);
    let (authorizer, server) = (authorizer.clone(), server.to_owned());
    let failing = server.clone();
    let read = std::slice::from_ref(file);
    WatchedFiles::new(read, move |contents| {
        let Some(content) = contents.first() else {
            return Ok(());
        };
        if authorizer.reload(&content.bytes)? {
            RELOADS.succeeded(&server, &content.bytes);
        }
        Ok::<_, String>(())
    })
    .on_failure(move || RELOADS.failed(&failing))
}
