//! Authorization by a configuration file: webhooks in the chain, what happens when they fail, and
//! files that are wrong, at the start and later.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::webhook::{Reply, Seen, Webhook};
use super::support::{Store, TestServer, USER};
use super::{ask, start};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A folder with the files of one server.
struct World {
    folder: tempfile::TempDir,
    webhook: Webhook,
}

impl World {
    async fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            webhook: Webhook::start(answer).await,
        };
        let (ca, port) = (world.path("ca.pem"), world.webhook.port);
        fs::write(ca, &world.webhook.ca).unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: authz\n  cluster:\n    certificate-authority: ca.pem\n    server: https://localhost:{port}/authorize\nusers:\n- name: api-server\n  user:\n    token: secret\ncurrent-context: webhook\ncontexts:\n- context:\n    cluster: authz\n    user: api-server\n  name: webhook\n"
        );
        fs::write(world.path("kubeconfig"), kubeconfig).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An authorizer of the type Webhook with further fields.
    fn webhook(&self, fields: Value) -> Value {
        let mut webhook = json!({
            "timeout": "3s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "Deny",
            // Probes come without credentials.
            "matchConditions": [{"expression": "request.user != 'system:anonymous'"}],
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": self.path("kubeconfig")},
        });
        for (key, value) in fields.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        json!({"type": "Webhook", "name": "guard", "webhook": webhook})
    }

    /// Writes the configuration, as tools do that rotate files.
    fn write(&self, authorizers: Value) {
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthorizationConfiguration",
            "authorizers": authorizers,
        });
        self.write_text(&config.to_string());
    }

    fn write_text(&self, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("authz.yaml")).unwrap();
    }

    fn flag(&self) -> String {
        format!(
            "--authorization-config={}",
            self.path("authz.yaml").display()
        )
    }

    async fn start(&self) -> TestServer {
        start(self.folder.path(), Store::Embedded, &[&self.flag()]).await
    }
}

fn node() -> Value {
    json!({"type": "Node", "name": "node"})
}

fn rbac() -> Value {
    json!({"type": "RBAC", "name": "rbac"})
}

/// The answer of a webhook.
fn review(status: Value) -> Reply {
    Reply::Json(json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status,
    }))
}

async fn assert_metric(server: &TestServer, line: &str) {
    let found = server.metrics().await;
    assert!(found.contains(line), "{line} is not in\n{found}");
}

#[tokio::test]
async fn a_webhook_decides_before_roles_do() {
    let world = World::new(|seen| {
        let spec = &seen.body["spec"];
        match spec["resourceAttributes"]["resource"].as_str() {
            Some("pods") => review(json!({"allowed": true, "reason": "why not"})),
            Some("secrets") => review(json!({"allowed": false, "denied": true, "reason": "never"})),
            _ => review(json!({"allowed": false, "reason": "no idea"})),
        }
    })
    .await;
    world.write(json!([world.webhook(json!({})), node(), rbac()]));
    let server = world.start().await;

    let selected = format!("{PODS}?fieldSelector=spec.nodeName%3Dn&labelSelector=a%20in%20(b),!c");
    assert_eq!(ask("GET", &selected).by(USER).status(&server).await, 200);
    let seen = world.webhook.take();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].uri, "/authorize?timeout=3s");
    assert_eq!(seen[0].headers["authorization"], "Bearer secret");
    let want = json!({
        "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
        "spec": {
            "resourceAttributes": {
                "namespace": "default", "verb": "list", "version": "v1", "resource": "pods",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
                "labelSelector": {"requirements": [
                    {"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "DoesNotExist"},
                ]},
            },
            "user": "alice", "groups": ["devs", "system:authenticated"], "uid": "alice-uid",
        },
        "status": {"allowed": false},
    });
    assert_eq!(seen[0].body, want);

    // The answer is kept, and only for the same question.
    assert_eq!(ask("GET", &selected).by(USER).status(&server).await, 200);
    assert_eq!(world.webhook.take().len(), 0);
    assert_eq!(ask("GET", PODS).by(USER).status(&server).await, 200);
    assert_eq!(world.webhook.take().len(), 1);

    let secrets = "/api/v1/namespaces/default/secrets";
    let (status, body) = ask("GET", secrets).by(USER).answer(&server).await;
    assert_eq!(status, 403);
    let message = r#"secrets is forbidden: User "alice" cannot list resource "secrets" in API group "" in the namespace "default": never"#;
    assert_eq!(body["message"], message);
    let (_, body) = ask("GET", "/api/v1/nodes").by(USER).answer(&server).await;
    let message = body["message"].as_str().unwrap();
    assert!(
        message.ends_with("at the cluster scope: no idea"),
        "{message}"
    );
    // Who is always allowed is not asked about.
    world.webhook.take();
    assert_eq!(ask("GET", secrets).status(&server).await, 200);
    assert_eq!(world.webhook.take().len(), 0);

    for line in [
        r#"apiserver_authorization_decisions_total{decision="allowed",name="guard",type="Webhook"} 3"#,
        r#"apiserver_authorization_decisions_total{decision="denied",name="guard",type="Webhook"} 1"#,
        r#"apiserver_authorization_webhook_evaluations_total{name="guard",result="success"} 4"#,
        r#"apiserver_authorization_webhook_duration_seconds_count{name="guard",result="success"} 4"#,
    ] {
        assert_metric(&server, line).await;
    }
}

#[tokio::test]
async fn a_review_tells_of_denials_and_errors() {
    let world = World::new(
        |seen| match seen.body["spec"]["resourceAttributes"]["verb"].as_str() {
            Some("get") => review(json!({"allowed": false, "denied": true, "reason": "no"})),
            Some("list") => review(json!({"allowed": true, "denied": true, "reason": "both"})),
            _ => Reply::Raw(418, vec![], Vec::new()),
        },
    )
    .await;
    let policy = json!({"failurePolicy": "NoOpinion"});
    world.write(json!([world.webhook(policy), rbac()]));
    let server = world.start().await;
    let status = async |verb: &str| {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "bob", "resourceAttributes": {"verb": verb, "resource": "pods",
                "fieldSelector": {"requirements": [{"key": "a", "operator": "Exists"}]}}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        ask("POST", path).json(&review).answer(&server).await.1["status"].clone()
    };
    let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error";
    assert_eq!(
        status("get").await,
        json!({"allowed": false, "denied": true, "reason": "no", "evaluationError": ignored})
    );
    let both = "webhook subject access review returned both allow and deny response";
    assert_eq!(
        status("list").await,
        json!({"allowed": false, "denied": true, "reason": "both", "evaluationError": format!("{both}; {ignored}")})
    );
    let failed =
        "the server responded with the status code 418 but did not return more information";
    assert_eq!(
        status("watch").await,
        json!({"allowed": false, "evaluationError": format!("{failed}; {ignored}")})
    );
    assert_metric(
        &server,
        r#"apiserver_authorization_webhook_evaluations_fail_open_total{name="guard",result="error"} 1"#,
    )
    .await;
}

#[tokio::test]
async fn a_webhook_that_fails_lets_nobody_in() {
    let reply = std::sync::Arc::new(std::sync::Mutex::new(Reply::Close));
    let next = reply.clone();
    let world = World::new(move |_| next.lock().unwrap().clone()).await;
    let fields = json!({"timeout": "500ms", "unauthorizedTTL": "1ns"});
    world.write(json!([world.webhook(fields), {"type": "AlwaysAllow", "name": "alwaysallow"}]));
    let server = world.start().await;
    let json = vec![("Content-Type", "application/json".to_owned())];
    let other = json!({"apiVersion": "v1", "kind": "Pod", "status": {"allowed": true}});
    let version = json!({"apiVersion": "authorization.k8s.io/v1beta1", "kind": "SubjectAccessReview", "status": {"allowed": true}});
    let replies = [
        Reply::Close,
        Reply::Hang,
        Reply::Endless(64 << 20),
        Reply::Raw(200, json.clone(), b"{\"status\":{\"allowed\":tr".to_vec()),
        Reply::Raw(200, json.clone(), Vec::new()),
        Reply::Raw(401, json.clone(), b"{}".to_vec()),
        Reply::Raw(
            301,
            vec![("Location", "https://localhost:1/".to_owned())],
            Vec::new(),
        ),
        Reply::Json(other),
        Reply::Json(version),
        Reply::Json(
            json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "m"}),
        ),
    ];
    for one in replies {
        *reply.lock().unwrap() = one.clone();
        let answer = ask("GET", PODS).by(USER).send(&server).await;
        let text = String::from_utf8_lossy(&answer.body);
        let want = format!("Internal Server Error: \"{PODS}\": ");
        assert_eq!(answer.status, 500, "{one:?}: {text}");
        assert!(text.starts_with(&want), "{one:?}: {text}");
    }
    // An answer that says nothing else does not need to say what it is.
    *reply.lock().unwrap() = Reply::Json(json!({"status": {"allowed": true}}));
    assert_eq!(ask("GET", PODS).by(USER).status(&server).await, 200);
    assert_metric(
        &server,
        r#"apiserver_authorization_webhook_evaluations_total{name="guard",result="timeout"} 1"#,
    )
    .await;
}

#[tokio::test]
async fn an_error_that_passes_is_tried_again() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let world =
        World::new(
            move |_| match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => Reply::Raw(500, vec![], b"later".to_vec()),
                _ => review(json!({"allowed": true})),
            },
        )
        .await;
    world.write(json!([world.webhook(json!({})), rbac()]));
    let server = world.start().await;
    assert_eq!(ask("GET", PODS).by(USER).status(&server).await, 200);
    assert_eq!(world.webhook.seen().len(), 2);
}

#[tokio::test]
async fn conditions_say_when_a_webhook_is_asked() {
    let world = World::new(|_| review(json!({"allowed": true}))).await;
    let conditions = [
        "has(request.resourceAttributes)",
        "request.resourceAttributes.namespace == 'default'",
        "!('system:serviceaccounts:kube-system' in request.groups)",
        "request.resourceAttributes.name != 'x' || request.extra['none'][0] == 'y'",
    ];
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|text| json!({"expression": text}))
        .collect();
    world.write(json!([
        world.webhook(json!({"matchConditions": conditions})),
        rbac()
    ]));
    let server = world.start().await;
    assert_eq!(ask("GET", PODS).by(USER).status(&server).await, 200);
    assert_eq!(world.webhook.take().len(), 1);
    let other = "/api/v1/namespaces/other/pods";
    assert_eq!(ask("GET", other).by(USER).status(&server).await, 403);
    assert_eq!(ask("GET", "/metrics").by(USER).status(&server).await, 403);
    // A condition without a value is a failure of the webhook.
    let answer = ask("GET", &format!("{PODS}/x"))
        .by(USER)
        .send(&server)
        .await;
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 500);
    assert!(text.contains("cel evaluation error: expression"), "{text}");
    assert_eq!(world.webhook.take().len(), 0);
    for line in [
        r#"apiserver_authorization_match_condition_exclusions_total{name="guard",type="Webhook"} "#,
        r#"apiserver_authorization_match_condition_evaluation_errors_total{name="guard",type="Webhook"} "#,
    ] {
        assert_metric(&server, line).await;
    }
}

#[tokio::test]
async fn the_webhook_of_the_flags_gets_reviews_of_their_version() {
    let world = World::new(|seen| {
        let version = &seen.body["apiVersion"];
        Reply::Json(json!({"apiVersion": version, "kind": "SubjectAccessReview", "status": {"allowed": true}}))
    })
    .await;
    for (flags, groups, asked) in [
        (vec![], "group", 1),
        (
            vec![
                "--authorization-webhook-version=v1",
                "--authorization-webhook-cache-authorized-ttl=0s",
                "--authorization-webhook-cache-unauthorized-ttl=0s",
            ],
            "groups",
            2,
        ),
    ] {
        let file = world.path("kubeconfig");
        let config = format!("--authorization-webhook-config-file={}", file.display());
        let mut all = vec!["--authorization-mode=RBAC,Webhook", config.as_str()];
        all.extend(flags);
        let folder = tempfile::tempdir().unwrap();
        let server = start(folder.path(), Store::Embedded, &all).await;
        for _ in 0..2 {
            assert_eq!(ask("GET", PODS).by(USER).status(&server).await, 200);
        }
        let seen = world.webhook.take();
        assert_eq!(seen.len(), asked);
        assert_eq!(seen[0].uri, "/authorize?timeout=30s");
        assert_eq!(
            seen[0].body["spec"][groups],
            json!(["devs", "system:authenticated"])
        );
    }
}

/// A service cannot fill the server's memory with its reasons, nor a client with its questions.
#[tokio::test]
async fn large_answers_are_not_kept() {
    let world = World::new(|seen| {
        let attributes = &seen.body["spec"]["resourceAttributes"];
        let reason = match attributes["name"].as_str() {
            Some("reasoned") => "r".repeat(20_000),
            _ => String::new(),
        };
        Reply::Json(json!({
            "apiVersion": seen.body["apiVersion"], "kind": "SubjectAccessReview",
            "status": {"allowed": true, "reason": reason},
        }))
    })
    .await;
    let file = world.path("kubeconfig");
    let config = format!("--authorization-webhook-config-file={}", file.display());
    let flags = ["--authorization-mode=RBAC,Webhook", config.as_str()];
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Embedded, &flags).await;
    let long = "n".repeat(20_000);
    for (name, asked) in [("small", 1), ("reasoned", 3), (long.as_str(), 3)] {
        for _ in 0..3 {
            let path = format!("{PODS}/{name}");
            assert_eq!(ask("GET", &path).by(USER).status(&server).await, 404);
        }
        assert_eq!(world.webhook.take().len(), asked, "{:.20}", name);
    }
}

#[tokio::test]
async fn policies_of_a_file_allow() {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.jsonl");
    let spec = r#"{"user": "alice", "namespace": "default", "resource": "pods", "readonly": true}"#;
    let line = format!(
        r#"{{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {spec}}}"#
    );
    fs::write(&policies, format!("# who may what\n{line}\n")).unwrap();
    let flag = format!("--authorization-policy-file={}", policies.display());
    let flags = ["--authorization-mode=ABAC,RBAC", flag.as_str()];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    assert_eq!(ask("GET", PODS).by(USER).status(&server).await, 200);
    let (status, body) = ask("POST", PODS)
        .json(&json!({}))
        .by(USER)
        .answer(&server)
        .await;
    assert_eq!(status, 403);
    let message = body["message"].as_str().unwrap();
    assert!(message.ends_with(": No policy matched."), "{message}");
}

/// Starts a server that must not start, and returns its log.
async fn refused(folder: &Path, flag: String) -> String {
    let data = format!("--data-dir={}", folder.join("data").display());
    let flags = [data, flag, "--secure-port=0".to_owned()];
    let mut process = TestServer::run(folder, &flags);
    assert!(!process.ends().await, "it started");
    process.log()
}

#[tokio::test]
async fn a_configuration_that_is_wrong_is_refused_at_the_start() {
    let world = World::new(|_| Reply::Hang).await;
    let wrong = [
        (
            json!([]),
            "authorizers: Required value: at least one authorization mode must be defined",
        ),
        (
            json!([{"type": "RBAC", "name": "r"}]),
            "expected name rbac for authorizer RBAC instead of r",
        ),
        (
            json!([world.webhook(json!({"failurePolicy": "Ignore"}))]),
            "authorizers[0].failurePolicy: Unsupported value: \"Ignore\": supported values: \"NoOpinion\", \"Deny\"",
        ),
        (
            json!([world.webhook(json!({"matchConditions": [{"expression": "1"}]}))]),
            "authorizers[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        ),
        (
            json!([world.webhook(json!({"retries": 3}))]),
            "strict decoding error: unknown field \"authorizers[0].webhook.retries\"",
        ),
    ];
    for (authorizers, want) in wrong {
        world.write(authorizers);
        let log = refused(world.folder.path(), world.flag()).await;
        assert!(log.contains(want), "{want} is not in\n{log}");
    }
    fs::write(
        world.path("kubeconfig"),
        "users: [{name: u, user: {exec: {command: x}}}]",
    )
    .unwrap();
    world.write(json!([world.webhook(json!({}))]));
    let log = refused(world.folder.path(), world.flag()).await;
    assert!(log.contains("no configuration has been provided"), "{log}");
}

#[tokio::test]
async fn a_configuration_that_changes_is_taken_unless_it_is_wrong() {
    let world = World::new(|_| review(json!({"allowed": true}))).await;
    world.write(json!([rbac()]));
    let server = world.start().await;
    let user = async || ask("GET", PODS).by(USER).status(&server).await;
    assert_eq!(user().await, 403);
    let controller = "apiserver_authorization_config_controller";
    assert_metric(
        &server,
        &format!("{controller}_last_config_info{{apiserver_id_hash=\"sha256:"),
    )
    .await;

    world.write(json!([rbac(), world.webhook(json!({}))]));
    server
        .hang_up_until("the webhook is not asked", async || user().await == 200)
        .await;

    let failures = async || {
        let found = server.metrics().await;
        let name = format!("{controller}_automatic_reloads_total{{");
        let mut lines = found
            .lines()
            .filter(|line| line.starts_with(&name) && line.contains("failure"));
        lines
            .next()
            .and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok())
    };
    assert_eq!(failures().await, None);
    for (count, text, why) in [
        (1, "no: [yaml", "couldn't get version/kind"),
        (
            2,
            "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthorizationConfiguration, authorizers: [{type: AlwaysAllow, name: alwaysallow}]}",
            "missing required types: [RBAC]",
        ),
        (
            3,
            "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthorizationConfiguration, authorizers: [{type: RBAC, name: rbac}, {type: Node, name: node}]}",
            "authorizer type Node is not allowed if it was not enabled at initial server startup",
        ),
    ] {
        world.write_text(text);
        server
            .hang_up_until(why, async || failures().await == Some(count))
            .await;
        let log = server.log();
        assert!(log.contains(why), "{why} is not in\n{log}");
        assert_eq!(user().await, 200, "{why}");
    }
    world.write(json!([rbac()]));
    server
        .hang_up_until("the webhook is still asked", async || user().await == 403)
        .await;
}
