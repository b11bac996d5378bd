//! The declared types of `request` and `namespaceObject` (apiserver `admission/plugin/cel`
//! `BuildRequestType`, `BuildNamespaceType`).

use std::sync::{Arc, LazyLock};

use crate::cel::{Field, ListType, Object, Schema, Shape};

pub static REQUEST: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let kind = object("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = object(
        "kubernetes.GroupVersionResource",
        &["group", "version", "resource"],
    );
    let user = fields(
        "kubernetes.UserInfo",
        [
            ("username", text()),
            ("uid", text()),
            ("groups", list(text())),
            ("extra", map(list(text()))),
        ],
    );
    fields(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", of(Shape::Bool)),
            ("options", of(Shape::Unknown)),
        ],
    )
});

pub static NAMESPACE: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let condition = fields(
        "kubernetes.NamespaceCondition",
        [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", of(Shape::DateTime)),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let metadata = fields(
        "kubernetes.NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            ("UID", text()),
            ("creationTimestamp", of(Shape::DateTime)),
            ("deletionGracePeriodSeconds", of(Shape::Int)),
            ("deletionTimestamp", of(Shape::DateTime)),
            ("generation", of(Shape::Int)),
            ("resourceVersion", text()),
            ("finalizers", list(text())),
        ],
    );
    let status = fields(
        "kubernetes.NamespaceStatus",
        [("conditions", list(condition)), ("phase", text())],
    );
    let spec = fields("kubernetes.NamespaceSpec", [("finalizers", list(text()))]);
    fields(
        "kubernetes.Namespace",
        [("metadata", metadata), ("spec", spec), ("status", status)],
    )
});

fn of(shape: Shape) -> Arc<Schema> {
    Arc::new(Schema::of(shape, 1))
}

fn text() -> Arc<Schema> {
    of(Shape::String)
}

fn list(item: Arc<Schema>) -> Arc<Schema> {
    of(Shape::List(item, ListType::Atomic))
}

fn map(value: Arc<Schema>) -> Arc<Schema> {
    of(Shape::Map(value))
}

/// An object of fields of text.
fn object(name: &str, names: &[&str]) -> Arc<Schema> {
    fields(name, names.iter().map(|name| (*name, text())))
}

fn fields<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Arc<Schema>)>) -> Arc<Schema> {
    let mut object = Object {
        name: name.into(),
        ..Object::default()
    };
    for (name, schema) in fields {
        let field = Field {
            name: name.into(),
            schema,
        };
        object.add(field, name);
    }
    of(Shape::Object(object))
}
