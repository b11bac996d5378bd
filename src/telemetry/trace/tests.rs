//! Tests of spans: parents, sampling, contexts.

use std::sync::Arc;

use opentelemetry::Value;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use parking_lot::Mutex;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The spans that have ended.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

/// A provider that keeps the spans, and samples those of clients that sample.
fn provider() -> (Tracer, Kept) {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(kept.clone())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
        .build();
    HAS_SPANS.store(true, Ordering::Relaxed);
    // The tracer keeps its provider.
    (Tracer(Some(provider.tracer("test"))), kept)
}

fn sent(flags: &str) -> http::HeaderMap {
    let value = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
    http::HeaderMap::from_iter([(
        http::HeaderName::from_static("traceparent"),
        value.parse().expect("a value"),
    )])
}

fn request(flags: &str, is_trusted: bool) -> ServerRequest {
    ServerRequest {
        name: "POST /api/v1/pods".to_owned(),
        received: Instant::now(),
        remote: extract(&sent(flags)),
        is_trusted,
        attributes: Vec::new(),
    }
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    spans.iter().find(|span| span.name == name).expect(name)
}

#[tokio::test]
async fn spans_lie_within_those_of_a_trusted_client() {
    let (tracer, kept) = provider();
    let span = tracer.server_span(request("01", true));
    let injected = span
        .scope()
        .run(async {
            in_span("Create", SLOW, || vec![KeyValue::new("name", "a")], async {
                step("About to store object in database");
                let call = client_span("HTTP POST".to_owned(), Vec::new).expect("a span");
                let mut headers = http::HeaderMap::new();
                call.inject(&mut headers);
                headers
            })
            .await
        })
        .await;
    drop(span);
    let spans = kept.0.lock().clone();
    let (call, create, server) = (
        named(&spans, "HTTP POST"),
        named(&spans, "Create"),
        named(&spans, "POST /api/v1/pods"),
    );
    assert_eq!(server.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!(create.parent_span_id, server.span_context.span_id());
    assert_eq!(call.parent_span_id, create.span_context.span_id());
    assert_eq!(create.attributes[0].value, Value::from("a"));
    assert_eq!(create.events[0].name, "About to store object in database");
    let wanted = format!("00-{TRACE}-{}-01", call.span_context.span_id());
    assert_eq!(injected["traceparent"], *wanted);
}

#[tokio::test]
async fn clients_that_are_not_trusted_get_nothing_sampled() {
    let (tracer, kept) = provider();
    for (flags, is_trusted) in [("01", false), ("00", true)] {
        let span = tracer.server_span(request(flags, is_trusted));
        let inside = async {
            assert!(client_span("HTTP GET".to_owned(), Vec::new).is_none());
            in_span("Get", SLOW, Vec::new, async {}).await;
        };
        span.scope().run(inside).await;
    }
    assert!(kept.0.lock().is_empty());
}

#[tokio::test]
async fn contexts_are_handed_on_without_a_provider() {
    let span = Tracer::default().server_span(request("01", false));
    let injected = span.scope().run(async {
        let mut headers = http::HeaderMap::new();
        inject(&mut headers);
        headers
    });
    assert_eq!(injected.await["traceparent"], sent("01")["traceparent"]);
    let mut none = http::HeaderMap::new();
    inject(&mut none);
    assert!(none.is_empty());
    for wrong in ["", "00-0-0-01", "zz"] {
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("traceparent"),
            wrong.parse().expect("a value"),
        )]);
        assert!(extract(&headers).is_none(), "{wrong}");
    }
}
