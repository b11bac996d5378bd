//! A span, and the future that runs in it.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanBuilder, Status, TraceContextExt};
use pin_project_lite::pin_project;

use super::slow::SlowTrace;
use super::{CURRENT, Current, logs_slow};

/// A part of a request. Dropping it ends it.
#[derive(Debug)]
pub struct Span {
    current: Current,
    /// The time from which on it is logged, if it is one for the log.
    threshold: Option<Duration>,
}

impl Span {
    /// Begins a span below that of the task; `None` where neither the log nor a sampler wants it.
    pub(super) fn start(
        name: &'static str,
        threshold: Duration,
        attributes: Vec<KeyValue>,
    ) -> Option<Self> {
        let current = Current::get();
        let logs = logs_slow();
        let sampled = current
            .active
            .as_ref()
            .filter(|active| active.is_recording());
        if !logs && sampled.is_none() {
            return None;
        }
        let slow = logs.then(|| SlowTrace::begin(current.slow.as_ref(), name, attributes.clone()));
        let active = match sampled {
            Some(parent) => {
                Some(parent.child(SpanBuilder::from_name(name).with_attributes(attributes)))
            }
            None => current.active,
        };
        let is_logged = slow.is_some();
        Some(Self {
            current: Current { active, slow },
            threshold: is_logged.then_some(threshold),
        })
    }

    /// A span that the log does not know.
    pub(super) fn of(current: Current) -> Self {
        Self {
            current,
            threshold: None,
        }
    }

    pub(super) fn current(&self) -> &Current {
        &self.current
    }

    /// Sets attributes that are known only now.
    pub fn set_attributes(&self, attributes: impl IntoIterator<Item = KeyValue>) {
        if let Some(active) = &self.current.active {
            active.context.span().set_attributes(attributes);
        }
    }

    /// Sets the code of the answer to a request that this server made.
    pub fn answered(&self, code: http::StatusCode) {
        let value = i64::from(code.as_u16());
        self.set_attributes([KeyValue::new("http.response.status_code", value)]);
        if value >= 400 {
            self.fail("");
        }
    }

    /// Marks it as failed; what it is that failed may be left out.
    pub fn fail(&self, why: impl Into<Cow<'static, str>>) {
        if let Some(active) = &self.current.active {
            active.context.span().set_status(Status::error(why));
        }
    }

    /// Returns what runs a future in the span, which others keep.
    pub fn scope(&self) -> Scope {
        Scope(self.current.clone())
    }

    /// Adds the context of the span to the headers of a request to another server.
    pub fn inject(&self, headers: &mut http::HeaderMap) {
        if let Some(active) = &self.current.active {
            super::propagation::inject_context(&active.context, headers);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(active) = &self.current.active {
            active.context.span().end();
        }
        if let (Some(slow), Some(threshold)) = (&self.current.slow, self.threshold) {
            slow.end(threshold);
        }
    }
}

/// The inside of a span.
#[derive(Debug)]
pub struct Scope(Current);

impl Scope {
    /// Runs a future in the span.
    pub fn run<F: Future>(self, work: F) -> InSpan<F> {
        InSpan {
            work,
            inside: Some(Box::new(Inside::Scope(self.0))),
        }
    }
}

/// The span that a future runs in.
#[derive(Debug)]
enum Inside {
    /// It ends with the future.
    Span(Span),
    /// Others keep it.
    Scope(Current),
}

pin_project! {
    /// A future that runs in a span, which ends with it.
    pub struct InSpan<F> {
        #[pin]
        work: F,
        // Apart: most futures of a server without traces have none.
        inside: Option<Box<Inside>>,
    }
}

impl<F> InSpan<F> {
    pub(super) fn new(work: F, span: Option<Span>) -> Self {
        Self {
            work,
            inside: span.map(|span| Box::new(Inside::Span(span))),
        }
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let current = match this.inside.as_deref() {
            None => return this.work.poll(cx),
            Some(Inside::Span(span)) => span.current.clone(),
            Some(Inside::Scope(current)) => current.clone(),
        };
        let polled = CURRENT.sync_scope(current, || this.work.poll(cx));
        if polled.is_ready() {
            *this.inside = None;
        }
        polled
    }
}
