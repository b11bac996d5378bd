//! OpenAPI documents of the served resources, rendered when they are first asked for and kept
//! compressed.

mod conform;
mod convert;
mod custom;
mod definitions;
mod descriptions;
mod merge;
mod operations;
mod parameters;
mod protobuf;
mod protobuf_v3;
mod remote;
mod v2;
mod v3;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{JSON, accept, header_str, sha512_hex, version};
use crate::meta::go::url::query_parameters;
use crate::meta::{Map, Value, json};
use crate::schema::{GroupVersionDecl, ResourceDecl, Schema};

pub use custom::CustomKind;
use definitions::{Definitions, Dialect};
use descriptions::Descriptions;
use operations::PathItem;
pub use remote::{RemoteDocument, RemoteSpec};

/// The media types of OpenAPI v2 as protobuf: that of responses, and that of old clients.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];
/// The media types of OpenAPI v3 as protobuf, likewise.
const PROTOBUF_V3: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];
const V2: &str = "/openapi/v2";
const V3: &str = "/openapi/v3";
/// Answers below this many bytes are not compressed (kube-openapi's `gzhttp` default is as low).
const MIN_COMPRESSED: usize = 1024;
/// A document that is asked for by its hash never changes; it may be kept for a year.
const KEEP: &str = "public, immutable, max-age=31536000";

/// The OpenAPI documents of a schema's resources, and of custom ones.
pub struct OpenApi {
    schema: &'static Schema,
    /// The built-in resources that are served.
    resources: Arc<[&'static ResourceDecl]>,
    custom: Vec<CustomKind>,
    /// The documents of other servers.
    remote: Vec<Arc<RemoteSpec>>,
    v2: Arc<Document>,
    /// [`OpenApi::v2`] as protobuf, gzipped.
    v2_protobuf: Arc<OnceLock<Bytes>>,
    /// By the path below `/openapi/v3/`.
    v3: BTreeMap<String, Arc<Document>>,
    /// Those of servers that know nothing of version 3, which come first.
    converted: BTreeMap<String, Arc<Document>>,
    index: Bytes,
}

/// A document that is rendered at first use.
struct Document {
    about: DocumentKind,
    /// Names the content, without rendering it.
    hash: String,
    /// The JSON, gzipped.
    body: OnceLock<Bytes>,
    /// A document of version 3 as protobuf, gzipped.
    protobuf: OnceLock<Bytes>,
}

/// The contents of a document.
enum DocumentKind {
    /// Everything, in the words of version 2.
    All,
    GroupVersion(String, String),
    Group(String),
    /// One of [`operations::fixed_paths`].
    Fixed(&'static str),
    /// The custom kinds of a group and version.
    Custom(String, String),
    /// A document of another server.
    Converted(Arc<RemoteDocument>),
}

impl OpenApi {
    /// The documents of the built-in resources alone.
    pub fn new(schema: &'static Schema, serves: impl Fn(&ResourceDecl) -> bool) -> Self {
        let resources: Arc<[&'static ResourceDecl]> = schema
            .resources
            .iter()
            .filter(|decl| serves(decl))
            .collect();
        let mut v3 = BTreeMap::new();
        for decl in group_versions(schema, &resources) {
            let (group, version) = (decl.group.clone(), decl.version.clone());
            if group.is_empty() {
                v3.insert(
                    format!("api/{version}"),
                    DocumentKind::GroupVersion(group, version),
                );
            } else {
                v3.insert(
                    format!("apis/{group}/{version}"),
                    DocumentKind::GroupVersion(group.clone(), version),
                );
                v3.insert(format!("apis/{group}"), DocumentKind::Group(group));
            }
        }
        v3.extend(
            operations::fixed_paths()
                .into_iter()
                .map(|(name, _)| (name.to_owned(), DocumentKind::Fixed(name))),
        );
        let left_out = left_out(schema, &resources);
        let v3: BTreeMap<_, _> = v3
            .into_iter()
            .map(|(path, about)| (path, Arc::new(Document::new(about, &left_out))))
            .collect();
        let v2 = Arc::new(Document::new(DocumentKind::All, &left_out));
        Self {
            schema,
            resources,
            custom: Vec::new(),
            remote: Vec::new(),
            v2,
            v2_protobuf: Arc::default(),
            index: index(&v3, &BTreeMap::new(), &[]),
            v3,
            converted: BTreeMap::new(),
        }
    }

    /// The documents with these custom kinds, and those of these servers, instead of those before.
    /// What is about the same is not rendered anew.
    #[must_use]
    pub fn with(&self, mut kinds: Vec<CustomKind>, remote: Vec<Arc<RemoteSpec>>) -> Self {
        kinds.sort_by_cached_key(CustomKind::fingerprint);
        let mut v3 = self.v3.clone();
        v3.retain(|_, document| !matches!(document.about, DocumentKind::Custom(..)));
        let mut by_version: BTreeMap<(&str, &str), String> = BTreeMap::new();
        let mut all = left_out(self.schema, &self.resources);
        for kind in &kinds {
            let fingerprint = kind.fingerprint();
            all.push_str(&fingerprint);
            by_version
                .entry((&kind.decl.group, &kind.decl.version))
                .or_default()
                .push_str(&fingerprint);
        }
        for ((group, version), content) in by_version {
            let document = Document::new(
                DocumentKind::Custom(group.to_owned(), version.to_owned()),
                &content,
            );
            let path = format!("apis/{group}/{version}");
            let known = self
                .v3
                .get(&path)
                .filter(|known| known.hash == document.hash)
                .cloned();
            // A group and version that built-in resources are in is theirs.
            v3.entry(path)
                .or_insert_with(|| known.unwrap_or_else(|| Arc::new(document)));
        }
        for document in remote.iter().filter_map(|spec| spec.v2.as_ref()) {
            all.push_str(&document.hash);
        }
        let v2 = Document::new(DocumentKind::All, &all);
        let (v2, v2_protobuf) = match v2.hash == self.v2.hash {
            true => (self.v2.clone(), self.v2_protobuf.clone()),
            false => (Arc::new(v2), Arc::default()),
        };
        let converted = self.converted(&remote);
        Self {
            schema: self.schema,
            resources: self.resources.clone(),
            custom: kinds,
            v2,
            v2_protobuf,
            index: index(&v3, &converted, &remote),
            remote,
            v3,
            converted,
        }
    }

    /// The documents of servers that know nothing of version 3.
    fn converted(&self, remote: &[Arc<RemoteSpec>]) -> BTreeMap<String, Arc<Document>> {
        let specs = remote.iter().filter(|spec| spec.is_converted);
        let documents = specs.filter_map(|spec| {
            let v2 = spec.v2.as_ref().filter(|v2| v2.is_convertible)?;
            let known = self.converted.get(&spec.path);
            let known = known.filter(|known| known.hash == v2.hash).cloned();
            let document = known.unwrap_or_else(|| {
                Arc::new(Document {
                    hash: v2.hash.clone(),
                    about: DocumentKind::Converted(v2.clone()),
                    body: OnceLock::new(),
                    protobuf: OnceLock::new(),
                })
            });
            Some((spec.path.clone(), document))
        });
        documents.collect()
    }

    /// Answers a GET of `path` (with its query, undecoded); `None` where the path is not below
    /// `/openapi`. Rendering takes tens of milliseconds, once for each document.
    pub fn answer(&self, path: &str, query: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
        if path == V2 {
            return Some(self.version2(headers));
        }
        let below = path.strip_prefix(V3)?;
        match below.strip_prefix('/') {
            None if below.is_empty() => {
                let etag = quoted(&sha512_hex(&self.index));
                Some(respond(
                    headers,
                    etag,
                    HeaderValue::from_static("text/plain; charset=utf-8"),
                    &Body::Plain(&self.index),
                ))
            }
            Some(name) => {
                let converted = self.converted.get_key_value(name);
                let known = converted.or_else(|| self.v3.get_key_value(name));
                Some(match known {
                    Some((name, document)) => self.version3(name, document, query, headers),
                    None => status(StatusCode::NOT_FOUND),
                })
            }
            None => None,
        }
    }

    fn version2(&self, headers: &HeaderMap) -> Response<Bytes> {
        match negotiate(headers, &["application/json", PROTOBUF[0], PROTOBUF[1]]) {
            None => status(StatusCode::NOT_ACCEPTABLE),
            Some(0) => respond(
                headers,
                quoted(&self.v2.hash),
                JSON,
                &Body::Gzip(self.body(&self.v2)),
            ),
            Some(_) => {
                let body = self.v2_protobuf.get_or_init(|| {
                    compress(&protobuf::document(&self.render(&DocumentKind::All)))
                });
                let etag = quoted(&format!("{}-protobuf", self.v2.hash));
                respond(
                    headers,
                    etag,
                    HeaderValue::from_static(PROTOBUF[0]),
                    &Body::Gzip(body),
                )
            }
        }
    }

    fn version3(
        &self,
        name: &str,
        document: &Document,
        query: &str,
        headers: &HeaderMap,
    ) -> Response<Bytes> {
        let offered = ["application/json", PROTOBUF_V3[0], PROTOBUF_V3[1]];
        let Some(chosen) = negotiate(headers, &offered) else {
            return status(StatusCode::NOT_ACCEPTABLE);
        };
        let hash = query_parameters(query)
            .find(|(key, _)| key == "hash")
            .map(|(_, value)| value);
        let hash = hash.filter(|hash| !hash.is_empty());
        if hash.as_ref().is_some_and(|hash| *hash != document.hash) {
            let mut moved = status(StatusCode::MOVED_PERMANENTLY);
            if let Ok(url) = HeaderValue::from_str(&document.url(name)) {
                moved.headers_mut().insert(header::LOCATION, url);
            }
            return moved;
        }
        let (media, body) = match chosen {
            0 => (JSON, self.body(document)),
            _ => {
                let write = || protobuf_v3::document(&self.render(&document.about));
                let body = document.protobuf.get_or_init(|| compress(&write()));
                (HeaderValue::from_static(PROTOBUF_V3[0]), body)
            }
        };
        let etag = quoted(&document.hash);
        let mut response = respond(headers, etag, media, &Body::Gzip(body));
        if hash.is_some() {
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, HeaderValue::from_static(KEEP));
        }
        response
    }

    fn body<'a>(&self, document: &'a Document) -> &'a Bytes {
        document
            .body
            .get_or_init(|| compress(self.render(&document.about).to_string().as_bytes()))
    }

    fn render(&self, about: &DocumentKind) -> Value {
        let descriptions = Descriptions::load();
        let v3 = |about| Definitions::new(self.schema, Dialect::V3, &descriptions, about);
        let (title, version) = (
            "Kubernetes",
            format!("{}.{}", version::MAJOR, version::MINOR),
        );
        let info = json!({"title": title, "version": version});
        match about {
            DocumentKind::All => {
                let kinds: Vec<&CustomKind> = self.custom.iter().collect();
                let definitions = Definitions::new(self.schema, Dialect::V2, &descriptions, None)
                    .with_custom(&kinds);
                let mut all = v2::document(&self.all_paths(), definitions, &info);
                remote::merge_into(&mut all, &self.remote);
                all
            }
            DocumentKind::GroupVersion(group, version) => v3::document(
                &self.version_paths(group, version),
                v3(Some((group.as_str(), version.as_str()))),
                &info,
            ),
            DocumentKind::Converted(document) => document.converted(),
            DocumentKind::Group(group) => {
                v3::document(&[operations::group_path(group)], v3(None), &info)
            }
            DocumentKind::Fixed(name) => {
                let fixed = operations::fixed_paths()
                    .into_iter()
                    .filter(|(one, _)| one == name);
                v3::document(
                    &fixed.map(|(_, item)| item).collect::<Vec<_>>(),
                    v3(None),
                    &info,
                )
            }
            DocumentKind::Custom(group, version) => {
                let kinds = self
                    .custom
                    .iter()
                    .filter(|kind| kind.decl.group == *group && kind.decl.version == *version);
                let kinds: Vec<&CustomKind> = kinds.collect();
                let paths: Vec<PathItem> = kinds.iter().flat_map(|kind| kind.paths()).collect();
                v3::document(
                    &paths,
                    v3(None).with_custom(&kinds),
                    &json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}),
                )
            }
        }
    }

    fn all_paths(&self) -> Vec<PathItem> {
        let mut paths: Vec<PathItem> = operations::fixed_paths()
            .into_iter()
            .map(|(_, item)| item)
            .collect();
        let mut last = "";
        for decl in group_versions(self.schema, &self.resources) {
            paths.extend(self.version_paths(&decl.group, &decl.version));
            if decl.group != last {
                paths.push(operations::group_path(&decl.group));
                last = &decl.group;
            }
        }
        paths.extend(self.custom.iter().flat_map(CustomKind::paths));
        paths.sort_by(|a, b| a.path.cmp(&b.path));
        paths
    }

    fn version_paths(&self, group: &str, version: &str) -> Vec<PathItem> {
        let resources = self
            .resources
            .iter()
            .copied()
            .filter(|one| one.group == group && one.version == version);
        operations::version_paths(group, version, resources)
    }
}

/// The versions that have any of the resources, in discovery order.
fn group_versions<'a>(
    schema: &'static Schema,
    resources: &'a [&'static ResourceDecl],
) -> impl Iterator<Item = &'static GroupVersionDecl> + 'a {
    let has = |decl: &GroupVersionDecl| {
        resources
            .iter()
            .any(|one| one.group == decl.group && one.version == decl.version)
    };
    schema.group_versions.iter().filter(move |decl| has(decl))
}

/// Names the resources of the schema that are not served.
fn left_out(schema: &Schema, resources: &[&ResourceDecl]) -> String {
    let is_served = |decl: &&ResourceDecl| resources.iter().any(|one| std::ptr::eq(*one, *decl));
    let names = schema
        .resources
        .iter()
        .filter(|decl| !is_served(decl))
        .map(|decl| format!("-{}/{}/{} ", decl.group, decl.version, decl.resource));
    names.collect()
}

/// `GET /openapi/v3`: where each document is. A version that another server serves is that
/// server's.
fn index(
    v3: &BTreeMap<String, Arc<Document>>,
    converted: &BTreeMap<String, Arc<Document>>,
    remote: &[Arc<RemoteSpec>],
) -> Bytes {
    let own = v3.iter().chain(converted);
    let own = own.map(|(path, document)| (path, document.url(path)));
    let mut urls: BTreeMap<&String, String> = own.collect();
    for spec in remote {
        urls.extend(spec.v3.as_ref().map(|url| (&spec.path, url.clone())));
    }
    let paths: Map = urls
        .into_iter()
        .map(|(path, url)| (path.clone(), json!({"serverRelativeURL": url})))
        .collect();
    json!({ "paths": paths }).to_string().into()
}

impl Document {
    /// `content` names what it is made of beyond what this build knows.
    fn new(about: DocumentKind, content: &str) -> Self {
        let name = match &about {
            DocumentKind::GroupVersion(group, version) | DocumentKind::Custom(group, version) => {
                format!("{group}/{version}")
            }
            DocumentKind::Group(group) => group.clone(),
            DocumentKind::Fixed(name) => (*name).to_owned(),
            DocumentKind::All => "v2".to_owned(),
            DocumentKind::Converted(document) => document.hash.clone(),
        };
        // A build's documents are all made of what this names.
        let build = concat!(
            env!("CARGO_PKG_VERSION"),
            " ",
            env!("KEELSON_API_FINGERPRINT")
        );
        let content = format!("{build} {} {name} {content}", version::GIT_VERSION);
        Self {
            about,
            hash: sha512_hex(content.as_bytes()),
            body: OnceLock::new(),
            protobuf: OnceLock::new(),
        }
    }

    /// Returns the path of the document with its hash, so that clients may cache it for good.
    fn url(&self, path: &str) -> String {
        format!("{V3}/{path}?hash={}", self.hash)
    }
}

enum Body<'a> {
    Plain(&'a Bytes),
    Gzip(&'a Bytes),
}

/// Answers with a body or, where the client has it already, without.
fn respond(
    headers: &HeaderMap,
    etag: HeaderValue,
    content_type: HeaderValue,
    body: &Body,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let out = response.headers_mut();
    out.insert(
        header::VARY,
        HeaderValue::from_static("Accept, Accept-Encoding"),
    );
    out.insert(header::ETAG, etag.clone());
    if headers.get(header::IF_NONE_MATCH) == Some(&etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    out.insert(header::CONTENT_TYPE, content_type);
    let (body, encoded) = match body {
        Body::Plain(body) if accepts_gzip(headers) && body.len() >= MIN_COMPRESSED => {
            (compress(body), true)
        }
        Body::Plain(body) => ((*body).clone(), false),
        Body::Gzip(body) if accepts_gzip(headers) => ((*body).clone(), true),
        Body::Gzip(body) => (decompress(body), false),
    };
    if encoded {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    *response.body_mut() = body;
    response
}

fn status(code: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = code;
    response
}

/// Returns the media type that the client prefers.
fn negotiate(headers: &HeaderMap, offered: &[&str]) -> Option<usize> {
    let accept = header_str(headers, header::ACCEPT);
    if accept.is_empty() {
        return Some(0);
    }
    let clauses = accept::parse(&accept);
    clauses.iter().find_map(|clause| {
        offered
            .iter()
            .position(|media_type| clause.covers(media_type))
    })
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let refused = |part: &str| {
        part.split_once(";q=")
            .is_some_and(|(_, quality)| quality.trim().parse() == Ok(0.0))
    };
    let codings = header_str(headers, header::ACCEPT_ENCODING);
    codings
        .split(',')
        .map(str::trim)
        .filter(|part| {
            part.split(';')
                .next()
                .is_some_and(|coding| coding.trim() == "gzip")
        })
        .any(|part| !refused(part))
}

fn quoted(hash: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{hash}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

fn compress(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default().into()
}

fn decompress(body: &[u8]) -> Bytes {
    let mut out = Vec::new();
    let _ = GzDecoder::new(body).read_to_end(&mut out);
    out.into()
}

#[cfg(test)]
mod tests;
