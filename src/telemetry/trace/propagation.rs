//! The contexts of spans in headers, as W3C has them: `traceparent`, `tracestate` and `baggage`.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{
    Extractor, Injector, TextMapCompositePropagator, TextMapPropagator,
};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

use super::CURRENT;

/// The header that a context is in.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

static PROPAGATOR: LazyLock<TextMapCompositePropagator> = LazyLock::new(|| {
    TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ])
});

/// Returns the context that a client sent; `None` for none that is valid.
pub fn extract(headers: &HeaderMap) -> Option<Context> {
    headers.get(&TRACEPARENT)?;
    let context = PROPAGATOR.extract_with_context(&Context::new(), &Given(headers));
    let is_valid = context.span().span_context().is_valid();
    is_valid.then_some(context)
}

/// Adds the context of the task's span to the headers of a request to another server.
pub fn inject(headers: &mut HeaderMap) {
    let _ = CURRENT.try_with(|current| {
        if let Some(active) = &current.active {
            inject_context(&active.context, headers);
        }
    });
}

pub(super) fn inject_context(context: &Context, headers: &mut HeaderMap) {
    PROPAGATOR.inject_context(context, &mut Taken(headers));
}

struct Given<'a>(&'a HeaderMap);

impl Extractor for Given<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Taken<'a>(&'a mut HeaderMap);

impl Injector for Taken<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::try_from(key);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            // An empty one says nothing.
            match value.is_empty() {
                true => self.0.remove(name),
                false => self.0.insert(name, value),
            };
        }
    }
}
