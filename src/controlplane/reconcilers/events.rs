//! Events that the reconcilers emit about their repairs (`events.k8s.io/v1`, client-go
//! `tools/events`).

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::base::random;
use crate::controlplane::bootstrap::ObjectClient;
use crate::controlplane::loopback_client::LoopbackClient;
use crate::merge::APISERVER_MANAGER;
use crate::meta::{Gvr, Object, json, names, time};

/// The time for which an event that was written is not written again (`finishTime`).
const REPEAT_INTERVAL: Duration = Duration::from_secs(6 * 60);
/// The maximum number of events that are remembered.
const MAX_REMEMBERED: usize = 4096;
/// The longest note that an event may have, in bytes.
const MAX_NOTE: usize = 1024;

/// A writer of the events of one loop.
pub struct EventRecorder {
    client: LoopbackClient,
    controller: &'static str,
    instance: String,
    clock: Clock,
    /// The times of events, by the UID of what they are about, their reason and their note.
    written: Mutex<HashMap<(String, &'static str, String), Timestamp>>,
}

impl EventRecorder {
    pub fn new(
        client: LoopbackClient,
        controller: &'static str,
        hostname: &str,
        clock: Clock,
    ) -> Self {
        Self {
            client,
            controller,
            instance: format!("{controller}-{hostname}"),
            clock,
            written: Mutex::default(),
        }
    }

    /// Writes a warning about an object, unless the same was written a short time ago. A failure to
    /// write it is only logged.
    pub async fn warn(&self, about: &Object, reason: &'static str, action: &str, note: String) {
        tracing::warn!("{reason}: {note}");
        if !self.is_new(about, reason, &note) {
            return;
        }
        let gvr = Gvr::new("events.k8s.io", "v1", "events");
        if let Err(status) = self
            .client
            .create(
                &gvr,
                self.event(about, [reason, action], note),
                APISERVER_MANAGER,
            )
            .await
        {
            tracing::warn!("writing an event: {}", status.message);
        }
    }

    fn is_new(&self, about: &Object, reason: &'static str, note: &str) -> bool {
        let (now, mut written) = (self.clock.now(), self.written.lock());
        let recent = |at: &Timestamp| now.duration_since(*at).unsigned_abs() < REPEAT_INTERVAL;
        if written.len() >= MAX_REMEMBERED {
            written.retain(|_, at| recent(at));
        }
        let known = written.len() < MAX_REMEMBERED;
        let key = (about.uid().to_owned(), reason, note.to_owned());
        known && !written.insert(key, now).is_some_and(|at| recent(&at))
    }

    fn event(&self, about: &Object, [reason, action]: [&str; 2], mut note: String) -> Object {
        let now = self.clock.now();
        note.truncate(note.floor_char_boundary(MAX_NOTE));
        let namespace = if about.namespace().is_empty() {
            "default"
        } else {
            about.namespace()
        };
        let name = format!("{}.{:x}", about.name(), now.as_nanosecond());
        let name = if names::dns1123_subdomain(&name).is_empty() {
            name
        } else {
            random::uuid()
        };
        let mut regarding = json!({
            "kind": about.kind(), "apiVersion": about.api_version(), "name": about.name(), "uid": about.uid(),
            "resourceVersion": about.resource_version(),
        });
        if !about.namespace().is_empty() {
            regarding["namespace"] = about.namespace().into();
        }
        Object::from_value(json!({
            "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": name, "namespace": namespace},
            "eventTime": time::format_micro(time::Timestamp { seconds: now.as_second(), nanos: now.subsec_nanosecond().unsigned_abs() }),
            "reportingController": self.controller, "reportingInstance": self.instance, "type": "Warning",
            "reason": reason, "action": action, "regarding": regarding, "note": note,
        }))
        .unwrap_or_default()
    }
}
