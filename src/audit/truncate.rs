//! Events that are too large lose their objects, or are lost (apiserver
//! `plugin/pkg/audit/truncate`).

use async_trait::async_trait;

use super::backend::{Backend, Outcome};
use super::event::{Event, Level};
use super::metrics::record_failure;

const PLUGIN: &str = "truncate";
const ANNOTATION: &str = "audit.k8s.io/truncated";

/// The sizes from which events are truncated (`--audit-*-truncate-*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncateSettings {
    pub max_event_bytes: usize,
    /// The bytes of a batch. Requests hand over their events one by one, so none is larger.
    pub max_batch_bytes: usize,
}

/// A backend that hands on what is not too large.
pub struct Truncate {
    inner: Box<dyn Backend>,
    settings: TruncateSettings,
}

impl Truncate {
    pub fn new(inner: Box<dyn Backend>, settings: TruncateSettings) -> Self {
        Self { inner, settings }
    }
}

fn size(event: &Event) -> usize {
    let mut out = String::new();
    event.write_json(&mut out, true);
    out.len() + 1
}

#[async_trait]
impl Backend for Truncate {
    fn process(&self, event: &Event) -> Outcome {
        let max = self
            .settings
            .max_event_bytes
            .min(self.settings.max_batch_bytes);
        if size(event) <= max {
            return self.inner.process(event);
        }
        if event.level >= Level::Request {
            let mut truncated = Event {
                request_object: None,
                response_object: None,
                ..event.clone()
            };
            let mark = "true".to_owned();
            truncated.annotations.insert(ANNOTATION.to_owned(), mark);
            if size(&truncated) <= max {
                return self.inner.process(&truncated);
            }
        }
        let why = "event is too large even after truncating";
        record_failure(PLUGIN, why, std::slice::from_ref(event));
        Outcome::Done(true)
    }

    async fn shut_down(&self) {
        self.inner.shut_down().await;
    }

    fn name(&self) -> String {
        format!("{PLUGIN}<{}>", self.inner.name())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<Event>>>);

    #[async_trait]
    impl Backend for Seen {
        fn process(&self, event: &Event) -> Outcome {
            self.0.lock().push(event.clone());
            Outcome::Done(true)
        }

        async fn shut_down(&self) {}

        fn name(&self) -> String {
            "seen".to_owned()
        }
    }

    #[tokio::test]
    async fn objects_go_first_then_events() {
        let seen = Seen::default();
        let settings = TruncateSettings {
            max_event_bytes: 1000,
            max_batch_bytes: 10_000,
        };
        let truncate = Truncate::new(Box::new(seen.clone()), settings);
        let object = |bytes: usize| Some(Bytes::from(format!("\"{}\"", "x".repeat(bytes))));
        for (level, request_object, user_agent) in [
            (Level::Request, object(10), String::new()),
            (Level::Request, object(1000), String::new()),
            (Level::Metadata, None, "x".repeat(1000)),
            (Level::Request, object(1000), "x".repeat(1000)),
        ] {
            let event = Event {
                level,
                request_object,
                user_agent,
                ..Event::default()
            };
            assert!(truncate.process(&event).wait().await);
        }
        let seen = seen.0.lock();
        let told: Vec<_> = seen
            .iter()
            .map(|event| (event.request_object.is_some(), event.annotations.len()))
            .collect();
        assert_eq!(told, [(true, 0), (false, 1)]);
    }
}
