//! Traces: spans of OpenTelemetry for those that are sampled, and log lines of what is slow. Both
//! come of the same calls (component-base `tracing`).
//!
//! The span that is current is that of the task. Where nothing is traced, a call costs one branch.

mod exporter;
mod propagation;
mod slow;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Link, SpanBuilder, SpanKind, TraceContextExt, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

pub use exporter::{Collector, Provider, Settings};
pub use propagation::{extract, inject};
pub use span::{InSpan, Span};

use super::log;
use slow::SlowTrace;

/// The time from which on a request is slow (apiserver `endpoints/handlers`).
pub const SLOW: Duration = Duration::from_millis(500);
/// The time from which on it is slow to write an answer (`endpoints/handlers/responsewriters`).
pub const SLOW_ANSWER: Duration = Duration::from_secs(5);
/// klog's verbosity from which on slow requests are logged (`k8s.io/utils/trace`).
const SLOW_VERBOSITY: i64 = 2;
/// The longest text of a client in an attribute, in bytes.
const MAX_TEXT: usize = 2048;

/// True if there are spans.
static HAS_SPANS: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    /// The span of the task.
    static CURRENT: Current;
}

/// The maker of spans. Without a provider it only hands on the contexts of others.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<SdkTracer>);

/// A span of OpenTelemetry, with what its children are made with.
#[derive(Clone, Debug)]
struct Active {
    tracer: Tracer,
    context: Context,
}

/// The spans that what a task does next lies in.
#[derive(Clone, Debug, Default)]
struct Current {
    active: Option<Active>,
    slow: Option<Arc<SlowTrace>>,
}

impl Current {
    fn get() -> Self {
        CURRENT.try_with(Self::clone).unwrap_or_default()
    }

    /// A span for those who follow the request from outside, and not for the log.
    fn with_active(&self, active: Active) -> Self {
        Self {
            active: Some(active),
            slow: self.slow.clone(),
        }
    }
}

impl Active {
    fn is_recording(&self) -> bool {
        self.context.span().is_recording()
    }

    /// A span below this one.
    fn child(&self, builder: SpanBuilder) -> Self {
        let Some(tracer) = &self.tracer.0 else {
            return self.clone();
        };
        let span = tracer.build_with_context(builder, &self.context);
        Self {
            tracer: self.tracer.clone(),
            context: self.context.with_span(span),
        }
    }
}

/// Returns the maker of spans of a provider, or one without.
pub fn tracer(provider: Option<&Provider>) -> Tracer {
    provider.map(Provider::tracer).unwrap_or_default()
}

/// Reports whether anything may be traced.
pub fn is_active() -> bool {
    HAS_SPANS.load(Ordering::Relaxed) || logs_slow()
}

/// Reports whether what is slow is logged.
fn logs_slow() -> bool {
    log::verbosity() >= SLOW_VERBOSITY
}

/// Runs a part of a request in a span of its own, which is logged if it takes as long as the
/// threshold.
pub fn in_span<F: Future>(
    name: &'static str,
    threshold: Duration,
    attributes: impl FnOnce() -> Vec<KeyValue>,
    work: F,
) -> InSpan<F> {
    let span = is_active().then(|| Span::start(name, threshold, attributes()));
    InSpan::new(work, span.flatten())
}

/// [`in_span`] for work that does not wait.
pub fn in_span_sync<T>(
    name: &'static str,
    threshold: Duration,
    attributes: impl FnOnce() -> Vec<KeyValue>,
    work: impl FnOnce() -> T,
) -> T {
    let span = is_active().then(|| Span::start(name, threshold, attributes()));
    match span.flatten() {
        Some(span) => CURRENT.sync_scope(span.current().clone(), work),
        None => work(),
    }
}

/// Runs what a filter does, and what is behind it, in a span (apiserver `endpoints/filterlatency`).
/// The first of a request has no parent.
pub fn in_filter<F: Future>(tracer: &Tracer, name: Option<&'static str>, work: F) -> InSpan<F> {
    let span = name.filter(|_| tracer.0.is_some()).and_then(|name| {
        let current = Current::get();
        let parent = current.active.clone().unwrap_or_else(|| Active {
            tracer: tracer.clone(),
            context: Context::new(),
        });
        // What is not sampled has no spans below it.
        if current.active.is_some() && !parent.is_recording() {
            return None;
        }
        let active = parent.child(SpanBuilder::from_name(name));
        Some(Span::of(current.with_active(active)))
    });
    InSpan::new(work, span)
}

/// Adds a step to the span of the task.
pub fn event(name: &'static str, attributes: impl FnOnce() -> Vec<KeyValue>) {
    if !is_active() {
        return;
    }
    let _ = CURRENT.try_with(|current| {
        let attributes = attributes();
        if let Some(slow) = &current.slow {
            slow.step(name, attributes.clone());
        }
        if let Some(active) = &current.active {
            active.context.span().add_event(name, attributes);
        }
    });
}

/// Adds a step without attributes to the span of the task.
pub fn step(name: &'static str) {
    event(name, Vec::new);
}

/// The facts of a request that are known when its span begins.
#[derive(Debug)]
pub struct ServerRequest {
    pub name: String,
    pub received: Instant,
    /// The context that the client sent.
    pub remote: Option<Context>,
    /// True if the client may say what its request is a part of.
    pub is_trusted: bool,
    pub attributes: Vec<KeyValue>,
}

impl Tracer {
    /// Reports whether there is a provider, which may sample.
    pub fn has_provider(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the span of a request (otelhttp `handler`). It is below that of a trusted client; for
    /// others it is a new one that refers to theirs. Without a provider, nothing but the context of
    /// the client is handed on.
    pub fn server_span(&self, request: ServerRequest) -> Span {
        let current = Current::get();
        let Some(tracer) = &self.0 else {
            let active = request.remote.map(|context| Active {
                tracer: self.clone(),
                context,
            });
            return Span::of(Current { active, ..current });
        };
        let began = SystemTime::now() - request.received.elapsed();
        let mut builder = SpanBuilder::from_name(request.name)
            .with_kind(SpanKind::Server)
            .with_start_time(began)
            .with_attributes(request.attributes);
        let parent = match (request.is_trusted, request.remote) {
            (true, Some(remote)) => remote,
            (true, None) => current
                .active
                .as_ref()
                .map_or_else(Context::new, |active| active.context.clone()),
            (false, remote) => {
                if let Some(remote) = remote {
                    let linked = remote.span().span_context().clone();
                    builder = builder.with_links(vec![Link::with_context(linked)]);
                }
                Context::new()
            }
        };
        let span = tracer.build_with_context(builder, &parent);
        let active = Active {
            tracer: self.clone(),
            context: parent.with_span(span),
        };
        Span::of(current.with_active(active))
    }
}

/// Begins the span of a request to another server, below that of the task; `None` where nothing is
/// sampled.
pub fn client_span(name: String, attributes: impl FnOnce() -> Vec<KeyValue>) -> Option<Span> {
    let current = Current::get();
    let active = current
        .active
        .as_ref()
        .filter(|active| active.is_recording())?;
    let builder = SpanBuilder::from_name(name)
        .with_kind(SpanKind::Client)
        .with_attributes(attributes());
    let child = active.child(builder);
    Some(Span::of(current.with_active(child)))
}

/// Begins the span of an HTTP request (otelhttp `Transport`), and adds its context to the headers;
/// that of the task where nothing is sampled.
pub fn http_client_span(
    method: &http::Method,
    uri: &http::Uri,
    headers: &mut http::HeaderMap,
) -> Option<Span> {
    let span = client_span(format!("HTTP {}", truncated(method.as_str())), || {
        let host = uri.host().unwrap_or_default();
        let mut attributes = vec![
            KeyValue::new("http.request.method", truncated(method.as_str())),
            KeyValue::new("server.address", host.to_owned()),
            // Without the query, which may have secrets.
            KeyValue::new("url.path", truncated(uri.path())),
        ];
        if let Some(port) = uri.port_u16() {
            attributes.push(KeyValue::new("server.port", i64::from(port)));
        }
        attributes
    });
    match &span {
        Some(span) => span.inject(headers),
        None => inject(headers),
    }
    span
}

/// At most so much of a client's text as an attribute holds.
pub fn truncated(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_TEXT))
        .unwrap_or(text)
        .to_owned()
}

#[cfg(test)]
mod tests;
