//! The webhook of events: an EventList is posted to the service of a kubeconfig file (apiserver
//! `plugin/pkg/audit/webhook`).

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::KeyValue;

use crate::telemetry::trace;
use crate::webhook::{Remote, RetryDelays};

use super::backend::Exporter;
use super::event::{Event, event_list};
use super::metrics::record_failure;

const PLUGIN: &str = "webhook";
/// The span of a delivery, which is logged if it takes longer than this for itself and each event.
const SPAN: &str = "Call Audit Events webhook";
const SLOW_CALL: Duration = Duration::from_millis(50);
const SLOW_EVENT: Duration = Duration::from_millis(25);

/// A webhook. Whatever fails is tried again.
pub struct WebhookBackend {
    remote: Remote,
    delays: RetryDelays,
}

impl WebhookBackend {
    pub fn new(remote: Remote, delays: RetryDelays) -> Self {
        Self { remote, delays }
    }
}

#[async_trait]
impl Exporter for WebhookBackend {
    async fn export(&self, events: Vec<Event>) -> bool {
        let list = event_list(&events).into();
        let count = events.len();
        let attributes = || {
            let number = i64::try_from(count).unwrap_or(i64::MAX);
            vec![
                KeyValue::new("name", PLUGIN),
                KeyValue::new("event-count", number),
            ]
        };
        let slow = SLOW_CALL + SLOW_EVENT * u32::try_from(count).unwrap_or(u32::MAX);
        let delivery = self.remote.deliver(list, self.delays);
        let delivered = trace::in_span(SPAN, slow, attributes, delivery).await;
        if let Err(why) = &delivered {
            record_failure(PLUGIN, &why.text, &events);
        }
        delivered.is_ok()
    }

    fn export_now(&self, _: &Event) -> Option<bool> {
        None
    }

    fn name(&self) -> &'static str {
        PLUGIN
    }
}
