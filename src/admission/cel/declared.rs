//! The declared types of `request` and `namespaceObject` (apiserver `admission/plugin/cel`
//! `BuildRequestType`, `BuildNamespaceType`).

use std::sync::{Arc, LazyLock};

use crate::cel::{Schema, Shape};

pub static REQUEST: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let kind = texts("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = texts(
        "kubernetes.GroupVersionResource",
        &["group", "version", "resource"],
    );
    let user = object(
        "kubernetes.UserInfo",
        [
            ("username", text()),
            ("uid", text()),
            ("groups", list(text())),
            ("extra", map(list(text()))),
        ],
    );
    object(
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
    let condition = object(
        "kubernetes.NamespaceCondition",
        [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", of(Shape::DateTime)),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let metadata = object(
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
    let status = object(
        "kubernetes.NamespaceStatus",
        [("conditions", list(condition)), ("phase", text())],
    );
    let spec = object("kubernetes.NamespaceSpec", [("finalizers", list(text()))]);
    object(
        "kubernetes.Namespace",
        [("metadata", metadata), ("spec", spec), ("status", status)],
    )
});

fn of(shape: Shape) -> Arc<Schema> {
    Arc::new(Schema::of(shape, 1))
}

/// An object of fields of text.
fn texts(name: &str, names: &[&str]) -> Arc<Schema> {
    object(name, names.iter().map(|name| (*name, text())))
}

fn text() -> Arc<Schema> {
    Schema::text()
}

fn list(item: Arc<Schema>) -> Arc<Schema> {
    Schema::list(item)
}

fn map(value: Arc<Schema>) -> Arc<Schema> {
    Schema::map(value)
}

fn object<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Arc<Schema>)>) -> Arc<Schema> {
    Schema::object(name, fields)
}
