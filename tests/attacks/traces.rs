//! Traces over the wire: the spans of a request at a collector, and the traces of slow requests in
//! the log.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use crate::support::etcd::Etcd;
use crate::support::webhook::{Reply, Webhook};
use crate::support::{Store, TestServer, USER};
use crate::{PATIENCE, ask, conversions, embedded, encryption, start};

const LOOK: Duration = Duration::from_millis(20);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A collector that keeps what it gets, or hangs.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    resource: Arc<Mutex<HashMap<String, String>>>,
    hangs: bool,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        for of_resource in request.into_inner().resource_spans {
            for attribute in of_resource.resource.unwrap().attributes {
                let value = text(&attribute.value.unwrap().value.unwrap());
                self.resource.lock().unwrap().insert(attribute.key, value);
            }
            for scope in of_resource.scope_spans {
                self.spans.lock().unwrap().extend(scope.spans);
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn text(value: &any_value::Value) -> String {
    match value {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

impl Collector {
    /// Serves it; returns its address.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = futures::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let service = TraceServiceServer::new(self.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(Box::pin(incoming));
        tokio::spawn(async move { drop(serving.await) });
        address
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
    value.map(text).unwrap_or_default()
}

/// The span of that name in a trace.
fn named<'a>(spans: &'a [Span], trace: &str, name: &str) -> &'a Span {
    let wanted = |span: &&Span| span.name == name && hex(&span.trace_id) == trace;
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans
        .iter()
        .find(wanted)
        .unwrap_or_else(|| panic!("{name} is not among {names:?}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A TracingConfiguration in a file; returns the flag.
fn configuration(folder: &Path, text: &str) -> String {
    let path = folder.join("tracing.yaml");
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
    fs::write(&path, format!("{head}{text}\n")).unwrap();
    format!("--tracing-config-file={}", path.display())
}

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_a_create_reach_the_collector() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::default());
    let endpoint = collector.serve().await;
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let store = Store::Etcd(&etcd.endpoint());
    let flag = configuration(folder.path(), &format!("endpoint: {endpoint}"));
    let mut server = start(folder.path(), store, &[&flag]).await;
    let webhook = Webhook::start(|seen| {
        let uid = &seen.body["request"]["uid"];
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": true}}),
        )
    })
    .await;
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [{
            "name": "hook.example.com", "clientConfig": webhook.client_config("/review"),
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(ask("POST", path).json(&hooks).status(&server).await, 201);
    // Requests in between show no span: nothing is sampled unless a client asks for it.
    let map = json!({"metadata": {"name": "a"}});
    let path = format!("{MAPS}?pretty=secret");
    let create = ask("POST", &path).json(&map);
    let create = create
        .header("traceparent", traceparent())
        .header("audit-id", "the-id");
    assert_eq!(create.status(&server).await, 201);
    let list = ask("GET", MAPS).header("traceparent", traceparent());
    assert_eq!(list.status(&server).await, 200);
    // What a client asks for that is not trusted is not done.
    let other = format!("00-{}-{PARENT}-01", TRACE.replace('4', "5"));
    let read = ask("GET", "/api")
        .by(USER)
        .header("traceparent", other.clone());
    assert_eq!(read.status(&server).await, 200);
    server.terminate().await;
    let spans = collector.spans();
    let find = |name: &str| named(&spans, TRACE, name);
    let request = find("POST /api/v1/namespaces/{:namespace}/configmaps");
    assert_eq!(hex(&request.parent_span_id), PARENT);
    for (child, parent) in [
        ("audit", request.name.as_str()),
        ("constrainedimpersonation", "audit"),
        ("priorityandfairness", "constrainedimpersonation"),
        ("authorization", "priorityandfairness"),
        ("Create", "authorization"),
        ("Call validating webhook", "Create"),
        ("HTTP POST", "Call validating webhook"),
        ("Create etcd3", "Create"),
        ("etcdserverpb.KV/Txn", "Create etcd3"),
        ("SerializeObject", "Create"),
    ] {
        assert_eq!(find(child).parent_span_id, find(parent).span_id, "{child}");
    }
    for (key, value) in [
        ("audit-id", "the-id"),
        ("http.response.status_code", "201"),
        ("url.path", MAPS),
        ("network.protocol.version", "1.1"),
    ] {
        assert_eq!(attribute(request, key), value, "{key}");
    }
    assert!(!attribute(request, "http.response.body.size").is_empty());
    assert_eq!(attribute(find("Create"), "resource"), "configmaps");
    let key = attribute(find("Create etcd3"), "key");
    assert_eq!(key, "/registry/configmaps/default/a");
    let steps: Vec<&str> = find("Create")
        .events
        .iter()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(
        steps,
        [
            "limitedReadBody succeeded",
            "About to convert to expected version",
            "Conversion done",
            "About to store object in database",
            "Write to database call succeeded",
            "About to write a response",
            "Writing http response done",
        ]
    );
    let seen = webhook.seen();
    let sent = format!("00-{TRACE}-{}-01", hex(&find("HTTP POST").span_id));
    assert_eq!(seen[0].headers["traceparent"], *sent);
    find("List");
    find("cacher.GetList");
    assert!(
        spans.iter().all(|span| hex(&span.trace_id) == TRACE),
        "{spans:?}"
    );
    let resource = collector.resource.lock().unwrap().clone();
    assert_eq!(resource["service.name"], "apiserver");
    assert!(resource["service.instance.id"].starts_with("apiserver-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn conversions_encryption_and_watches_have_spans() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::default());
    let endpoint = collector.serve().await;
    let plugin = encryption::Listening::start(folder.path());
    let providers: &[&str] = &[&plugin.provider()];
    let encrypted = encryption::configure(folder.path(), &[("secrets", providers)]);
    let flag = configuration(folder.path(), &format!("endpoint: {endpoint}"));
    let mut server = start(folder.path(), Store::Embedded, &[&flag, &encrypted]).await;
    let webhook = Webhook::start(conversions::convert).await;
    conversions::define(&server, &conversions::widgets(&webhook, "v1", &["v1"])).await;
    let widget = conversions::widget("v1", "one", json!({"before": "x"}));
    let made = ask("POST", conversions::V1).json(&widget);
    assert_eq!(made.status(&server).await, 201);
    let secret = json!({"metadata": {"name": "one"}});
    for (method, path, body, status) in [
        ("GET", format!("{}/one", conversions::V2), None, 200),
        (
            "POST",
            "/api/v1/namespaces/default/secrets".to_owned(),
            Some(secret),
            201,
        ),
        ("GET", format!("{MAPS}?watch=1&timeoutSeconds=1"), None, 200),
    ] {
        let mut request = ask(method, &path).header("traceparent", traceparent());
        if let Some(body) = &body {
            request = request.json(body);
        }
        assert_eq!(request.status(&server).await, status, "{path}");
    }
    server.terminate().await;
    let spans = collector.spans();
    let find = |name: &str| named(&spans, TRACE, name);
    let call = find("Call conversion webhook");
    for (key, value) in [
        ("custom-resource-definition", "widgets.example.com"),
        ("desired-api-version", "example.com/v2"),
        ("object-count", "1"),
    ] {
        assert_eq!(attribute(call, key), value, "{key}");
    }
    assert_eq!(find("HTTP POST").parent_span_id, call.span_id);
    assert_eq!(call.events[0].name, "Request completed");
    let encrypted = find("TransformToStorage with envelopeTransformer");
    assert_eq!(attribute(encrypted, "transformer.provider.name"), "vault");
    assert_eq!(encrypted.parent_span_id, find("Create etcd3").span_id);
    assert_eq!(encrypted.events[1].name, "Data encryption succeeded");
    assert_eq!(attribute(find("cacher.Watch"), "type"), "configmaps");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_sampled_at_the_rate_of_the_file() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::default());
    let endpoint = collector.serve().await;
    let text = format!("endpoint: dns:///{endpoint}\nsamplingRatePerMillion: 1000000");
    let flag = configuration(folder.path(), &text);
    let mut server = start(folder.path(), Store::Embedded, &[&flag]).await;
    let untrusted = ask("GET", "/api")
        .by(USER)
        .header("traceparent", traceparent());
    assert_eq!(untrusted.status(&server).await, 200);
    server.terminate().await;
    let spans = collector.spans();
    // It is a part of a trace of its own, which refers to that of the client.
    let linked = spans
        .iter()
        .find(|span| !span.links.is_empty())
        .expect("a link");
    assert_eq!(linked.name, "GET");
    assert_eq!(hex(&linked.links[0].trace_id), TRACE);
    assert_eq!(hex(&linked.links[0].span_id), PARENT);
    assert!(linked.parent_span_id.is_empty());
    assert_ne!(hex(&linked.trace_id), TRACE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_or_is_not_there_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = Collector {
        hangs: true,
        ..Collector::default()
    };
    let endpoint = hangs.serve().await;
    for endpoint in [
        endpoint,
        "127.0.0.1:1".to_owned(),
        "unix:///nowhere".to_owned(),
    ] {
        let text = format!("endpoint: {endpoint}\nsamplingRatePerMillion: 1000000");
        let flag = configuration(folder.path(), &text);
        let mut server = start(folder.path(), Store::Embedded, &[&flag]).await;
        let begun = Instant::now();
        for _ in 0..300 {
            assert_eq!(ask("GET", "/api").status(&server).await, 200);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        let begun = Instant::now();
        server.terminate().await;
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test]
async fn a_tracing_configuration_that_is_wrong_keeps_the_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    for (text, why) in [
        (
            "samplingRatePerMillion: -1",
            "failed to validate tracing configuration: samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
        ),
        ("endpoint: https://a:1", "unsupported scheme: https."),
        ("nothing: 1", "unknown field \"nothing\""),
    ] {
        let flag = configuration(folder.path(), text);
        let data = format!("--data-dir={}", folder.path().join("data").display());
        let flags = [flag, data, "--secure-port=0".to_owned()];
        let mut process = TestServer::run(folder.path(), &flags);
        assert!(!process.ends().await);
        assert!(process.log().contains(why), "{}", process.log());
    }
}

#[tokio::test]
async fn the_context_of_a_client_is_handed_on_without_a_configuration() {
    let (_folder, server) = embedded(&[]).await;
    let webhook = Webhook::start(|seen| {
        let uid = &seen.body["request"]["uid"];
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": true}}),
        )
    })
    .await;
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [{
            "name": "hook.example.com", "clientConfig": webhook.client_config("/review"),
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(ask("POST", path).json(&hooks).status(&server).await, 201);
    for (name, header, wanted) in [
        ("a", traceparent(), Some(traceparent())),
        ("b", "00-nothing".to_owned(), None),
    ] {
        let create = ask("POST", MAPS).json(&json!({"metadata": {"name": name}}));
        let create = create.header("traceparent", header);
        assert_eq!(create.status(&server).await, 201);
        let seen = webhook.take();
        let sent = seen[0].headers.get("traceparent");
        assert_eq!(sent.map(|sent| sent.to_str().unwrap().to_owned()), wanted);
    }
}

#[tokio::test]
async fn what_is_slow_is_traced_in_the_log() {
    let webhook = Webhook::start(|seen| {
        std::thread::sleep(Duration::from_millis(600));
        let uid = &seen.body["request"]["uid"];
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": true}}),
        )
    })
    .await;
    for (flags, told) in [(&["--v=2"][..], true), (&[], false)] {
        let (_folder, server) = embedded(flags).await;
        let hooks = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hook"},
            "webhooks": [{
                "name": "hook.example.com", "clientConfig": webhook.client_config("/review"),
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["configmaps"]}],
            }],
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        assert_eq!(ask("POST", path).json(&hooks).status(&server).await, 201);
        let create = ask("POST", MAPS).json(&json!({"metadata": {"name": "a"}}));
        let create = create
            .header("user-agent", "agent/1")
            .header("audit-id", "the-id");
        assert_eq!(create.status(&server).await, 201);
        // The line of a later request is written after it.
        let quick = "/api/v1/namespaces/default";
        assert_eq!(ask("GET", quick).status(&server).await, 200);
        let begun = Instant::now();
        while told && !server.log().contains("END") {
            assert!(begun.elapsed() < PATIENCE, "{}", server.log());
            tokio::time::sleep(LOOK).await;
        }
        let log = server.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("Trace[")).collect();
        if !told {
            assert_eq!(lines, Vec::<&str>::new());
            continue;
        }
        let first = lines[0];
        for part in [
            "] Trace[",
            "]: \"Create\" accept:,audit-id:the-id,client:127.0.0.1,api-group:,api-version:v1,name:,subresource:,namespace:default,protocol:HTTP/1.1,resource:configmaps,scope:namespace,url:/api/v1/namespaces/default/configmaps,user-agent:agent/1,verb:POST (",
            "ms):",
        ] {
            assert!(first.contains(part), "{part} in {first}");
        }
        assert!(first.starts_with('I'), "{first}");
        let rest = lines[1..].join("\n");
        for part in [
            "[\"Call validating webhook\" configuration:hook,webhook:hook.example.com,resource:/v1, Resource=configmaps,subresource:,operation:CREATE,UID:",
            " ---\"Request completed\" ",
            "ms] END",
        ] {
            assert!(rest.contains(part), "{part} in {rest}");
        }
        assert!(
            lines[1..].iter().all(|line| line.starts_with("Trace[")),
            "{rest}"
        );
    }
}
