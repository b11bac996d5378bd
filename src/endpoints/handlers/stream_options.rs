//! The options of streams, which admission is shown (core `Pod*Options`,
//! `{Pod,Service,Node}ProxyOptions`).

use super::RequestContext;
use crate::codec::normalize::{Rules, normalize};
use crate::endpoints::request_info::RequestInfo;
use crate::meta::options::{Query, parse_uint};
use crate::meta::status::Result;
use crate::meta::{Map, Object, Status, Value, go};

/// The streams into and out of a container.
const STREAMS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// Asks admission about a connection, and returns its options as admission wants them: streams are
/// made from these alone.
///
/// # Errors
/// The options cannot be read, or a plugin refuses.
pub async fn admit(ctx: &RequestContext<'_>) -> Result<Object> {
    let (info, gvk) = (&ctx.request.info, ctx.kind());
    let mut options = Object(members(&ctx.request.query, info)?);
    options.insert("kind", gvk.kind.as_str().into());
    options.insert("apiVersion", gvk.api_version().into());
    if let Some(ty) = ctx.store.resource.schema.get(gvk) {
        normalize(&mut options, ty, Rules::Unstructured);
    }
    ctx.admit_connect(&mut options).await?;
    Ok(options)
}

/// The members of the options that the query, or for a proxy the path, has.
fn members(query: &Query, info: &RequestInfo) -> Result<Map> {
    let mut members = Map::new();
    let given = |key: &str| query.get(key).filter(|text| !text.is_empty());
    match info.subresource.as_str() {
        "exec" | "attach" => {
            for key in STREAMS {
                if query.flag(key) == Some(true) {
                    members.insert(key, true.into());
                }
            }
            if let Some(container) = given("container") {
                members.insert("container", container.into());
            }
            if info.subresource == "exec" {
                let words = query.all("command").into_iter().map(Value::from);
                members.insert("command", Value::Array(words.collect()));
            }
        }
        "portforward" => {
            let ports = ports(query)?.into_iter();
            let numbers: Vec<Value> = ports.map(|port| i64::from(port).into()).collect();
            if !numbers.is_empty() {
                members.insert("ports", Value::Array(numbers));
            }
        }
        _ => {
            let path = proxied_path(info);
            if !path.is_empty() {
                members.insert("path", path.into());
            }
        }
    }
    Ok(members)
}

/// The ports that a client asks for (apimachinery `Convert_Slice_string_To_Slice_int32`).
fn ports(query: &Query) -> Result<Vec<u16>> {
    let port = |text: &str| {
        let number = parse_uint(text)?;
        let large = |_| {
            let text = go::quote(text);
            format!("strconv.ParseUint: parsing {text}: value out of range")
        };
        u16::try_from(number).map_err(large)
    };
    let texts = query.all("ports");
    let ports = texts.iter().flat_map(|text| text.split(',')).map(port);
    ports
        .collect::<std::result::Result<_, _>>()
        .map_err(|why| Status::bad_request(format!("cannot convert to []int32: {why}")))
}

/// The part of the path behind the subresource, with a leading slash.
fn proxied_path(info: &RequestInfo) -> String {
    let parts: Vec<&str> = info.path.trim_matches('/').split('/').collect();
    let behind = info.segments.saturating_sub(3);
    let rest = parts[parts.len().saturating_sub(behind)..].join("/");
    let mut path = if rest.is_empty() {
        rest
    } else {
        format!("/{rest}")
    };
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::meta::json;

    #[test]
    fn options_of_streams_are_read_from_query_and_path() {
        let shown = |path: &str, query: &str| {
            let query = Query::parse(query);
            let info = RequestInfo::new(&Method::POST, path, &query);
            members(&query, &info).map_or_else(|status| status.message.into(), Value::Object)
        };
        let pod = "/api/v1/namespaces/x/pods/p";
        assert_eq!(
            shown(
                &format!("{pod}/exec"),
                "stdout=true&tty=0&command=a&command=b&container=c"
            ),
            json!({"stdout": true, "container": "c", "command": ["a", "b"]})
        );
        let wrong = |text: &str, why: &str| {
            json!(format!(
                "cannot convert to []int32: strconv.ParseUint: parsing \"{text}\": {why}"
            ))
        };
        for (query, want) in [
            ("ports=80,443&ports=1", json!({"ports": [80, 443, 1]})),
            ("ports=80,443&ports=x", wrong("x", "invalid syntax")),
            ("ports=", wrong("", "invalid syntax")),
            ("ports=65536", wrong("65536", "value out of range")),
        ] {
            assert_eq!(shown(&format!("{pod}/portforward"), query), want, "{query}");
        }
        for (path, want) in [
            ("", json!({})),
            ("/", json!({"path": "/"})),
            ("/a/b/", json!({"path": "/a/b/"})),
        ] {
            assert_eq!(shown(&format!("{pod}/proxy{path}"), ""), want, "{path}");
        }
    }
}
