//! The webhook of events: an EventList is posted to the service of a kubeconfig file (apiserver
//! `plugin/pkg/audit/webhook`).

use async_trait::async_trait;

use crate::webhook::{Remote, RetryDelays};

use super::backend::Exporter;
use super::event::{Event, event_list};
use super::metrics::record_failure;

const PLUGIN: &str = "webhook";

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
        let delivered = self.remote.deliver(list, self.delays).await;
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
