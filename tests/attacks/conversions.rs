//! Conversion webhooks: every verb in another version than the stored one, few calls, and webhooks
//! that answer nonsense or nothing.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::support::TestServer;
use super::support::http as wire;
use super::support::webhook::{Reply, Seen, Webhook};
use super::{PATIENCE, ask, both};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A kind whose versions v1 and v2 call the same field `before` and `after`; `storage` is stored.
pub fn widgets(webhook: &Webhook, storage: &str, reviews: &[&str]) -> Value {
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {
            field: {"type": "string"}, "replicas": {"type": "integer"},
        }});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            }},
            "additionalPrinterColumns": [{"name": field, "type": "string", "jsonPath": format!(".spec.{field}")}],
            "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", "before"), version("v2", "after")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": webhook.client_config("/convert"), "conversionReviewVersions": reviews,
            }},
        },
    })
}

pub fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// An object in the other version: `before` is `after` there.
fn converted(object: &Value, api_version: &str) -> Value {
    let mut object = object.clone();
    let (from, to) = match api_version {
        "example.com/v2" => ("before", "after"),
        _ => ("after", "before"),
    };
    object["apiVersion"] = api_version.into();
    let spec = object["spec"].as_object_mut();
    if let Some((spec, text)) = spec.and_then(|spec| spec.remove(from).map(|text| (spec, text))) {
        spec.insert(to.to_owned(), text);
    }
    object
}

/// The objects of a review, converted.
fn objects(seen: &Seen) -> Vec<Value> {
    let request = &seen.body["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap().iter();
    objects.map(|object| converted(object, wanted)).collect()
}

fn reviewed(seen: &Seen, objects: Vec<Value>) -> Value {
    json!({
        "kind": "ConversionReview", "apiVersion": seen.body["apiVersion"],
        "response": {
            "uid": seen.body["request"]["uid"], "convertedObjects": objects,
            "result": {"status": "Success"},
        },
    })
}

pub fn convert(seen: &Seen) -> Reply {
    Reply::Json(reviewed(seen, objects(seen)))
}

/// Creates the definition and waits until its objects are served.
pub async fn define(server: &TestServer, definition: &Value) {
    let made = ask("POST", CRDS).json(definition).send(server).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert!(made.headers.get("warning").is_none(), "{made:?}");
    let begun = std::time::Instant::now();
    while ask("GET", &format!("{V1}?limit=1")).status(server).await == 404 {
        assert!(begun.elapsed() < PATIENCE, "it is not served");
        tokio::task::yield_now().await;
    }
}

/// Waits until the watch cache serves the objects, so that a conversion is kept.
async fn cached(server: &TestServer, webhook: &Webhook) {
    create(server, V1, &widget("v1", "warm", json!({}))).await;
    let begun = std::time::Instant::now();
    loop {
        expect(server, 200, ask("GET", &format!("{V2}/warm"))).await;
        webhook.take();
        expect(server, 200, ask("GET", &format!("{V2}/warm"))).await;
        if webhook.take().is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is kept");
    }
    expect(server, 200, ask("DELETE", &format!("{V1}/warm"))).await;
}

/// Sends a request and checks the status; returns the body.
async fn expect(server: &TestServer, status: u16, ask: super::Ask<'_>) -> Value {
    let answer = ask.answer(server).await;
    assert_eq!(answer.0, status, "{answer:?}");
    answer.1
}

async fn create(server: &TestServer, path: &str, object: &Value) {
    expect(server, 201, ask("POST", path).json(object)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_speaks_the_version_of_its_request() {
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v2", "v1"])).await;
        let (old, new) = (format!("{V1}/a"), format!("{V2}/a"));
        create(server, V1, &widget("v1", "a", json!({"before": "x"}))).await;
        let stored = expect(server, 200, ask("GET", &old)).await;
        expect(server, 200, ask("GET", V1)).await;
        assert!(
            webhook.take().is_empty(),
            "the storage version calls nobody"
        );

        let shown = expect(server, 200, ask("GET", &new)).await;
        assert_eq!(
            (&shown["apiVersion"], &shown["spec"]),
            (&json!("example.com/v2"), &json!({"after": "x"}))
        );
        assert_eq!(shown["metadata"], stored["metadata"]);
        let [review] = &webhook.take()[..] else {
            panic!("one call")
        };
        assert_eq!(review.uri, "/convert?timeout=30s");
        assert_eq!(review.body["apiVersion"], "apiextensions.k8s.io/v1");
        assert_eq!(
            review.body["request"]["desiredAPIVersion"],
            "example.com/v2"
        );
        assert_eq!(
            review.body["request"]["objects"][0]["spec"],
            json!({"before": "x"})
        );

        let list = expect(server, 200, ask("GET", V2)).await;
        assert_eq!(
            (&list["apiVersion"], &list["items"][0]["spec"]),
            (&json!("example.com/v2"), &json!({"after": "x"}))
        );
        let table = ask("GET", V2).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table = expect(server, 200, table).await;
        assert_eq!(table["rows"][0]["cells"], json!(["a", "x"]));
        let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let metadata = expect(server, 200, ask("GET", V2).header("Accept", metadata)).await;
        assert_eq!(metadata["items"][0]["metadata"]["name"], "a");
        for (selector, count) in [
            ("spec.after%3Dx", 1),
            ("spec.after%3Dy", 0),
            ("metadata.name%3Da", 1),
        ] {
            let path = format!("{V2}?fieldSelector={selector}");
            let list = expect(server, 200, ask("GET", &path)).await;
            assert_eq!(list["items"].as_array().unwrap().len(), count, "{selector}");
        }

        let spec = |answer: &Value| answer["spec"].clone();
        let in_storage = async || spec(&expect(server, 200, ask("GET", &old)).await);
        let mut body = shown.clone();
        body["spec"] = json!({"after": "put"});
        let answer = expect(server, 200, ask("PUT", &new).json(&body)).await;
        assert_eq!(
            (spec(&answer), in_storage().await),
            (json!({"after": "put"}), json!({"before": "put"}))
        );
        let patch = ask("PATCH", &new).body(MERGE, r#"{"spec":{"after":"patched"}}"#);
        let answer = expect(server, 200, patch).await;
        assert_eq!(
            (spec(&answer), in_storage().await),
            (json!({"after": "patched"}), json!({"before": "patched"}))
        );
        let status = format!("{new}/status");
        let patch = ask("PATCH", &status).body(MERGE, r#"{"status":{"seen":true}}"#);
        let answer = expect(server, 200, patch).await;
        assert_eq!(
            (&answer["apiVersion"], &answer["status"]),
            (&json!("example.com/v2"), &json!({"seen": true}))
        );
        let scale = format!("{new}/scale");
        let patch = ask("PATCH", &scale).body(MERGE, r#"{"spec":{"replicas":3}}"#);
        // A Scale of an object without replicas has some once they are set.
        expect(server, 200, patch).await;
        assert_eq!(
            in_storage().await,
            json!({"before": "patched", "replicas": 3})
        );

        create(server, V2, &widget("v2", "b", json!({"after": "made"}))).await;
        let made = expect(server, 200, ask("GET", &format!("{V1}/b"))).await;
        assert_eq!(made["spec"], json!({"before": "made"}));
        let tried = ask("POST", &format!("{V2}?dryRun=All"))
            .json(&widget("v2", "c", json!({"after": "dry"})))
            .answer(server)
            .await;
        assert_eq!((tried.0, spec(&tried.1)), (201, json!({"after": "dry"})));
        let tried = ask("PATCH", &format!("{new}?dryRun=All"))
            .body(MERGE, r#"{"spec":{"after":"dry"}}"#)
            .answer(server)
            .await;
        assert_eq!((tried.0, &tried.1["spec"]["after"]), (200, &json!("dry")));
        assert_eq!(in_storage().await["before"], "patched");
        expect(server, 200, ask("DELETE", &new)).await;
        let gone = expect(server, 200, ask("DELETE", V2)).await;
        assert_eq!(gone["items"][0]["spec"], json!({"after": "made"}));
        assert_eq!(
            expect(server, 200, ask("GET", V1)).await["items"],
            json!([])
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applier_owns_its_fields_in_every_version() {
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        let apply = async |path: &str, manager: &str, object: &Value| {
            let path = format!("{path}/a?fieldManager={manager}");
            ask("PATCH", &path)
                .body(APPLY, object.to_string())
                .answer(server)
                .await
        };
        let old = widget("v1", "a", json!({"before": "x"}));
        assert_eq!(apply(V1, "one", &old).await.0, 201);
        let answer = apply(V2, "two", &widget("v2", "a", json!({"after": "y"}))).await;
        assert_eq!(answer.0, 409, "{answer:?}");
        assert_eq!(
            answer.1["message"],
            "Apply failed with 1 conflict: conflict with \"one\": .spec.before"
        );
        let answer = apply(V2, "two", &widget("v2", "a", json!({"after": "x"}))).await;
        assert_eq!(answer.0, 200, "{answer:?}");
        let owners: Vec<_> = answer.1["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| (entry["manager"].clone(), entry["apiVersion"].clone()))
            .collect();
        assert_eq!(
            owners,
            [
                (json!("two"), json!("example.com/v2")),
                (json!("one"), json!("example.com/v1"))
            ]
        );
        // What one gives up, two still has.
        assert_eq!(apply(V1, "one", &widget("v1", "a", json!({}))).await.0, 200);
        let shown = expect(server, 200, ask("GET", &format!("{V2}/a"))).await;
        assert_eq!(shown["spec"], json!({"after": "x"}));
        assert_eq!(apply(V2, "two", &widget("v2", "a", json!({}))).await.0, 200);
        let shown = expect(server, 200, ask("GET", &format!("{V1}/a"))).await;
        assert!(shown["spec"]["before"].is_null(), "{shown}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_takes_few_calls_and_an_object_is_converted_once() {
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        cached(server, &webhook).await;
        // Four of these are in one call.
        let text = "x".repeat(500 << 10);
        for number in 0..9 {
            let name = format!("w{number}");
            create(server, V1, &widget("v1", &name, json!({"before": text}))).await;
        }
        let page = expect(server, 200, ask("GET", &format!("{V2}?limit=2"))).await;
        assert_eq!(page["items"].as_array().unwrap().len(), 2);
        assert_eq!(webhook.take().len(), 1);
        let list = expect(server, 200, ask("GET", V2)).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 9);
        assert!(
            list["items"]
                .as_array()
                .unwrap()
                .iter()
                .all(|item| item["spec"]["after"] == text.as_str())
        );
        assert_eq!(webhook.take().len(), 2);
        let selected = format!("{V2}?limit=4&fieldSelector=spec.after!%3Dy");
        let selected = expect(server, 200, ask("GET", &selected)).await;
        assert_eq!(selected["items"].as_array().unwrap().len(), 4);
        let next = selected["metadata"]["continue"].as_str().unwrap();
        let next = expect(
            server,
            200,
            ask("GET", &format!("{V2}?limit=9&continue={next}")),
        )
        .await;
        assert_eq!(next["items"].as_array().unwrap().len(), 5);
        expect(server, 200, ask("GET", &format!("{V2}/w3"))).await;
        assert!(webhook.take().is_empty(), "all of them are kept");

        // Under another definition they are converted anew.
        let definition = format!("{CRDS}/widgets.example.com");
        let patch = r#"{"spec":{"names":{"shortNames":["wd"]}}}"#;
        expect(server, 200, ask("PATCH", &definition).body(MERGE, patch)).await;
        expect(server, 200, ask("GET", V2)).await;
        assert_eq!(webhook.take().len(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_at_the_same_time_wait_for_one_call() {
    const READERS: usize = 50;
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        cached(server, &webhook).await;
        create(server, V1, &widget("v1", "a", json!({"before": "x"}))).await;
        let new = format!("{V2}/a");
        let reads = (0..READERS).map(|number| {
            let path = if number % 2 == 0 { &new } else { V2 };
            ask("GET", path).status(server)
        });
        let statuses = futures::future::join_all(reads).await;
        assert_eq!(statuses, [200; READERS]);
        assert_eq!(webhook.take().len(), 1);
    })
    .await;
}

/// A watch, which yields its events one by one.
struct Watch(hyper::body::Incoming, Vec<u8>);

impl Watch {
    async fn open(server: &TestServer, path: &str) -> Self {
        let request = http::Request::get(path)
            .header("Host", "localhost")
            .header("Authorization", format!("Bearer {}", super::support::ADMIN))
            .body(http_body_util::Full::default())
            .unwrap();
        let answer = wire::send(server.port(), request).await.unwrap();
        assert_eq!(answer.status(), 200);
        Self(answer.into_body(), Vec::new())
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.1.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.1.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let frame = tokio::time::timeout(PATIENCE, self.0.frame())
                .await
                .unwrap();
            let frame = frame.expect("an event").unwrap();
            self.1.extend_from_slice(&frame.into_data().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watchers_cause_one_call_for_each_event() {
    const WATCHERS: usize = 20;
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        cached(server, &webhook).await;
        create(server, V1, &widget("v1", "a", json!({"before": "1"}))).await;
        let path = format!("{V2}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        let mut watches = Vec::new();
        for _ in 0..WATCHERS {
            watches.push(Watch::open(server, &path).await);
        }
        for watch in &mut watches {
            let event = watch.next().await;
            assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("ADDED"), &json!({"after": "1"})));
            let end = watch.next().await;
            assert_eq!((&end["type"], &end["object"]["apiVersion"]), (&json!("BOOKMARK"), &json!("example.com/v2")));
        }
        assert_eq!(webhook.take().len(), 1, "the object was converted once");

        let patch = ask("PATCH", &format!("{V1}/a")).body(MERGE, r#"{"spec":{"before":"2"}}"#).status(server).await;
        assert_eq!(patch, 200);
        for watch in &mut watches {
            let event = watch.next().await;
            assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("MODIFIED"), &json!({"after": "2"})));
        }
        assert_eq!(webhook.take().len(), 1);
        assert_eq!(ask("DELETE", &format!("{V1}/a")).status(server).await, 200);
        for watch in &mut watches {
            let event = watch.next().await;
            assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("DELETED"), &json!({"after": "2"})));
        }
        assert!(webhook.take().is_empty(), "its last state was known");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_of_a_watch_look_at_its_version() {
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        let mut watch = Watch::open(
            server,
            &format!("{V2}?watch=1&fieldSelector=spec.after%3Dyes"),
        )
        .await;
        create(server, V1, &widget("v1", "a", json!({"before": "no"}))).await;
        for (text, kind, shown) in [("yes", "ADDED", "yes"), ("no", "DELETED", "yes")] {
            let patch = json!({"spec": {"before": text}}).to_string();
            expect(
                server,
                200,
                ask("PATCH", &format!("{V1}/a")).body(MERGE, patch),
            )
            .await;
            let event = watch.next().await;
            assert_eq!(
                (&event["type"], &event["object"]["spec"]["after"]),
                (&json!(kind), &json!(shown))
            );
        }
    })
    .await;
}

/// An answer of a broken webhook, and what clients are told.
type Broken = (fn(&Seen) -> Reply, &'static str);

fn with(seen: &Seen, pointer: &str, value: Value) -> Reply {
    let mut review = reviewed(seen, objects(seen));
    match review.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => panic!("{pointer}"),
    }
    Reply::Json(review)
}

const BROKEN: &[Broken] = &[
    (
        |seen| with(seen, "/response/uid", json!("other")),
        " failed: expected response.uid=",
    ),
    (
        |seen| with(seen, "/response", Value::Null),
        " failed: no response provided",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/result",
                json!({"status": "Failure", "message": "not today"}),
            )
        },
        " failed: not today",
    ),
    (
        |seen| with(seen, "/response/result", json!({"status": "Failure"})),
        " failed: response.result.status was 'Failure', not 'Success'",
    ),
    (
        |seen| with(seen, "/apiVersion", json!("apiextensions.k8s.io/v1beta1")),
        " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview",
    ),
    (
        |seen| with(seen, "/response/convertedObjects", json!([])),
        " returned 0 objects, expected 1",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/convertedObjects/0/apiVersion",
                json!("example.com/v1"),
            )
        },
        " returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
    ),
    (
        |seen| with(seen, "/response/convertedObjects/0/kind", json!("Gadget")),
        " returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/convertedObjects/0/metadata/name",
                json!("b"),
            )
        },
        " returned invalid object: must have the same name: a != b",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/convertedObjects/0/metadata/namespace",
                json!("b"),
            )
        },
        " returned invalid object: must have the same namespace: default != b",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/convertedObjects/0/metadata/uid",
                json!("b"),
            )
        },
        " returned invalid object: must have the same UID: ",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/convertedObjects/0/metadata/labels",
                json!({"a": 1}),
            )
        },
        " returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
    ),
    (
        |seen| {
            with(
                seen,
                "/response/convertedObjects/0/metadata/labels",
                json!({"a": "-"}),
            )
        },
        " returned invalid metadata: metadata.labels: Invalid value: \"-\": ",
    ),
    (
        |seen| with(seen, "/response/convertedObjects/0", Value::Null),
        "Object 'Kind' is missing in 'null'",
    ),
    (
        |_| Reply::Raw(200, Vec::new(), b"nonsense".to_vec()),
        " failed: couldn't get version/kind; json parse error: ",
    ),
    (
        |_| Reply::Raw(500, Vec::new(), b"oops".to_vec()),
        " failed: an error on the server (\"oops\") has prevented the request from succeeding",
    ),
    (|_| Reply::Close, " failed: Post \"https://localhost:"),
    (|_| Reply::Endless(100 << 20), " failed: "),
];

/// Clients get a 500 in kube-apiserver's words, and nothing is kept: the next answer counts.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_webhook_answers_is_checked() {
    both(&[], async |server| {
        let broken: Arc<Mutex<Option<usize>>> = Arc::default();
        let current = broken.clone();
        let webhook = Webhook::start(move |seen| match *current.lock().unwrap() {
            Some(index) => BROKEN[index].0(seen),
            None => convert(seen),
        })
        .await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        let mut labelled = widget("v1", "a", json!({"before": "x"}));
        labelled["metadata"]["labels"] = json!({"a": "b"});
        create(server, V1, &labelled).await;
        for (index, (_, why)) in BROKEN.iter().enumerate() {
            *broken.lock().unwrap() = Some(index);
            for path in [format!("{V2}/a"), V2.to_owned(), format!("{V2}?watch=1")] {
                let failed = expect(server, 500, ask("GET", &path)).await;
                let message = failed["message"].as_str().unwrap();
                assert!(message.contains(why), "{path}: {message}, not {why}");
                let about = "conversion webhook for example.com/v1, Kind=Widget";
                assert!(
                    message.starts_with(about) || why.starts_with("Object"),
                    "{message}"
                );
            }
            expect(server, 200, ask("GET", &format!("{V1}/a"))).await;
        }
        *broken.lock().unwrap() = None;
        expect(server, 200, ask("GET", &format!("{V2}/a"))).await;
    })
    .await;
}

/// Only labels and annotations may change.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_kept_but_for_labels_and_annotations() {
    both(&[], async |server| {
        let webhook = Webhook::start(|seen| {
            let mut objects = objects(seen);
            for object in &mut objects {
                object["metadata"]["generation"] = 99.into();
                object["metadata"]["finalizers"] = json!(["example.com/mine"]);
                object["metadata"]["labels"] = json!({"converted": "yes"});
            }
            Reply::Json(reviewed(seen, objects))
        })
        .await;
        define(server, &widgets(&webhook, "v1", &["v1beta1"])).await;
        create(server, V1, &widget("v1", "a", json!({"before": "x"}))).await;
        let list = expect(
            server,
            200,
            ask("GET", &format!("{V2}?labelSelector=converted%3Dyes")),
        )
        .await;
        let metadata = &list["items"][0]["metadata"];
        assert_eq!(
            (&metadata["generation"], &metadata["finalizers"]),
            (&json!(1), &Value::Null)
        );
        assert_eq!(metadata["labels"], json!({"converted": "yes"}));
        assert_eq!(
            webhook.take()[0].body["apiVersion"],
            "apiextensions.k8s.io/v1beta1"
        );
        let none = expect(
            server,
            200,
            ask("GET", &format!("{V1}?labelSelector=converted%3Dyes")),
        )
        .await;
        assert_eq!(none["items"], json!([]));
    })
    .await;
}

/// A write without a change stores the object in the new storage version.
#[tokio::test(flavor = "multi_thread")]
async fn stored_objects_migrate_to_a_new_storage_version() {
    both(&[], async |server| {
        let webhook = Webhook::start(convert).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        create(server, V1, &widget("v1", "a", json!({"before": "x"}))).await;
        let path = format!("{CRDS}/widgets.example.com");
        let definition = expect(server, 200, ask("GET", &path)).await;
        let mut moved = widgets(&webhook, "v2", &["v1"]);
        moved["metadata"]["resourceVersion"] = definition["metadata"]["resourceVersion"].clone();
        let moved = expect(server, 200, ask("PUT", &path).json(&moved)).await;
        assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
        create(server, V2, &widget("v2", "b", json!({"after": "y"}))).await;
        let list = expect(server, 200, ask("GET", V2)).await;
        let specs: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["spec"])
            .collect();
        assert_eq!(specs, [&json!({"after": "x"}), &json!({"after": "y"})]);

        let (old, new) = (format!("{V1}/a"), format!("{V2}/a"));
        let before = expect(server, 200, ask("GET", &old)).await;
        let after = expect(server, 200, ask("PUT", &old).json(&before)).await;
        assert_ne!(
            before["metadata"]["resourceVersion"],
            after["metadata"]["resourceVersion"]
        );
        assert_eq!(before["spec"], after["spec"]);
        webhook.take();
        let shown = expect(server, 200, ask("GET", &new)).await;
        assert_eq!(shown["spec"], json!({"after": "x"}));
        assert!(webhook.take().is_empty(), "it is stored in v2");
    })
    .await;
}

/// Those who ask for the storage version do not wait, and those who wait can give up.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_hangs_stalls_its_own_clients_only() {
    both(&[], async |server| {
        let webhook = Webhook::start(|_| Reply::Hang).await;
        define(server, &widgets(&webhook, "v1", &["v1"])).await;
        create(server, V1, &widget("v1", "a", json!({"before": "x"}))).await;
        let new = format!("{V2}/a");
        let waiting = async {
            tokio::select! {
                answer = ask("GET", &new).answer(server) => panic!("{answer:?}"),
                () = async { while webhook.seen().is_empty() { tokio::task::yield_now().await } } => {}
            }
        };
        waiting.await;
        let patch = ask("PATCH", &format!("{V1}/a")).body(MERGE, r#"{"spec":{"before":"y"}}"#).status(server).await;
        assert_eq!(patch, 200);
        assert_eq!(expect(server, 200, ask("GET", V1)).await["items"].as_array().unwrap().len(), 1);
        // The definition goes with its objects, which are deleted as they are stored.
        expect(server, 200, ask("DELETE", &format!("{CRDS}/widgets.example.com"))).await;
        let begun = std::time::Instant::now();
        while ask("GET", V1).status(server).await != 404 {
            assert!(begun.elapsed() < PATIENCE, "the definition is still there");
            tokio::task::yield_now().await;
        }
    })
    .await;
}
