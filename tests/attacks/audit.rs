//! Auditing: which events come of which requests, and what becomes of them when a disk is full or a
//! webhook hangs.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::future::join_all;
use serde_json::{Value, json};

use super::overload::metric;
use super::support::webhook::{Reply, Seen, Webhook};
use super::support::{Store, TestServer, USER};
use super::{Ask, ask, start};

/// Time limit for an event to be written.
const WRITTEN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// Probes and the server's own readiness are not audited.
const QUIET: &str = "{level: None, nonResourceURLs: ['/readyz*', '/livez*', /metrics]}";

/// A folder with the files of one server.
pub struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// Writes a policy with these rules, each in flow style.
    pub fn new(rules: &[&str]) -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n".to_owned();
        for rule in [QUIET].iter().chain(rules) {
            policy += &format!("- {rule}\n");
        }
        fs::write(world.path("policy.yaml"), policy).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server with a policy and further flags.
    async fn start(&self, flags: &[&str]) -> TestServer {
        let policy = format!("--audit-policy-file={}", self.path("policy.yaml").display());
        let flags = [&[policy.as_str()], flags].concat();
        start(self.folder.path(), Store::Embedded, &flags).await
    }

    /// A server that logs, with further flags.
    pub async fn start_logging(&self, flags: &[&str]) -> TestServer {
        let log = format!("--audit-log-path={}", self.path("audit.log").display());
        self.start(&[&[log.as_str()], flags].concat()).await
    }

    /// The events in the log of the request with that ID, once there are as many.
    pub async fn events(&self, id: &str, count: usize) -> Vec<Value> {
        let end = Instant::now() + WRITTEN;
        loop {
            let text = fs::read_to_string(self.path("audit.log")).unwrap_or_default();
            let events: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .filter(|event: &Value| event["auditID"] == id)
                .collect();
            if events.len() >= count {
                return events;
            }
            assert!(Instant::now() < end, "{id}: {events:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A kubeconfig file for a webhook, as a flag.
    fn webhook(&self, webhook: &Webhook) -> String {
        fs::write(self.path("ca.pem"), &webhook.ca).unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{certificate-authority: ca.pem, server: 'https://localhost:{}/audit'}}}}]\nusers: [{{name: u, user: {{token: secret}}}}]\ncurrent-context: w\ncontexts: [{{name: w, context: {{cluster: c, user: u}}}}]\n",
            webhook.port
        );
        fs::write(self.path("kubeconfig"), kubeconfig).unwrap();
        format!(
            "--audit-webhook-config-file={}",
            self.path("kubeconfig").display()
        )
    }
}

/// Level, stage and code of each event.
pub fn told(events: &[Value]) -> Vec<String> {
    let one = |event: &Value| {
        let code = event["responseStatus"]["code"].as_u64();
        let code = code.map_or_else(String::new, |code| format!(" {code}"));
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}{code}", text("level"), text("stage"))
    };
    events.iter().map(one).collect()
}

/// Sends a request with an ID of its own; returns its last event, and all in short.
async fn audited(
    world: &World,
    server: &TestServer,
    id: &str,
    request: Ask<'_>,
    count: usize,
) -> (Value, Vec<String>) {
    let answer = request.header("Audit-ID", id).send(server).await;
    assert_eq!(answer.headers["audit-id"], id);
    let events = world.events(id, count).await;
    let told = told(&events);
    assert_eq!(events.len(), count, "{told:?}");
    (events.last().unwrap().clone(), told)
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "<a&b>"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_become_the_events_of_the_policy() {
    let world = World::new(&[
        "{level: Metadata, omitStages: [RequestReceived], resources: [{resources: [secrets]}]}",
        "{level: Request, omitManagedFields: true, resources: [{resources: [configmaps]}]}",
        "{level: RequestResponse, verbs: [list], resources: [{resources: [serviceaccounts]}]}",
        "{level: RequestResponse, omitManagedFields: true, resources: [{resources: [serviceaccounts]}]}",
        "{level: None, resources: [{resources: [limitranges]}]}",
        "{level: Metadata}",
    ]);
    let server = world.start_logging(&[]).await;
    let server = &server;

    let list = ask("GET", SECRETS).header("User-Agent", "x".repeat(2000));
    let (event, told) = audited(&world, server, "secrets", list, 1).await;
    assert_eq!(told, ["Metadata ResponseComplete 200"]);
    assert_eq!(
        event["objectRef"],
        json!({"resource": "secrets", "namespace": "default", "apiVersion": "v1"})
    );
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["user"]["uid"], "admin-uid");
    assert_eq!(
        event["user"]["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(event["requestURI"], SECRETS);
    assert_eq!(event["verb"], "list");
    assert_eq!(event["kind"], "Event");
    assert_eq!(event["apiVersion"], "audit.k8s.io/v1");
    assert_eq!(
        event["responseStatus"],
        json!({"metadata": {}, "code": 200})
    );
    assert_eq!(
        event["annotations"],
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""})
    );
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    assert!(
        event["userAgent"]
            .as_str()
            .unwrap()
            .ends_with("...TRUNCATED")
    );
    let time = event["requestReceivedTimestamp"].as_str().unwrap();
    assert!(
        time.len() == "2026-01-02T03:04:05.678901Z".len() && time.ends_with('Z'),
        "{time}"
    );

    let create = ask("POST", CONFIG_MAPS).json(&config_map("a"));
    let (event, told) = audited(&world, server, "create", create, 2).await;
    assert_eq!(
        told,
        ["Request RequestReceived", "Request ResponseComplete 201"]
    );
    assert_eq!(event["objectRef"]["name"], "a");
    assert_eq!(event["requestObject"]["kind"], "ConfigMap");
    assert_eq!(event["requestObject"]["data"]["text"], "<a&b>");
    assert!(event.get("responseObject").is_none());

    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!({"data": {"b": "c"}});
    let merge = ask("PATCH", &path).body("application/merge-patch+json", patch.to_string());
    let (event, told) = audited(&world, server, "patch", merge, 2).await;
    assert_eq!(told[1], "Request ResponseComplete 200");
    assert_eq!(
        (&event["verb"], &event["requestObject"]),
        (&json!("patch"), &patch)
    );

    let missing = format!("{CONFIG_MAPS}/missing");
    let (event, told) = audited(&world, server, "missing", ask("GET", &missing), 2).await;
    assert_eq!(told[1], "Request ResponseComplete 404");
    let status = &event["responseStatus"];
    assert_eq!(
        (&status["status"], &status["reason"]),
        (&json!("Failure"), &json!("NotFound"))
    );
    assert_eq!(
        status["details"],
        json!({"name": "missing", "kind": "configmaps"})
    );
    assert_eq!(event["objectRef"]["name"], "missing");

    let delete = ask("DELETE", &path)
        .json(&json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}));
    let (event, told) = audited(&world, server, "delete", delete, 2).await;
    assert_eq!(told[1], "Request ResponseComplete 200");
    assert_eq!(event["requestObject"]["kind"], "DeleteOptions");
    assert_eq!(event["responseStatus"]["status"], "Success");

    let account = json!({"metadata": {"name": "robot"}});
    let create = ask("POST", ACCOUNTS).json(&account);
    let (event, told) = audited(&world, server, "account", create, 2).await;
    assert_eq!(told[1], "RequestResponse ResponseComplete 201");
    let object = &event["responseObject"];
    assert_eq!(object["kind"], "ServiceAccount");
    assert!(
        object["metadata"]["uid"].is_string() && object["metadata"].get("managedFields").is_none()
    );
    let path = format!("{ACCOUNTS}/robot");
    for (id, media) in [
        ("protobuf", "application/vnd.kubernetes.protobuf"),
        ("yaml", "application/yaml"),
        ("table", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    ] {
        let get = ask("GET", &path).header("Accept", media);
        let (event, _) = audited(&world, server, id, get, 2).await;
        let kind = if id == "table" {
            "Table"
        } else {
            "ServiceAccount"
        };
        assert_eq!(event["responseObject"]["kind"], kind, "{id}");
        assert!(
            !event.to_string().contains("managedFields"),
            "{id}: {event}"
        );
    }
    let (event, _) = audited(
        &world,
        server,
        "gone",
        ask("GET", &format!("{ACCOUNTS}/gone")),
        2,
    )
    .await;
    assert_eq!(event["responseObject"]["kind"], "Status");

    let pretty = format!("{ACCOUNTS}?pretty=true");
    let (event, _) = audited(&world, server, "pretty", ask("GET", &pretty), 2).await;
    assert_eq!(event["responseObject"]["kind"], "ServiceAccountList");

    // Not audited at all: the next request is, and comes after it.
    ask("GET", "/api/v1/namespaces/default/limitranges")
        .header("Audit-ID", "none")
        .send(server)
        .await;
    let (event, told) = audited(&world, server, "version", ask("GET", "/version"), 2).await;
    assert_eq!(
        told,
        ["Metadata RequestReceived", "Metadata ResponseComplete 200"]
    );
    assert!(event.get("objectRef").is_none());
    assert_eq!(event["verb"], "get");
    let log = fs::read_to_string(world.path("audit.log")).unwrap();
    assert!(!log.contains("\"auditID\":\"none\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_decisions_and_streams_are_told() {
    let world = World::new(&["{level: Metadata}"]);
    let server = world.start_logging(&[]).await;
    let server = &server;

    let nodes = ask("GET", "/api/v1/nodes").by(USER);
    let (event, told) = audited(&world, server, "forbidden", nodes, 2).await;
    assert_eq!(told[1], "Metadata ResponseComplete 403");
    assert_eq!(
        event["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(event["annotations"]["authorization.k8s.io/reason"], "");
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");

    let reason = ask("GET", "/version").by(USER);
    let (event, _) = audited(&world, server, "reason", reason, 2).await;
    assert_eq!(
        event["annotations"]["authorization.k8s.io/decision"],
        "allow"
    );
    let reason = event["annotations"]["authorization.k8s.io/reason"]
        .as_str()
        .unwrap();
    assert!(
        reason.starts_with("RBAC: allowed by ClusterRoleBinding"),
        "{reason}"
    );

    let as_bob = ask("GET", SECRETS)
        .header("Impersonate-User", "bob")
        .header("Impersonate-Group", "friends");
    let (event, told) = audited(&world, server, "bob", as_bob, 2).await;
    assert_eq!(told[1], "Metadata ResponseComplete 403");
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["impersonatedUser"]["username"], "bob");
    assert_eq!(
        event["impersonatedUser"]["groups"],
        json!(["friends", "system:authenticated"])
    );

    let stranger = ask("GET", SECRETS).by("wrong");
    let (event, told) = audited(&world, server, "stranger", stranger, 1).await;
    assert_eq!(told, ["Metadata ResponseStarted 401"]);
    assert_eq!(event["user"], json!({}));
    assert_eq!(event["responseStatus"]["message"], "Unauthorized");

    let watch = format!("{SECRETS}?watch=true&timeoutSeconds=1");
    let (_, told) = audited(&world, server, "watch", ask("GET", &watch), 3).await;
    assert_eq!(
        told,
        [
            "Metadata RequestReceived",
            "Metadata ResponseStarted 200",
            "Metadata ResponseComplete 200"
        ]
    );

    let deprecated = ask("GET", "/api/v1/namespaces/default/endpoints");
    let (event, _) = audited(&world, server, "deprecated", deprecated, 2).await;
    assert_eq!(event["annotations"]["k8s.io/deprecated"], "true");

    let forwarded = ask("GET", "/version").header("X-Forwarded-For", "10.1.2.3, 10.1.2.4");
    let (event, _) = audited(&world, server, "forwarded", forwarded, 2).await;
    assert_eq!(
        event["sourceIPs"],
        json!(["10.1.2.3", "10.1.2.4", "127.0.0.1"])
    );

    let timeout = ask("GET", "/version?timeout=x");
    let answer = timeout.send(server).await;
    assert_eq!(answer.status, 400);

    let token = format!("{ACCOUNTS}/default/token");
    let account = json!({"metadata": {"name": "default"}});
    ask("POST", ACCOUNTS).json(&account).send(server).await;
    let request = ask("POST", &token).json(&json!({"spec": {}}));
    let (event, told) = audited(&world, server, "token", request, 2).await;
    assert_eq!(told[1], "Metadata ResponseComplete 201");
    let issued = &event["annotations"]["authentication.kubernetes.io/issued-credential-id"];
    assert!(issued.as_str().unwrap().starts_with("JTI="), "{event}");

    let labels = json!({"metadata": {"name": "safe", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    assert_eq!(
        ask("POST", "/api/v1/namespaces")
            .json(&labels)
            .status(server)
            .await,
        201
    );
    let account = json!({"metadata": {"name": "default"}});
    ask("POST", "/api/v1/namespaces/safe/serviceaccounts")
        .json(&account)
        .status(server)
        .await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let create = ask("POST", "/api/v1/namespaces/safe/pods").json(&pod);
    let (event, told) = audited(&world, server, "pod", create, 2).await;
    assert_eq!(told[1], "Metadata ResponseComplete 201");
    assert_eq!(
        event["annotations"]["pod-security.kubernetes.io/enforce-policy"],
        "baseline:latest"
    );
    assert_eq!(event["objectRef"]["name"], "p");
}

/// Answers a review with a patch.
fn patched(seen: &Seen) -> Reply {
    let patch = BASE64_STANDARD.encode(r#"[{"op":"add","path":"/data","value":{"a":"b"}}]"#);
    Reply::Json(json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": {
            "uid": seen.body["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch,
            "auditAnnotations": {"seen": "yes"},
        },
    }))
}

/// The annotations of webhooks; those that show the object come from level Request on (upstream's
/// `test/integration/controlplane/audit`).
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_annotate_events() {
    let webhook = Webhook::start(patched).await;
    let world = World::new(&[
        "{level: Metadata, namespaces: [default]}",
        "{level: Request, namespaces: [other]}",
        "{level: None}",
    ]);
    let server = world.start_logging(&[]).await;
    let namespace = json!({"metadata": {"name": "other"}});
    assert_eq!(
        ask("POST", "/api/v1/namespaces")
            .json(&namespace)
            .status(&server)
            .await,
        201
    );
    let configuration = json!({
        "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "mutate.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": webhook.client_config("/mutate"),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(
        ask("POST", path).json(&configuration).status(&server).await,
        201
    );
    for (namespace, shows_patch) in [("default", false), ("other", true)] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let create = ask("POST", &path).json(&json!({"metadata": {"name": "a"}}));
        let (event, _) = audited(&world, &server, namespace, create, 2).await;
        let annotations = &event["annotations"];
        let mutation = annotations["mutation.webhook.admission.k8s.io/round_0_index_0"].as_str();
        assert_eq!(
            mutation,
            Some(r#"{"configuration":"hooks","webhook":"mutate.example.com","mutated":true}"#)
        );
        let patch = annotations["patch.webhook.admission.k8s.io/round_0_index_0"].as_str();
        assert_eq!(patch.is_some(), shows_patch, "{annotations}");
        assert_eq!(annotations["mutate.example.com/seen"], "yes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_requests_in_strict_mode_alone() {
    let world = World::new(&["{level: Metadata}"]);
    let server = world
        .start(&[
            "--audit-log-path=/dev/full",
            "--audit-log-mode=blocking-strict",
        ])
        .await;
    let answer = ask("GET", "/version").send(&server).await;
    assert_eq!(answer.status, 500);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(
        text,
        "Internal Server Error: \"/version\": failed to store audit event\n"
    );
    assert_eq!(
        metric(&server, "apiserver_audit_requests_rejected_total ", &[]).await,
        1.0
    );
    let refused = ask("POST", CONFIG_MAPS)
        .json(&config_map("a"))
        .status(&server)
        .await;
    assert_eq!(refused, 500);
    drop(server);

    let world = World::new(&["{level: Metadata}"]);
    let server = world.start(&["--audit-log-path=/dev/full"]).await;
    assert_eq!(ask("GET", "/version").status(&server).await, 200);
    assert!(metric(&server, "apiserver_audit_error_total{plugin=\"log\"}", &[]).await >= 2.0);
    assert_eq!(
        metric(&server, "apiserver_audit_requests_rejected_total ", &[]).await,
        0.0
    );
    assert!(metric(&server, "apiserver_audit_event_total ", &[]).await >= 2.0);
    assert!(
        metric(
            &server,
            "apiserver_audit_level_total{level=\"Metadata\"}",
            &[]
        )
        .await
            >= 1.0
    );
}

/// The names of the logs in a folder.
fn logs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("audit"))
        .collect();
    names.sort();
    names
}

/// A reader of the log who stops reading stops those requests that are told, and nothing else.
#[tokio::test]
async fn a_pipe_that_is_not_read_stops_nobody_else() {
    const REQUESTS: usize = 200;
    let world = World::new(&["{level: Metadata}"]);
    let pipe = world.path("audit.log");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    // Whoever opens a pipe for both directions waits for nobody.
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe);
    let mut reader = reader.unwrap();
    let server = world.start_logging(&[]).await;
    let (goes_on, all) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let (may_go_on, read): (_, Arc<Mutex<Vec<u8>>>) = (goes_on.clone(), Arc::clone(&all));
    let reading = std::thread::spawn(move || {
        while !may_go_on.load(Ordering::Relaxed) {
            std::thread::park();
        }
        let mut some = [0; 4096];
        while let Ok(bytes) = reader.read(&mut some) {
            read.lock().unwrap().extend_from_slice(&some[..bytes]);
        }
    });
    // More than a pipe takes.
    let answered = AtomicUsize::new(0);
    let asked = join_all((0..REQUESTS).map(async |at| {
        let path = format!("{CONFIG_MAPS}/c{at}");
        let status = ask("GET", &path).status(&server).await;
        answered.fetch_add(1, Ordering::Relaxed);
        status
    }));
    let others = async {
        let mut before = None;
        while before != Some(answered.load(Ordering::Relaxed)) {
            before = Some(answered.load(Ordering::Relaxed));
            for _ in 0..10 {
                assert_eq!(ask("GET", "/livez").status(&server).await, 200);
                assert_eq!(ask("GET", "/metrics").status(&server).await, 200);
            }
        }
        assert!(before < Some(REQUESTS), "the pipe takes all");
        goes_on.store(true, Ordering::Relaxed);
        reading.thread().unpark();
    };
    let (asked, ()) = futures::join!(asked, others);
    assert_eq!(asked, vec![404; REQUESTS]);
    let told = |at: usize| {
        let text = String::from_utf8_lossy(&all.lock().unwrap()).into_owned();
        text.matches(&format!("{CONFIG_MAPS}/c{at}\"")).count()
    };
    let end = Instant::now() + WRITTEN;
    while (0..REQUESTS).any(|at| told(at) < 2) {
        assert!(Instant::now() < end, "events are lost");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_rotated_without_loss() {
    let world = World::new(&[
        "{level: Request, resources: [{resources: [configmaps]}]}",
        "{level: None}",
    ]);
    let server = world
        .start_logging(&[
            "--audit-log-maxsize=1",
            "--audit-log-maxbackup=50",
            "--audit-log-maxage=5",
        ])
        .await;
    let large = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(200_000)}});
    let path = format!("{CONFIG_MAPS}/other");
    for number in 0..12 {
        let put = ask("PUT", &path)
            .json(&large)
            .header("Audit-ID", format!("put-{number}"));
        assert!(put.status(&server).await >= 400);
    }
    let names = logs(world.folder.path());
    assert!(names.len() >= 3, "{names:?}");
    let mut ids = Vec::new();
    for name in &names {
        let text = fs::read_to_string(world.path(name)).unwrap();
        assert!(text.len() <= 1 << 20, "{name}");
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            ids.push(event["auditID"].as_str().unwrap().to_owned());
        }
    }
    for number in 0..12 {
        let id = format!("put-{number}");
        assert_eq!(ids.iter().filter(|known| **known == id).count(), 2, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_have_the_form_of_the_flags() {
    let world = World::new(&["{level: Request}"]);
    let flags = [
        "--audit-log-format=legacy",
        "--audit-log-mode=batch",
        "--audit-log-batch-max-size=2",
        "--audit-log-batch-max-wait=100ms",
    ];
    let mut server = world.start_logging(&flags).await;
    ask("GET", "/version")
        .header("Audit-ID", "legacy")
        .send(&server)
        .await;
    // What is left is written when the server ends.
    server.terminate().await;
    let log = fs::read_to_string(world.path("audit.log")).unwrap();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("id=\"legacy\""))
        .collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[1].contains(" AUDIT: id=\"legacy\" stage=\"ResponseComplete\" ip=\"127.0.0.1\" method=\"get\" user=\"admin\""), "{log}");
    assert!(
        lines[1].ends_with("uri=\"/version\" response=\"200\""),
        "{log}"
    );

    let world = World::new(&["{level: Request}"]);
    let server = world
        .start_logging(&[
            "--audit-log-truncate-enabled=true",
            "--audit-log-truncate-max-event-size=3000",
        ])
        .await;
    let large = json!({"metadata": {"name": "a"}, "data": {"text": "x".repeat(5000)}});
    let create = ask("POST", CONFIG_MAPS).json(&large);
    let (event, _) = audited(&world, &server, "large", create, 2).await;
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(event.get("requestObject").is_none());
}

fn items(seen: &[Seen]) -> Vec<Value> {
    let lists = seen.iter().filter_map(|seen| seen.body["items"].as_array());
    lists.flatten().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_lists_of_events_again_if_it_fails() {
    let failures = AtomicUsize::new(2);
    let webhook = Webhook::start(move |_| {
        match failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        }) {
            Ok(_) => Reply::Raw(500, Vec::new(), b"no".to_vec()),
            Err(_) => Reply::Raw(200, Vec::new(), Vec::new()),
        }
    })
    .await;
    let world = World::new(&["{level: Metadata}"]);
    let config = world.webhook(&webhook);
    let flags = [
        config.as_str(),
        "--audit-webhook-batch-max-wait=100ms",
        "--audit-webhook-batch-max-size=10",
        "--audit-webhook-initial-backoff=10ms",
    ];
    let mut server = world.start(&flags).await;
    for number in 0..15 {
        let get = ask("GET", "/version").header("Audit-ID", format!("hook-{number}"));
        assert_eq!(get.status(&server).await, 200);
    }
    server.terminate().await;
    let seen = webhook.seen();
    assert_eq!(seen[0].uri, "/audit?timeout=30s");
    assert_eq!(seen[0].headers["authorization"], "Bearer secret");
    let list = &seen[0].body;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("EventList"), &json!("audit.k8s.io/v1"))
    );
    let largest = seen
        .iter()
        .map(|seen| seen.body["items"].as_array().map_or(0, Vec::len))
        .max();
    assert!(largest > Some(1) && largest <= Some(10), "{largest:?}");
    // The two that failed came again.
    let all = items(&seen);
    for number in 0..15 {
        let id = format!("hook-{number}");
        assert!(
            all.iter()
                .filter(|event| event["auditID"] == id.as_str())
                .count()
                >= 2,
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_hangs_delays_nobody_in_batch_mode() {
    let webhook = Webhook::start(|_| Reply::Hang).await;
    let world = World::new(&["{level: Metadata}"]);
    let config = world.webhook(&webhook);
    let flags = [
        config.as_str(),
        "--audit-webhook-batch-buffer-size=5",
        "--audit-webhook-batch-max-size=1",
        "--audit-webhook-batch-throttle-qps=0.1",
        "--audit-webhook-batch-throttle-burst=1",
        "--audit-webhook-truncate-enabled=true",
    ];
    let server = world.start(&flags).await;
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(ask("GET", "/version").status(&server).await, 200);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        metric(
            &server,
            "apiserver_audit_error_total{plugin=\"buffered\"}",
            &[]
        )
        .await
            > 0.0
    );
    drop(server);

    // In strict mode the request waits, and fails if nobody takes its event.
    let webhook = Webhook::start(|_| Reply::Close).await;
    let world = World::new(&["{level: Metadata, omitStages: [ResponseComplete]}"]);
    let config = world.webhook(&webhook);
    let strict = [
        "--audit-webhook-mode=blocking-strict",
        "--audit-webhook-initial-backoff=1ms",
    ];
    let server = world
        .start(&[&[config.as_str()], &strict[..]].concat())
        .await;
    assert_eq!(ask("GET", "/version").status(&server).await, 500);
    assert!(webhook.seen().len() >= 5, "it is tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_policies_keep_a_server_from_starting() {
    for (policy, why) in [
        (
            "rules: [{level: Everything}]",
            "rules[0].level: Unsupported value: \"Everything\"",
        ),
        ("rules: []", "loaded illegal policy with 0 rules"),
        (
            "rules: {}",
            "json: cannot unmarshal object into Go struct field Policy.rules of type []v1.PolicyRule",
        ),
    ] {
        let world = World::new(&[]);
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        fs::write(world.path("policy.yaml"), format!("{head}{policy}")).unwrap();
        let flags = [
            format!("--data-dir={}", world.path("data").display()),
            format!(
                "--audit-policy-file={}",
                world.path("policy.yaml").display()
            ),
            format!("--audit-log-path={}", world.path("audit.log").display()),
            "--secure-port=0".to_owned(),
        ];
        let mut process = TestServer::run(world.folder.path(), &flags);
        assert!(!process.ends().await, "{policy}");
        let log = process.log();
        assert!(
            log.contains("loading audit policy file: ") && log.contains(why),
            "{log}"
        );
    }
}
