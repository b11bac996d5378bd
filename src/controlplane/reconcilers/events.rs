//! Events of the server's own loops (`events.k8s.io/v1`), so that people see what they put right
//! (client-go `tools/events`).

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::base::random;
use crate::controlplane::bootstrap::Creator;
use crate::controlplane::loopback_client::RegistryCreator;
use crate::meta::{Gvr, Object, json, names, time};

/// An event that was written is not written again for so long (`finishTime`).
const QUIET: Duration = Duration::from_secs(6 * 60);
/// How many events are remembered.
const MAX_REMEMBERED: usize = 4096;
/// The longest note that an event may have, in bytes.
const MAX_NOTE: usize = 1024;
const MANAGER: &str = "kube-apiserver";

/// Writes the events of one loop.
pub struct EventRecorder {
    creator: RegistryCreator,
    controller: &'static str,
    instance: String,
    clock: Clock,
    /// What was written when: the UID of what it is about, its reason and its note.
    written: Mutex<HashMap<(String, &'static str, String), Timestamp>>,
}

/// Why something is said, and what of.
#[derive(Clone, Copy, Debug)]
pub struct Because {
    pub reason: &'static str,
    pub action: &'static str,
}

impl EventRecorder {
    pub fn new(
        creator: RegistryCreator,
        controller: &'static str,
        hostname: &str,
        clock: Clock,
    ) -> Self {
        Self {
            creator,
            controller,
            instance: format!("{controller}-{hostname}"),
            clock,
            written: Mutex::default(),
        }
    }

    /// Writes a warning about an object, unless the same was written a short time ago. An event
    /// that cannot be written is logged: what it is about matters more.
    pub async fn warn(&self, about: &Object, because: Because, note: String) {
        tracing::warn!("{}: {note}", because.reason);
        if !self.is_news(about, because, &note) {
            return;
        }
        let gvr = Gvr::new("events.k8s.io", "v1", "events");
        if let Err(status) = self
            .creator
            .create(&gvr, self.event(about, because, note), MANAGER)
            .await
        {
            tracing::warn!("writing an event: {}", status.message);
        }
    }

    fn is_news(&self, about: &Object, because: Because, note: &str) -> bool {
        let (now, mut written) = (self.clock.now(), self.written.lock());
        let recent = |at: &Timestamp| now.duration_since(*at).unsigned_abs() < QUIET;
        if written.len() >= MAX_REMEMBERED {
            written.retain(|_, at| recent(at));
        }
        let known = written.len() < MAX_REMEMBERED;
        let key = (about.uid().to_owned(), because.reason, note.to_owned());
        known && !written.insert(key, now).is_some_and(|at| recent(&at))
    }

    fn event(&self, about: &Object, because: Because, mut note: String) -> Object {
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
            "reason": because.reason, "action": because.action, "regarding": regarding, "note": note,
        }))
        .unwrap_or_default()
    }
}
