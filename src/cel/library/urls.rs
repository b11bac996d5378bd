//! URLs (apiserver `cel/library/urls.go`).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::extension::Extension;
use super::super::value::{Entries, Error, Key, Result, Value};
use super::Declaration;
use super::operators::declare;
use crate::meta::go::url::{self, Url, query_parameters};

pub const DECLARATIONS: &[Declaration] = &[
    declare!("url", parse, "string_to_url": "(string) -> kubernetes.URL"),
    declare!("isURL", |args| match args {
        [Value::String(text)] => {
            Some(Ok(Value::Bool(url::parse_request_uri(text.as_str()).is_ok())))
        }
        _ => None,
    }, "is_url_string": "(string) -> bool"),
    declare!("getScheme", |args| part(args, |url| url.scheme.clone()),
        "url_get_scheme": "kubernetes.URL() -> string"),
    declare!("getHost", |args| part(args, |url| url.host.clone()),
        "url_get_host": "kubernetes.URL() -> string"),
    declare!("getHostname", |args| part(args, |url| split_port(&url.host).0),
        "url_get_hostname": "kubernetes.URL() -> string"),
    declare!("getPort", |args| part(args, |url| split_port(&url.host).1),
        "url_get_port": "kubernetes.URL() -> string"),
    declare!("getEscapedPath", |args| part(args, escaped_path),
        "url_get_escaped_path": "kubernetes.URL() -> string"),
    declare!("getQuery", query,
        "url_get_query": "kubernetes.URL() -> map(string, list(string))"),
];

impl Extension for Url {
    fn type_name(&self) -> &'static str {
        "kubernetes.URL"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn of<'v>(value: &'v Value<'_>) -> Option<&'v Url> {
    match value {
        Value::Extension(value) => value.as_any().downcast_ref(),
        _ => None,
    }
}

/// Reads an absolute URL. What follows a `#` is none of its parts that can be asked for.
fn parse<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::String(text)] = args else {
        return None;
    };
    let refused = |why: String| {
        Error::new(format!(
            "URL parse error during conversion from string: {why}"
        ))
    };
    let whole = url::parse_request_uri(text.as_str()).map_err(refused);
    let without_fragment = match text.as_str().split_once('#') {
        Some((before, _)) => whole.and_then(|_| url::parse_request_uri(before).map_err(refused)),
        None => whole,
    };
    Some(without_fragment.map(|url| Value::Extension(Arc::new(url))))
}

fn part<'a>(args: &[Value<'a>], part: fn(&Url) -> String) -> Option<Result<Value<'a>>> {
    Some(Ok(Value::text(part(of(args.first()?)?))))
}

/// A host without brackets, and its port.
fn split_port(host: &str) -> (String, String) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    };
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.split_once(']'))
        .map_or(name, |(name, _)| name);
    (name.to_owned(), port.to_owned())
}

/// The path as it was written.
fn escaped_path(url: &Url) -> String {
    url.raw_path.clone()
}

/// The parameters of the query, each with its values.
fn query<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let url = of(args.first()?)?;
    let mut parameters: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for (name, value) in query_parameters(&url.raw_query) {
        parameters
            .entry(name.into_owned())
            .or_default()
            .push(Value::text(&*value));
    }
    let entries: Entries<'a> = parameters
        .into_iter()
        .map(|(name, values)| {
            let key = Value::text(name.as_str());
            (Key::String(name.into()), (key, Value::list(values)))
        })
        .collect();
    Some(Ok(Value::map(entries)))
}
