//! Bodies that nest as deep as JSON may, and deeper, through every kind of write: answered as
//! upstream does, and the server survives.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use support::{ADMIN, TestServer, http as wire};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/deep.example.com/v1/namespaces/default/things";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// The longest a request may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Levels that fit into any body here, together with what is around them.
const FITTING: usize = 9_900;
/// Levels that are one too many in any body here.
const TOO_MANY: usize = 10_000;

const DEFINITION: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.deep.example.com"}, "spec": {"group": "deep.example.com", "scope": "Namespaced",
    "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "typed": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}]}}"#;

/// The status and the text of an answer.
async fn call(
    server: &TestServer,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "localhost")
        .header("Content-Type", kind);
    let body = Full::new(Bytes::from(body.to_owned()));
    let request = request
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(body)
        .unwrap();
    let answer = wire::call(server.port(), request, PATIENCE).await.unwrap();
    (
        answer.status,
        String::from_utf8(answer.body.to_vec()).unwrap(),
    )
}

fn maps(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

fn lists(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

fn config_map(field: &str, value: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"deep"}},"{field}":{value}}}"#
    )
}

fn thing(field: &str, value: &str) -> String {
    format!(
        r#"{{"apiVersion":"deep.example.com/v1","kind":"Thing","metadata":{{"name":"deep"}},"{field}":{{"d":{value}}}}}"#
    )
}

/// A server with the definition and an object of each kind.
async fn prepared() -> TestServer {
    let server = TestServer::start().await;
    assert_eq!(
        call(&server, "POST", DEFINITIONS, JSON, DEFINITION).await.0,
        201
    );
    assert_eq!(
        call(
            &server,
            "POST",
            MAPS,
            JSON,
            &config_map("data", r#"{"k":"v"}"#)
        )
        .await
        .0,
        201
    );
    while call(&server, "POST", THINGS, JSON, &thing("spec", "1"))
        .await
        .0
        != 201
    {}
    server
}

#[tokio::test]
async fn deepest_json_is_stored_patched_and_pruned() {
    let server = prepared().await;
    let (map, object) = (format!("{MAPS}/deep"), format!("{THINGS}/deep"));
    for deep in [maps(FITTING), lists(FITTING)] {
        let applied = |name: &str| format!("{object}?fieldManager={name}&force=true");
        let table = [
            (
                "PATCH",
                object.clone(),
                MERGE,
                format!(r#"{{"spec":{{"d":{deep}}}}}"#),
                200,
            ),
            (
                "PATCH",
                object.clone(),
                JSON_PATCH,
                format!(r#"[{{"op":"add","path":"/spec/e","value":{deep}}}]"#),
                200,
            ),
            ("PATCH", applied("one"), APPLY, thing("spec", &deep), 200),
            (
                "PATCH",
                applied("two"),
                APPLY,
                thing("spec", &deep.replace('1', "2")),
                200,
            ),
            ("PATCH", applied("one"), APPLY, thing("spec", "1"), 200),
            (
                "PATCH",
                object.clone(),
                MERGE,
                format!(r#"{{"spec":null,"typed":{{"d":{deep}}}}}"#),
                200,
            ),
            (
                "PATCH",
                object.clone(),
                MERGE,
                format!(r#"{{"typed":{{"a":{deep}}}}}"#),
                422,
            ),
            ("PATCH", applied("one"), APPLY, thing("typed", &deep), 500),
            (
                "POST",
                format!("{THINGS}?dryRun=All"),
                YAML,
                thing("spec", &deep).replace("\"name\":\"deep\"", "\"name\":\"other\""),
                201,
            ),
            (
                "PATCH",
                map.clone(),
                MERGE,
                format!(r#"{{"spec":{deep}}}"#),
                200,
            ),
            (
                "PATCH",
                map.clone(),
                MERGE,
                format!(r#"{{"data":{{"d":{deep}}}}}"#),
                422,
            ),
            (
                "PATCH",
                map.clone(),
                STRATEGIC,
                format!(r#"{{"spec":{deep}}}"#),
                200,
            ),
            (
                "PATCH",
                map.clone(),
                STRATEGIC,
                format!(r#"{{"data":{{"d":{deep}}}}}"#),
                422,
            ),
            (
                "PATCH",
                map.clone(),
                JSON_PATCH,
                format!(r#"[{{"op":"add","path":"/spec","value":{deep}}}]"#),
                200,
            ),
            (
                "PATCH",
                format!("{map}?fieldManager=m"),
                APPLY,
                config_map("data", &deep),
                500,
            ),
            (
                "PATCH",
                format!("{map}?fieldManager=m"),
                APPLY,
                config_map("spec", &deep),
                500,
            ),
            ("PUT", map.clone(), JSON, config_map("spec", &deep), 200),
            ("PUT", map.clone(), YAML, config_map("data", &deep), 400),
        ];
        for (method, path, kind, body, want) in table {
            let (status, text) = call(&server, method, &path, kind, &body).await;
            assert_eq!(
                status,
                want,
                "{method} {path} {kind} {}: {}",
                &body[..100],
                &text[..text.len().min(500)]
            );
        }
        for path in [THINGS, MAPS] {
            assert_eq!(call(&server, "GET", path, JSON, "").await.0, 200);
        }
    }
}

#[tokio::test]
async fn deeper_json_is_refused_with_gos_words() {
    let server = prepared().await;
    let (map, object) = (format!("{MAPS}/deep"), format!("{THINGS}/deep"));
    for (deep, open) in [(maps(TOO_MANY), '{'), (lists(TOO_MANY), '[')] {
        let decoder = format!("invalid character '{open}' exceeded max depth");
        let yaml = "exceeded max depth of 10000".to_owned();
        let table = [
            (
                "POST",
                THINGS.to_owned(),
                JSON,
                thing("spec", &deep),
                &decoder,
            ),
            (
                "PATCH",
                object.clone(),
                MERGE,
                format!(r#"{{"spec":{deep}}}"#),
                &decoder,
            ),
            (
                "PATCH",
                object.clone(),
                JSON_PATCH,
                format!(r#"[{{"op":"add","path":"/spec","value":{deep}}}]"#),
                &decoder,
            ),
            (
                "PATCH",
                format!("{object}?fieldManager=m"),
                APPLY,
                thing("spec", &deep),
                &yaml,
            ),
            (
                "POST",
                MAPS.to_owned(),
                JSON,
                config_map("data", &deep),
                &decoder,
            ),
            (
                "POST",
                MAPS.to_owned(),
                YAML,
                config_map("data", &deep),
                &yaml,
            ),
            (
                "PATCH",
                map.clone(),
                MERGE,
                format!(r#"{{"data":{deep}}}"#),
                &decoder,
            ),
            (
                "PATCH",
                map.clone(),
                STRATEGIC,
                format!(r#"{{"data":{deep}}}"#),
                &decoder,
            ),
            (
                "PATCH",
                format!("{map}?fieldManager=m"),
                APPLY,
                config_map("data", &deep),
                &yaml,
            ),
        ];
        for (method, path, kind, body, want) in table {
            let (status, text) = call(&server, method, &path, kind, &body).await;
            assert_eq!(status, 400, "{method} {path} {kind}");
            assert!(
                text.contains(want.as_str()),
                "{method} {path} {kind}: {}",
                &text[..text.len().min(500)]
            );
        }
    }
}

/// Field managers add levels of their own. Upstream stores such an object and cannot read it again.
#[tokio::test]
async fn objects_too_deep_by_managed_fields_are_not_stored() {
    let server = prepared().await;
    let body = thing("spec", &maps(9_996)).replace("\"name\":\"deep\"", "\"name\":\"other\"");
    let (status, text) = call(&server, "POST", THINGS, JSON, &body).await;
    assert_eq!(status, 500);
    assert!(
        text.contains("invalid character '{' exceeded max depth"),
        "{text}"
    );
    assert_eq!(
        call(&server, "GET", &format!("{THINGS}/other"), JSON, "")
            .await
            .0,
        404
    );
}
