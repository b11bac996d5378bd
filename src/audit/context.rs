//! The event of one request, from its arrival to the end of its answer (apiserver
//! `audit/context.go`, `audit/request.go`, `endpoints/filters/audit.go`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::auth::User;
use crate::auth::authz::Attributes;
use crate::base::clock::Clock;
use crate::meta::{Status, go};
use crate::telemetry::latency::Latencies;

use super::backend::{Backend, Outcome};
use super::event::{Event, Level, ObjectReference, ResponseStatus, Stage};
use super::metrics::{record_event, record_level};
use super::policy::{Policy, Verdict};

/// The maximum length of a user agent, in bytes; the rest is cut off.
const MAX_USER_AGENT: usize = 1024;
const CUT: &str = "...TRUNCATED";
/// The maximum size of the annotations of an event, keys and values. Further ones are left out.
const MAX_ANNOTATION_BYTES: usize = 2 << 20;

/// The time from which on a request is slow: its event tells where the time went.
const SLOW: SignedDuration = SignedDuration::from_millis(500);
/// The prefix of the annotations with such times.
const LATENCY: &str = "apiserver.latency.k8s.io/";

/// The auditing of a server.
pub struct Auditor {
    policy: Policy,
    backend: Box<dyn Backend>,
    clock: Clock,
}

/// The facts of a request that its event begins with.
#[derive(Clone, Debug, Default)]
pub struct RequestFacts {
    pub audit_id: String,
    pub uri: String,
    pub user_agent: String,
    pub source_ips: Vec<String>,
    pub received: Timestamp,
}

/// The metadata of the object of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectMeta<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub resource_version: &'a str,
}

impl Auditor {
    pub fn new(policy: Policy, backend: Box<dyn Backend>, clock: Clock) -> Arc<Self> {
        tracing::info!("Using audit backend: {}", backend.name());
        Arc::new(Self {
            policy,
            backend,
            clock,
        })
    }

    /// Returns the event of a request; `None` if the policy wants none.
    pub fn begin(
        self: &Arc<Self>,
        attributes: &Attributes,
        facts: impl FnOnce() -> RequestFacts,
    ) -> Option<Arc<Audit>> {
        let verdict = self.policy.evaluate(attributes);
        record_level(verdict.level);
        if verdict.level == Level::None {
            return None;
        }
        let facts = facts();
        let mut user_agent = facts.user_agent;
        if user_agent.len() > MAX_USER_AGENT {
            user_agent.truncate(user_agent.floor_char_boundary(MAX_USER_AGENT));
            user_agent.push_str(CUT);
        }
        let object_ref = attributes.resource_request.then(|| ObjectReference {
            resource: attributes.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            api_group: attributes.group.clone(),
            api_version: attributes.version.clone(),
            subresource: attributes.subresource.clone(),
            ..ObjectReference::default()
        });
        let event = Event {
            level: verdict.level,
            audit_id: facts.audit_id,
            request_uri: facts.uri,
            verb: attributes.verb.clone(),
            user: attributes.user.clone(),
            source_ips: facts.source_ips,
            user_agent,
            object_ref,
            received: facts.received,
            ..Event::default()
        };
        Some(Arc::new(Audit {
            auditor: self.clone(),
            verdict,
            begun: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            latencies: Arc::default(),
            event: Mutex::new(event),
        }))
    }

    /// Hands over what is left when the server ends.
    pub async fn shut_down(&self) {
        self.backend.shut_down().await;
    }
}

/// The event of a request. When it is dropped without an end, the request has been given up.
pub struct Audit {
    auditor: Arc<Auditor>,
    verdict: Verdict,
    begun: AtomicBool,
    ended: AtomicBool,
    latencies: Arc<Latencies>,
    event: Mutex<Event>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Audit({:?})", self.verdict.level)
    }
}

impl Audit {
    /// Reports whether the object of the request is told.
    pub fn tells_request(&self) -> bool {
        self.verdict.level >= Level::Request
    }

    /// Reports whether the object of the response is told.
    pub fn tells_response(&self) -> bool {
        self.verdict.level >= Level::RequestResponse
    }

    /// Reports whether managed fields are left out of objects.
    pub fn omits_managed_fields(&self) -> bool {
        self.verdict.omit_managed_fields
    }

    /// Sets an annotation, unless it is set to something else.
    pub fn annotate(&self, key: &str, value: &str) {
        let mut event = self.event.lock();
        if let Some(known) = event.annotations.get(key) {
            if known != value {
                tracing::warn!(
                    "Failed to set annotations[{key:?}] to {value:?} for audit:{:?}, it has already been set to {known:?}",
                    event.audit_id
                );
            }
            return;
        }
        let bytes: usize = event
            .annotations
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if bytes + key.len() + value.len() <= MAX_ANNOTATION_BYTES {
            event.annotations.insert(key.to_owned(), value.to_owned());
        }
    }

    /// Records whom the user acts as, and the rule that allows it.
    pub fn impersonate(&self, user: Arc<User>, constraint: &str) {
        let mut event = self.event.lock();
        event.impersonated_user = Some(user);
        constraint.clone_into(&mut event.impersonation_constraint);
    }

    /// Records the object of the request: what the path does not say of it, and at level Request
    /// all of it.
    pub fn request_object(&self, meta: ObjectMeta<'_>, json: impl FnOnce() -> Bytes) {
        let json = self.tells_request().then(json);
        let mut event = self.event.lock();
        let reference = event.object_ref.get_or_insert_default();
        for (known, given) in [
            (&mut reference.namespace, meta.namespace),
            (&mut reference.name, meta.name),
            (&mut reference.uid, meta.uid),
            (&mut reference.resource_version, meta.resource_version),
        ] {
            if known.is_empty() {
                given.clone_into(known);
            }
        }
        if json.is_some() {
            event.request_object = json;
        }
    }

    /// Records a patch, as JSON.
    pub fn request_patch(&self, json: Bytes) {
        if self.tells_request() {
            self.event.lock().request_object = Some(json);
        }
    }

    /// Records the Status that the request is answered with.
    pub fn response_status(&self, status: &Status) {
        let value = status.to_value();
        let text = |field: &str| crate::meta::str_at(&value, field).to_owned();
        self.event.lock().response_status = Some(ResponseStatus {
            status: text("/status"),
            message: text("/message"),
            reason: text("/reason"),
            details: value.get("details").cloned(),
            code: status.code,
        });
    }

    /// Records the code of the answer, which may be on its way to nobody.
    pub fn answered(&self, code: u16) {
        self.set_code(code);
    }

    /// Records the object of the response, as JSON.
    pub fn response_object(&self, json: Bytes) {
        if self.tells_response() {
            self.event.lock().response_object = Some(json);
        }
    }

    /// Returns the times of the request, to be added to.
    pub fn latencies(&self) -> Arc<Latencies> {
        self.latencies.clone()
    }

    /// Annotates a slow request with the times that it spent in the parts of the server. A watch is
    /// as slow as its client wants.
    fn tell_latencies(&self) {
        let (received, is_watch) = {
            let event = self.event.lock();
            (event.received, event.verb == "watch")
        };
        let total = self.auditor.clock.now().duration_since(received);
        if total <= SLOW || is_watch {
            return;
        }
        let nanos = |nanos: i128| go::format_duration(i64::try_from(nanos).unwrap_or(i64::MAX));
        for (layer, time) in self.latencies.all() {
            self.annotate(&format!("{LATENCY}{}", layer.name()), &nanos(time.into()));
        }
        self.annotate(&format!("{LATENCY}total"), &nanos(total.as_nanos()));
    }

    /// Hands over the event at its beginning. It is false if the request is to be refused.
    pub async fn receive(&self) -> bool {
        self.begun.store(true, Ordering::Relaxed);
        self.process(Stage::RequestReceived).wait().await
    }

    /// Hands over the event when an answer that lasts begins.
    pub async fn start(&self, code: u16) {
        self.set_code(code);
        self.process(Stage::ResponseStarted).wait().await;
    }

    /// Hands over the event at its end.
    pub async fn complete(&self, code: u16) {
        if let Some(outcome) = self.end(Some(code)) {
            outcome.wait().await;
        }
    }

    /// [`Audit::complete`] of an answer that has begun, from where nothing can wait.
    pub fn complete_in_background(&self) {
        if let Some(Outcome::Waiting(waiting)) = self.end(None)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(waiting);
        }
    }

    /// Ends an event that nobody is to see: its request was refused, or told elsewhere.
    pub fn discard(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Hands over the event of a request that panicked.
    pub async fn panicked(&self, message: &str) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        self.event.lock().response_status = Some(ResponseStatus {
            status: "Failure".to_owned(),
            message: format!("APIServer panic'd: {message}"),
            reason: "InternalError".to_owned(),
            details: None,
            code: 500,
        });
        self.process(Stage::Panic).wait().await;
    }

    /// Ends the event. `None` if it has ended before.
    fn end(&self, code: Option<u16>) -> Option<Outcome> {
        if self.ended.swap(true, Ordering::Relaxed) {
            return None;
        }
        match code {
            Some(code) => self.set_code(code),
            None => {
                let mut event = self.event.lock();
                event.response_status.get_or_insert_with(|| ResponseStatus {
                    status: "Success".to_owned(),
                    message: "Connection closed early".to_owned(),
                    code: 200,
                    ..ResponseStatus::default()
                });
            }
        }
        self.tell_latencies();
        Some(self.process(Stage::ResponseComplete))
    }

    fn set_code(&self, code: u16) {
        self.event
            .lock()
            .response_status
            .get_or_insert_default()
            .code = code;
    }

    fn process(&self, stage: Stage) -> Outcome {
        if self.verdict.omitted.contains(stage) {
            return Outcome::Done(true);
        }
        let mut event = self.event.lock();
        event.stage = stage;
        event.stage_time = match stage {
            Stage::RequestReceived => event.received,
            _ => self.auditor.clock.now(),
        };
        record_event();
        self.auditor.backend.process(&event)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if self.begun.load(Ordering::Relaxed) {
            self.complete_in_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;

    use super::*;
    use crate::telemetry::latency::Layer;

    /// Keeps events, and refuses those that begin if it is told so.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Event>>>, bool);

    #[async_trait]
    impl Backend for Kept {
        fn process(&self, event: &Event) -> Outcome {
            self.0.lock().push(event.clone());
            Outcome::Done(!self.1)
        }

        async fn shut_down(&self) {}

        fn name(&self) -> String {
            "kept".to_owned()
        }
    }

    fn begin(policy: &str, kept: &Kept) -> Option<Arc<Audit>> {
        let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}");
        let policy = Policy::parse(policy.as_bytes()).expect("a policy");
        let auditor = Auditor::new(policy, Box::new(kept.clone()), Clock::system());
        let attributes = Attributes {
            verb: "create".to_owned(),
            resource: "pods".to_owned(),
            version: "v1".to_owned(),
            resource_request: true,
            ..Attributes::default()
        };
        auditor.begin(&attributes, || RequestFacts {
            user_agent: "x".repeat(2000),
            ..RequestFacts::default()
        })
    }

    #[tokio::test]
    async fn an_event_grows_from_stage_to_stage() {
        let kept = Kept::default();
        let audit = begin("rules: [{level: Request}]", &kept).expect("audited");
        assert!(audit.receive().await);
        audit.annotate("a", "1");
        audit.annotate("a", "2");
        let meta = ObjectMeta {
            name: "p",
            ..ObjectMeta::default()
        };
        audit.request_object(meta, || Bytes::from_static(b"{}"));
        audit.response_object(Bytes::from_static(b"{}"));
        audit.complete(201).await;
        audit.complete(500).await;
        drop(audit);
        let events = kept.0.lock();
        let stages: Vec<Stage> = events.iter().map(|event| event.stage).collect();
        assert_eq!(stages, [Stage::RequestReceived, Stage::ResponseComplete]);
        let (first, last) = (&events[0], &events[1]);
        assert_eq!(first.stage_time, first.received);
        assert_eq!(first.user_agent.len(), MAX_USER_AGENT + CUT.len());
        assert!(first.response_status.is_none() && first.request_object.is_none());
        assert_eq!(last.annotations["a"], "1");
        assert_eq!(
            last.object_ref.as_ref().map(|object| object.name.as_str()),
            Some("p")
        );
        assert!(last.request_object.is_some() && last.response_object.is_none());
        assert_eq!(
            last.response_status.as_ref().map(|status| status.code),
            Some(201)
        );
    }

    #[tokio::test]
    async fn what_ends_without_an_answer_is_told() {
        let kept = Kept::default();
        let audit = begin("rules: [{level: Metadata}]", &kept).expect("audited");
        assert!(audit.receive().await);
        drop(audit);
        let audit = begin("rules: [{level: Metadata}]", &kept).expect("audited");
        audit.receive().await;
        audit.panicked("why").await;
        drop(audit);
        let events = kept.0.lock();
        let told: Vec<(Stage, String)> = events
            .iter()
            .filter_map(|event| Some((event.stage, event.response_status.clone()?.message)))
            .collect();
        assert_eq!(
            told,
            [
                (
                    Stage::ResponseComplete,
                    "Connection closed early".to_owned()
                ),
                (Stage::Panic, "APIServer panic'd: why".to_owned())
            ]
        );
    }

    #[tokio::test]
    async fn stages_are_omitted_and_failures_told() {
        let kept = Kept(Arc::default(), true);
        let omitting = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]";
        let audit = begin(omitting, &kept).expect("audited");
        assert!(audit.receive().await, "nothing was to be stored");
        audit.complete(200).await;
        assert_eq!(kept.0.lock().len(), 1);
        let audit = begin("rules: [{level: Metadata}]", &kept).expect("audited");
        assert!(!audit.receive().await);
        assert!(begin("rules: [{level: None}]", &kept).is_none());
    }

    #[tokio::test]
    async fn slow_requests_tell_where_the_time_went() {
        let (kept, clock) = (Kept::default(), Clock::manual(Timestamp::UNIX_EPOCH));
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        let policy = Policy::parse(policy.as_bytes()).expect("a policy");
        let auditor = Auditor::new(policy, Box::new(kept.clone()), clock.clone());
        let tell = async |verb: &str, millis: u64| {
            let attributes = Attributes {
                verb: verb.to_owned(),
                ..Attributes::default()
            };
            let received = clock.now();
            let audit = auditor.begin(&attributes, || RequestFacts {
                received,
                ..RequestFacts::default()
            });
            let audit = audit.expect("audited");
            audit
                .latencies()
                .add(Layer::Storage, Duration::from_micros(1500));
            clock.advance(Duration::from_millis(millis));
            audit.complete(200).await;
            kept.0.lock().pop().expect("an event").annotations
        };
        let slow = tell("get", 501).await;
        let annotations: Vec<String> = slow
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            annotations,
            [
                "apiserver.latency.k8s.io/etcd=1.5ms",
                "apiserver.latency.k8s.io/total=501ms"
            ]
        );
        assert!(tell("get", 500).await.is_empty());
        assert!(tell("watch", 5000).await.is_empty());
    }
}
