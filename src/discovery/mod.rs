//! Discovery and OpenAPI documents, rendered from the resources that are served. Knows no store and
//! no users.

pub mod accept;
mod groups;
pub mod metrics;
mod negotiate;
pub mod openapi;
mod protobuf;
pub mod ranks;
pub mod version;

use std::borrow::Cow;
use std::collections::HashMap;

use aws_lc_rs::digest;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use crate::codec::yaml;
use crate::meta::go::url::query_parameters;
use crate::meta::status::Result;
use crate::meta::{Status, Value, json};
use crate::schema::ResourceDecl;
use ranks::Rank;

use groups::{Group, ListedGroup};
use negotiate::{DocumentFormat, Endpoint, Negotiated};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The facts about the server that discovery shows beyond its resources.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// The host and port that clients reach this server at, such as `10.0.0.1:6443`.
    pub server_address: String,
    /// Paths that are served outside the API, such as `/healthz`; `GET /` lists them.
    pub paths: Vec<String>,
}

/// A group and version for which there is an APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub group: String,
    pub version: String,
    pub rank: Rank,
}

/// A group and version that another server serves.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteVersion {
    pub group: String,
    pub version: String,
    pub rank: Rank,
    /// A list of `APIResourceDiscovery`; empty as long as nothing is known.
    pub resources: Value,
    /// False if the server could not be asked of late.
    pub is_current: bool,
}

/// The share of the cluster's APIServices in the documents.
#[derive(Clone, Debug, Default)]
pub struct ApiServices {
    /// The groups and versions of `/apis`, in no order.
    pub listed: Vec<ListedVersion>,
    pub remote: Vec<RemoteVersion>,
}

/// Every discovery document for one set of resources; made anew when the set changes.
pub struct Documents {
    by_path: HashMap<String, Document>,
}

struct Document {
    endpoint: Endpoint,
    /// The body as JSON. Other forms are made from it on request.
    json: Bytes,
    /// The aggregated form and its quoted ETag (`/api` and `/apis`).
    aggregated: Option<(Bytes, HeaderValue)>,
}

impl Documents {
    /// Renders the documents. `/apis` has the groups and versions of APIServices and its own group,
    /// its aggregated form those that this server and others serve.
    pub fn new<'a>(
        resources: impl IntoIterator<Item = &'a ResourceDecl>,
        services: &ApiServices,
        about: &ServerInfo,
    ) -> Self {
        let groups = groups::collect(resources);
        let mut by_path = HashMap::new();
        for group in &groups {
            for version in &group.versions {
                let path = format!("{}/{}", group_path(group.name), version.name);
                let list = groups::api_resource_list(group.name, version);
                by_path.insert(path, Document::new(Endpoint::Route, &list));
            }
        }
        let listed = groups::listed(&groups, &services.listed);
        // Those without an APIService are served all the same.
        let own = groups.iter().filter(|group| !group.name.is_empty());
        let own = own.map(ListedGroup::of);
        for group in own.chain(listed.iter().cloned()) {
            // The aggregator's own group is behind its own go-restful.
            let endpoint = match group.name {
                ranks::APIREGISTRATION => Endpoint::Route,
                _ => Endpoint::Plain,
            };
            let document = Document::new(endpoint, &groups::api_group(&group));
            by_path.insert(group_path(group.name), document);
        }
        let core = Document::new(
            Endpoint::Route,
            &groups::api_versions(&groups, &about.server_address),
        );
        metrics::aggregated();
        let core_groups = groups::discovery_list(&groups, &services.remote, true);
        by_path.insert("/api".to_owned(), core.with_aggregated(&core_groups));
        let named = Document::new(Endpoint::Plain, &groups::api_group_list(&listed));
        let named_groups = groups::discovery_list(&groups, &services.remote, false);
        by_path.insert("/apis".to_owned(), named.with_aggregated(&named_groups));
        by_path.insert(
            "/version".to_owned(),
            Document::raw(Endpoint::JsonRoute, &version::info()),
        );
        let index = index(&groups, &listed, about);
        by_path.insert("/".to_owned(), Document::raw(Endpoint::JsonAlways, &index));
        by_path.insert(
            "/index.html".to_owned(),
            Document::raw(Endpoint::JsonAlways, &index),
        );
        Self { by_path }
    }

    /// Answers a request for `path` (with its query, undecoded); `None` where no document is meant.
    /// A version that a known group does not have is an error of its own, as in the Go server; an
    /// unknown group is not. Documents behind go-restful are only got.
    pub fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
    ) -> Option<Result<Response<Bytes>>> {
        let path = match path.strip_suffix('/') {
            Some(stem) if !stem.is_empty() => stem,
            _ => path,
        };
        match self.by_path.get(path) {
            Some(document) if document.endpoint.is_route() && method != Method::GET => {
                Some(Err(Status::no_such_method()))
            }
            Some(document) => Some(document.answer(query, headers)),
            None => self
                .misses_version(path)
                .then(|| Err(Status::no_such_path())),
        }
    }

    /// Reports whether `path` is `/api/X` or `/apis/GROUP/X` with a group that is served.
    fn misses_version(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(parent, version)| {
            !version.is_empty()
                && parent != "/apis"
                && parent.starts_with("/api")
                && self.by_path.contains_key(parent)
                && {
                    let depth = parent.matches('/').count();
                    if parent.starts_with("/apis/") {
                        depth == 2
                    } else {
                        depth == 1
                    }
                }
        })
    }
}

impl Document {
    fn new(endpoint: Endpoint, body: &Value) -> Self {
        Self {
            endpoint,
            json: with_newline(body.to_string()),
            aggregated: None,
        }
    }

    /// A document that is always indented JSON.
    fn raw(endpoint: Endpoint, body: &Value) -> Self {
        Self {
            endpoint,
            json: format!("{body:#}").into(),
            aggregated: None,
        }
    }

    fn with_aggregated(mut self, body: &Value) -> Self {
        let json = body.to_string();
        let etag = format!("\"{}\"", sha512_hex(json.as_bytes()));
        // Hexadecimal digits are always a valid header value.
        self.aggregated = HeaderValue::from_str(&etag)
            .ok()
            .map(|etag| (with_newline(json), etag));
        self
    }

    fn answer(&self, query: &str, headers: &HeaderMap) -> Result<Response<Bytes>> {
        let accept = header_str(headers, header::ACCEPT);
        let Negotiated { form, aggregated } =
            negotiate::negotiate(&accept, self.endpoint, self.aggregated.is_some())?;
        let mut response = Response::new(Bytes::new());
        let mut json = &self.json;
        if let (true, Some((body, etag))) = (aggregated, &self.aggregated) {
            json = body;
            let out = response.headers_mut();
            out.insert(header::ETAG, etag.clone());
            out.insert(header::VARY, HeaderValue::from_static("Accept"));
            out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
            if headers.get(header::IF_NONE_MATCH) == Some(etag) {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return Ok(response);
            }
        }
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, form.content_type(aggregated));
        *response.body_mut() = match form {
            DocumentFormat::Json if self.endpoint.negotiates() && pretty(query, headers) => {
                indented(json)?
            }
            DocumentFormat::Json => json.clone(),
            DocumentFormat::Yaml => yaml::encode(&parse(json)?).into(),
            DocumentFormat::Protobuf => protobuf::encode(json)
                .ok_or_else(|| Status::internal("the document has no protobuf form"))?,
        };
        Ok(response)
    }
}

/// The path of a group's documents; of the core group `/api`.
fn group_path(group: &str) -> String {
    if group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{group}")
    }
}

/// `GET /`: every path, sorted.
fn index(groups: &[Group], listed: &[ListedGroup], about: &ServerInfo) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/apis/",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in groups
        .iter()
        .map(ListedGroup::of)
        .chain(listed.iter().cloned())
    {
        let path = group_path(group.name);
        let versions = group.versions.iter();
        paths.extend(versions.map(|version| format!("{path}/{version}")));
        paths.push(path);
    }
    paths.extend(about.paths.iter().cloned());
    paths.sort();
    paths.dedup();
    json!({ "paths": paths })
}

/// Reports whether the client wants indented JSON: `?pretty=true`, or a browser or command-line
/// tool that says nothing else.
fn pretty(query: &str, headers: &HeaderMap) -> bool {
    let asked = query
        .contains("pretty")
        .then(|| query_parameters(query).find(|(key, _)| key == "pretty"))
        .flatten();
    match asked {
        Some((_, value)) if !value.is_empty() => {
            matches!(&*value, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }
        _ => ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|prefix| header_str(headers, header::USER_AGENT).starts_with(prefix)),
    }
}

fn indented(json: &Bytes) -> Result<Bytes> {
    Ok(with_newline(format!("{:#}", parse(json)?)))
}

fn parse(json: &Bytes) -> Result<Value> {
    serde_json::from_slice(json).map_err(Status::internal)
}

/// The header's value, empty where it is absent; what is not UTF-8 in it is replaced.
fn header_str(headers: &HeaderMap, name: header::HeaderName) -> Cow<'_, str> {
    headers.get(name).map_or(Cow::Borrowed(""), |value| {
        String::from_utf8_lossy(value.as_bytes())
    })
}

fn with_newline(mut json: String) -> Bytes {
    json.push('\n');
    json.into()
}

/// The SHA-512 of `bytes` in upper-case hexadecimal digits, as ETags and OpenAPI hashes have it.
fn sha512_hex(bytes: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA512, bytes);
    hash.as_ref()
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

#[cfg(test)]
mod tests;
