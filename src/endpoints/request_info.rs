//! What a request is about, read from its method and path (apiserver `endpoints/request`).

use http::Method;
use percent_encoding::percent_decode_str;

use crate::meta::names;
use crate::meta::options::Query;
use crate::meta::selector::fields::FieldSelector;

/// The path segments that stand behind a namespace's name and are of the namespace itself.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];
/// Deprecated verbs in the path.
const PATH_VERBS: [&str; 2] = ["proxy", "watch"];

/// The attributes of a request that routing, authorization and admission look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// False for paths such as `/healthz` and for discovery documents.
    pub is_resource: bool,
    /// The decoded path.
    pub path: String,
    /// get, list, watch, create, update, patch, delete, deletecollection; for other paths the lower-case HTTP method.
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The segments from the resource on.
    pub parts: Vec<String>,
    /// The path began with the deprecated `watch/`.
    pub watch_path: bool,
}

impl RequestInfo {
    pub fn new(method: &Method, raw_path: &str, query: &Query) -> Self {
        let path = percent_decode_str(raw_path).decode_utf8_lossy().into_owned();
        let mut info = Self { path, verb: method.as_str().to_ascii_lowercase(), ..Self::default() };
        let trimmed = info.path.trim_matches('/').to_owned();
        let parts: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
        let rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = (*version).to_owned();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                (info.group, info.version) = ((*group).to_owned(), (*version).to_owned());
                rest
            }
            _ => return info,
        };
        info.is_resource = true;
        info.read_resource(method, rest, query);
        info
    }

    fn read_resource(&mut self, method: &Method, mut rest: &[&str], query: &Query) {
        if PATH_VERBS.contains(&rest[0]) && rest.len() > 1 {
            self.verb = rest[0].to_owned();
            self.watch_path = rest[0] == "watch";
            rest = &rest[1..];
        } else {
            self.verb = match method.as_str() {
                "POST" => "create",
                "GET" | "HEAD" => "get",
                "PUT" => "update",
                "PATCH" => "patch",
                "DELETE" => "delete",
                _ => "",
            }
            .to_owned();
        }
        if let ["namespaces", namespace, ..] = rest {
            self.namespace = (*namespace).to_owned();
            if rest.len() > 2 && !NAMESPACE_SUBRESOURCES.contains(&rest[2]) {
                rest = &rest[2..];
            }
        }
        self.parts = rest.iter().map(|part| (*part).to_owned()).collect();
        let part = |at: usize| rest.get(at).copied().unwrap_or("").to_owned();
        (self.resource, self.name) = (part(0), part(1));
        if !self.watch_path {
            self.subresource = part(2);
        }
        self.refine_verb(query);
    }

    /// A get without a name is a list or a watch, a delete without one a deletecollection.
    fn refine_verb(&mut self, query: &Query) {
        if !self.name.is_empty() {
            return;
        }
        if self.verb == "delete" {
            self.verb = "deletecollection".to_owned();
        }
        if self.verb == "get" {
            self.verb = if query.flag("watch").unwrap_or(false) { "watch" } else { "list" }.to_owned();
            let selector = FieldSelector::parse(query.get("fieldSelector").unwrap_or("")).unwrap_or_default();
            if let Some(name) = selector.required("metadata.name").filter(|name| names::path_segment_name(name).is_empty()) {
                self.name = name.to_owned();
            }
        }
    }

    /// The name in the URL: unlike [`RequestInfo::name`] never one from a selector.
    pub fn url_name(&self) -> &str {
        self.parts.get(1).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let info = RequestInfo::new(&method, path, &Query::parse(query));
        if !info.is_resource {
            return format!("{} path {}", info.verb, info.path);
        }
        format!(
            "{} {}/{} {} ns={} name={} sub={}",
            info.verb, info.group, info.version, info.resource, info.namespace, info.name, info.subresource
        )
    }

    #[test]
    fn paths_say_what_is_asked() {
        let checks = [
            ("GET", "/api/v1/namespaces/a/pods/p/log", "get /v1 pods ns=a name=p sub=log"),
            ("GET", "/api/v1/namespaces/a/pods", "list /v1 pods ns=a name= sub="),
            ("GET", "/api/v1/pods?watch=1", "watch /v1 pods ns= name= sub="),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps/v1 deployments ns=a name= sub="),
            ("PUT", "/api/v1/namespaces/a/finalize", "update /v1 namespaces ns=a name=a sub=finalize"),
            ("GET", "/api/v1/namespaces/a", "get /v1 namespaces ns=a name=a sub="),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 pods ns=a name=p sub="),
            ("GET", "/apis/apps/v1", "get path /apis/apps/v1"),
            ("GET", "/healthz", "get path /healthz"),
        ];
        for (method, uri, want) in checks {
            assert_eq!(read(method, uri), want, "{method} {uri}");
        }
    }
}
