//! The client of webhooks: it posts a review to an HTTPS server and reads the answer (apiserver
//! `util/webhook`, client-go `rest`).
//!
//! Connections are kept and used again. As upstream, HTTP/2 is offered to servers on this machine
//! only, because its one connection would send all requests to the same one of a Service's pods.

mod auth_info;
mod call_error;
pub mod connector;
mod endpoint;
mod fetcher;
mod kubeconfig;
pub mod metrics;
mod proxy;
mod remote;
mod service;
pub mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_rustls::TlsConnector;

pub use auth_info::{AuthInfo, AuthInfos};
pub use call_error::CallError;
pub use fetcher::{Fetched, Fetcher};
pub use kubeconfig::KubeConfig;
pub use remote::{Expected, Remote, RetryDelays};
#[cfg(test)]
pub use service::NoServices;
pub use service::{ServiceResolver, cluster_address, endpoint_address};

use crate::base::dial::{Dial, Network};
use crate::meta::go::{self, url};
use crate::meta::{Value, i64_at, str_at, value_at};
use connector::{Connector, HTTP_1_1, HTTP_2, Proxy};
use endpoint::Endpoint;
use proxy::{Proxies, is_local};

/// The webhooks to which connections are kept (apiserver `defaultCacheSize`).
const MAX_ENDPOINTS: u64 = 200;
/// The time after which a webhook's certificates and credentials are read again (client-go
/// `CertCallbackRefreshDuration`).
const ENDPOINT_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// The client's name.
const AGENT: &str = "kube-apiserver-admission";

/// A port of a Service, and the path of its webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
    pub path: String,
}

impl ServiceReference {
    /// Returns the host by which the Service is asked.
    fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// The place of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Url(String),
    Service(ServiceReference),
    /// It says neither.
    Nowhere,
}

/// The place of a webhook and whom to trust there (`WebhookClientConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    pub place: Place,
    /// PEM certificates; the system's count where it is empty.
    pub ca_bundle: Vec<u8>,
}

impl ClientConfig {
    /// Reads a `clientConfig`.
    pub fn read(value: &Value) -> Self {
        let service = value_at(value, "/service").filter(|service| service.is_object());
        let place = match (service, str_at(value, "/url")) {
            (Some(service), _) => Place::Service(ServiceReference {
                namespace: str_at(service, "/namespace").to_owned(),
                name: str_at(service, "/name").to_owned(),
                port: i64_at(service, "/port")
                    .and_then(|port| u16::try_from(port).ok())
                    .filter(|port| *port != 0)
                    .unwrap_or(443),
                path: str_at(service, "/path").to_owned(),
            }),
            (None, "") => Place::Nowhere,
            (None, url) => Place::Url(url.to_owned()),
        };
        Self {
            place,
            ca_bundle: go::base64::decode(str_at(value, "/caBundle")),
        }
    }
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time until the whole answer is there. The webhook is told of it.
    pub timeout: Duration,
    pub answer_bytes: usize,
}

/// An error of a call, with upstream's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The webhook cannot be called as it is configured.
    #[error("{0}")]
    Configuration(String),
    /// It did not answer, or not with what it should have.
    #[error(transparent)]
    Call(CallError),
}

/// The client. Its copies share their connections.
#[derive(Clone)]
pub struct Client {
    auth: Arc<AuthInfos>,
    services: Arc<dyn ServiceResolver>,
    proxies: Arc<Proxies>,
    endpoints: moka::sync::Cache<ClientConfig, Arc<Endpoint>>,
}

impl Client {
    /// Returns a client that presents some credentials.
    pub fn new(auth: AuthInfos, services: Arc<dyn ServiceResolver>) -> Self {
        Self {
            auth: Arc::new(auth),
            services,
            proxies: Arc::new(Proxies::from_env()),
            endpoints: moka::sync::Cache::builder()
                .max_capacity(MAX_ENDPOINTS)
                .time_to_live(ENDPOINT_LIFETIME)
                .build(),
        }
    }

    /// Posts a JSON document to a webhook; returns the JSON object that it answers with, which has
    /// a kind and an apiVersion. Dropping the future ends the request.
    ///
    /// # Errors
    /// Those of [`WebhookError`].
    pub async fn post(
        &self,
        config: &ClientConfig,
        body: Bytes,
        limits: Limits,
    ) -> Result<Value, WebhookError> {
        let endpoint = self
            .endpoints
            .try_get_with_by_ref(config, || self.open(config).map(Arc::new))
            .map_err(|why| WebhookError::Configuration((*why).clone()))?;
        let query = format!("?timeout={}", seconds(limits.timeout));
        let answer = endpoint.post(&query, body, limits, None).await;
        answer.map_err(WebhookError::Call)
    }

    fn open(&self, config: &ClientConfig) -> Result<Endpoint, String> {
        let (host, port, path, service) = match &config.place {
            Place::Service(service) => {
                let of_service = Some((service.clone(), self.services.clone()));
                (
                    service.host(),
                    Some(service.port),
                    service.path.clone(),
                    of_service,
                )
            }
            Place::Url(text) => {
                let parsed = url::parse_request_uri(text);
                let parsed = parsed.map_err(|why| format!("Unparsable URL: {why}"))?;
                if parsed.scheme != "https" || parsed.host.is_empty() {
                    return Err(format!("unsupported URL {}", go::quote(text)));
                }
                (parsed.host, None, parsed.path, None)
            }
            Place::Nowhere => {
                return Err("webhook configuration must have either service or URL".to_owned());
            }
        };
        let host = match port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        let url = format!(
            "https://{host}{}",
            url::escape_path(&url::clean_path(&path))
        );
        let uri = http::Uri::try_from(&url).map_err(|why| format!("Unparsable URL: {why}"))?;
        let name = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let with_port = match uri.port() {
            Some(_) => host.clone(),
            None => format!("{host}:443"),
        };
        let auth = self.auth.of(&with_port).cloned();
        let cert = auth.as_ref().map(AuthInfo::client_cert).transpose()?;
        let protocols: &[&[u8]] = match service.is_none() && is_local(name) {
            true => &[HTTP_2, HTTP_1_1],
            false => &[HTTP_1_1],
        };
        let trust = match config.ca_bundle.is_empty() {
            true => tls::Trust::System,
            false => tls::Trust::Bundle(config.ca_bundle.clone()),
        };
        let tls = tls::client_config(&trust, cert.flatten().as_ref(), protocols)?;
        let connector = Connector {
            dialer: self.dialer(&config.place),
            server_name: service.as_ref().map(|(service, _)| service.host()),
            service,
            tls: TlsConnector::from(Arc::new(tls)),
            proxy: Proxy::FromEnvironment(self.proxies.clone()),
        };
        Ok(Endpoint::new(url, AGENT, auth, connector))
    }

    /// Returns the dialer of a place (apiserver `util/webhook/authentication.go`).
    fn dialer(&self, place: &Place) -> Option<Arc<dyn Dial>> {
        let network = match place {
            // This server itself.
            Place::Service(ServiceReference {
                namespace,
                name,
                port: 443,
                ..
            }) if (namespace.as_str(), name.as_str()) == ("default", "kubernetes") => return None,
            Place::Service(_) => Network::Cluster,
            Place::Url(_) | Place::Nowhere => Network::ControlPlane,
        };
        self.services.egress().dialer(network)
    }
}

/// A time in whole seconds, rounded up, as Go prints it.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
