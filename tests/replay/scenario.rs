//! A scenario: steps that each send a request and say what the answer must be.
//!
//! A step is `{"do": "PUT", "path": "/api/v1/namespaces/${ns}/configmaps/a", "want": {"status",
//! "headers", "body"}}` with
//! - `as`: `admin` (default), `user`, `none` or `token:TEXT`; `impersonate`: `{"user", "groups"}`;
//!   `headers`, `accept`, `type`;
//! - `body` (JSON), `raw` (text) or `base64`;
//! - `save`: variables from dotted paths of the answer; later steps write `${name}`, or
//!   `${json:name}` for the value itself;
//! - `watch`: `{"events", "seconds"}`, reads that many events of a stream; `until`: `{"path",
//!   "equals", "seconds"}`, asks again;
//! - `ignore`: dotted paths that are not compared.
//!
//! `${ns}` is a fresh namespace, `${id}` a suffix that no other scenario has.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::normalize::Normalizer;
use super::support::http::{self as wire, Error};
use super::support::{ADMIN, USER};

/// Characters that are percent-encoded in a path: all but those that are allowed in one, so that a
/// scenario can show it readably.
#[rustfmt::skip]
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'_').remove(b'.').remove(b'-').remove(b'~').remove(b'/').remove(b'?').remove(b'&').remove(b'=').remove(b'%').remove(b':')
    .remove(b',').remove(b'+').remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')').remove(b'[').remove(b']').remove(b'@')
    .remove(b';').remove(b'$');
/// The headers of an answer that are compared.
const HEADERS: [&str; 7] = [
    "content-type",
    "warning",
    "retry-after",
    "location",
    "www-authenticate",
    "allow",
    "content-encoding",
];
/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(70);
/// Between two questions of an `until`.
const AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Deserialize)]
pub struct Scenario {
    pub name: String,
    steps: Vec<Step>,
}

/// A step as it is written: `request` holds the members that have variables in them.
#[derive(Debug, Deserialize)]
struct Step {
    #[serde(default)]
    save: BTreeMap<String, String>,
    #[serde(default)]
    ignore: Vec<String>,
    want: Option<Value>,
    #[serde(flatten)]
    request: Map<String, Value>,
}

/// A request with its variables filled in.
#[derive(Debug, Deserialize)]
struct Ask {
    #[serde(rename = "do")]
    method: String,
    path: String,
    #[serde(rename = "as", default = "admin")]
    who: String,
    impersonate: Option<Impersonate>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    accept: Option<String>,
    #[serde(rename = "type")]
    content_type: Option<String>,
    body: Option<Value>,
    raw: Option<String>,
    base64: Option<String>,
    watch: Option<Watch>,
    until: Option<Until>,
}

fn admin() -> String {
    "admin".to_owned()
}

#[derive(Debug, Deserialize)]
struct Impersonate {
    user: String,
    #[serde(default)]
    groups: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Watch {
    events: usize,
    #[serde(default = "five")]
    seconds: u64,
}

fn five() -> u64 {
    5
}

#[derive(Debug, Deserialize)]
struct Until {
    path: String,
    equals: Option<Value>,
    #[serde(default = "ten")]
    seconds: u64,
}

fn ten() -> u64 {
    10
}

/// An answer that can be compared.
struct Answer {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    body: Value,
}

/// The outcome of one step.
#[derive(Debug)]
pub struct Outcome {
    pub step: usize,
    pub request: String,
    pub differences: Vec<Difference>,
}

/// A place where the answer is not what it must be.
#[derive(Debug, PartialEq)]
pub struct Difference {
    pub path: String,
    pub want: String,
    pub got: String,
}

impl Scenario {
    /// Runs every step; one outcome for each that has an expectation.
    pub async fn run(&self, port: u16) -> Vec<Outcome> {
        let mark: String = uuid::Uuid::new_v4()
            .simple()
            .to_string()
            .bytes()
            .take(10)
            .map(|b| char::from(b'a' + b % 26))
            .collect();
        let (ns, id) = (
            format!("ns-{mark}"),
            format!("id{}", mark.chars().rev().collect::<String>()),
        );
        prepare(port, &ns).await;
        let mut variables =
            BTreeMap::from([("ns".to_owned(), json!(ns)), ("id".to_owned(), json!(id))]);
        let mut normalizer = Normalizer::new(ns, id);
        let mut outcomes = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let got = step.run(port, &mut variables, &mut normalizer).await;
            let Some(mut want) = step.want.clone() else {
                continue;
            };
            step.ignore.iter().for_each(|path| ignore(&mut want, path));
            let mut differences = Vec::new();
            compare(&want, &got, String::new(), &mut differences);
            outcomes.push(Outcome {
                step: index,
                request: step.title(),
                differences,
            });
        }
        outcomes
    }
}

impl Step {
    fn title(&self) -> String {
        let text = |name: &str| {
            self.request
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        format!("{} {}", text("do"), text("path"))
    }

    /// Sends the request, saves variables, and brings the answer into the form that expectations
    /// have.
    async fn run(
        &self,
        port: u16,
        variables: &mut BTreeMap<String, Value>,
        normalizer: &mut Normalizer,
    ) -> Value {
        let ask = substitute(&Value::Object(self.request.clone()), variables);
        if let Some(prefix) = dig(&ask, "body.metadata.generateName").and_then(Value::as_str) {
            normalizer.generates(prefix);
        }
        let ask: Ask = serde_json::from_value(ask).expect("a step");
        let answer = match ask.answer(port).await {
            Ok(answer) => answer,
            // A broken connection is a failed step.
            Err(error) => Answer {
                status: 0,
                headers: BTreeMap::new(),
                body: json!(error.to_string()),
            },
        };
        for (name, path) in &self.save {
            variables.insert(
                name.clone(),
                dig(&answer.body, path).cloned().unwrap_or_default(),
            );
        }
        let headers: Map<String, Value> = answer
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(normalizer.text(value))))
            .collect();
        let mut got = json!({"status": answer.status, "headers": headers, "body": normalizer.normalize(&answer.body)});
        self.ignore.iter().for_each(|path| ignore(&mut got, path));
        got
    }
}

impl Ask {
    async fn answer(&self, port: u16) -> Result<Answer, Error> {
        let Some(until) = &self.until else {
            return self.once(port).await;
        };
        let end = Instant::now() + Duration::from_secs(until.seconds);
        loop {
            let answer = self.once(port).await?;
            let status = json!(answer.status);
            let found = if until.path == "status_code" {
                Some(&status)
            } else {
                dig(&answer.body, &until.path)
            };
            let holds = match &until.equals {
                Some(value) => found == Some(value),
                None => found.is_some_and(|value| !value.is_null()),
            };
            if holds || Instant::now() > end {
                return Ok(answer);
            }
            sleep(AGAIN).await;
        }
    }

    async fn once(&self, port: u16) -> Result<Answer, Error> {
        let response = timeout(ANSWER, wire::send(port, self.request()?)).await??;
        let (parts, body) = response.into_parts();
        let headers = compared(&parts.headers);
        let body = match &self.watch {
            Some(watch) if parts.status == 200 => events(body, watch).await?,
            _ => {
                let body = timeout(ANSWER, body.collect()).await??.to_bytes();
                read(
                    headers.get("content-type").map_or("", String::as_str),
                    &body,
                )
            }
        };
        Ok(Answer {
            status: parts.status.as_u16(),
            headers,
            body,
        })
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, Error> {
        let body = match (&self.raw, &self.base64, &self.body) {
            (Some(raw), _, _) => Some(Bytes::from(raw.clone())),
            (_, Some(text), _) => Some(
                base64::engine::general_purpose::STANDARD
                    .decode(text)?
                    .into(),
            ),
            (_, _, Some(value)) => Some(serde_json::to_vec(value)?.into()),
            _ => None,
        };
        let mut request = Request::builder()
            .method(self.method.as_str())
            .uri(utf8_percent_encode(&self.path, PATH).to_string())
            .header("Host", "127.0.0.1")
            .header("Accept-Encoding", "identity")
            .header("User-Agent", "replay/v1");
        if !self.headers.contains_key("Accept") {
            request = request.header(
                "Accept",
                self.accept.as_deref().unwrap_or("application/json"),
            );
        }
        let token = match self.who.as_str() {
            "none" => None,
            "admin" => Some(ADMIN),
            "user" => Some(USER),
            other => Some(other.strip_prefix("token:").ok_or("an unknown `as`")?),
        };
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(Impersonate { user, groups }) = &self.impersonate {
            request = request.header("Impersonate-User", user);
            request = groups.iter().fold(request, |request, group| {
                request.header("Impersonate-Group", group)
            });
        }
        if body.is_some() {
            request = request.header(
                "Content-Type",
                self.content_type.as_deref().unwrap_or("application/json"),
            );
        }
        Ok(request.body(Full::new(body.unwrap_or_default()))?)
    }
}

/// Makes the namespace of a scenario, with the ServiceAccount that a controller would make.
async fn prepare(port: u16, ns: &str) {
    let make = |path: String, body: Value| async move {
        let ask: Ask = serde_json::from_value(json!({"do": "POST", "path": path, "body": body}))
            .expect("a step");
        ask.once(port).await.map(|answer| answer.status)
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    // A failure shows in the steps.
    let _ = make("/api/v1/namespaces".to_owned(), namespace).await;
    let _ = make(format!("/api/v1/namespaces/{ns}/serviceaccounts"), account).await;
}

fn compared(headers: &HeaderMap) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    for name in HEADERS {
        let values: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        if !values.is_empty() {
            found.insert(name, values.join("\n"));
        }
    }
    found
}

/// A body as a value: JSON where it is, else its text.
fn read(content_type: &str, body: &[u8]) -> Value {
    let text = || json!(String::from_utf8_lossy(body));
    if !content_type.starts_with("application/json") {
        return text();
    }
    if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).unwrap_or_else(|_| text())
    }
}

/// The events of a watch, one per line, until there are enough or the time is over.
async fn events(mut body: Incoming, watch: &Watch) -> Result<Value, Error> {
    let end = Instant::now() + Duration::from_secs(watch.seconds);
    let (mut events, mut buffer) = (Vec::new(), Vec::new());
    loop {
        while let Some(at) = buffer.iter().position(|byte| *byte == b'\n') {
            events.push(serde_json::from_slice(&buffer[..at])?);
            buffer.drain(..=at);
            if events.len() >= watch.events {
                return Ok(Value::Array(events));
            }
        }
        match timeout_at(end, body.frame()).await {
            Err(_) => return Ok(Value::Array(events)),
            Ok(None) => {
                events.push(json!("<closed>"));
                return Ok(Value::Array(events));
            }
            Ok(Some(frame)) => buffer.extend_from_slice(frame?.data_ref().map_or(&[], |data| data)),
        }
    }
}

/// `${name}` in every string (and key) replaced by the variable; a string that is `${json:name}`
/// becomes the value.
fn substitute(value: &Value, variables: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            if let Some(name) = text
                .strip_prefix("${json:")
                .and_then(|rest| rest.strip_suffix('}'))
            {
                return variables.get(name).cloned().unwrap_or_default();
            }
            Value::String(fill(text, variables))
        }
        Value::Array(items) => items
            .iter()
            .map(|item| substitute(item, variables))
            .collect(),
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| (fill(name, variables), substitute(value, variables)))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn fill(text: &str, variables: &BTreeMap<String, Value>) -> String {
    let mut text = text.to_owned();
    for (name, value) in variables {
        let place = format!("${{{name}}}");
        if text.contains(&place) {
            text = text.replace(
                &place,
                &value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            );
        }
    }
    text
}

/// The value at a dotted path; a number is an index (from the end where negative), `a\b` a key
/// `a.b`.
fn dig<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| match value {
        Value::Array(items) => {
            let index: i64 = key.parse().ok()?;
            let index = if index < 0 {
                items.len().checked_sub(index.unsigned_abs() as usize)?
            } else {
                index as usize
            };
            items.get(index)
        }
        Value::Object(members) => members.get(&key.replace('\\', ".")),
        _ => None,
    })
}

/// Overwrites what is at a dotted path (`*`: every item), where there is something.
fn ignore(value: &mut Value, path: &str) {
    let (key, rest) = path
        .split_once('.')
        .map_or((path, None), |(key, rest)| (key, Some(rest)));
    match (value, rest) {
        (Value::Array(items), Some(rest)) if key == "*" => {
            items.iter_mut().for_each(|item| ignore(item, rest))
        }
        (Value::Array(items), Some(rest)) => {
            if let Some(item) = key
                .parse()
                .ok()
                .and_then(|index: usize| items.get_mut(index))
            {
                ignore(item, rest);
            }
        }
        (Value::Object(members), Some(rest)) => {
            if let Some(member) = members.get_mut(key) {
                ignore(member, rest);
            }
        }
        (Value::Object(members), None) if members.contains_key(key) => {
            members.insert(key.to_owned(), json!("<ignored>"));
        }
        _ => {}
    }
}

/// Notes every place where two values differ.
fn compare(want: &Value, got: &Value, path: String, found: &mut Vec<Difference>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let absent = json!("<absent>");
            for (name, value) in want {
                compare(
                    value,
                    got.get(name).unwrap_or(&absent),
                    format!("{path}/{name}"),
                    found,
                );
            }
            for (name, value) in got.iter().filter(|(name, _)| !want.contains_key(*name)) {
                compare(&absent, value, format!("{path}/{name}"), found);
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                compare(want, got, format!("{path}[{index}]"), found);
            }
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        _ if want == got => {}
        _ => found.push(Difference {
            path,
            want: want.to_string(),
            got: got.to_string(),
        }),
    }
}

mod tests {
    use super::*;

    #[test]
    fn differences_have_paths() {
        let want = json!({"a": [1, {"b": "x"}], "c": 1, "n": 1.0});
        let got = json!({"a": [1, {"b": "y"}], "d": null, "n": 1});
        let mut found = Vec::new();
        compare(&want, &got, String::new(), &mut found);
        let paths: Vec<&str> = found
            .iter()
            .map(|difference| difference.path.as_str())
            .collect();
        assert_eq!(paths, ["/a[1]/b", "/c", "/d"]);
    }

    #[test]
    fn variables_and_paths() {
        let value = json!({"items": [{"labels": {"a.b/c": "v"}}, {"n": 2}]});
        assert_eq!(dig(&value, "items.0.labels.a\\b/c"), Some(&json!("v")));
        assert_eq!(dig(&value, "items.-1.n"), Some(&json!(2)));
        assert_eq!(dig(&value, "items.2.n"), None);
        let variables = BTreeMap::from([
            ("x".to_owned(), json!("1")),
            ("o".to_owned(), json!({"p": 1})),
        ]);
        assert_eq!(
            substitute(&json!({"k${x}": ["${x}${y}", "${json:o}"]}), &variables),
            json!({"k1": ["1${y}", {"p": 1}]})
        );
        let mut value = value;
        ignore(&mut value, "items.*.n");
        assert_eq!(value["items"][1]["n"], "<ignored>");
        assert_eq!(value["items"][0].get("n"), None);
    }
}
