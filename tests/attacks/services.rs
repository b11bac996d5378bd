//! Services whose writes fail, are cut off or lie: allocations of others stay, and their own are
//! released.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::support::etcd::Etcd;
use super::support::{ADMIN, Store, TestServer};
use super::{PATIENCE, ask, both, start};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const MERGE: &str = "application/merge-patch+json";
/// Interval of polling for an expected state.
const LOOK: Duration = Duration::from_millis(20);

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("ports").is_none() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// A port with a node port.
fn ports(node: u64) -> Value {
    json!([{"port": 80, "nodePort": node}])
}

async fn post(server: &TestServer, body: &Value) -> (u16, Value) {
    ask("POST", SERVICES).json(body).answer(server).await
}

async fn made(server: &TestServer, body: &Value) -> Value {
    let (status, made) = post(server, body).await;
    assert_eq!(status, 201, "{made}");
    made
}

async fn list(server: &TestServer, path: &str) -> Vec<Value> {
    let (status, list) = ask("GET", path).answer(server).await;
    assert_eq!(status, 200, "{list}");
    list["items"].as_array().cloned().unwrap_or_default()
}

/// The service that has each address, as the IPAddress objects say.
async fn addresses(server: &TestServer) -> BTreeMap<String, String> {
    let parent = |one: &Value| {
        format!(
            "{}/{}",
            text(one, "/spec/parentRef/namespace"),
            text(one, "/spec/parentRef/name")
        )
    };
    list(server, ADDRESSES)
        .await
        .iter()
        .map(|one| (text(one, "/metadata/name"), parent(one)))
        .collect()
}

/// The service that has each address, as the services say.
async fn owners(server: &TestServer) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    for one in list(server, "/api/v1/services").await {
        let owner = format!(
            "{}/{}",
            text(&one, "/metadata/namespace"),
            text(&one, "/metadata/name")
        );
        for ip in one["spec"]["clusterIPs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|ip| *ip != "None")
        {
            assert_eq!(
                owners.insert(ip.to_owned(), owner.clone()),
                None,
                "{ip} has two owners"
            );
        }
    }
    owners
}

/// Waits until no write is under way, not even one whose client has gone.
async fn quiet(server: &TestServer) {
    const WRITES: &str = "apiserver_current_inflight_requests{request_kind=\"mutating\"}";
    let begun = Instant::now();
    loop {
        let metrics = server.metrics().await;
        let writes = metrics
            .lines()
            .find_map(|line| line.strip_prefix(WRITES))
            .map(str::trim);
        if matches!(writes, None | Some("0")) {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{writes:?} writes are under way"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until every address belongs to a service that has it, and the other way around.
async fn settled(server: &TestServer) {
    let begun = Instant::now();
    loop {
        quiet(server).await;
        let (taken, had) = (addresses(server).await, owners(server).await);
        if taken == had {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "taken: {taken:?}\nhad: {had:?}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn delete_all(server: &TestServer) {
    for one in list(server, SERVICES)
        .await
        .iter()
        .map(|one| text(one, "/metadata/name"))
        .filter(|name| name != "kubernetes")
    {
        let status = ask("DELETE", &format!("{SERVICES}/{one}"))
            .status(server)
            .await;
        assert!(matches!(status, 200 | 404), "{one}: {status}");
    }
}

fn text(value: &Value, path: &str) -> String {
    value
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn message(answer: &Value) -> String {
    text(answer, "/message")
}

/// A service that others would like to take something from.
struct Victim {
    ip: String,
    port: u64,
    address: Value,
}

impl Victim {
    async fn new(server: &TestServer) -> Self {
        let victim = made(server, &service("victim", json!({"type": "NodePort"}))).await;
        let (ip, port) = (
            text(&victim, "/spec/clusterIP"),
            victim["spec"]["ports"][0]["nodePort"].as_u64().unwrap(),
        );
        let (_, address) = ask("GET", &format!("{ADDRESSES}/{ip}"))
            .answer(server)
            .await;
        Self { ip, port, address }
    }

    /// Nothing is free of what the victim has.
    async fn check(&self, server: &TestServer, after: &str) {
        let (_, address) = ask("GET", &format!("{ADDRESSES}/{}", self.ip))
            .answer(server)
            .await;
        assert_eq!(address, self.address, "the address after {after}");
        let (status, answer) = post(server, &service("thief", json!({"clusterIP": self.ip}))).await;
        assert_eq!(
            (
                status,
                message(&answer).contains("provided IP is already allocated")
            ),
            (422, true),
            "after {after}: {answer}"
        );
        let (status, answer) = post(
            server,
            &service(
                "thief",
                json!({"type": "NodePort", "ports": ports(self.port)}),
            ),
        )
        .await;
        assert_eq!(
            (
                status,
                message(&answer).contains("provided port is already allocated")
            ),
            (422, true),
            "after {after}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_create_frees_nothing_of_others() {
    both(&[], async |server| {
        let victim = Victim::new(server).await;
        let (ip, port) = (&victim.ip, victim.port);
        let external = |mut spec: Value| {
            spec["type"] = "ExternalName".into();
            spec["externalName"] = "example.com".into();
            spec
        };
        let taken_and_free = json!([{"name": "a", "port": 1, "nodePort": 31999}, {"name": "b", "port": 2, "nodePort": port}]);
        let specs = [
            external(json!({"clusterIP": ip})),
            external(json!({"clusterIP": ip, "clusterIPs": [ip]})),
            json!({"ports": ports(port)}),
            json!({"clusterIP": "None", "clusterIPs": ["None", ip]}),
            json!({"clusterIP": ip, "clusterIPs": [ip, "fd00::1"], "ipFamilyPolicy": "RequireDualStack"}),
            json!({"clusterIP": ip, "type": "NodePort", "ports": ports(port)}),
            json!({"clusterIP": ip, "sessionAffinity": "nonsense"}),
            json!({"type": "NodePort", "ports": taken_and_free}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port}),
            json!({"type": "ClusterIP", "healthCheckNodePort": port}),
            json!({"clusterIP": format!("0{ip}")}),
            json!({"clusterIP": format!("::ffff:{ip}")}),
        ];
        for (at, spec) in specs.iter().enumerate() {
            for path in [SERVICES.to_owned(), format!("{SERVICES}?dryRun=All")] {
                let (status, answer) = ask("POST", &path).json(&service(&format!("thief-{at}"), spec.clone())).answer(server).await;
                assert!(status >= 400 || path.contains("dryRun"), "{spec}: {answer}");
                victim.check(server, &spec.to_string()).await;
            }
            let body = json!({"metadata": {"generateName": "thief-"}, "spec": service("", spec.clone())["spec"]});
            assert!(post(server, &body).await.0 >= 400, "{spec}");
            victim.check(server, &spec.to_string()).await;
        }
        let invalid =
            json!({"metadata": {"name": "thief", "labels": {"a": "not a value"}}, "spec": {"clusterIP": ip, "ports": ports(port)}});
        assert!(post(server, &invalid).await.0 >= 400);
        assert_eq!(post(server, &service("victim", json!({"type": "NodePort"}))).await.0, 409);
        victim.check(server, "a name that is taken").await;
        // What the refused ones took themselves is free again.
        made(server, &service("honest", json!({"type": "NodePort", "ports": ports(31999)}))).await;
        settled(server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_frees_and_takes_nothing_of_others() {
    both(&[], async |server| {
        let victim = Victim::new(server).await;
        let (ip, port) = (&victim.ip, victim.port);
        made(server, &service("own", json!({}))).await;
        let path = format!("{SERVICES}/own");
        let patches = [
            json!({"clusterIP": ip}),
            json!({"clusterIP": ip, "clusterIPs": [ip]}),
            json!({"clusterIP": null, "clusterIPs": [ip]}),
            json!({"type": "ExternalName", "externalName": "example.com", "clusterIP": ip, "clusterIPs": [ip]}),
            json!({"ports": ports(port)}),
            json!({"type": "NodePort", "ports": ports(port)}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port}),
            json!({"clusterIP": "None", "clusterIPs": ["None"]}),
        ];
        for spec in patches {
            let patch = json!({"spec": spec}).to_string();
            for path in [path.clone(), format!("{path}?dryRun=All")] {
                let (status, answer) = ask("PATCH", &path).body(MERGE, patch.clone()).answer(server).await;
                assert!(status >= 400 || path.contains("dryRun"), "{patch}: {answer}");
                victim.check(server, &patch).await;
            }
            // A status update changes nothing but the status, whatever its body says.
            let (status, answer) = ask("PATCH", &format!("{path}/status")).body(MERGE, patch.clone()).answer(server).await;
            assert!(status == 422 || (status == 200 && answer["spec"]["type"] == "ClusterIP"), "{patch}: {answer}");
            victim.check(server, &patch).await;
        }
        let free = json!({"spec": {"type": "NodePort", "ports": ports(31999)}}).to_string();
        assert_eq!(ask("PATCH", &format!("{path}/status")).body(MERGE, free).status(server).await, 200);
        made(server, &service("honest", json!({"type": "NodePort", "ports": ports(31999)}))).await;
        settled(server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_service_frees_only_what_was_its() {
    both(&[], async |server| {
        let victim = Victim::new(server).await;
        let (ip, port) = (&victim.ip, victim.port);
        // An external name may name a node port. It does not have it by that, and does not get it
        // by another type.
        let external = |name: &str| service(name, json!({"type": "ExternalName", "externalName": "example.com", "ports": ports(port)}));
        made(server, &external("external")).await;
        let patch = json!({"spec": {"type": "NodePort", "externalName": null}}).to_string();
        let (status, answer) = ask("PATCH", &format!("{SERVICES}/external")).body(MERGE, patch).answer(server).await;
        assert_eq!(status, 422, "{answer}");
        let patch = json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": [{"port": 80, "nodePort": null}]}}).to_string();
        assert_eq!(ask("PATCH", &format!("{SERVICES}/external")).body(MERGE, patch).status(server).await, 200);
        victim.check(server, "changes of type").await;
        made(server, &external("gone")).await;
        assert_eq!(ask("DELETE", &format!("{SERVICES}/gone")).status(server).await, 200);
        victim.check(server, "the end of an external name").await;
        assert_eq!(ask("DELETE", &format!("{SERVICES}/victim?dryRun=All")).status(server).await, 200);
        victim.check(server, "its own end in a dry run").await;

        // The last finalizer goes together with what the service was.
        for (name, path) in [("held", "held"), ("held-too", "held-too/status")] {
            let mut held = service(name, json!({"type": "NodePort"}));
            held["metadata"]["finalizers"] = json!(["example.com/hold"]);
            let held = made(server, &held).await;
            assert_eq!(ask("DELETE", &format!("{SERVICES}/{name}")).status(server).await, 200);
            let spec =
                json!({"type": "ExternalName", "externalName": "example.com", "ports": ports(port), "clusterIP": "", "clusterIPs": null});
            let patch = json!({"metadata": {"finalizers": null}, "spec": spec}).to_string();
            let (status, answer) = ask("PATCH", &format!("{SERVICES}/{path}")).body(MERGE, patch).answer(server).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(ask("GET", &format!("{SERVICES}/{name}")).status(server).await, 404);
            victim.check(server, "the end of another").await;
            let (freed, node) = (text(&held, "/spec/clusterIP"), held["spec"]["ports"][0]["nodePort"].as_u64().unwrap());
            made(server, &service(&format!("after-{name}"), json!({"clusterIP": freed, "type": "NodePort", "ports": ports(node)}))).await;
        }

        // An address whose object says that it is another's is not given back with the service.
        let own = made(server, &service("own", json!({}))).await;
        let freed = text(&own, "/spec/clusterIP");
        assert_eq!(ask("DELETE", &format!("{ADDRESSES}/{freed}")).status(server).await, 200);
        let parent = json!({"resource": "services", "namespace": "default", "name": "somebody"});
        let object = json!({"metadata": {"name": freed}, "spec": {"parentRef": parent}});
        assert_eq!(ask("POST", ADDRESSES).json(&object).status(server).await, 201);
        assert_eq!(ask("DELETE", &format!("{SERVICES}/own")).status(server).await, 200);
        assert_eq!(addresses(server).await.get(&freed).map(String::as_str), Some("default/somebody"));
        assert_eq!(ask("DELETE", &format!("{ADDRESSES}/{freed}")).status(server).await, 200);

        assert_eq!(ask("DELETE", &format!("{SERVICES}/victim")).status(server).await, 200);
        made(server, &service("heir", json!({"clusterIP": ip, "type": "NodePort", "ports": ports(port)}))).await;
        settled(server).await;
    })
    .await;
}

/// Number of node ports of the servers of these tests.
const PORTS: usize = 24;
const FEW_PORTS: &[&str] = &["--service-node-port-range=30100-30123"];

/// With no service left, every node port can be taken, and no other.
async fn all_ports_are_free(server: &TestServer) {
    delete_all(server).await;
    settled(server).await;
    for at in 0..PORTS {
        made(
            server,
            &service(&format!("full-{at}"), json!({"type": "NodePort"})),
        )
        .await;
    }
    let (status, answer) = post(server, &service("one-more", json!({"type": "NodePort"}))).await;
    assert_eq!(
        (status, message(&answer).contains("range is full")),
        (500, true),
        "{answer}"
    );
    settled(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_run_out_of_time_leak_nothing() {
    both(FEW_PORTS, async |server| {
        for round in 0..8 {
            let names: Vec<String> = (0..PORTS).map(|at| format!("cut-{round}-{at}")).collect();
            let cut = |at: usize| format!("{}us", 200 + 150 * at);
            join_all(names.iter().enumerate().map(async |(at, name)| {
                let path = format!("{SERVICES}?timeout={}", cut(at));
                ask("POST", &path)
                    .json(&service(name, json!({"type": "NodePort"})))
                    .status(server)
                    .await
            }))
            .await;
            join_all(names.iter().enumerate().map(async |(at, name)| {
                let path = format!("{SERVICES}/{name}?timeout={}", cut(at));
                ask("DELETE", &path).status(server).await
            }))
            .await;
            settled(server).await;
            delete_all(server).await;
        }
        all_ports_are_free(server).await;
    })
    .await;
}

/// A connection that speaks HTTP/2, to a server that is trusted as it is.
async fn connect(port: u16) -> TlsStream<TcpStream> {
    let mut config = kube::Config::new(http::Uri::from_static("https://127.0.0.1"));
    config.accept_invalid_certs = true;
    let mut config = config.rustls_client_config().unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("127.0.0.1").unwrap(), stream)
        .await
        .unwrap()
}

/// Sends requests on one HTTP/2 connection and resets their streams after ever longer times; in the
/// end the connection goes.
async fn reset(server: &TestServer, requests: Vec<(&str, String, Value)>) {
    let stream = connect(server.port()).await;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    join_all(
        requests
            .into_iter()
            .enumerate()
            .map(async |(at, (method, path, body))| {
                let mut sender = sender.clone();
                let request = Request::builder()
                    .method(method)
                    .uri(format!("https://localhost{path}"));
                let request = request
                    .header("Authorization", format!("Bearer {ADMIN}"))
                    .header("Content-Type", "application/json");
                let body = if body.is_null() {
                    Bytes::new()
                } else {
                    body.to_string().into()
                };
                sender.ready().await.unwrap();
                let answer = sender.send_request(request.body(Full::new(body)).unwrap());
                let answer = async { answer.await.unwrap().into_body().collect().await };
                // Whoever drops the answer resets the stream.
                drop(tokio::time::timeout(Duration::from_micros(100 * at as u64), answer).await);
            }),
    )
    .await;
    driver.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_reset_leak_nothing() {
    both(FEW_PORTS, async |server| {
        for round in 0..8 {
            let names: Vec<String> = (0..PORTS).map(|at| format!("reset-{round}-{at}")).collect();
            let creates = names.iter().map(|name| {
                (
                    "POST",
                    SERVICES.to_owned(),
                    service(name, json!({"type": "NodePort"})),
                )
            });
            reset(server, creates.collect()).await;
            settled(server).await;
            let deletes = names
                .iter()
                .map(|name| ("DELETE", format!("{SERVICES}/{name}"), Value::Null));
            reset(server, deletes.collect()).await;
            settled(server).await;
            delete_all(server).await;
        }
        all_ports_are_free(server).await;
    })
    .await;
}

/// Runs a story of servers that follow each other on one store, on both kinds of it.
async fn both_stores(story: impl AsyncFn(&Path, Store<'_>)) {
    let folder = tempfile::tempdir().unwrap();
    story(folder.path(), Store::Embedded).await;
    let (folder, etcd) = (
        tempfile::tempdir().unwrap(),
        tokio::task::spawn_blocking(Etcd::start).await.unwrap(),
    );
    story(folder.path(), Store::Etcd(&etcd.endpoint())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_puts_right_what_a_crash_left() {
    both_stores(async |folder, store| {
        let mut server = start(folder, store, FEW_PORTS).await;
        let kept = made(&server, &service("kept", json!({"type": "NodePort"}))).await;
        let other = made(&server, &service("other", json!({}))).await;
        let (ip, node) = (text(&kept, "/spec/clusterIP"), kept["spec"]["ports"][0]["nodePort"].as_u64().unwrap());
        // One address without its object, one whose object names a service that is not there.
        assert_eq!(ask("DELETE", &format!("{ADDRESSES}/{ip}")).status(&server).await, 200);
        let second = text(&other, "/spec/clusterIP");
        assert_eq!(ask("DELETE", &format!("{ADDRESSES}/{second}")).status(&server).await, 200);
        let wrong =
            json!({"metadata": {"name": second}, "spec": {"parentRef": {"resource": "gateways", "group": "example.com", "name": "g"}}});
        assert_eq!(ask("POST", ADDRESSES).json(&wrong).status(&server).await, 201);
        let writes = (0..16).map(|at| service(&format!("late-{at}"), json!({})));
        let writes: Vec<Value> = writes.collect();
        let creates = writes.iter().map(|body| ("POST", SERVICES.to_owned(), body.clone()));
        reset(&server, creates.collect()).await;
        server.kill();

        let server = start(folder, store, FEW_PORTS).await;
        let (taken, had) = (addresses(&server).await, owners(&server).await);
        assert!(had.iter().all(|(ip, owner)| taken.get(ip) == Some(owner)), "taken: {taken:?}\nhad: {had:?}");
        assert_eq!(
            (taken.get(&ip).map(String::as_str), taken.get(&second).map(String::as_str)),
            (Some("default/kept"), Some("default/other"))
        );
        let (status, answer) = post(&server, &service("thief", json!({"type": "NodePort", "ports": ports(node)}))).await;
        assert_eq!(status, 422, "{answer}");
        let reasons: Vec<String> =
            list(&server, "/api/v1/namespaces/default/events").await.iter().map(|one| text(one, "/reason")).collect();
        assert!(reasons.iter().filter(|reason| *reason == "ClusterIPNotAllocated").count() >= 2, "{reasons:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_in_use_are_not_handed_out_after_their_range_changed() {
    both_stores(async |folder, store| {
        let mut server = start(folder, store, &["--service-node-port-range=30100-30109"]).await;
        made(
            &server,
            &service("low", json!({"type": "NodePort", "ports": ports(30100)})),
        )
        .await;
        made(
            &server,
            &service("high", json!({"type": "NodePort", "ports": ports(30105)})),
        )
        .await;
        server.terminate().await;

        let mut server = start(folder, store, &["--service-node-port-range=30105-30107"]).await;
        let (status, answer) = post(
            &server,
            &service("thief", json!({"type": "NodePort", "ports": ports(30105)})),
        )
        .await;
        assert_eq!(
            (status, message(&answer).contains("already allocated")),
            (422, true),
            "{answer}"
        );
        for name in ["one", "two"] {
            let one = made(&server, &service(name, json!({"type": "NodePort"}))).await;
            assert_ne!(one["spec"]["ports"][0]["nodePort"], 30105);
        }
        assert_eq!(
            post(&server, &service("three", json!({"type": "NodePort"})))
                .await
                .0,
            500
        );
        assert_eq!(
            ask("DELETE", &format!("{SERVICES}/low"))
                .status(&server)
                .await,
            200
        );
        server.kill();

        let server = start(folder, store, &["--service-node-port-range=30100-30109"]).await;
        made(
            &server,
            &service("again", json!({"type": "NodePort", "ports": ports(30100)})),
        )
        .await;
        for node in 30105..=30107 {
            assert_eq!(
                post(
                    &server,
                    &service("thief", json!({"type": "NodePort", "ports": ports(node)}))
                )
                .await
                .0,
                422,
                "{node}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_cidrs_say_where_addresses_come_from() {
    both(&["--service-cluster-ip-range=10.96.0.0/29"], async |server| {
        let (_, default) = ask("GET", &format!("{CIDRS}/kubernetes")).answer(server).await;
        assert_eq!(default["spec"]["cidrs"], json!(["10.96.0.0/29"]));
        assert_eq!(
            (text(&default, "/status/conditions/0/type"), text(&default, "/status/conditions/0/status")),
            ("Ready".into(), "True".into())
        );
        for at in 0..5 {
            made(server, &service(&format!("first-{at}"), json!({}))).await;
        }
        let is_full = async |name: &str| {
            let (status, answer) = post(server, &service(name, json!({}))).await;
            assert_eq!((status, message(&answer).contains("range is full")), (500, true), "{answer}");
        };
        is_full("sixth").await;
        let (status, answer) = post(server, &service("far", json!({"clusterIP": "10.97.0.1"}))).await;
        let why = "failed to allocate IP 10.97.0.1: the provided network does not match the current range";
        assert_eq!((status, message(&answer).contains(why)), (422, true), "{answer}");

        let cidr = json!({"metadata": {"name": "more", "finalizers": ["example.com/hold"]}, "spec": {"cidrs": ["10.97.0.0/30"]}});
        assert_eq!(ask("POST", CIDRS).json(&cidr).status(server).await, 201);
        let sixth = made(server, &service("sixth", json!({}))).await;
        assert!(text(&sixth, "/spec/clusterIP").starts_with("10.97.0."), "{sixth}");
        // A dry run is told the address of a network, and of a chosen one only whether it is in
        // range.
        let dry = format!("{SERVICES}?dryRun=All");
        let (_, answer) = ask("POST", &dry).json(&service("dry", json!({}))).answer(server).await;
        assert_eq!(text(&answer, "/spec/clusterIP"), "10.96.0.0", "{answer}");
        let (status, answer) = ask("POST", &dry).json(&service("dry", json!({"clusterIP": "10.98.0.1"}))).answer(server).await;
        let why = "the provided IP (10.98.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/29";
        assert_eq!((status, message(&answer).contains(why)), (422, true), "{answer}");

        // One that is not ready, or on its way out, gives nothing, but takes back what it gave.
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test", "message": "no",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let status = ask("PATCH", &format!("{CIDRS}/more/status")).body(MERGE, not_ready.to_string()).status(server).await;
        assert_eq!(status, 200);
        is_full("seventh").await;
        let ready = not_ready.to_string().replace("False", "True");
        assert_eq!(ask("PATCH", &format!("{CIDRS}/more/status")).body(MERGE, ready).status(server).await, 200);
        made(server, &service("seventh", json!({}))).await;
        assert_eq!(ask("DELETE", &format!("{CIDRS}/more")).status(server).await, 200);
        assert_eq!(ask("DELETE", &format!("{SERVICES}/seventh")).status(server).await, 200);
        is_full("eighth").await;
        let overlapping = json!({"metadata": {"name": "wide"}, "spec": {"cidrs": ["10.97.0.0/24", "fd00:97::/112"]}});
        assert_eq!(ask("POST", CIDRS).json(&overlapping).status(server).await, 201);
        made(server, &service("eighth", json!({"clusterIP": "10.97.0.200"}))).await;
        made(server, &service("ninth", json!({}))).await;
        settled(server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_families_are_taken_and_given_back_together() {
    both(&["--service-cluster-ip-range=10.96.0.0/24,fd00:96::/112"], async |server| {
        let victim = made(server, &service("victim", json!({"ipFamilyPolicy": "RequireDualStack"}))).await;
        let second = text(&victim, "/spec/clusterIPs/1");
        assert!(second.starts_with("fd00:96::"), "{victim}");
        // The second address is taken, so the first one comes back.
        let spec = json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77", second]});
        let (status, answer) = post(server, &service("thief", spec)).await;
        assert_eq!((status, message(&answer).contains("provided IP is already allocated")), (422, true), "{answer}");
        made(server, &service("honest", json!({"clusterIP": "10.96.0.77"}))).await;
        // A family more, with another's address, then with a free one; then a family less.
        let grow = |ip: &str| json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.96.0.77", ip]}}).to_string();
        let path = format!("{SERVICES}/honest");
        assert_eq!(ask("PATCH", &path).body(MERGE, grow(&second)).status(server).await, 422);
        assert_eq!(ask("PATCH", &path).body(MERGE, grow("fd00:96::77")).status(server).await, 200);
        settled(server).await;
        let shrink = json!({"spec": {"ipFamilyPolicy": "SingleStack"}}).to_string();
        assert_eq!(ask("PATCH", &path).body(MERGE, shrink).status(server).await, 200);
        settled(server).await;
        made(server, &service("heir", json!({"clusterIP": "fd00:96::77"}))).await;
        let external =
            json!({"spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": "", "clusterIPs": null}}).to_string();
        assert_eq!(ask("PATCH", &format!("{SERVICES}/victim")).body(MERGE, external).status(server).await, 200);
        settled(server).await;
        made(server, &service("last", json!({"clusterIP": second}))).await;
        delete_all(server).await;
        settled(server).await;
    })
    .await;
}
