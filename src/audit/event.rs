//! Events, as JSON (audit.k8s.io/v1) and in the legacy form of one line of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use crate::auth::User;
use crate::codec::json::text_of;
use crate::meta::{Value, go};

/// The amount of a request that is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub const ALL: [Self; 4] = [
        Self::None,
        Self::Metadata,
        Self::Request,
        Self::RequestResponse,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// A moment in the handling of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// The object that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub api_group: String,
    pub api_version: String,
    pub resource_version: String,
    pub subresource: String,
}

/// The outcome of a request; all but the code of those that are answered with a Status alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseStatus {
    pub status: String,
    pub message: String,
    pub reason: String,
    pub details: Option<Value>,
    pub code: u16,
}

/// An event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    pub level: Level,
    pub audit_id: String,
    pub stage: Stage,
    pub request_uri: String,
    pub verb: String,
    pub user: Arc<User>,
    pub impersonated_user: Option<Arc<User>>,
    /// The rule that allows the impersonation; empty for the old ones.
    pub impersonation_constraint: String,
    pub source_ips: Vec<String>,
    pub user_agent: String,
    pub object_ref: Option<ObjectReference>,
    pub response_status: Option<ResponseStatus>,
    /// JSON.
    pub request_object: Option<Bytes>,
    pub response_object: Option<Bytes>,
    pub received: Timestamp,
    pub stage_time: Timestamp,
    pub annotations: BTreeMap<String, String>,
}

/// A writer of the members of one JSON object.
struct Members<'o> {
    out: &'o mut String,
    first: bool,
}

impl<'o> Members<'o> {
    fn open(out: &'o mut String) -> Self {
        out.push('{');
        Self { out, first: true }
    }

    fn key(&mut self, key: &str) -> &mut String {
        if !self.first {
            self.out.push(',');
        }
        self.first = false;
        go::json_string(key, true, self.out);
        self.out.push(':');
        self.out
    }

    fn text(&mut self, key: &str, text: &str) {
        go::json_string(text, true, self.key(key));
    }

    /// Writes a text that is left out where it is empty.
    fn some_text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    fn some_list(&mut self, key: &str, items: &[String]) {
        if !items.is_empty() {
            list(self.key(key), items);
        }
    }

    fn close(self) {
        self.out.push('}');
    }
}

fn list(out: &mut String, items: &[String]) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        go::json_string(item, true, out);
    }
    out.push(']');
}

fn user(out: &mut String, user: &User) {
    let mut members = Members::open(out);
    members.some_text("username", &user.name);
    members.some_text("uid", &user.uid);
    members.some_list("groups", &user.groups);
    if !user.extra.is_empty() {
        let mut extra = Members::open(members.key("extra"));
        for (key, values) in &user.extra {
            list(extra.key(key), values);
        }
        extra.close();
    }
    members.close();
}

fn object_reference(out: &mut String, reference: &ObjectReference) {
    let mut members = Members::open(out);
    for (key, text) in [
        ("resource", &reference.resource),
        ("namespace", &reference.namespace),
        ("name", &reference.name),
        ("uid", &reference.uid),
        ("apiGroup", &reference.api_group),
        ("apiVersion", &reference.api_version),
        ("resourceVersion", &reference.resource_version),
        ("subresource", &reference.subresource),
    ] {
        members.some_text(key, text);
    }
    members.close();
}

fn response_status(out: &mut String, status: &ResponseStatus) {
    let mut members = Members::open(out);
    members.key("metadata").push_str("{}");
    members.some_text("status", &status.status);
    members.some_text("message", &status.message);
    members.some_text("reason", &status.reason);
    if let Some(details) = &status.details {
        members.key("details").push_str(&text_of(details));
    }
    if status.code > 0 {
        members.key("code").push_str(&status.code.to_string());
    }
    members.close();
}

/// A time with microseconds (`metav1.MicroTime`).
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

impl Event {
    /// Appends the event as JSON; with its type, unless it is an item of a list.
    pub fn write_json(&self, out: &mut String, typed: bool) {
        let mut members = Members::open(out);
        if typed {
            members.text("kind", "Event");
            members.text("apiVersion", "audit.k8s.io/v1");
        }
        members.text("level", self.level.name());
        members.text("auditID", &self.audit_id);
        members.text("stage", self.stage.name());
        members.text("requestURI", &self.request_uri);
        members.text("verb", &self.verb);
        user(members.key("user"), &self.user);
        if let Some(impersonated) = &self.impersonated_user {
            user(members.key("impersonatedUser"), impersonated);
        }
        if !self.impersonation_constraint.is_empty() {
            let mut inner = Members::open(members.key("authenticationMetadata"));
            inner.text("impersonationConstraint", &self.impersonation_constraint);
            inner.close();
        }
        members.some_list("sourceIPs", &self.source_ips);
        members.some_text("userAgent", &self.user_agent);
        if let Some(reference) = &self.object_ref {
            object_reference(members.key("objectRef"), reference);
        }
        if let Some(status) = &self.response_status {
            response_status(members.key("responseStatus"), status);
        }
        for (key, object) in [
            ("requestObject", &self.request_object),
            ("responseObject", &self.response_object),
        ] {
            if let Some(object) = object {
                let text = std::str::from_utf8(object).unwrap_or("null");
                members.key(key).push_str(text.trim_end());
            }
        }
        members.text("requestReceivedTimestamp", &micro_time(self.received));
        members.text("stageTimestamp", &micro_time(self.stage_time));
        if !self.annotations.is_empty() {
            let mut inner = Members::open(members.key("annotations"));
            for (key, value) in &self.annotations {
                inner.text(key, value);
            }
            inner.close();
        }
        members.close();
    }

    /// The event in one line of text, of a part of what it holds (apiserver
    /// `audit.EventString`).
    pub fn legacy(&self) -> String {
        let quoted = |items: &[String]| {
            let quoted: Vec<String> = items.iter().map(|item| go::quote(item)).collect();
            quoted.join(",")
        };
        let or = |text: &str, other: &str| match text {
            "" => other.to_owned(),
            _ => text.to_owned(),
        };
        let known = !self.user.name.is_empty();
        let groups = quoted(if known { &self.user.groups } else { &[] });
        let (as_user, as_groups) = match &self.impersonated_user {
            Some(user) => (user.name.clone(), quoted(&user.groups)),
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
        };
        let namespace = self
            .object_ref
            .as_ref()
            .map_or("", |object| &object.namespace);
        let response = self.response_status.as_ref();
        let response = response.map_or_else(|| "<deferred>".to_owned(), |it| it.code.to_string());
        let ip = self.source_ips.first().map_or("<unknown>", String::as_str);
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} uri={} response=\"{response}\"",
            self.received,
            go::quote(&self.audit_id),
            go::quote(self.stage.name()),
            go::quote(ip),
            go::quote(&self.verb),
            go::quote(&or(&self.user.name, "<none>")),
            go::quote(&or(&groups, "<none>")),
            go::quote(&as_user),
            go::quote(&as_groups),
            go::quote(&self.user_agent),
            go::quote(&or(namespace, "<none>")),
            go::quote(&self.request_uri),
        )
    }
}

/// Returns an EventList.
pub fn event_list(events: &[Event]) -> String {
    let mut out =
        r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_owned();
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        event.write_json(&mut out, false);
    }
    out.push_str("]}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        let time: Timestamp = "2026-01-02T03:04:05.678901Z".parse().expect("a time");
        Event {
            level: Level::Metadata,
            audit_id: "id".to_owned(),
            request_uri: "/api/v1/namespaces/a/pods?x=<b>".to_owned(),
            verb: "create".to_owned(),
            user: Arc::new(User {
                name: "alice".to_owned(),
                groups: vec!["devs".to_owned(), "a\"b".to_owned()],
                extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
                ..User::default()
            }),
            source_ips: vec!["127.0.0.1".to_owned()],
            received: time,
            stage_time: time,
            ..Event::default()
        }
    }

    #[test]
    fn json_is_that_of_the_go_types() {
        let mut out = String::new();
        event().write_json(&mut out, true);
        assert_eq!(
            out,
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id","stage":"RequestReceived","requestURI":"/api/v1/namespaces/a/pods?x=\u003cb\u003e","verb":"create","user":{"username":"alice","groups":["devs","a\"b"],"extra":{"k":["v"]}},"sourceIPs":["127.0.0.1"],"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z","stageTimestamp":"2026-01-02T03:04:05.678901Z"}"#
        );
        let full = Event {
            stage: Stage::ResponseComplete,
            impersonated_user: Some(Arc::default()),
            impersonation_constraint: "impersonate:user-info".to_owned(),
            user_agent: "curl".to_owned(),
            object_ref: Some(ObjectReference {
                resource: "pods".to_owned(),
                api_version: "v1".to_owned(),
                ..ObjectReference::default()
            }),
            response_status: Some(ResponseStatus {
                status: "Failure".to_owned(),
                reason: "NotFound".to_owned(),
                details: Some(crate::meta::json!({"name": "a"})),
                code: 404,
                ..ResponseStatus::default()
            }),
            request_object: Some(Bytes::from_static(b"{\"a\":1}\n")),
            annotations: BTreeMap::from([("a/b".to_owned(), "&".to_owned())]),
            user: Arc::default(),
            source_ips: Vec::new(),
            ..event()
        };
        let list = event_list(&[event(), full]);
        assert!(list.starts_with(r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{"level":"Metadata""#));
        assert!(list.ends_with(
            "\"user\":{},\"impersonatedUser\":{},\"authenticationMetadata\":{\"impersonationConstraint\":\"impersonate:user-info\"},\"userAgent\":\"curl\",\"objectRef\":{\"resource\":\"pods\",\"apiVersion\":\"v1\"},\"responseStatus\":{\"metadata\":{},\"status\":\"Failure\",\"reason\":\"NotFound\",\"details\":{\"name\":\"a\"},\"code\":404},\"requestObject\":{\"a\":1},\"requestReceivedTimestamp\":\"2026-01-02T03:04:05.678901Z\",\"stageTimestamp\":\"2026-01-02T03:04:05.678901Z\",\"annotations\":{\"a/b\":\"\\u0026\"}}]}\n"
        ), "{list}");
    }

    #[test]
    fn the_legacy_form_is_one_line() {
        assert_eq!(
            event().legacy(),
            r#"2026-01-02T03:04:05.678901Z AUDIT: id="id" stage="RequestReceived" ip="127.0.0.1" method="create" user="alice" groups="\"devs\",\"a\\\"b\"" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="/api/v1/namespaces/a/pods?x=<b>" response="<deferred>""#
        );
    }
}
