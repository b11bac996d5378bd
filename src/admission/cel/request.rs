//! The request as expressions see it (apiserver `admission/plugin/cel/condition.go`
//! `CreateAdmissionRequest`, `CreateNamespaceObject`).

use crate::admission::{Attributes, Operation};
use crate::auth::User;
use crate::cel::{Entries, Key, Text, Value};
use crate::meta::{self, Gvk, Gvr, Object};

/// An admission request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The kind and the resource that the rules match, which may be equivalent to those of the
    /// request.
    pub kind: &'a Gvk,
    pub resource: &'a Gvr,
    pub sub_resource: &'a str,
    pub request_kind: &'a Gvk,
    pub request_resource: &'a Gvr,
    pub request_sub_resource: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    pub operation: Operation,
    pub user: &'a User,
    pub dry_run: bool,
    /// The options of the operation, with their apiVersion and kind.
    pub options: Option<&'a meta::Value>,
}

impl<'a> Request<'a> {
    /// A request that is matched as it was made.
    pub fn of(attributes: &'a Attributes<'_>) -> Self {
        Self {
            kind: attributes.gvk,
            resource: attributes.gvr,
            sub_resource: attributes.subresource,
            request_kind: attributes.gvk,
            request_resource: attributes.gvr,
            request_sub_resource: attributes.subresource,
            name: attributes.name,
            namespace: attributes.namespace,
            operation: attributes.operation,
            user: attributes.user,
            dry_run: attributes.dry_run,
            options: None,
        }
    }

    /// The variable `request`. Empty texts are left out, as Go leaves them out.
    pub(super) fn value(&self) -> Value<'a> {
        let mut out = Fields::default();
        out.put("uid", text(""));
        out.put("kind", kind(self.kind));
        out.put("resource", resource(self.resource));
        out.put_text("subResource", self.sub_resource);
        out.put("requestKind", kind(self.request_kind));
        out.put("requestResource", resource(self.request_resource));
        out.put_text("requestSubResource", self.request_sub_resource);
        out.put_text("name", self.name);
        out.put_text("namespace", self.namespace);
        out.put("operation", text(self.operation.as_str()));
        out.put("userInfo", user(self.user));
        out.put("object", Value::Null);
        out.put("oldObject", Value::Null);
        out.put("dryRun", Value::Bool(self.dry_run));
        let options = self.options.map_or(Value::Null, Value::from_unknown);
        out.put("options", options);
        out.into_value()
    }
}

/// The fields of an object in the making.
#[derive(Default)]
struct Fields<'a>(Entries<'a>);

impl<'a> Fields<'a> {
    fn put(&mut self, name: &'a str, value: Value<'a>) {
        let key = Key::String(name.into());
        self.0.insert(key, (text(name), value));
    }

    fn put_text(&mut self, name: &'a str, value: &'a str) {
        if !value.is_empty() {
            self.put(name, text(value));
        }
    }

    fn into_value(self) -> Value<'a> {
        Value::map(self.0)
    }
}

fn text(text: &str) -> Value<'_> {
    Value::String(Text::Borrowed(text))
}

fn texts(texts: &[String]) -> Value<'_> {
    Value::list(texts.iter().map(|item| text(item)).collect())
}

fn kind(gvk: &Gvk) -> Value<'_> {
    let mut out = Fields::default();
    out.put("group", text(&gvk.group));
    out.put("version", text(&gvk.version));
    out.put("kind", text(&gvk.kind));
    out.into_value()
}

fn resource(gvr: &Gvr) -> Value<'_> {
    let mut out = Fields::default();
    out.put("group", text(&gvr.group));
    out.put("version", text(&gvr.version));
    out.put("resource", text(&gvr.resource));
    out.into_value()
}

fn user(user: &User) -> Value<'_> {
    let mut out = Fields::default();
    out.put_text("username", &user.name);
    out.put_text("uid", &user.uid);
    if !user.groups.is_empty() {
        out.put("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let mut extra = Fields::default();
        for (name, values) in &user.extra {
            extra.put(name, texts(values));
        }
        out.put("extra", extra.into_value());
    }
    out.into_value()
}

/// The fields of a namespace's metadata that expressions see.
const NAMESPACE_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// The variable `namespaceObject`.
pub(super) fn namespace(namespace: &Object) -> Value<'_> {
    let mut metadata = Fields::default();
    for name in NAMESPACE_METADATA {
        if let Some(value) = namespace.metadata().and_then(|metadata| metadata.get(name)) {
            metadata.put(name, Value::from_unknown(value));
        }
    }
    let mut out = Fields::default();
    out.put("metadata", metadata.into_value());
    for name in ["spec", "status"] {
        let section = namespace.0.get(name).map(Value::from_unknown);
        out.put(name, section.unwrap_or_else(|| Value::map(Entries::new())));
    }
    out.into_value()
}

/// The variable of an object; null where there is none.
pub(super) fn object(object: Option<&Object>) -> Value<'_> {
    object.map_or(Value::Null, |object| Value::from_map(&object.0))
}
