//! Cached encodings: clients never get a stale one, and always get an answer when none is cached.

use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{ask, both};
use crate::overload::metric;
use crate::support::{ADMIN, TestServer, http as wire, until};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition whose objects have this colour unless they say another.
fn definition(colour: &str) -> Value {
    let spec = json!({"type": "object", "default": {}, "properties": {
        "colour": {"type": "string", "default": colour}
    }});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": schema,
                "additionalPrinterColumns":
                    [{"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}],
            }],
        },
    })
}

/// The colours of the widget as it is got, listed, listed as a Table and watched.
async fn colours(server: &TestServer) -> Vec<Value> {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let one = format!("{WIDGETS}/one");
    let got = ask("GET", &one).answer(server).await.1;
    let listed = ask("GET", WIDGETS).answer(server).await.1;
    let rows = ask("GET", WIDGETS)
        .header("Accept", table)
        .answer(server)
        .await
        .1;
    let event = first_event(server).await;
    vec![
        got["spec"]["colour"].clone(),
        listed["items"][0]["spec"]["colour"].clone(),
        rows["rows"][0]["cells"][1].clone(),
        event["object"]["spec"]["colour"].clone(),
    ]
}

/// The first event of a watch of all widgets.
async fn first_event(server: &TestServer) -> Value {
    let request = Request::get(format!("{WIDGETS}?watch=true"))
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(Full::default())
        .unwrap();
    let mut answer = wire::send(server.port(), request).await.unwrap();
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    serde_json::from_slice(frame.data_ref().unwrap()).unwrap()
}

/// The object stays as it is stored; what its definition makes of it changes.
#[tokio::test]
async fn objects_are_never_shown_as_an_old_definition_has_them() {
    both(&[], async |server| {
        let created = ask("POST", DEFINITIONS).json(&definition("red"));
        assert_eq!(created.status(server).await, 201);
        until("widgets are served", async || ask("GET", WIDGETS).status(server).await == 200).await;
        // Stored before there was a default for it.
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {}});
        let mut bare = definition("red");
        bare["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let path = format!("{DEFINITIONS}/widgets.example.com");
        let replace = async |definition: &Value| {
            let patch = json!({"spec": definition["spec"]});
            let patched = ask("PATCH", &path).body("application/merge-patch+json", patch.to_string());
            assert_eq!(patched.status(server).await, 200);
        };
        replace(&bare).await;
        assert_eq!(ask("POST", WIDGETS).json(&widget).status(server).await, 201);
        for colour in ["red", "green", "blue"] {
            replace(&definition(colour)).await;
            for turn in 0..3 {
                assert_eq!(colours(server).await, [colour; 4], "turn {turn}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_budget_of_encoded_objects_is_obeyed_and_shown() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let answers = async |server: &TestServer| {
        for name in ["a", "b"] {
            let map = json!({"metadata": {"name": name}, "data": {"key": "x".repeat(1000)}});
            assert_eq!(ask("POST", MAPS).json(&map).status(server).await, 201);
        }
        let mut all = Vec::new();
        for _ in 0..3 {
            for path in [MAPS, "/api/v1/namespaces/default/configmaps/a"] {
                let (status, mut answer) = ask("GET", path).answer(server).await;
                assert_eq!(status, 200);
                all.extend(answer["items"].as_array_mut().map(std::mem::take));
                all.push(vec![answer["data"].take()]);
            }
        }
        let names = |maps: Vec<Value>| maps.into_iter().map(|map| map["data"].clone()).collect();
        all.into_iter().map(names).collect::<Vec<Vec<Value>>>()
    };
    let folder = tempfile::tempdir().unwrap();
    let none = super::start(
        folder.path(),
        crate::support::Store::Embedded,
        &["--encoded-object-cache-bytes=0"],
    )
    .await;
    let without = answers(&none).await;
    assert_eq!(
        metric(&none, "keelson_encoded_object_cache_bytes", &[]).await,
        0.0
    );
    assert_eq!(
        metric(&none, "keelson_encoded_object_cache_hits_total", &[]).await,
        0.0
    );
    let folder = tempfile::tempdir().unwrap();
    let some = super::start(folder.path(), crate::support::Store::Embedded, &[]).await;
    assert_eq!(answers(&some).await, without);
    assert!(metric(&some, "keelson_encoded_object_cache_bytes", &[]).await > 2000.0);
    assert!(metric(&some, "keelson_encoded_object_cache_hits_total", &[]).await > 0.0);
    assert!(metric(&some, "keelson_encoded_object_cache_misses_total", &[]).await > 0.0);
    assert_eq!(
        metric(&some, "keelson_encoded_object_cache_evictions_total", &[]).await,
        0.0
    );
}
