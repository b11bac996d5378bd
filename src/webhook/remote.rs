//! The client of one remote service that a kubeconfig file describes (apiserver
//! `util/webhook.GenericWebhook`).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper_util::client::proxy::matcher::Matcher;
use parking_lot::Mutex;
use rand::RngExt;
use tokio_rustls::TlsConnector;

use super::connector::{Connector, HTTP_1_1, HTTP_2, Proxy};
use super::endpoint::Endpoint;
use super::kubeconfig::KubeConfig;
use super::proxy::Proxies;
use super::{AuthInfo, CallError, ENDPOINT_LIFETIME, Limits, tls};
use crate::base::blocking::run_blocking;
use crate::base::dial::Dial;
use crate::codec::json::TypeMeta;
use crate::meta::{Value, go};

/// The client's name.
const AGENT: &str = "kube-apiserver";
/// The attempts at a call that fails for a while (apiserver `DefaultAuthWebhookRetryBackoff`).
const ATTEMPTS: u32 = 5;
/// The usual delay before the second of them.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The factor by which each delay is longer than the one before.
const FACTOR: f64 = 1.5;
/// The part of a delay that is added to it at most, at random.
const JITTER: f64 = 0.2;
/// The size that an answer may have.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// The delays between the attempts of [`Remote::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelays(Duration);

impl RetryDelays {
    /// Delays of which the first is this one, and each is longer than the one before.
    pub fn starting_at(first: Duration) -> Self {
        Self(first)
    }
}

/// Returns a delay with something added to it at random.
fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(1.0 + rand::rng().random_range(0.0..JITTER))
}

/// The type of an answer, which it need not tell.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub api_version: &'static str,
    pub kind: &'static str,
}

impl Expected {
    /// Puts the type in where there is none.
    ///
    /// # Errors
    /// It is another.
    pub(super) fn check(self, meta: &mut TypeMeta) -> Result<(), String> {
        for (found, expected) in [
            (&mut meta.kind, self.kind),
            (&mut meta.api_version, self.api_version),
        ] {
            if found.is_empty() {
                expected.clone_into(found);
            }
        }
        if meta.kind == self.kind && meta.api_version == self.api_version {
            return Ok(());
        }
        Err(format!(
            "expected {} of {}, got {} of {}",
            self.kind,
            self.api_version,
            go::quote(&meta.kind),
            go::quote(&meta.api_version)
        ))
    }
}

/// The client. It keeps its connections, and reads certificates again after a while.
pub struct Remote {
    config: KubeConfig,
    timeout: Duration,
    /// The delay before the second attempt.
    first_delay: Duration,
    endpoint: Mutex<Option<(Instant, Arc<Endpoint>)>>,
    /// The dialer; `None` where connections are direct.
    dialer: Option<Arc<dyn Dial>>,
}

/// Shows no secrets.
impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    /// Returns the client of the service of a kubeconfig file, each of whose answers may take so
    /// long.
    ///
    /// # Errors
    /// A file, or one that it names, cannot be read or understood.
    pub fn read(path: &Path, timeout: Duration) -> Result<Self, String> {
        let remote = Self {
            config: KubeConfig::read(path)?,
            timeout,
            first_delay: FIRST_DELAY,
            endpoint: Mutex::default(),
            dialer: None,
        };
        let endpoint = Arc::new(remote.open()?);
        *remote.endpoint.lock() = Some((Instant::now(), endpoint));
        Ok(remote)
    }

    /// Connects as a dialer does.
    pub fn with_dialer(self, dialer: Option<Arc<dyn Dial>>) -> Self {
        if dialer.is_none() {
            return self;
        }
        Self {
            dialer,
            endpoint: Mutex::default(),
            ..self
        }
    }

    /// Changes the delay before the second attempt.
    pub fn with_first_delay(self, first_delay: Duration) -> Self {
        Self {
            first_delay,
            ..self
        }
    }

    /// Posts a document, and returns the answer; tries again where it may help. `attempted` is told
    /// of each attempt with its duration.
    ///
    /// # Errors
    /// The one of the last attempt.
    pub async fn post(
        &self,
        body: Bytes,
        expected: Expected,
        mut attempted: impl FnMut(&Result<Value, CallError>, Duration),
    ) -> Result<Value, CallError> {
        let mut delay = self.first_delay;
        let mut left = ATTEMPTS;
        loop {
            let start = Instant::now();
            let answer = self.attempt(body.clone(), expected).await;
            attempted(&answer, start.elapsed());
            left -= 1;
            match answer {
                Err(why) if why.transient && left > 0 => {
                    tokio::time::sleep(jittered(delay)).await;
                    delay = delay.mul_f64(FACTOR);
                }
                answer => return answer,
            }
        }
    }

    /// Posts a document to a service whose answer need not say anything. Whatever fails is tried
    /// again, in vain after [`ATTEMPTS`].
    ///
    /// # Errors
    /// The one of the last attempt.
    pub async fn deliver(&self, body: Bytes, delays: RetryDelays) -> Result<(), CallError> {
        let mut delay = delays.0;
        for _ in 1..ATTEMPTS {
            if self.deliver_once(body.clone()).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(jittered(delay)).await;
            delay = delay.mul_f64(FACTOR);
        }
        self.deliver_once(body).await
    }

    async fn deliver_once(&self, body: Bytes) -> Result<(), CallError> {
        let endpoint = self.endpoint().map_err(CallError::new)?;
        let (query, limits) = self.call();
        endpoint.deliver(&query, body, limits).await
    }

    /// Returns the query and the limits of a call.
    fn call(&self) -> (String, Limits) {
        let nanos = i64::try_from(self.timeout.as_nanos()).unwrap_or(i64::MAX);
        let limits = Limits {
            timeout: self.timeout,
            answer_bytes: MAX_ANSWER_BYTES,
        };
        (format!("?timeout={}", go::format_duration(nanos)), limits)
    }

    async fn attempt(&self, body: Bytes, expected: Expected) -> Result<Value, CallError> {
        let endpoint = self.endpoint().map_err(CallError::new)?;
        let (query, limits) = self.call();
        endpoint.post(&query, body, limits, Some(expected)).await
    }

    fn endpoint(&self) -> Result<Arc<Endpoint>, String> {
        let mut kept = self.endpoint.lock();
        if let Some((since, endpoint)) = &*kept
            && since.elapsed() < ENDPOINT_LIFETIME
        {
            return Ok(endpoint.clone());
        }
        let endpoint = Arc::new(run_blocking(|| self.open())?);
        *kept = Some((Instant::now(), endpoint.clone()));
        Ok(endpoint)
    }

    fn open(&self) -> Result<Endpoint, String> {
        let config = &self.config;
        let ca = config.ca.as_ref().map(|ca| ca.read()).transpose()?;
        let cert = config.user.client_cert()?;
        let protocols: &[&[u8]] = &[HTTP_2, HTTP_1_1];
        let trust = match (config.insecure, ca) {
            (true, _) => tls::Trust::All,
            (false, Some(ca)) => tls::Trust::Bundle(ca),
            (false, None) => tls::Trust::System,
        };
        let tls = tls::client_config(&trust, cert.as_ref(), protocols)?;
        let proxy = match &config.proxy {
            None => Proxy::FromEnvironment(Arc::new(Proxies::from_env())),
            Some(url) => Proxy::Always(Arc::new(Matcher::builder().all(url.as_str()).build())),
        };
        let connector = Connector {
            service: None,
            server_name: config.server_name.clone(),
            tls: TlsConnector::from(Arc::new(tls)),
            proxy,
            dialer: self.dialer.clone(),
        };
        let auth: AuthInfo = config.user.clone();
        Ok(Endpoint::new(
            config.server.clone(),
            AGENT,
            Some(auth),
            connector,
        ))
    }
}
