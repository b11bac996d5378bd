//! Backends: they take the events of requests, at once or later.

use async_trait::async_trait;
use futures::future::{BoxFuture, join_all};

use super::event::Event;

/// The outcome of handing over an event: whether it is stored, or will be for all one knows.
pub enum Outcome {
    Done(bool),
    Waiting(BoxFuture<'static, bool>),
}

impl Outcome {
    /// Waits until it is known.
    pub async fn wait(self) -> bool {
        match self {
            Self::Done(stored) => stored,
            Self::Waiting(stored) => stored.await,
        }
    }
}

/// A taker of events.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Takes an event. It is false that comes of a failure for which the request is to be refused.
    fn process(&self, event: &Event) -> Outcome;

    /// Hands over what is left when the server ends.
    async fn shut_down(&self);

    /// The name of the backend, with those that it wraps, for the log.
    fn name(&self) -> String;
}

/// A writer of batches of events. It counts and logs what it cannot write.
#[async_trait]
pub trait Exporter: Send + Sync {
    /// Writes the events. Reports whether it could.
    async fn export(&self, events: Vec<Event>) -> bool;

    /// [`Exporter::export`] for one event, where that takes no time; `None` otherwise.
    fn export_now(&self, event: &Event) -> Option<bool>;

    fn name(&self) -> &'static str;
}

/// A strategy for handing over events (`--audit-log-mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Events are collected, and written later.
    Batch,
    /// Requests wait until their events are written.
    Blocking,
    /// And are refused if that fails before they begin.
    BlockingStrict,
}

impl Mode {
    /// Returns the mode of that name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "batch" => Some(Self::Batch),
            "blocking" => Some(Self::Blocking),
            "blocking-strict" => Some(Self::BlockingStrict),
            _ => None,
        }
    }
}

/// A backend that writes each event before its request goes on.
pub struct Blocking<E> {
    exporter: std::sync::Arc<E>,
    strict: bool,
}

impl<E: Exporter + 'static> Blocking<E> {
    /// Requests are refused for failures if `strict`.
    pub fn new(exporter: E, strict: bool) -> Self {
        Self {
            exporter: std::sync::Arc::new(exporter),
            strict,
        }
    }
}

#[async_trait]
impl<E: Exporter + 'static> Backend for Blocking<E> {
    fn process(&self, event: &Event) -> Outcome {
        let strict = self.strict;
        if let Some(stored) = self.exporter.export_now(event) {
            return Outcome::Done(stored || !strict);
        }
        let (exporter, event) = (self.exporter.clone(), event.clone());
        Outcome::Waiting(Box::pin(async move {
            exporter.export(vec![event]).await || !strict
        }))
    }

    async fn shut_down(&self) {}

    fn name(&self) -> String {
        match self.strict {
            true => self.exporter.name().to_owned(),
            false => format!("ignoreErrors<{}>", self.exporter.name()),
        }
    }
}

/// Several backends, each of which gets every event.
pub struct Union(Vec<Box<dyn Backend>>);

impl Union {
    /// Joins backends; `None` without any.
    pub fn of(mut backends: Vec<Box<dyn Backend>>) -> Option<Box<dyn Backend>> {
        match backends.len() {
            0 | 1 => backends.pop(),
            _ => Some(Box::new(Self(backends))),
        }
    }
}

#[async_trait]
impl Backend for Union {
    fn process(&self, event: &Event) -> Outcome {
        let (mut stored, mut waiting) = (true, Vec::new());
        for backend in &self.0 {
            match backend.process(event) {
                Outcome::Done(done) => stored &= done,
                Outcome::Waiting(future) => waiting.push(future),
            }
        }
        if waiting.is_empty() {
            return Outcome::Done(stored);
        }
        Outcome::Waiting(Box::pin(async move {
            join_all(waiting).await.into_iter().all(|done| done) && stored
        }))
    }

    async fn shut_down(&self) {
        join_all(self.0.iter().map(|backend| backend.shut_down())).await;
    }

    fn name(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|backend| backend.name()).collect();
        format!("union[{}]", names.join(","))
    }
}
