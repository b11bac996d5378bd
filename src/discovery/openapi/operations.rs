//! The operations of the served resources by path, from which both versions of OpenAPI are
//! rendered.

use super::parameters::{self, Parameter};
use crate::builtin;
use crate::meta::Gvk;
use crate::schema::{ResourceDecl, SubresourceDecl};

/// A path with its operations.
pub struct PathItem {
    pub path: String,
    pub operations: Vec<Operation>,
}

/// The body of a request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// An object of this kind.
    Kind(Gvk),
    /// A type of `meta/v1` by its name: Status, Patch, WatchEvent, APIResourceList, ...
    Meta(&'static str),
    /// The definition with this name.
    Definition(&'static str),
    Text,
}

/// The media types of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// JSON, YAML and protobuf.
    Objects,
    /// Those of custom resources: JSON and YAML, and patches but for strategic ones.
    Custom,
    /// JSON, YAML and protobuf, and streams of watch events.
    Stream,
    /// JSON, YAML and protobuf, and plain text.
    Log,
    Any,
    Json,
    Jwks,
}

impl Media {
    /// The types, in the order of OpenAPI v2.
    pub fn types(self) -> &'static [&'static str] {
        match self {
            Self::Objects => &[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ],
            Self::Custom => &["application/json", "application/yaml"],
            Self::Stream => &[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ],
            Self::Log => &[
                "text/plain",
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ],
            Self::Any => &["*/*"],
            Self::Json => &["application/json"],
            Self::Jwks => &["application/jwk-set+json"],
        }
    }
}

pub struct Operation {
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    pub description: String,
    /// `x-kubernetes-action`, empty for operations that are not about resources.
    pub action: &'static str,
    pub kind: Option<Gvk>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub body_required: bool,
    pub answer: Body,
    /// The success codes.
    pub codes: &'static [u16],
    pub media: Media,
    /// The media types of patches; empty for any.
    pub patches: bool,
}

impl Operation {
    fn new(method: &'static str, id: String, description: String, answer: Body) -> Self {
        Self {
            method,
            id,
            tag: String::new(),
            description,
            action: "",
            kind: None,
            parameters: Vec::new(),
            body: None,
            body_required: false,
            answer,
            codes: &[200],
            media: Media::Objects,
            patches: false,
        }
    }
}

/// `GET` of a discovery or other fixed document.
fn fixed(
    path: &str,
    id: String,
    tag: &str,
    description: &str,
    answer: Body,
    media: Media,
) -> PathItem {
    let operation = Operation {
        tag: tag.to_owned(),
        media,
        ..Operation::new("get", id, description.to_owned(), answer)
    };
    PathItem {
        path: path.to_owned(),
        operations: vec![operation],
    }
}

/// The paths beside the groups, each with the name of its document.
pub fn fixed_paths() -> Vec<(&'static str, PathItem)> {
    const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
    let get = |path, id: &str, tag, description, answer, media| {
        fixed(path, id.to_owned(), tag, description, answer, media)
    };
    let versions = "get the versions of the API";
    vec![
        (
            ".well-known/openid-configuration",
            get(
                "/.well-known/openid-configuration/",
                "getServiceAccountIssuerOpenIDConfiguration",
                "WellKnown",
                "get the OpenID configuration of the issuer of service account tokens",
                Body::Text,
                Media::Json,
            ),
        ),
        (
            "api",
            get(
                "/api/",
                "getCoreAPIVersions",
                "core",
                versions,
                Body::Meta("APIVersions"),
                Media::Objects,
            ),
        ),
        (
            "apis",
            get(
                "/apis/",
                "getAPIVersions",
                "apis",
                versions,
                Body::Meta("APIGroupList"),
                Media::Objects,
            ),
        ),
        (
            "openid/v1/jwks",
            get(
                "/openid/v1/jwks/",
                "getServiceAccountIssuerOpenIDKeyset",
                "openid",
                "get the public keys of the issuer of service account tokens",
                Body::Text,
                Media::Jwks,
            ),
        ),
        (
            "version",
            get(
                "/version/",
                "getCodeVersion",
                "version",
                "get the version of this server",
                Body::Definition(INFO),
                Media::Json,
            ),
        ),
    ]
}

/// The path of a group's own document.
pub fn group_path(group: &str) -> PathItem {
    let id = format!("get{}APIGroup", camel(group));
    fixed(
        &format!("/apis/{group}/"),
        id,
        &lower_first(&camel(group)),
        "get the versions of a group",
        Body::Meta("APIGroup"),
        Media::Objects,
    )
}

/// The paths of a group version, sorted.
pub fn version_paths<'a>(
    group: &str,
    version: &str,
    resources: impl Iterator<Item = &'a ResourceDecl>,
) -> Vec<PathItem> {
    let (prefix, names) = (prefix(group, version), Names::new(group, version));
    let id = format!("get{}APIResources", names.stem);
    let mut paths = vec![fixed(
        &format!("{prefix}/"),
        id,
        &names.tag,
        "get the resources of a group version",
        Body::Meta("APIResourceList"),
        Media::Objects,
    )];
    for resource in resources {
        Resource {
            names: &names,
            prefix: &prefix,
            decl: resource,
        }
        .paths(&mut paths);
    }
    paths.retain(|item| !item.operations.is_empty());
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths
}

fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

/// The paths of one resource, sorted.
pub fn resource_paths(decl: &ResourceDecl) -> Vec<PathItem> {
    let mut paths = Vec::new();
    let names = Names::new(&decl.group, &decl.version);
    Resource {
        names: &names,
        prefix: &prefix(&decl.group, &decl.version),
        decl,
    }
    .paths(&mut paths);
    paths.retain(|item| !item.operations.is_empty());
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths
}

/// The group in CamelCase, without `.k8s.io`; `Core` for the core group.
fn camel(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group
        .strip_suffix(".k8s.io")
        .unwrap_or(group)
        .split(['.', '-'])
        .map(capital)
        .collect()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn lower_first(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

/// Returns the part of operation names that stands for a group version.
struct Names {
    tag: String,
    stem: String,
}

impl Names {
    fn new(group: &str, version: &str) -> Self {
        let camel = camel(group);
        Self {
            tag: format!("{}_{version}", lower_first(&camel)),
            stem: format!("{camel}{}", capital(version)),
        }
    }
}

/// One resource in the making.
struct Resource<'a> {
    names: &'a Names,
    prefix: &'a str,
    decl: &'a ResourceDecl,
}

impl Resource<'_> {
    fn kind(&self) -> Gvk {
        Gvk::new(&self.decl.group, &self.decl.version, &self.decl.kind)
    }

    fn has(&self, verb: &str) -> bool {
        self.decl.verbs.iter().any(|one| one == verb)
    }

    /// `Namespaced` within operation names.
    fn scope(&self) -> &'static str {
        if self.decl.namespaced {
            "Namespaced"
        } else {
            ""
        }
    }

    fn collection(&self, below: &str) -> String {
        let namespace = if self.decl.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        format!("{}/{below}{namespace}{}", self.prefix, self.decl.resource)
    }

    fn paths(&self, out: &mut Vec<PathItem>) {
        let item = format!("{}/{{name}}", self.collection(""));
        out.push(self.item(self.collection(""), self.collection_operations(), None));
        out.push(self.item(
            item.clone(),
            self.object_operations(),
            Some(&self.decl.kind),
        ));
        if self.decl.namespaced && self.has("list") {
            let list = self.list(format!(
                "list{}{}ForAllNamespaces",
                self.names.stem, self.decl.kind
            ));
            out.push(PathItem {
                path: format!("{}/{}", self.prefix, self.decl.resource),
                operations: vec![with(list, [parameters::pretty()])],
            });
        }
        if self.has("watch") {
            self.watch_paths(out);
        }
        for sub in &self.decl.subresources {
            self.subresource(&item, sub, out);
        }
    }

    /// A path with the parameters that each of its operations takes.
    fn item(&self, path: String, operations: Vec<Operation>, name: Option<&str>) -> PathItem {
        let mut common: Vec<Parameter> = name.map(parameters::name).into_iter().collect();
        if self.decl.namespaced {
            common.push(parameters::namespace());
        }
        common.push(parameters::pretty());
        PathItem {
            path,
            operations: operations
                .into_iter()
                .map(|operation| with(operation, common.clone()))
                .collect(),
        }
    }

    fn operation(
        &self,
        method: &'static str,
        action: &'static str,
        id: String,
        description: String,
        answer: Body,
    ) -> Operation {
        let kind = Some(self.kind());
        Operation {
            tag: self.names.tag.clone(),
            action,
            kind,
            ..Operation::new(method, id, description, answer)
        }
    }

    fn list(&self, id: String) -> Operation {
        let mut list_kind = self.kind();
        list_kind.kind.push_str("List");
        let description = format!("list or watch {} objects", self.decl.kind);
        let operation = self.operation("get", "list", id, description, Body::Kind(list_kind));
        Operation {
            media: Media::Stream,
            ..with(
                operation,
                parameters::select().into_iter().chain(parameters::watch()),
            )
        }
    }

    fn collection_operations(&self) -> Vec<Operation> {
        let (stem, scope, kind) = (&self.names.stem, self.scope(), &self.decl.kind);
        let mut out = Vec::new();
        if self.has("list") {
            out.push(self.list(format!("list{stem}{scope}{kind}")));
        }
        if self.has("create") {
            out.push(self.create(
                format!("create{stem}{scope}{kind}"),
                format!("create a {kind}"),
                self.kind(),
            ));
        }
        if self.has("deletecollection") {
            let id = format!("delete{stem}Collection{scope}{kind}");
            let operation = self.operation(
                "delete",
                "deletecollection",
                id,
                format!("delete {kind} objects"),
                Body::Meta("Status"),
            );
            let operation = with(
                operation,
                parameters::delete().into_iter().chain(parameters::select()),
            );
            out.push(Operation {
                body: Some(Body::Meta("DeleteOptions")),
                ..operation
            });
        }
        out
    }

    fn create(&self, id: String, description: String, kind: Gvk) -> Operation {
        let operation = self.operation("post", "post", id, description, Body::Kind(kind.clone()));
        Operation {
            body: Some(Body::Kind(kind.clone())),
            kind: Some(kind),
            body_required: true,
            codes: &[200, 201, 202],
            ..with(operation, parameters::write())
        }
    }

    fn object_operations(&self) -> Vec<Operation> {
        let mut out = self.read_and_write(&self.decl.verbs, "", &self.kind());
        if self.has("delete") {
            let strategy = builtin::strategy(&self.decl.group, &self.decl.resource);
            let answer = if strategy.returns_deleted_object() {
                Body::Kind(self.kind())
            } else {
                Body::Meta("Status")
            };
            let id = format!(
                "delete{}{}{}",
                self.names.stem,
                self.scope(),
                self.decl.kind
            );
            let operation = self.operation(
                "delete",
                "delete",
                id,
                format!("delete a {}", self.decl.kind),
                answer,
            );
            let operation = with(operation, parameters::delete());
            out.push(Operation {
                body: Some(Body::Meta("DeleteOptions")),
                codes: &[200, 202],
                ..operation
            });
        }
        out
    }

    /// get, put and patch of an object or of its subresource `sub`, whose kind is `kind`.
    fn read_and_write(&self, verbs: &[String], sub: &str, kind: &Gvk) -> Vec<Operation> {
        let tail = format!(
            "{}{}{}{}",
            self.names.stem,
            self.scope(),
            self.decl.kind,
            capital(sub)
        );
        let what = if sub.is_empty() {
            format!("a {}", self.decl.kind)
        } else {
            format!("the {sub} of a {}", self.decl.kind)
        };
        let answer = || Body::Kind(kind.clone());
        let has = |verb: &str| verbs.iter().any(|one| one == verb);
        let mut out = Vec::new();
        if has("get") {
            out.push(self.operation(
                "get",
                "get",
                format!("read{tail}"),
                format!("read {what}"),
                answer(),
            ));
        }
        if has("update") {
            let operation = self.operation(
                "put",
                "put",
                format!("replace{tail}"),
                format!("replace {what}"),
                answer(),
            );
            out.push(Operation {
                body: Some(answer()),
                body_required: true,
                codes: &[200, 201],
                ..with(operation, parameters::write())
            });
        }
        if has("patch") {
            let operation = self.operation(
                "patch",
                "patch",
                format!("patch{tail}"),
                format!("change parts of {what}"),
                answer(),
            );
            out.push(Operation {
                body: Some(Body::Meta("Patch")),
                body_required: true,
                codes: &[200, 201],
                patches: true,
                ..with(operation, parameters::patch())
            });
        }
        for operation in &mut out {
            operation.kind = Some(kind.clone());
        }
        out
    }

    /// The paths of old below `watch/`.
    fn watch_paths(&self, out: &mut Vec<PathItem>) {
        let (stem, scope, kind) = (&self.names.stem, self.scope(), &self.decl.kind);
        let watch = |action, id: String| {
            let description = format!(
                "watch {kind} objects. Deprecated: list with the 'watch' parameter instead."
            );
            let operation =
                self.operation("get", action, id, description, Body::Meta("WatchEvent"));
            Operation {
                media: Media::Stream,
                ..with(
                    operation,
                    parameters::select().into_iter().chain(parameters::watch()),
                )
            }
        };
        let list = self.collection("watch/");
        out.push(self.item(
            list.clone(),
            vec![watch("watchlist", format!("watch{stem}{scope}{kind}List"))],
            None,
        ));
        out.push(self.item(
            format!("{list}/{{name}}"),
            vec![watch("watch", format!("watch{stem}{scope}{kind}"))],
            Some(kind),
        ));
        if self.decl.namespaced {
            let everywhere = watch(
                "watchlist",
                format!("watch{stem}{kind}ListForAllNamespaces"),
            );
            let path = format!("{}/watch/{}", self.prefix, self.decl.resource);
            out.push(PathItem {
                path,
                operations: vec![with(everywhere, [parameters::pretty()])],
            });
        }
    }

    fn subresource(&self, item: &str, sub: &SubresourceDecl, out: &mut Vec<PathItem>) {
        let path = format!("{item}/{}", sub.name);
        let or = |own: &str, parent: &str| {
            if own.is_empty() {
                parent.to_owned()
            } else {
                own.to_owned()
            }
        };
        let kind = Gvk::new(
            or(&sub.kind.group, &self.decl.group),
            or(&sub.kind.version, &self.decl.version),
            &sub.kind.kind,
        );
        if kind.kind.ends_with("Options") {
            self.connect(path, sub, &kind, out);
        } else if sub.name == "log" {
            let id = format!(
                "read{}{}{}Log",
                self.names.stem,
                self.scope(),
                self.decl.kind
            );
            let operation = self.operation(
                "get",
                "get",
                id,
                format!("read the log of a {}", self.decl.kind),
                Body::Text,
            );
            let parameters = parameters::connect("PodLogOptions")
                .into_iter()
                .chain([parameters::name("Pod"), parameters::namespace()]);
            let operation = Operation {
                media: Media::Log,
                ..with(operation, parameters)
            };
            out.push(PathItem {
                path,
                operations: vec![operation],
            });
        } else {
            let mut operations = self.read_and_write(&sub.verbs, &sub.name, &kind);
            if sub.verbs.iter().any(|verb| verb == "create") {
                let id = format!(
                    "create{}{}{}{}",
                    self.names.stem,
                    self.scope(),
                    self.decl.kind,
                    capital(&sub.name)
                );
                operations.push(self.create(
                    id,
                    format!("create the {} of a {}", sub.name, self.decl.kind),
                    kind.clone(),
                ));
            }
            out.push(self.item(path, operations, Some(&kind.kind)));
        }
    }

    /// A subresource that is a connection: its methods all do the same.
    fn connect(&self, path: String, sub: &SubresourceDecl, kind: &Gvk, out: &mut Vec<PathItem>) {
        const ALL: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
        const STREAM: [&str; 2] = ["get", "post"];
        let proxy = sub.name == "proxy";
        let methods: &[&'static str] = if proxy { &ALL } else { &STREAM };
        let mut common = parameters::connect(&kind.kind);
        common.push(parameters::name(&kind.kind));
        if self.decl.namespaced {
            common.push(parameters::namespace());
        }
        let operations = |tail: &str, common: &[Parameter]| {
            let connect = |method: &'static str| {
                let names = (
                    capital(method),
                    self.scope(),
                    &self.decl.kind,
                    capital(&sub.name),
                );
                let id = format!(
                    "connect{}{}{}{}{}{tail}",
                    self.names.stem, names.0, names.1, names.2, names.3
                );
                let description = format!(
                    "connect {} requests to the {} of a {}",
                    method.to_uppercase(),
                    sub.name,
                    self.decl.kind
                );
                let operation = self.operation(method, "connect", id, description, Body::Text);
                Operation {
                    kind: Some(kind.clone()),
                    media: Media::Any,
                    ..with(operation, common.to_vec())
                }
            };
            methods.iter().map(|method| connect(method)).collect()
        };
        out.push(PathItem {
            operations: operations("", &common),
            path: path.clone(),
        });
        if proxy {
            common.push(parameters::proxied_path());
            out.push(PathItem {
                operations: operations("WithPath", &common),
                path: format!("{path}/{{path}}"),
            });
        }
    }
}

/// The operation with more parameters, all in the order of their names.
pub fn with(
    mut operation: Operation,
    parameters: impl IntoIterator<Item = Parameter>,
) -> Operation {
    operation.parameters.extend(parameters);
    operation.parameters.sort_unstable();
    operation
}
