//! Extension API servers behind APIServices: their conditions, requests that are handed on to them,
//! their share of discovery and OpenAPI, and those that hang, lie, redirect or lead back here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};

use super::connections::Http2;
use super::fairness::one_seat;
use super::overload::let_users;
use super::support::webhook::{Identity, Reply, Seen, Webhook};
use super::support::{self, ADMIN, Store, TestServer, USER, http as wire};
use super::{PATIENCE, ask, both, embedded, start};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "wardle.example.com";
const VERSION: &str = "/apis/wardle.example.com/v1";
const THINGS: &str = "/apis/wardle.example.com/v1/namespaces/default/things";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The APIService `v1.GROUP` with a spec beyond group, version and ranks.
fn api_service(group: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15},
    });
    let all = object["spec"].as_object_mut().unwrap();
    all.extend(spec.as_object().unwrap().clone());
    object
}

/// The spec of an APIService behind the service `ext` at a port.
fn behind(extension: &Webhook) -> Value {
    json!({
        "service": {"namespace": "default", "name": "ext", "port": extension.port},
        "caBundle": BASE64_STANDARD.encode(&extension.ca),
    })
}

async fn create(server: &TestServer, path: &str, object: &Value) {
    let made = ask("POST", path).json(object).send(server).await;
    assert_eq!(made.status, 201, "{path}: {:?}", made.body);
}

/// An extension server on this machine.
async fn extension(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Webhook {
    Webhook::start_as(Identity::new(&["ext.default.svc"]), answer).await
}

/// The service `ext`, which leads to this machine.
async fn local_service(server: &TestServer) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    create(server, SERVICES, &service).await;
}

/// Reads an object until what is looked at is as it should be.
async fn until(server: &TestServer, path: &str, pointer: &str, want: &Value) -> Value {
    let begun = Instant::now();
    loop {
        let (_, object) = ask("GET", path).answer(server).await;
        if object.pointer(pointer) == Some(want) {
            return object;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{path} {pointer} is not {want}: {object}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for a reason of the condition of an APIService, and returns its message.
async fn reason(server: &TestServer, group: &str, want: &str) -> String {
    let path = format!("{API_SERVICES}/v1.{group}");
    let found = until(server, &path, "/status/conditions/0/reason", &json!(want)).await;
    let condition = &found["status"]["conditions"][0];
    let status = if matches!(want, "Passed" | "Local") {
        "True"
    } else {
        "False"
    };
    assert_eq!(condition["status"], status, "{condition}");
    condition["message"].as_str().unwrap().to_owned()
}

/// An APIService with an extension server that passes its checks.
async fn available(server: &TestServer, extension: &Webhook) {
    local_service(server).await;
    create(server, API_SERVICES, &api_service(GROUP, behind(extension))).await;
    assert_eq!(reason(server, GROUP, "Passed").await, "all checks passed");
    extension.take();
}

/// Answers with nothing in particular.
fn fine(_: &Seen) -> Reply {
    Reply::Json(json!({"kind": "Thing"}))
}

/// The requests that a client made, not the server itself.
fn of_clients(extension: &Webhook) -> Vec<Seen> {
    let own = ["system:kube-aggregator", "system:aggregator"];
    let user = |seen: &Seen| seen.headers["x-remote-user"].to_str().unwrap().to_owned();
    let mut seen = extension.seen();
    seen.retain(|one| !own.contains(&user(one).as_str()));
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_tell_why_a_server_is_not_available() {
    both(&[], async |server| {
        let group = "none.example.com";
        let spec = json!({"service": {"namespace": "default", "name": "none", "port": 443}, "insecureSkipTLSVerify": true});
        create(server, API_SERVICES, &api_service(group, spec)).await;
        let message = reason(server, group, "ServiceNotFound").await;
        assert_eq!(message, "service/none in \"default\" is not present");
        let refused = ask("GET", &format!("/apis/{group}/v1/things")).send(server).await;
        assert_eq!((refused.status, &refused.body[..]), (503, &b"service unavailable\n"[..]));
        assert_eq!(refused.headers["content-type"], "text/plain; charset=utf-8");

        let service = |port: u16| json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "none"},
            "spec": {"ports": [{"name": "https", "port": port}]},
        });
        create(server, SERVICES, &service(80)).await;
        let message = reason(server, group, "ServicePortError").await;
        assert_eq!(message, "service/none in \"default\" is not listening on port 443");
        let path = format!("{SERVICES}/none");
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        create(server, SERVICES, &service(443)).await;
        let message = reason(server, group, "EndpointsNotFound").await;
        assert_eq!(message, "cannot find endpointslices for service/none in \"default\"");
        let slice = |ready: bool| json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "none", "labels": {"kubernetes.io/service-name": "none"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": ready}}],
            "ports": [{"name": "https", "port": 443}],
        });
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        create(server, slices, &slice(false)).await;
        let message = reason(server, group, "MissingEndpoints").await;
        assert_eq!(
            message,
            "endpointslices for service/none in \"default\" have no addresses with port name \"https\""
        );
        let metrics = server.metrics().await;
        for line in [
            "aggregator_unavailable_apiservice{name=\"v1.none.example.com\"} 1",
            "aggregator_unavailable_apiservice{name=\"v1.apps\"} 0",
        ] {
            assert!(metrics.contains(line), "{line} is not in\n{metrics}");
        }
        // Local again.
        let path = format!("{API_SERVICES}/v1.{group}");
        let local = json!({"spec": {"service": null, "insecureSkipTLSVerify": false}});
        let patched = ask("PATCH", &path).body("application/merge-patch+json", local.to_string());
        assert_eq!(patched.status(server).await, 200);
        assert_eq!(reason(server, group, "Local").await, "Local APIServices are always available");
        assert_eq!(ask("GET", &format!("/apis/{group}/v1/things")).status(server).await, 404);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_and_goes_is_noticed() {
    let (_folder, server) = embedded(&[]).await;
    let is_well = Arc::new(AtomicBool::new(true));
    let state = is_well.clone();
    let extension = extension(move |_| match state.load(Ordering::Relaxed) {
        true => Reply::Json(json!({"kind": "Thing"})),
        false => Reply::Raw(403, Vec::new(), Vec::new()),
    })
    .await;
    available(&server, &extension).await;
    assert_eq!(ask("GET", THINGS).status(&server).await, 200);
    is_well.store(false, Ordering::Relaxed);
    // The change of its service has it checked at once.
    let label = json!({"metadata": {"labels": {"touched": "yes"}}}).to_string();
    let path = format!("{SERVICES}/ext");
    let touched = ask("PATCH", &path).body("application/merge-patch+json", label);
    assert_eq!(touched.status(&server).await, 200);
    let message = reason(&server, GROUP, "FailedDiscoveryCheck").await;
    let url = format!("https://localhost:{}{VERSION}", extension.port);
    assert_eq!(
        message,
        format!("failing or missing response from {url}: bad status from {url}: 403")
    );
    assert_eq!(ask("GET", THINGS).status(&server).await, 503);
    is_well.store(true, Ordering::Relaxed);
    // Without a change it is checked again soon.
    reason(&server, GROUP, "Passed").await;
    assert_eq!(ask("GET", THINGS).status(&server).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_handed_on_in_the_name_of_their_user() {
    both(&[], async |server| {
        let extension = extension(|seen| match seen.method.as_str() {
            "POST" => Reply::Raw(201, vec![("X-Own", "kept".to_owned())], b"made".to_vec()),
            _ => fine(seen),
        })
        .await;
        available(server, &extension).await;
        let path = format!("{THINGS}/a%20b?x=%C3%BC&dryRun=All&a=1");
        let made = ask("POST", &path)
            // What ends here by this word of the client is its own, not what it is told of.
            .header(
                "Connection",
                "keep-alive, X-Remote-User, X-Remote-Group, Via",
            )
            .header("X-Remote-User", "system:admin")
            .header("X-Remote-Group", "system:masters")
            .header("X-Remote-Uid", "forged")
            .header("X-Remote-Extra-Scopes", "forged")
            .header("X-Forwarded-For", "192.0.2.7")
            .header("User-Agent", "test")
            .json(&json!({"kind": "Thing"}))
            .send(server)
            .await;
        assert_eq!((made.status, &made.body[..]), (201, &b"made"[..]));
        assert_eq!(made.headers["x-own"], "kept");
        let seen = of_clients(&extension);
        let [seen] = &seen[..] else {
            panic!("{seen:?}")
        };
        assert_eq!(seen.uri, format!("{THINGS}/a%20b?a=1&dryRun=All&x=%C3%BC"));
        assert_eq!(
            (seen.body.clone(), seen.client.as_str()),
            (json!({"kind": "Thing"}), "front-proxy-client")
        );
        let values = |name: &str| -> Vec<String> {
            let values = seen.headers.get_all(name).iter();
            values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(values("x-remote-user"), ["admin"]);
        assert_eq!(values("x-remote-uid"), ["admin-uid"]);
        assert_eq!(
            values("x-remote-group"),
            ["system:masters", "system:authenticated"]
        );
        assert_eq!(values("x-remote-extra-scopes"), [""; 0]);
        assert_eq!(
            values("authorization"),
            [""; 0],
            "the client's credentials are its own"
        );
        assert_eq!(values("x-forwarded-for"), ["192.0.2.7, 127.0.0.1"]);
        assert_eq!(values("user-agent"), ["test"]);
        assert_eq!(values("host"), [format!("localhost:{}", extension.port)]);
        assert_eq!(
            values("audit-id"),
            [made.headers["audit-id"].to_str().unwrap()]
        );

        // Whoever may not do it here does not come by it there.
        assert_eq!(ask("GET", THINGS).by(USER).status(server).await, 403);
        assert_eq!(ask("GET", THINGS).by("").status(server).await, 403);
        assert_eq!(of_clients(&extension).len(), 1);
        let acted = ask("GET", THINGS)
            .header("Impersonate-User", "bob")
            .header("Impersonate-Group", "system:masters")
            .header("Impersonate-Extra-Example.com%2fscope", "a");
        assert_eq!(acted.status(server).await, 200);
        let seen = of_clients(&extension).pop().unwrap();
        assert_eq!(seen.headers["x-remote-user"], "bob");
        assert_eq!(seen.headers["x-remote-extra-example.com%2fscope"], "a");
        assert!(
            seen.headers
                .keys()
                .all(|name| !name.as_str().starts_with("impersonate"))
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_streamed() {
    let (_folder, server) = embedded(&[]).await;
    let (sender, parts) = mpsc::channel(1);
    let parts = Arc::new(Mutex::new(parts));
    let extension = extension(move |seen| match seen.uri.contains("watch=true") {
        true => Reply::Parts(parts.clone()),
        false => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    let request = http::Request::get(format!("{THINGS}?watch=true"))
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(http_body_util::Full::default())
        .unwrap();
    let sent = tokio::spawn(async move {
        for part in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"DELETED\"}\n"] {
            sender.send(Bytes::from(part)).await.unwrap();
        }
        sender
    });
    let mut body = wire::send(server.port(), request)
        .await
        .unwrap()
        .into_body();
    let (mut read, want) = (
        Vec::new(),
        b"{\"type\":\"ADDED\"}\n{\"type\":\"DELETED\"}\n",
    );
    while read.len() < want.len() {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap();
        read.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
    }
    assert_eq!(read, want);
    let sender = sent.await.unwrap();
    drop(body);
    // The server's side ends with the client's.
    while sender.send(Bytes::from_static(b"\n")).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if sender.is_closed() || sender.capacity() == 0 {
            break;
        }
    }
}

/// Watches that begin at a server which says nothing hold nobody's seats here.
#[tokio::test]
async fn watches_of_a_silent_server_take_no_seats() {
    let few = [
        "--max-requests-inflight=10",
        "--max-mutating-requests-inflight=10",
    ];
    let (_folder, server) = embedded(&few).await;
    let extension = extension(|seen| match seen.uri.contains("watch=") {
        true => Reply::Hang,
        false => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    let_users(&server).await;
    one_seat(&server, json!({"type": "Reject"})).await;
    let mut watches = Vec::new();
    for number in 1..=3 {
        let mut client = Http2::to(&server).await;
        let path = format!("{THINGS}?watch=1&number={number}");
        watches.push(tokio::spawn(async move {
            client.get(&path, USER).await.map(|answer| answer.status())
        }));
        support::until("it comes", async || {
            assert!(!watches.iter().any(tokio::task::JoinHandle::is_finished));
            let asked = extension.seen();
            let watching = asked.iter().filter(|seen| seen.uri.contains("watch="));
            watching.count() == number
        })
        .await;
    }
    assert_eq!(ask("GET", "/version").by(USER).status(&server).await, 200);
    for watch in watches {
        watch.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_upgraded_through() {
    let (_folder, server) = embedded(&[]).await;
    let extension = extension(|seen| match seen.headers.contains_key("upgrade") {
        true => Reply::Echo,
        false => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    let mut stream = wire::connect(server.port()).await.unwrap();
    let head = format!(
        "GET {THINGS}/a/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\nConnection: Upgrade\r\n\
         Upgrade: echo\r\nX-Remote-User: forged\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    assert!(
        answer.starts_with("http/1.1 101") && answer.contains("upgrade: echo"),
        "{answer}"
    );
    stream.write_all(b"ping").await.unwrap();
    let mut echoed = [0; 4];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"ping");
    let seen = of_clients(&extension).pop().unwrap();
    assert_eq!(
        (
            seen.headers["x-remote-user"].to_str().unwrap(),
            seen.client.as_str()
        ),
        ("admin", "front-proxy-client")
    );
}

/// A discovery document with a resource of a version.
fn discovery(version: &str) -> Reply {
    let resource = json!({"resource": "things", "scope": "Namespaced", "singularResource": "thing", "verbs": ["get"],
        "responseKind": {"group": "", "version": "", "kind": "Thing"}});
    let versions = json!([{"version": version, "resources": [resource], "freshness": "Current"}]);
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": versions}]});
    Reply::Raw(
        200,
        vec![("Content-Type", AGGREGATED.to_owned())],
        list.to_string().into_bytes(),
    )
}

/// The version of a group in the aggregated document, and the position of the group.
async fn discovered(server: &TestServer, group: &str) -> Option<(usize, Value)> {
    let list = ask("GET", "/apis")
        .header("Accept", AGGREGATED)
        .answer(server)
        .await
        .1;
    let items = list["items"].as_array().unwrap();
    let at = items
        .iter()
        .position(|item| item["metadata"]["name"] == group)?;
    Some((at, items[at]["versions"][0].clone()))
}

/// Waits until a version is discovered with that freshness and so many resources.
async fn until_discovered(server: &TestServer, group: &str, freshness: &str, resources: usize) {
    let begun = Instant::now();
    loop {
        let found = discovered(server, group).await;
        if let Some((_, version)) = &found
            && version["freshness"] == freshness
            && version["resources"].as_array().map_or(0, Vec::len) == resources
        {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{group} is not {freshness} with {resources}: {found:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The groups of `/apis`, in their order.
async fn groups(server: &TestServer) -> Vec<String> {
    let list = ask("GET", "/apis").answer(server).await.1;
    let groups = list["groups"].as_array().unwrap().iter();
    groups
        .map(|group| group["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_other_servers_are_discovered() {
    both(&[], async |server| {
        let is_well = Arc::new(AtomicBool::new(true));
        let state = is_well.clone();
        let extension = extension(move |seen| match (state.load(Ordering::Relaxed), seen.uri.as_str()) {
            (false, _) => Reply::Close,
            (true, "/apis") => discovery("v1"),
            (true, _) => fine(seen),
        })
        .await;
        local_service(server).await;
        let mut first = behind(&extension);
        first["groupPriorityMinimum"] = json!(17_650);
        create(server, API_SERVICES, &api_service(GROUP, first)).await;
        until_discovered(server, GROUP, "Current", 1).await;
        let asked = extension.seen().into_iter().find(|seen| seen.uri == "/apis").unwrap();
        assert_eq!(asked.headers["x-remote-user"], "system:kube-aggregator");
        assert_eq!(asked.headers["x-remote-group"], "system:masters");
        // An old server, with a document for each version alone.
        let old = Webhook::start_as(Identity::new(&["ext.default.svc"]), |seen| match seen.uri.as_str() {
            "/apis/old.example.com/v1" => Reply::Json(json!({"kind": "APIResourceList", "resources": [
                {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
                {"name": "things/status", "namespaced": true, "kind": "Thing", "verbs": ["get"]}]})),
            _ => Reply::Raw(404, Vec::new(), Vec::new()),
        })
        .await;
        create(server, API_SERVICES, &api_service("old.example.com", behind(&old))).await;
        until_discovered(server, "old.example.com", "Current", 1).await;
        let (at, version) = discovered(server, "old.example.com").await.unwrap();
        assert_eq!(version["resources"][0]["subresources"][0]["subresource"], "status");
        // By the ranks of groups, those of this server among them.
        let (before, _) = discovered(server, "authentication.k8s.io").await.unwrap();
        let (after, _) = discovered(server, "authorization.k8s.io").await.unwrap();
        let (own, _) = discovered(server, GROUP).await.unwrap();
        assert!(before < own && own < after && after < at, "{before} {own} {after} {at}");
        let groups = groups(server).await;
        let place = |group: &str| groups.iter().position(|one| one == group).unwrap();
        assert_eq!(place("apiregistration.k8s.io"), 0);
        assert!(place("authentication.k8s.io") < place(GROUP) && place(GROUP) < place("authorization.k8s.io"));
        let group = ask("GET", &format!("/apis/{GROUP}")).answer(server).await.1;
        assert_eq!((&group["kind"], &group["preferredVersion"]["version"]), (&json!("APIGroup"), &json!("v1")));
        let index = ask("GET", "/").answer(server).await.1.to_string();
        assert!(index.contains(&format!("\"{VERSION}\"")), "{index}");

        // What was known of a server that does not answer is shown as old.
        is_well.store(false, Ordering::Relaxed);
        let path = format!("{API_SERVICES}/v1.{GROUP}");
        let changed = json!({"spec": {"versionPriority": 16}}).to_string();
        let changed = ask("PATCH", &path).body("application/merge-patch+json", changed);
        assert_eq!(changed.status(server).await, 200);
        until_discovered(server, GROUP, "Stale", 1).await;
        is_well.store(true, Ordering::Relaxed);
        until_discovered(server, GROUP, "Current", 1).await;
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        assert_eq!(discovered(server, GROUP).await, None);
        assert_eq!(ask("GET", VERSION).status(server).await, 404);
        assert_eq!(ask("GET", &format!("/apis/{GROUP}")).status(server).await, 404);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_documents_of_other_servers_are_found() {
    both(&[], async |server| {
        let thing = json!({"type": "object", "x-kubernetes-group-version-kind": [{"group": GROUP, "version": "v1", "kind": "Thing"}]});
        let get = json!({"responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/a.Thing"}}}});
        let v2 = json!({
            "swagger": "2.0", "info": {"title": "t", "version": "v"},
            "paths": {format!("{VERSION}/things"): {"get": get}, "/api/v1/pods": {"get": get}},
            "definitions": {"a.Thing": thing, "io.k8s.api.core.v1.Pod": {"type": "string"}},
        });
        let url = format!("/openapi/v3{VERSION}?hash=ABC");
        let index = json!({"paths": {format!("apis/{GROUP}/v1"): {"serverRelativeURL": url}, "api/v1": {"serverRelativeURL": "/evil"}}});
        let extension = extension(move |seen| match seen.uri.split('?').next().unwrap() {
            "/openapi/v2" => Reply::Json(v2.clone()),
            "/openapi/v3" => Reply::Json(index.clone()),
            "/openapi/v3/apis/wardle.example.com/v1" => Reply::Json(json!({"openapi": "3.0.0", "theirs": true})),
            _ => fine(seen),
        })
        .await;
        available(server, &extension).await;
        let entry = format!("/paths/apis~1{GROUP}~1v1/serverRelativeURL");
        let index = until(server, "/openapi/v3", &entry, &json!(url)).await;
        let core = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
        assert!(core.starts_with("/openapi/v3/api/v1?hash="), "{core}");
        let document = ask("GET", &url).answer(server).await;
        assert_eq!(document, (200, json!({"openapi": "3.0.0", "theirs": true})));
        let seen = of_clients(&extension).pop().unwrap();
        assert_eq!((seen.uri, &seen.headers["x-remote-user"]), (url.clone(), &http::HeaderValue::from_static("admin")));
        let all = ask("GET", "/openapi/v2").answer(server).await.1;
        assert_eq!(all["definitions"]["a.Thing"], thing);
        assert_eq!(all["paths"][format!("{VERSION}/things")]["get"], get);
        assert_ne!(all["paths"]["/api/v1/pods"]["get"], get, "nobody speaks for others");
        assert_eq!(all["definitions"]["io.k8s.api.core.v1.Pod"]["type"], "object");
        let path = format!("{API_SERVICES}/v1.{GROUP}");
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        let begun = Instant::now();
        while ask("GET", "/openapi/v3").answer(server).await.1.pointer(&entry).is_some() {
            assert!(begun.elapsed() < PATIENCE, "it is still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(ask("GET", &url).status(server).await, 404);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_openapi_v2_alone_have_a_document_of_version_3() {
    let (_folder, server) = embedded(&[]).await;
    let kinds = json!([{"group": GROUP, "version": "v1", "kind": "Thing"}]);
    let v2 = json!({
        "swagger": "2.0", "info": {"title": "Things", "version": "0.1"},
        "paths": {format!("{VERSION}/things"): {"post": {
            "consumes": ["*/*"], "produces": ["application/json"],
            "parameters": [{"name": "body", "in": "body", "schema": {"$ref": "#/definitions/a.Thing"}}],
            "responses": {"201": {"description": "Created", "schema": {"$ref": "#/definitions/a.Thing"}}},
        }}},
        "definitions": {"a.Thing": {"type": "object", "x-kubernetes-group-version-kind": kinds, "properties": {
            "next": {"description": "Another.", "$ref": "#/definitions/a.Thing"},
        }}},
    });
    let extension = extension(move |seen| match seen.uri.as_str() {
        "/openapi/v2" => Reply::Json(v2.clone()),
        "/openapi/v3" => Reply::Raw(404, Vec::new(), Vec::new()),
        _ => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    let begun = Instant::now();
    let url = loop {
        let (_, index) = ask("GET", "/openapi/v3").answer(&server).await;
        let entry = &index["paths"][format!("apis/{GROUP}/v1")]["serverRelativeURL"];
        if let Some(url) = entry.as_str() {
            break url.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "{index}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(
        url.starts_with(&format!("/openapi/v3{VERSION}?hash=")),
        "{url}"
    );
    let (status, document) = ask("GET", &url).answer(&server).await;
    let thing = json!({"schema": {"$ref": "#/components/schemas/a.Thing"}});
    let want = json!({
        "openapi": "3.0.0", "info": {"title": "Things", "version": "0.1"},
        "paths": {format!("{VERSION}/things"): {"post": {
            "requestBody": {"content": {"*/*": thing}},
            "responses": {"201": {"description": "Created", "content": {"application/json": thing}}},
        }}},
        "components": {"schemas": {"a.Thing": {
            "type": "object", "x-kubernetes-group-version-kind": kinds, "properties": {
                "next": {"description": "Another.", "allOf": [{"$ref": "#/components/schemas/a.Thing"}]},
            },
        }}},
    });
    assert_eq!((status, document), (200, want));
    assert!(of_clients(&extension).is_empty(), "this server answers");
    assert_eq!(
        ask("DELETE", &format!("{API_SERVICES}/v1.{GROUP}"))
            .status(&server)
            .await,
        200
    );
    let begun = Instant::now();
    while ask("GET", &url).status(&server).await == 200 {
        assert!(begun.elapsed() < PATIENCE, "it is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_delays_nobody() {
    let (_folder, server) = embedded(&[]).await;
    let hangs = Arc::new(AtomicBool::new(false));
    let state = hangs.clone();
    let extension = extension(move |seen| match state.load(Ordering::Relaxed) {
        true => Reply::Hang,
        false => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    hangs.store(true, Ordering::Relaxed);
    for number in 0..20 {
        let group = format!("g{number}.example.com");
        create(
            &server,
            API_SERVICES,
            &api_service(&group, behind(&extension)),
        )
        .await;
    }
    let begun = Instant::now();
    let waiting = ask("GET", VERSION).send(&server);
    let others = async {
        let mut slowest = Duration::ZERO;
        for path in [
            "/apis",
            "/apis/g0.example.com",
            "/openapi/v3",
            "/api/v1/namespaces",
            "/readyz",
        ] {
            let begun = Instant::now();
            let accept = if path == "/apis" { AGGREGATED } else { "*/*" };
            let answer = ask("GET", path)
                .header("Accept", accept)
                .send(&server)
                .await;
            assert_eq!(answer.status, 200, "{path}");
            slowest = slowest.max(begun.elapsed());
        }
        slowest
    };
    let (late, slowest) = tokio::join!(waiting, others);
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    let want = "error trying to reach service: context deadline exceeded\n";
    assert_eq!((late.status, &late.body[..]), (503, want.as_bytes()));
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_share_connections_and_none_waits_for_another() {
    const WATCHES: usize = 250;
    let (_folder, server) = embedded(&[]).await;
    let extension = extension(|seen| match seen.uri.ends_with("/hangs") {
        true => Reply::Hang,
        false => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    for _ in 0..3 {
        assert_eq!(ask("GET", THINGS).status(&server).await, 200);
    }
    let seen = of_clients(&extension);
    let connections: BTreeSet<usize> = seen.iter().map(|one| one.connection).collect();
    assert_eq!((seen.len(), connections.len()), (3, 1));
    assert!(seen.iter().all(|one| one.version == http::Version::HTTP_2));
    let path = format!("{THINGS}/hangs");
    let hanging = futures::future::join_all((0..WATCHES).map(|_| ask("GET", &path).send(&server)));
    let others = async {
        let begun = Instant::now();
        while of_clients(&extension).len() < WATCHES + 3 {
            assert!(begun.elapsed() < PATIENCE, "streams wait for others");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(ask("GET", THINGS).status(&server).await, 200);
    };
    tokio::select! {
        _ = hanging => panic!("a stream that hangs has ended"),
        () = others => {}
    }
    let mut streams = std::collections::BTreeMap::<usize, usize>::new();
    for one in of_clients(&extension) {
        *streams.entry(one.connection).or_default() += 1;
    }
    assert!(streams.len() < 10, "{streams:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_answer_amiss_are_told_from_those_that_do_not_answer() {
    let (_folder, server) = embedded(&[]).await;
    let extension = extension(|seen| {
        let (_, last) = seen.uri.rsplit_once('/').unwrap();
        match last {
            "closed" => Reply::Close,
            "oversize" => Reply::Raw(200, vec![("X-Large", "x".repeat(2 << 20))], Vec::new()),
            "redirect" => Reply::Raw(
                302,
                vec![("Location", "https://192.0.2.1/".to_owned())],
                Vec::new(),
            ),
            // Its discovery and OpenAPI documents.
            "apis" | "v2" => Reply::Endless(100 << 20),
            "v3" => Reply::Raw(200, Vec::new(), b"<html>".to_vec()),
            _ => fine(seen),
        }
    })
    .await;
    available(&server, &extension).await;
    let answer = async |name: &str| {
        let answer = ask("GET", &format!("{THINGS}/{name}")).send(&server).await;
        (
            answer.status,
            String::from_utf8(answer.body.to_vec()).unwrap(),
        )
    };
    let failed = |why: &str| (503, format!("error trying to reach service: {why}\n"));
    let reset = "stream error: INTERNAL_ERROR; received from peer";
    assert_eq!(answer("closed").await, failed(reset));
    let (status, text) = answer("oversize").await;
    assert!(
        status == 503 && text.contains("header list larger"),
        "{text}"
    );
    let refused = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!(answer("redirect").await, (502, refused.to_owned()));
    // Nobody gets a connection that this server's certificate opens.
    let tunnel = ask("CONNECT", THINGS).send(&server).await;
    let refused = "the method CONNECT is not proxied\n";
    assert_eq!((tunnel.status, &tunnel.body[..]), (503, refused.as_bytes()));
    assert!(!extension.seen().iter().any(|seen| seen.method == "CONNECT"));
    // The version is listed, and nothing of it is taken for true.
    until_discovered(&server, GROUP, "Stale", 0).await;
    let index = ask("GET", "/openapi/v3").answer(&server).await;
    assert_eq!(index.0, 200);
    assert!(index.1["paths"][format!("apis/{GROUP}/v1")].is_null());
    assert_eq!(ask("GET", "/openapi/v2").status(&server).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_passed_on_if_the_flag_says_so() {
    let (_folder, server) = embedded(&["--aggregator-reject-forwarding-redirect=false"]).await;
    let extension = extension(|seen| match seen.uri.ends_with("/redirect") {
        true => Reply::Raw(
            302,
            vec![("Location", "https://192.0.2.1/".to_owned())],
            Vec::new(),
        ),
        false => fine(seen),
    })
    .await;
    available(&server, &extension).await;
    let answer = ask("GET", &format!("{THINGS}/redirect"))
        .send(&server)
        .await;
    assert_eq!(
        (answer.status, &answer.headers["location"]),
        (302, &http::HeaderValue::from_static("https://192.0.2.1/"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_servers_are_verified() {
    let (_folder, server) = embedded(&[]).await;
    local_service(&server).await;
    let other = Webhook::start_as(Identity::new(&["other.default.svc"]), fine).await;
    let right = extension(fine).await;
    let url = |port: u16, group: &str| format!("https://localhost:{port}/apis/{group}/v1");
    let mut unknown = behind(&right);
    unknown["caBundle"] = json!(BASE64_STANDARD.encode(&Identity::self_signed("other").ca));
    let mut garbage = behind(&right);
    garbage["caBundle"] = json!(BASE64_STANDARD.encode("garbage"));
    let mut careless = behind(&other);
    careless.as_object_mut().unwrap().remove("caBundle");
    careless["insecureSkipTLSVerify"] = json!(true);
    for (group, spec, why) in [
        (
            "name.example.com",
            behind(&other),
            "tls: failed to verify certificate: x509: certificate is valid for other.default.svc, not ext.default.svc",
        ),
        (
            "unknown.example.com",
            unknown,
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
    ] {
        let port = spec["service"]["port"].as_u64().unwrap() as u16;
        create(&server, API_SERVICES, &api_service(group, spec)).await;
        let url = url(port, group);
        let message = reason(&server, group, "FailedDiscoveryCheck").await;
        assert_eq!(
            message,
            format!("failing or missing response from {url}: Get \"{url}\": {why}")
        );
    }
    create(
        &server,
        API_SERVICES,
        &api_service("careless.example.com", careless),
    )
    .await;
    reason(&server, "careless.example.com", "Passed").await;
    // Nobody can tell whether it is available.
    create(
        &server,
        API_SERVICES,
        &api_service("garbage.example.com", garbage),
    )
    .await;
    assert_eq!(
        ask("GET", "/apis/garbage.example.com/v1")
            .status(&server)
            .await,
        503
    );
    until_discovered(&server, "garbage.example.com", "Stale", 0).await;
    let path = format!("{API_SERVICES}/v1.garbage.example.com");
    assert_eq!(
        ask("GET", &path).answer(&server).await.1["status"],
        json!({})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_leads_back_here_is_no_loop() {
    both(&[], async |server| {
        local_service(server).await;
        let spec = json!({
            "service": {"namespace": "default", "name": "ext", "port": server.port()}, "insecureSkipTLSVerify": true,
        });
        create(server, API_SERVICES, &api_service(GROUP, spec)).await;
        let message = reason(server, GROUP, "FailedDiscoveryCheck").await;
        assert!(message.ends_with(": 503"), "{message}");
        // Somebody says that it is available all the same.
        let conditions = json!([{"type": "Available", "status": "True", "reason": "Forged", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let forged = json!({"status": {"conditions": conditions}}).to_string();
        let path = format!("{API_SERVICES}/v1.{GROUP}/status");
        let begun = Instant::now();
        for _ in 0..10 {
            let patched = ask("PATCH", &path).body("application/merge-patch+json", forged.clone());
            assert_eq!(patched.status(server).await, 200);
            let answers = (0..5).map(|_| ask("GET", THINGS).send(server));
            for answer in futures::future::join_all(answers).await {
                assert_eq!((answer.status, &answer.body[..]), (503, &b"service unavailable\n"[..]));
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        reason(server, GROUP, "FailedDiscoveryCheck").await;
        assert_eq!(ask("GET", "/readyz").status(server).await, 200);
    })
    .await;
}

/// A definition of `widgets` with some versions.
fn definition(versions: &[&str]) -> Value {
    let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0], "schema": {"openAPIV3Schema": {"type": "object"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": versions.iter().map(version).collect::<Vec<_>>()},
    })
}

/// Waits until there is an APIService or not.
async fn until_status(server: &TestServer, name: &str, want: u16) {
    let begun = Instant::now();
    while ask("GET", &format!("{API_SERVICES}/{name}"))
        .status(server)
        .await
        != want
    {
        assert!(
            begun.elapsed() < PATIENCE,
            "{name} is not answered with {want}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_have_api_services_as_long_as_they_live() {
    both(&[], async |server| {
        create(server, CRDS, &definition(&["v1", "v1beta1"])).await;
        until_status(server, "v1.example.com", 200).await;
        until_status(server, "v1beta1.example.com", 200).await;
        let made = ask("GET", &format!("{API_SERVICES}/v1.example.com")).answer(server).await.1;
        assert_eq!(made["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "true"}));
        let spec = json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
        assert_eq!(made["spec"], spec);
        assert_eq!(reason(server, "example.com", "Local").await, "Local APIServices are always available");
        let path = format!("{API_SERVICES}/v1.example.com");
        // Deleted or changed, it is as before soon.
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        until_status(server, "v1.example.com", 200).await;
        let changed = json!({"spec": {"versionPriority": 7}}).to_string();
        let changed = ask("PATCH", &path).body("application/merge-patch+json", changed);
        assert_eq!(changed.status(server).await, 200);
        until(server, &path, "/spec/versionPriority", &json!(100)).await;
        // A version that is served no more has none.
        let crd = format!("{CRDS}/widgets.example.com");
        let patch = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]).to_string();
        let patched = ask("PATCH", &crd).body("application/json-patch+json", patch);
        assert_eq!(patched.status(server).await, 200);
        until_status(server, "v1beta1.example.com", 404).await;
        assert!(groups(server).await.contains(&"example.com".to_owned()));
        assert_eq!(ask("DELETE", &crd).status(server).await, 200);
        until_status(server, "v1.example.com", 404).await;
        assert!(!groups(server).await.contains(&"example.com".to_owned()));

        // A user's own is left alone.
        let mut own = api_service("example.com", json!({}));
        own["metadata"]["labels"] = json!({"mine": "yes"});
        create(server, API_SERVICES, &own).await;
        create(server, CRDS, &definition(&["v1"])).await;
        let widgets = "/apis/example.com/v1/namespaces/default/widgets";
        until(server, widgets, "/kind", &json!("WidgetList")).await;
        assert_eq!(ask("DELETE", &crd).status(server).await, 200);
        let begun = Instant::now();
        while ask("GET", widgets).status(server).await != 404 {
            assert!(begun.elapsed() < PATIENCE);
        }
        let kept = ask("GET", &path).answer(server).await.1;
        assert_eq!((&kept["metadata"]["labels"], &kept["spec"]["versionPriority"]), (&json!({"mine": "yes"}), &json!(15)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_versions_have_api_services_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(folder.path(), Store::Embedded, &[]).await;
    let names = async |server: &TestServer| -> BTreeSet<String> {
        let list = ask("GET", API_SERVICES).answer(server).await.1;
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = names(&server).await;
    assert!(
        first.contains("v1.")
            && first.contains("v2.autoscaling")
            && !first.contains("v1.apiregistration.k8s.io")
    );
    let checks = ask("GET", "/readyz?verbose").send(&server).await;
    let checks = String::from_utf8_lossy(&checks.body).into_owned();
    for name in [
        "poststarthook/aggregator-reload-proxy-client-cert",
        "poststarthook/apiservice-discovery-controller",
        "autoregister-completion",
    ] {
        assert!(checks.contains(&format!("[+]{name} ok")), "{checks}");
    }
    let left =
        json!({"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}}});
    let mut left_over = api_service("left.example.com", json!({}));
    left_over["metadata"]["labels"] = left["metadata"]["labels"].clone();
    create(&server, API_SERVICES, &left_over).await;
    let path = format!("{API_SERVICES}/v1.apps");
    assert_eq!(ask("DELETE", &path).status(&server).await, 200);
    assert!(!groups(&server).await.contains(&"apps".to_owned()));
    assert_eq!(
        ask("GET", "/apis/apps/v1/deployments")
            .status(&server)
            .await,
        200,
        "it is served all the same"
    );
    let batch = format!("{API_SERVICES}/v1.batch");
    let changed = json!({"spec": {"groupPriorityMinimum": 7}}).to_string();
    let changed = ask("PATCH", &batch).body("application/merge-patch+json", changed);
    assert_eq!(changed.status(&server).await, 200);
    // The next start puts all right.
    server.terminate().await;
    let server = start(folder.path(), Store::Embedded, &[]).await;
    assert_eq!(names(&server).await, first);
    let found = ask("GET", &batch).answer(&server).await.1;
    assert_eq!(found["spec"]["groupPriorityMinimum"], 17_400);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_for_other_servers_is_that_of_the_flags() {
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (
        files.path().join("proxy.crt"),
        files.path().join("proxy.key"),
    );
    let write = |name: &str| {
        let mut params = rcgen::CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let pair = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
    };
    write("first");
    let flags = [
        format!("--proxy-client-cert-file={}", cert.display()),
        format!("--proxy-client-key-file={}", key.display()),
    ];
    let (_folder, server) = embedded(&flags.each_ref().map(String::as_str)).await;
    let extension = extension(fine).await;
    available(&server, &extension).await;
    let client = async || {
        assert_eq!(ask("GET", THINGS).status(&server).await, 200);
        of_clients(&extension).pop().unwrap().client
    };
    assert_eq!(client().await, "first");
    write("second");
    server.hang_up();
    let begun = Instant::now();
    while client().await != "second" {
        assert!(begun.elapsed() < PATIENCE, "the files are not read again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
