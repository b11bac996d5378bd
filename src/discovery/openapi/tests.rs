//! Tests of OpenAPI documents against samples from kube-apiserver v1.36 (without its descriptions).

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
};

use super::*;
use crate::extensions::{self, definition::Definition};
use crate::meta::Object;

/// Parts of documents: the document's path, a JSON pointer into it, and what is there. Words are
/// left out.
const SAMPLES: &str = include_str!("../../../tests/vectors/openapi.json");

fn openapi() -> &'static OpenApi {
    static OPENAPI: OnceLock<OpenApi> = OnceLock::new();
    OPENAPI.get_or_init(|| OpenApi::new(crate::schema::builtin(), |_| true))
}

/// The kinds of a definition of `Gizmo`s, which are established, in the version v1.
fn gizmos(generation: u64, schema: &Value) -> Vec<CustomKind> {
    let names =
        json!({"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "selectableFields": [{"jsonPath": ".spec.color"}],
    });
    let definition = json!({
        "metadata": {"name": "gizmos.example.com", "uid": "u", "generation": generation},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    });
    let definition = Definition::read(&Object::from_value(definition).expect("an object"));
    let resources = extensions::resources(&definition, &None).into_iter();
    resources
        .map(|resource| CustomKind {
            decl: resource.decl.clone(),
            custom: resource.custom.expect("a custom resource"),
        })
        .collect()
}

fn document(openapi: &OpenApi, path: &str) -> Value {
    let response = openapi
        .answer(path, "", &HeaderMap::new())
        .expect("a path of ours");
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    serde_json::from_slice(response.body()).expect("JSON")
}

#[test]
fn custom_kinds_are_published() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let spec = json!({"type": "object", "description": "What is wanted.", "properties": {
        "color": {"type": "string", "default": "red"}, "template": embedded, "size": {"x-kubernetes-int-or-string": true}}});
    let openapi = openapi().with(
        gizmos(
            1,
            &json!({"type": "object", "description": "A gizmo.", "properties": {"spec": spec}}),
        ),
        Vec::new(),
    );
    let v3 = document(&openapi, "/openapi/v3/apis/example.com/v1");
    let at = |document: &Value, pointer: &str| {
        document.pointer(pointer).map(wordless).unwrap_or_default()
    };
    assert_eq!(
        v3["info"],
        json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
    );
    let reference = |to: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.{to}")}]});
    let text = json!({"type": "string"});
    let fields = json!([{"fieldPath": "spec.color"}]);
    assert_eq!(
        v3["components"]["schemas"]["com.example.v1.Gizmo"]["description"],
        "A gizmo."
    );
    assert_eq!(
        at(&v3, "/components/schemas/com.example.v1.Gizmo"),
        json!({"type": "object", "x-kubernetes-selectable-fields": fields,
            "x-kubernetes-group-version-kind": [{"group": "example.com", "kind": "Gizmo", "version": "v1"}],
            "properties": {"apiVersion": text, "kind": text, "metadata": reference("ObjectMeta"), "spec": {"type": "object", "properties": {
                "color": {"type": "string", "default": "red"},
                "size": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "template": {"type": "object", "required": ["kind", "apiVersion"],
                    "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"apiVersion": text, "kind": text, "metadata": reference("ObjectMeta")}}}}}})
    );
    let items =
        json!({"type": "array", "items": {"$ref": "#/components/schemas/com.example.v1.Gizmo"}});
    assert_eq!(
        at(&v3, "/components/schemas/com.example.v1.GizmoList"),
        json!({"type": "object", "required": ["items"], "x-kubernetes-selectable-fields": fields,
            "x-kubernetes-group-version-kind": [{"group": "example.com", "kind": "GizmoList", "version": "v1"}],
            "properties": {"apiVersion": text, "items": items, "kind": text, "metadata": reference("ListMeta")}})
    );
    let below = "/apis/example.com/v1/namespaces/{namespace}/gizmos";
    let paths: Vec<&crate::meta::Key> = v3["paths"].as_object().expect("paths").keys().collect();
    let one = format!("{below}/{{name}}");
    assert_eq!(
        paths,
        [
            "/apis/example.com/v1/gizmos",
            below,
            &one,
            &format!("{one}/scale"),
            &format!("{one}/status")
        ]
    );
    let operation =
        |path: &str, method: &str| at(&v3, &format!("/paths/{}/{method}", path.replace('/', "~1")));
    let media = |value: &Value| {
        value["content"]
            .as_object()
            .map(|map| map.keys().map(ToString::to_string).collect::<Vec<_>>())
    };
    let patch = operation(&one, "patch");
    assert_eq!(
        (&patch["operationId"], &patch["tags"][0]),
        (
            &json!("patchExampleComV1NamespacedGizmo"),
            &json!("exampleCom_v1")
        )
    );
    let media_types = [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    assert_eq!(
        media(&patch["requestBody"]),
        Some(media_types.map(str::to_owned).to_vec())
    );
    assert_eq!(patch["responses"].as_object().map(Map::len), Some(2));
    assert_eq!(
        operation(&one, "get")["parameters"][0]["name"],
        "resourceVersion"
    );
    assert_eq!(operation(below, "delete").get("requestBody"), None);
    assert_eq!(
        operation(&format!("{one}/scale"), "get")["x-kubernetes-group-version-kind"]["kind"],
        "Gizmo"
    );

    let v2 = document(&openapi, V2);
    assert_eq!(
        at(
            &v2,
            "/definitions/com.example.v1.Gizmo/properties/spec/properties/template"
        ),
        {
            json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
        }
    );
    let meta = json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"});
    assert_eq!(
        at(&v2, "/definitions/com.example.v1.Gizmo/properties/metadata"),
        meta
    );
    assert!(v2["paths"][below]["post"].is_object() && v2["paths"]["/api/v1/pods"].is_object());
}

#[test]
fn hashes_change_with_the_definitions_that_they_are_about() {
    let schema = json!({"type": "object"});
    let hash = |openapi: &OpenApi, path: &str| {
        openapi
            .answer(path, "", &HeaderMap::new())
            .expect("ours")
            .headers()[ETAG]
            .clone()
    };
    let (group, other) = (
        "/openapi/v3/apis/example.com/v1",
        "/openapi/v3/apis/apps/v1",
    );
    let before = openapi().with(gizmos(1, &schema), Vec::new());
    let same = before.with(gizmos(1, &schema), Vec::new());
    let after = before.with(gizmos(2, &schema), Vec::new());
    let none = after.with(Vec::new(), Vec::new());
    for path in [group, V2, V3] {
        assert_eq!(hash(&before, path), hash(&same, path), "{path}");
        assert_ne!(hash(&before, path), hash(&after, path), "{path}");
    }
    assert_eq!(hash(&before, other), hash(&after, other));
    assert_eq!(
        (hash(&none, V2), hash(&none, V3)),
        (hash(openapi(), V2), hash(openapi(), V3))
    );
    assert_eq!(
        none.answer(group, "", &HeaderMap::new())
            .map(|answer| answer.status()),
        Some(StatusCode::NOT_FOUND)
    );
}

#[test]
fn a_schema_that_is_not_structural_is_not_published() {
    let openapi = openapi().with(gizmos(
        1,
        &json!({"type": "object", "properties": {"a": {"properties": {"b": {"type": "string"}}}}}),
    ), Vec::new());
    let gizmo = document(&openapi, "/openapi/v3/apis/example.com/v1")
        .pointer("/components/schemas/com.example.v1.Gizmo")
        .cloned();
    let keys: Vec<String> = gizmo
        .and_then(|one| Some(one.as_object()?.keys().map(ToString::to_string).collect()))
        .expect("a definition");
    assert_eq!(
        keys,
        [
            "type",
            "x-kubernetes-selectable-fields",
            "x-kubernetes-group-version-kind"
        ]
    );
}

fn get(path: &str, query: &str, headers: &[(header::HeaderName, &str)]) -> Response<Bytes> {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.clone(), value.parse().expect("a header value")))
        .collect();
    openapi()
        .answer(path, query, &headers)
        .expect("a path of ours")
}

/// The value without the descriptions in it.
fn wordless(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map
                .iter()
                .filter(|(key, value)| *key != "description" || !value.is_string());
            Value::Object(
                kept.map(|(key, value)| (key.clone(), wordless(value)))
                    .collect(),
            )
        }
        Value::Array(list) => list.iter().map(wordless).collect(),
        other => other.clone(),
    }
}

#[test]
fn documents_have_the_structure_that_clients_know() {
    let samples: Vec<(String, String, Value)> =
        serde_json::from_str(SAMPLES).expect("the samples are JSON");
    assert!(samples.len() > 20);
    let mut documents: BTreeMap<String, Value> = BTreeMap::new();
    for (path, pointer, want) in samples {
        let document = documents.entry(path.clone()).or_insert_with(|| {
            serde_json::from_slice(get(&path, "", &[]).body()).expect("a document is JSON")
        });
        let found = document.pointer(&pointer).map(wordless);
        assert_eq!(found.as_ref(), Some(&want), "{path} {pointer}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value {
                Value::String(target) if key == "$ref" => found.push(target),
                value => references(value, found),
            }),
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_slice(get(V2, "", &[]).body()).expect("JSON");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 1000);
    for target in found {
        assert!(
            document
                .pointer(&target[1..])
                .is_some_and(|definition| definition.is_object()),
            "{target}"
        );
    }
}

#[test]
fn the_index_names_each_document_with_its_hash() {
    let response = get("/openapi/v3", "", &[]);
    assert_eq!(
        response.headers()[CONTENT_TYPE],
        "text/plain; charset=utf-8"
    );
    let index: Value = serde_json::from_slice(response.body()).expect("JSON");
    assert_eq!(index["paths"].as_object().map(Map::len), Some(47));
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .expect("a URL");
    let (path, query) = url.split_once('?').expect("a hash");
    let document = get(path, query, &[]);
    assert_eq!(
        (
            document.status(),
            &document.headers()[header::CACHE_CONTROL]
        ),
        (StatusCode::OK, &HeaderValue::from_static(KEEP))
    );
    let moved = get(path, "hash=0", &[]);
    assert_eq!(
        (moved.status(), &moved.headers()[LOCATION]),
        (
            StatusCode::MOVED_PERMANENTLY,
            &HeaderValue::from_str(url).expect("ASCII")
        )
    );
    let etag = document.headers()[ETAG].to_str().expect("ASCII");
    assert_eq!(
        get(path, "", &[(IF_NONE_MATCH, etag)]).status(),
        StatusCode::NOT_MODIFIED
    );
}

#[test]
fn bodies_are_compressed_for_those_who_can_read_it() {
    let plain = get(
        "/openapi/v3/version",
        "",
        &[(ACCEPT_ENCODING, "br, gzip;q=0")],
    );
    let packed = get(
        "/openapi/v3/version",
        "",
        &[(ACCEPT_ENCODING, "br, gzip;q=0.5")],
    );
    assert_eq!(
        (
            plain.headers().get(CONTENT_ENCODING),
            &packed.headers()[CONTENT_ENCODING]
        ),
        (None, &HeaderValue::from_static("gzip"))
    );
    assert_eq!(decompress(packed.body()), plain.body());
}

#[test]
fn openapi_v2_is_served_as_protobuf() {
    let json = get(V2, "", &[]);
    for accept in PROTOBUF {
        let response = get(V2, "", &[(ACCEPT, accept)]);
        assert_eq!(response.headers()[CONTENT_TYPE], PROTOBUF[0]);
        assert_ne!(response.headers()[ETAG], json.headers()[ETAG]);
        assert!(response.body().starts_with(b"\x0a\x032.0") && response.body().len() > 500_000);
    }
}

#[test]
fn unserved_documents_are_refused_without_a_body() {
    for (path, accept, want) in [
        ("/openapi/v3/bogus", "", 404),
        ("/openapi/v3/apis/bogus/v1", "", 404),
        ("/openapi/v3/version", "application/yaml", 406),
        ("/openapi/v3/version", super::PROTOBUF_V3[0], 200),
        ("/openapi/v3/version", super::PROTOBUF_V3[1], 200),
        ("/openapi/v2", "text/html", 406),
        ("/openapi/v2", "*/*", 200),
    ] {
        let response = get(path, "", &[(ACCEPT, accept)]);
        assert_eq!(
            (response.status().as_u16(), response.body().is_empty()),
            (want, want != 200),
            "{path} {accept}"
        );
    }
    assert!(
        openapi()
            .answer("/openapi/v3x", "", &HeaderMap::new())
            .is_none()
    );
}

#[test]
fn documents_of_other_servers_are_merged() {
    let spec = |version: &str, v2: Value| {
        let mut spec = RemoteSpec::new("wardle.example.com", version);
        spec.v2 = Some(
            RemoteDocument::new(v2, &spec.path)
                .expect("a document")
                .into(),
        );
        spec
    };
    let path = |version: &str| format!("/apis/wardle.example.com/{version}/flunders");
    let part = |version: &str| json!({"paths": {path(version): {"get": {}}, "/api/v1/pods": {}}});
    let mut first = spec("v1", part("v1"));
    let url = "/openapi/v3/apis/wardle.example.com/v1?hash=A";
    assert!(first.set_v3_url(url));
    for odd in [
        "https://example.com/openapi/v3/apis/wardle.example.com/v1",
        "/openapi/v3/api/v1",
    ] {
        assert!(!first.set_v3_url(odd), "{odd}");
    }
    let before = openapi();
    let openapi = before.with(
        Vec::new(),
        vec![Arc::new(first), Arc::new(spec("v2", part("v2")))],
    );
    let all = document(&openapi, V2);
    assert!(all["paths"][&path("v1")].is_object() && all["paths"][&path("v2")].is_object());
    assert_eq!(
        all["paths"]["/api/v1/pods"],
        document(before, V2)["paths"]["/api/v1/pods"],
        "nobody speaks for others"
    );
    assert_ne!(openapi.v2.hash, before.v2.hash);
    let index = document(&openapi, V3);
    assert_eq!(
        index["paths"]["apis/wardle.example.com/v1"]["serverRelativeURL"],
        url
    );
    assert!(index["paths"]["apis/apps/v1"].is_object());
    assert!(index["paths"]["apis/wardle.example.com/v2"].is_null());
}
