//! The examples and rules of the documentation of Server-Side Apply, of its enhancement proposal,
//! and of what the API concepts say of patches: each as a story over HTTP, a line for every request
//! and every answer, and a line for each entry of managedFields.

mod concepts;
mod handing;
mod managing;
mod merging;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use support::{ADMIN, TestServer, USER, http as wire};

/// The longest that an answer, and what is waited for, may take.
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG_MAP: &str = "/api/v1/namespaces/default/configmaps/test-cm";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/nginx-deployment";

/// A request about the object of a story.
#[derive(Clone)]
struct Ask {
    method: &'static str,
    /// The suffix of the object's path: a subresource.
    below: &'static str,
    query: Vec<String>,
    content_type: &'static str,
    agent: &'static str,
    token: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

fn ask(method: &'static str, content_type: &'static str, body: impl ToString) -> Ask {
    let body = body.to_string();
    Ask {
        method,
        below: "",
        query: Vec::new(),
        content_type,
        agent: "story/v1",
        token: ADMIN,
        headers: Vec::new(),
        body,
    }
}

fn patch(kind: &'static str, manager: &str, body: impl ToString) -> Ask {
    ask("PATCH", kind, body).query(format!("fieldManager={manager}"))
}

/// Server-Side Apply.
fn apply(manager: &str, body: impl ToString) -> Ask {
    patch("application/apply-patch+yaml", manager, body)
}

/// A JSON merge patch.
fn merge(manager: &str, body: impl ToString) -> Ask {
    patch("application/merge-patch+json", manager, body)
}

fn strategic(manager: &str, body: impl ToString) -> Ask {
    patch("application/strategic-merge-patch+json", manager, body)
}

fn json_patch(manager: &str, body: impl ToString) -> Ask {
    patch("application/json-patch+json", manager, body)
}

/// The client is known by its User-Agent.
fn put(body: impl ToString) -> Ask {
    ask("PUT", "application/json", body)
}

fn get() -> Ask {
    ask("GET", "application/json", "")
}

impl Ask {
    fn query(mut self, parameter: impl Into<String>) -> Self {
        self.query.push(parameter.into());
        self
    }

    fn forced(self) -> Self {
        self.query("force=true")
    }

    fn below(self, subresource: &'static str) -> Self {
        Self {
            below: subresource,
            ..self
        }
    }

    fn agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    /// Sent by `alice`, who may nothing.
    fn by_alice(self) -> Self {
        Self {
            token: USER,
            ..self
        }
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn url(&self, path: &str) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{path}{}{mark}{}", self.below, self.query.join("&"))
    }
}

/// An answer: its status, its warnings, and its body.
struct Answer {
    status: u16,
    warnings: Vec<String>,
    body: Value,
}

/// The history of an object, request by request.
struct Story {
    server: TestServer,
    path: String,
    /// Pointers to what is told of the object.
    shown: Vec<&'static str>,
    told: String,
}

impl Story {
    /// A story on a server of its own about the object at a path.
    async fn of(path: &str, shown: &[&'static str]) -> Self {
        Self {
            server: TestServer::start().await,
            path: path.to_owned(),
            shown: shown.to_vec(),
            told: String::new(),
        }
    }

    async fn of_config_map() -> Self {
        Self::of(CONFIG_MAP, &["/metadata/labels", "/data"]).await
    }

    /// A story that goes on about another object.
    fn turn_to(&mut self, path: &str, shown: &[&'static str]) {
        self.path = path.to_owned();
        self.shown = shown.to_vec();
    }

    async fn send(&self, path: &str, ask: &Ask) -> Answer {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.url(path))
            .header("Host", "localhost");
        request = request
            .header("Authorization", format!("Bearer {}", ask.token))
            .header("User-Agent", ask.agent);
        request = ask.headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        if !ask.body.is_empty() {
            request = request.header("Content-Type", ask.content_type);
        }
        let request = request
            .body(Full::new(Bytes::from(ask.body.clone())))
            .expect("a request");
        let answer = wire::call(self.server.port(), request, PATIENCE)
            .await
            .expect("an answer");
        let warnings = answer.headers.get_all("warning").iter();
        Answer {
            status: answer.status,
            warnings: warnings
                .map(|warning| warning.to_str().expect("text").to_owned())
                .collect(),
            // Paths that nothing is known of yet are answered with text.
            body: serde_json::from_slice(&answer.body).unwrap_or_default(),
        }
    }

    /// Makes an object that the story is not about.
    async fn make(&self, collection: &str, object: &Value) {
        let answer = self
            .send(collection, &ask("POST", "application/json", object))
            .await;
        assert_eq!(answer.status, 201, "{collection}: {}", answer.body);
    }

    /// Changes an object that the story is not about.
    async fn change(&self, path: &str, body: &Value) {
        let answer = self.send(path, &merge("story", body)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }

    /// Asks until the answer says so.
    async fn until(&self, path: &str, ask: &Ask, holds: impl Fn(&Answer) -> bool) {
        let start = Instant::now();
        loop {
            let answer = self.send(path, ask).await;
            if holds(&answer) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{path}: {} {}",
                answer.status,
                answer.body
            );
        }
    }

    /// Sends a request and tells how it went. Returns the body of the answer.
    async fn tell(&mut self, ask: Ask) -> Value {
        let Answer {
            status,
            warnings,
            body,
        } = self.send(&self.path, &ask).await;
        let format = ask
            .content_type
            .trim_start_matches("application/")
            .trim_end_matches("-patch+json")
            .trim_end_matches("-patch+yaml");
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let how = if ask.method == "PATCH" {
            format!("PATCH({format})")
        } else {
            ask.method.to_owned()
        };
        let mut line = format!("{how} {}\n  {status}", ask.url(name));
        if body["kind"] == "Status" {
            let message = body["message"].as_str().expect("a message");
            // Patches that are refused show the object as it would be, with a uid and times.
            let message = match message
                .split_once(r#"Invalid value: "{\""#)
                .and_then(|(head, rest)| Some((head, rest.rsplit_once("}\": ")?.1)))
            {
                Some((head, tail)) => format!("{head}Invalid value: <object>: {tail}"),
                None => message.to_owned(),
            };
            write!(line, " {message}").expect("a string takes it");
        } else {
            for pointer in &self.shown {
                if let Some(value) = body.pointer(pointer) {
                    write!(line, " {pointer}={value}").expect("a string takes it");
                }
            }
        }
        for warning in warnings {
            write!(line, "\n  warning: {warning}").expect("a string takes it");
        }
        for entry in entries(&body) {
            write!(line, "\n  {entry}").expect("a string takes it");
        }
        self.told.push_str(&line);
        self.told.push('\n');
        body
    }

    /// The live object, told as another request would be.
    async fn tell_live(&mut self) -> Value {
        self.tell(get()).await
    }

    fn check(&self, want: expect_test::Expect) {
        want.assert_eq(&self.told);
    }
}

/// A line for each entry of managedFields, by operation and name: entries of one operation are
/// ordered by their time, which is the server's.
fn entries(object: &Value) -> Vec<String> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let mut told: Vec<String> = entries.into_iter().flatten().map(entry).collect();
    told.sort();
    told
}

fn entry(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    assert_eq!(text("fieldsType"), "FieldsV1");
    // What changes nothing but managers has no time.
    let time = entry
        .get("time")
        .map(|_| text("time").parse::<jiff::Timestamp>().expect("a time"));
    assert_eq!(time.unwrap_or_default().subsec_nanosecond(), 0, "{entry}");
    let subresource = if text("subresource").is_empty() {
        String::new()
    } else {
        format!(" /{}", text("subresource"))
    };
    format!(
        "{} {}{subresource} {}: {}",
        text("operation"),
        text("manager"),
        text("apiVersion"),
        entry["fieldsV1"]
    )
}

/// An object of the ConfigMap of the stories.
fn config_map(rest: Value) -> Value {
    named("v1", "ConfigMap", "test-cm", rest)
}

/// The manifest of a Deployment, with `replicas` where they are given.
fn deployment(replicas: Option<i64>) -> Value {
    let template = json!({"metadata": {"labels": {"app": "nginx"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx:1"}]}});
    let mut spec = json!({"selector": {"matchLabels": {"app": "nginx"}}, "template": template});
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    named(
        "apps/v1",
        "Deployment",
        "nginx-deployment",
        json!({"spec": spec}),
    )
}

/// `rest` with a kind and a name.
fn named(api_version: &str, kind: &str, name: &str, mut rest: Value) -> Value {
    rest["apiVersion"] = json!(api_version);
    rest["kind"] = json!(kind);
    rest["metadata"]["name"] = json!(name);
    rest
}

/// An operation of a JSON patch that removes all managers.
fn cleared(op: &str) -> Value {
    json!({"op": op, "path": "/metadata/managedFields", "value": [{}]})
}
