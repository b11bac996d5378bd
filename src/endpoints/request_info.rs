//! The subject of a request, read from its method and path (apiserver `endpoints/request`).

use http::Method;
use percent_encoding::percent_decode_str;

use crate::meta::names;
use crate::meta::options::Query;
use crate::meta::selector::fields::FieldSelector;

/// The path segments after a namespace's name that belong to the namespace itself.
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
    /// get, list, watch, create, update, patch, delete, deletecollection; for other paths the
    /// lower-case HTTP method.
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The number of path segments from the resource on.
    pub segments: usize,
    /// The name is the one that a field selector asks for.
    pub selects_name: bool,
    /// The path began with the deprecated `watch/`.
    pub watch_path: bool,
    /// True if the resource follows `namespaces/NAME/` in the path. False for a namespace itself
    /// and its subresources, although these have a `namespace`, too.
    pub inside_namespace: bool,
}

impl RequestInfo {
    pub fn new(method: &Method, raw_path: &str, query: &Query) -> Self {
        let path = percent_decode_str(raw_path).decode_utf8_lossy();
        let mut info = Self {
            verb: method.as_str().to_ascii_lowercase(),
            ..Self::default()
        };
        info.read(method, &path, query);
        info.path = path.into_owned();
        info
    }

    fn read(&mut self, method: &Method, path: &str, query: &Query) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                self.version = (*version).to_owned();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                (self.group, self.version) = ((*group).to_owned(), (*version).to_owned());
                rest
            }
            _ => return,
        };
        self.is_resource = true;
        self.read_resource(method, rest, query);
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
                self.inside_namespace = true;
            }
        }
        self.segments = rest.len();
        let part = |at: usize| rest.get(at).copied().unwrap_or("").to_owned();
        (self.resource, self.name) = (part(0), part(1));
        // Upstream's `specialVerbsNoSubresources`.
        if self.verb != "proxy" {
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
            self.verb = if query.flag("watch").unwrap_or(false) {
                "watch"
            } else {
                "list"
            }
            .to_owned();
            let selector =
                FieldSelector::parse(query.get("fieldSelector").unwrap_or("")).unwrap_or_default();
            if let Some(name) = selector
                .required("metadata.name")
                .filter(|name| names::path_segment_name(name).is_empty())
            {
                self.name = name.to_owned();
                self.selects_name = true;
            }
        }
    }

    /// Reports whether the path names a scope that a resource does not have: a resource of the
    /// cluster inside a namespace, or an object of a namespace without one. Authorization has asked
    /// about the scope of the path, so nothing may be served in another.
    pub fn is_misplaced(&self, namespaced: bool) -> bool {
        if namespaced {
            return self.namespace.is_empty() && !self.url_name().is_empty();
        }
        let is_namespace = self.group.is_empty() && self.resource == "namespaces";
        self.inside_namespace || !self.namespace.is_empty() && !is_namespace
    }

    /// Reports whether the path ends with a deprecated verb: there is nothing to apply it to.
    pub fn lacks_resource(&self) -> bool {
        let is_verb = PATH_VERBS.contains(&self.resource.as_str());
        let has_verb = self.watch_path || self.verb == "proxy";
        self.is_resource && is_verb && !has_verb && self.segments == 1 && self.namespace.is_empty()
    }

    /// The name in the URL: unlike [`RequestInfo::name`] never one from a selector.
    pub fn url_name(&self) -> &str {
        if self.selects_name { "" } else { &self.name }
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
            info.verb,
            info.group,
            info.version,
            info.resource,
            info.namespace,
            info.name,
            info.subresource
        )
    }

    #[test]
    fn request_info_is_read_from_paths() {
        let checks = [
            (
                "GET",
                "/api/v1/namespaces/a/pods/p/log",
                "get /v1 pods ns=a name=p sub=log",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods",
                "list /v1 pods ns=a name= sub=",
            ),
            (
                "GET",
                "/api/v1/pods?watch=1",
                "watch /v1 pods ns= name= sub=",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection apps/v1 deployments ns=a name= sub=",
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update /v1 namespaces ns=a name=a sub=finalize",
            ),
            (
                "GET",
                "/api/v1/namespaces/a",
                "get /v1 namespaces ns=a name=a sub=",
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods/p",
                "watch /v1 pods ns=a name=p sub=",
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/status",
                "watch /v1 namespaces ns=a name=a sub=status",
            ),
            (
                "GET",
                "/api/v1/proxy/namespaces/a/pods/p/x",
                "proxy /v1 pods ns=a name=p sub=",
            ),
            ("GET", "/apis/apps/v1", "get path /apis/apps/v1"),
            ("GET", "/healthz", "get path /healthz"),
        ];
        for (method, uri, want) in checks {
            assert_eq!(read(method, uri), want, "{method} {uri}");
        }
    }

    #[test]
    fn paths_that_end_with_a_verb_lack_a_resource() {
        let lacks =
            |uri: &str| RequestInfo::new(&Method::GET, uri, &Query::default()).lacks_resource();
        for uri in ["/api/v1/watch", "/api/v1/proxy/", "/apis/apps/v1/watch"] {
            assert!(lacks(uri), "{uri}");
        }
        for uri in [
            "/api/v1/watch/watch",
            "/api/v1/watch/pods",
            "/api/v1/namespaces/watch",
            "/api/v1/namespaces/a/watch",
            "/api/v1/pods",
            "/watch",
        ] {
            assert!(!lacks(uri), "{uri}");
        }
    }

    #[test]
    fn request_info_in_the_wrong_scope_is_misplaced() {
        let misplaced = |uri: &str, namespaced: bool| {
            RequestInfo::new(&Method::GET, uri, &Query::default()).is_misplaced(namespaced)
        };
        for (uri, namespaced, want) in [
            ("/api/v1/namespaces", false, false),
            ("/api/v1/namespaces/a", false, false),
            ("/api/v1/namespaces/a/status", false, false),
            ("/api/v1/watch/namespaces/a", false, false),
            ("/api/v1/namespaces/a/namespaces", false, true),
            ("/api/v1/namespaces/a/namespaces/a", false, true),
            ("/api/v1/namespaces/a/namespaces/b/status", false, true),
            ("/api/v1/watch/namespaces/a/namespaces/b", false, true),
            ("/api/v1/namespaces/a/nodes/n", false, true),
            ("/api/v1/namespaces//nodes/n", false, true),
            ("/api/v1/namespaces//namespaces/a", false, true),
            ("/api/v1/nodes/n", false, false),
            // Custom resources may have the name, not the exception.
            ("/apis/example.com/v1/namespaces/a", false, true),
            ("/apis/example.com/v1/namespaces/a", true, false),
            ("/api/v1/namespaces/a/pods/p", true, false),
            ("/api/v1/pods", true, false),
            ("/api/v1/pods/p", true, true),
            ("/api/v1/watch/pods/p", true, true),
        ] {
            assert_eq!(misplaced(uri, namespaced), want, "{uri}");
        }
    }
}
