//! The provider of spans: it samples, and sends to a collector in the background (component-base
//! `tracing/utils.go`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter, WithTonicConfig,
};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData,
};
use opentelemetry_sdk::{Resource, trace as sdk};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use super::{HAS_SPANS, Tracer};
use crate::base::dial::Dial;
use crate::base::supervise::FailureTracker;

/// The name of this server among others (apiserver `server/options/tracing.go`).
const SERVICE: &str = "apiserver";
/// The scope of the spans.
const SCOPE: &str = "k8s.io/component-base/tracing";
/// The spans that wait for the collector; more are dropped.
const MAX_QUEUED: usize = 2048;
/// The spans that are sent at once.
const MAX_BATCH: usize = 512;
/// The longest that a span waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(5);
/// The time that the collector has for a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that is left for the last spans when the server ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The place of a collector that nobody names.
const DEFAULT_ADDRESS: &str = "localhost:4317";

/// The place of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collector {
    /// A host and a port.
    Address(String),
    Socket(PathBuf),
    /// A socket with a name but no file.
    AbstractSocket(String),
}

/// The settings of the spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `None` for what the environment says, else the default port of this machine.
    pub collector: Option<Collector>,
    /// The requests of a million that are sampled although no client asks for it.
    pub per_million: u32,
}

/// The maker and sender of spans.
#[derive(Debug)]
pub struct Provider {
    sdk: SdkTracerProvider,
}

impl Provider {
    /// Begins to send spans, directly or as a dialer connects. To be called within the runtime; the
    /// collector need not be there.
    ///
    /// # Errors
    /// The place of the collector cannot be understood.
    pub fn start(
        settings: &Settings,
        instance: &str,
        dialer: Option<Arc<dyn Dial>>,
    ) -> Result<Self, String> {
        let mut builder = SpanExporter::builder().with_tonic();
        // What makes the connection itself does not know the environment.
        let from_environment = || dialer.is_some().then(environment_address);
        let collector = settings.collector.clone().or_else(from_environment);
        if let Some(collector) = &collector {
            builder = builder.with_channel(channel(collector, dialer)?);
        }
        let exporter = Exporter {
            to: Arc::new(builder.build().map_err(|why| why.to_string())?),
            runtime: Handle::current(),
            sending: Arc::new(FailureTracker::new("sending spans to the collector")),
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED)
            .with_max_export_batch_size(MAX_BATCH)
            .with_scheduled_delay(BATCH_DELAY)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let root = match settings.per_million {
            0 => Sampler::AlwaysOff,
            rate => Sampler::TraceIdRatioBased(f64::from(rate) / 1e6),
        };
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", SERVICE),
            KeyValue::new("service.instance.id", instance.to_owned()),
        ]);
        let sdk = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(root)))
            .with_span_processor(processor)
            .with_resource(resource.build())
            .build();
        HAS_SPANS.store(true, Ordering::Relaxed);
        Ok(Self { sdk })
    }

    /// Returns the maker of spans.
    pub fn tracer(&self) -> Tracer {
        Tracer(Some(self.sdk.tracer(SCOPE)))
    }

    /// Sends what is left, in a bounded time.
    pub async fn shut_down(self) {
        let flushed =
            tokio::task::spawn_blocking(move || self.sdk.shutdown_with_timeout(FLUSH_TIMEOUT));
        if let Ok(Err(why)) = flushed.await {
            tracing::warn!("the last spans were not sent: {why}");
        }
    }
}

/// Returns the collector that the environment names, or this machine's.
fn environment_address() -> Collector {
    let names = [
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
        OTEL_EXPORTER_OTLP_ENDPOINT,
    ];
    let named = names.into_iter().find_map(|name| std::env::var(name).ok());
    let address = named.as_deref().unwrap_or(DEFAULT_ADDRESS);
    let (_, address) = address.split_once("://").unwrap_or(("", address));
    let (address, _) = address.split_once('/').unwrap_or((address, ""));
    Collector::Address(address.to_owned())
}

/// Returns the connection to a collector, which comes up when it is needed. Sockets are of this
/// machine, and need no dialer.
fn channel(collector: &Collector, dialer: Option<Arc<dyn Dial>>) -> Result<Channel, String> {
    let at = |uri: String| {
        let endpoint = Endpoint::from_shared(uri).map_err(|why| why.to_string())?;
        Ok::<_, String>(endpoint.connect_timeout(CONNECT_TIMEOUT))
    };
    let connect = |path: PathBuf| {
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // Its name is not looked up.
        Ok(at("http://localhost".to_owned())?.connect_with_connector_lazy(connector))
    };
    match collector {
        Collector::Address(address) => {
            let endpoint = at(format!("http://{address}"))?;
            let Some(dialer) = dialer else {
                return Ok(endpoint.connect_lazy());
            };
            let address = address.clone();
            let connector = tower::service_fn(move |_| {
                let (dialer, address) = (dialer.clone(), address.clone());
                async move { dialer.dial(&address).await.map(TokioIo::new) }
            });
            Ok(endpoint.connect_with_connector_lazy(connector))
        }
        Collector::Socket(path) => connect(path.clone()),
        Collector::AbstractSocket(name) => connect(PathBuf::from(format!("\0{name}"))),
    }
}

/// The sender of batches. Its runtime is the server's, so that a collector that hangs does so
/// beside everything else.
#[derive(Debug)]
struct Exporter {
    to: Arc<SpanExporter>,
    runtime: Handle,
    sending: Arc<FailureTracker>,
}

impl sdk::SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let to = self.to.clone();
        let sent = self
            .runtime
            .spawn(async move { timeout(EXPORT_TIMEOUT, to.export(batch)).await });
        let outcome = match sent.await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(OTelSdkError::Timeout(EXPORT_TIMEOUT)),
            Err(why) => Err(OTelSdkError::InternalFailure(why.to_string())),
        };
        match &outcome {
            Ok(()) => self.sending.record_success(),
            Err(why) => self.sending.record_failure(&why.to_string()),
        }
        outcome
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(to) = Arc::get_mut(&mut self.to) {
            sdk::SpanExporter::set_resource(to, resource);
        }
    }
}
