//! The events of requests, a row for each: what is sent, the stages that the log has of it, and a
//! part of the last event (apiserver `endpoints/filters/audit_test.go`, `test/integration/
//! controlplane/audit`).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::audit::{World, told};
use super::support::webhook::{Identity, Reply, Seen, Webhook};
use super::support::{TestServer, USER, until};
use super::{Ask, ask};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const FORBIDDEN: &str = "authorization.k8s.io/decision";

/// A request, with what the log has of it.
struct Row<'a> {
    id: &'a str,
    request: Ask<'a>,
    /// Stage and code.
    events: Vec<String>,
    /// A part of the last event; null for what is not to be there.
    last: Value,
}

/// Returns the path below `found` at which it lacks something of `wanted`.
fn lacks(found: &Value, wanted: &Value) -> Option<String> {
    match wanted {
        Value::Object(members) => members.iter().find_map(|(key, wanted)| {
            let path = lacks(&found[key], wanted)?;
            Some(format!("/{key}{path}"))
        }),
        wanted => (found != wanted).then(String::new),
    }
}

async fn check(world: &World, server: &TestServer, row: Row<'_>) {
    let Row { id, request, .. } = row;
    request.header("Audit-ID", id).send(server).await;
    let events = world.events(id, row.events.len()).await;
    let stages: Vec<String> = told(&events)
        .iter()
        .map(|event| event.split_once(' ').unwrap().1.to_owned())
        .collect();
    assert_eq!(stages, row.events, "{id}: {events:?}");
    let last = events.last().unwrap();
    let lacking = lacks(last, &row.last);
    assert_eq!(lacking, None, "{id}: {last}");
}

/// The stages of a request that ends with its answer.
fn done(code: u16) -> Vec<String> {
    vec![
        "RequestReceived".to_owned(),
        format!("ResponseComplete {code}"),
    ]
}

/// The stages of a request whose answer lasts.
fn lasting(code: u16) -> Vec<String> {
    ["RequestReceived".to_owned()]
        .into_iter()
        .chain(["ResponseStarted", "ResponseComplete"].map(|stage| format!("{stage} {code}")))
        .collect()
}

fn object(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

/// A part of a Status that a request failed with.
fn failure(reason: &str) -> Value {
    json!({"status": "Failure", "reason": reason})
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_reads_are_told_with_their_objects() {
    let world = World::new(&["{level: RequestResponse}"]);
    let server = &world.start_logging(&[]).await;
    let (one, many) = (
        format!("{CONFIG_MAPS}/a"),
        format!("{CONFIG_MAPS}?dryRun=All"),
    );
    let none = format!("{CONFIG_MAPS}/none");
    let applied = format!("{CONFIG_MAPS}/applied?fieldManager=me&force=true");
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
    let reference =
        json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
    let options =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let review =
        json!({"spec": {"user": "bob", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let rows = [
        Row {
            id: "version",
            request: ask("GET", "/version"),
            events: done(200),
            last: json!({"verb": "get", "requestURI": "/version", "objectRef": null, "requestObject": null, "responseObject": null}),
        },
        Row {
            id: "nowhere",
            request: ask("GET", "/nowhere?a=b"),
            events: done(404),
            last: json!({"requestURI": "/nowhere?a=b", "objectRef": null}),
        },
        Row {
            id: "create",
            request: ask("POST", CONFIG_MAPS).json(&object("a")),
            events: done(201),
            last: json!({
                "verb": "create", "objectRef": reference, "responseStatus": {"metadata": {}, "code": 201},
                "requestObject": {"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "b"}},
                "responseObject": {"kind": "ConfigMap", "metadata": {"name": "a"}},
                "annotations": {FORBIDDEN: "allow", "authorization.k8s.io/reason": ""},
            }),
        },
        Row {
            id: "twice",
            request: ask("POST", CONFIG_MAPS).json(&object("a")),
            events: done(409),
            last: json!({"objectRef": reference, "responseStatus": failure("AlreadyExists"), "responseObject": {"kind": "Status", "code": 409}}),
        },
        Row {
            id: "not-json",
            request: ask("POST", CONFIG_MAPS).body(super::JSON, "{"),
            events: done(400),
            last: json!({"objectRef": {"name": null}, "requestObject": null, "responseStatus": failure("BadRequest")}),
        },
        Row {
            id: "invalid",
            request: ask("POST", CONFIG_MAPS).json(&object("?")),
            events: done(422),
            last: json!({"objectRef": {"name": "?"}, "requestObject": {"metadata": {"name": "?"}}, "responseStatus": failure("Invalid")}),
        },
        Row {
            id: "media",
            request: ask("POST", CONFIG_MAPS).body("text/plain", "a"),
            events: done(415),
            last: json!({"requestObject": null, "responseStatus": failure("UnsupportedMediaType")}),
        },
        Row {
            id: "large",
            request: ask("POST", CONFIG_MAPS).body(super::JSON, vec![b' '; (3 << 20) + 1]),
            events: done(413),
            last: json!({"requestObject": null, "responseStatus": failure("RequestEntityTooLarge")}),
        },
        Row {
            id: "method",
            request: ask("PUT", CONFIG_MAPS).json(&object("a")),
            events: done(405),
            last: json!({"verb": "update", "responseStatus": failure("MethodNotAllowed")}),
        },
        Row {
            id: "stale",
            request: ask("PUT", &one).json(&stale),
            events: done(409),
            last: json!({"verb": "update", "objectRef": {"resourceVersion": "1"}, "responseStatus": failure("Conflict")}),
        },
        Row {
            id: "patch",
            request: ask("PATCH", &one).body(MERGE, r#"{"data": {"a": "c"}}"#),
            events: done(200),
            last: json!({"verb": "patch", "requestObject": {"kind": null, "data": {"a": "c"}}, "responseObject": {"data": {"a": "c"}}}),
        },
        Row {
            id: "apply",
            request: ask("PATCH", &applied).body(
                APPLY,
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\n",
            ),
            events: done(201),
            last: json!({"verb": "patch", "requestObject": {"kind": "ConfigMap", "metadata": {"name": "applied"}}}),
        },
        Row {
            id: "dry-run",
            request: ask("POST", &many).json(&object("dry")),
            events: done(201),
            last: json!({"verb": "create", "requestURI": many, "objectRef": {"name": "dry"}, "responseObject": {"kind": "ConfigMap"}}),
        },
        Row {
            id: "missing",
            request: ask("GET", &none),
            events: done(404),
            last: json!({"verb": "get", "objectRef": {"name": "none"}, "responseStatus": failure("NotFound"), "responseObject": {"kind": "Status"}}),
        },
        Row {
            id: "list",
            request: ask("GET", CONFIG_MAPS),
            events: done(200),
            last: json!({"verb": "list", "objectRef": {"name": null}, "responseObject": {"kind": "ConfigMapList"}}),
        },
        Row {
            id: "review",
            request: ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
                .json(&review),
            events: done(201),
            last: json!({"objectRef": {"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"}, "requestObject": {"spec": {"user": "bob"}}, "responseObject": {"status": {"allowed": false}}}),
        },
        Row {
            id: "delete",
            request: ask("DELETE", &one),
            events: done(200),
            last: json!({"verb": "delete", "objectRef": reference, "responseStatus": {"status": "Success", "code": 200}, "responseObject": {"kind": "Status"}}),
        },
        Row {
            id: "delete-all",
            request: ask("DELETE", CONFIG_MAPS).json(&options),
            events: done(200),
            last: json!({"verb": "deletecollection", "objectRef": {"name": null}, "requestObject": options, "responseObject": {"kind": "ConfigMapList"}}),
        },
    ];
    for row in rows {
        check(&world, server, row).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_turned_away_and_streams_are_told() {
    let world = World::new(&[
        "{level: Request, omitStages: [RequestReceived], resources: [{resources: [secrets]}], verbs: [get]}",
        "{level: Metadata}",
    ]);
    let server = &world.start_logging(&[]).await;
    let watch = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    let secret = format!("{SECRETS}/none");
    let exec = "/api/v1/namespaces/default/pods/none/exec?command=a";
    let forbidden = json!({
        "responseStatus": {"status": "Failure", "reason": "Forbidden", "code": 403},
        "annotations": {FORBIDDEN: "forbid"}, "user": {"username": "alice"},
    });
    let rows = [
        Row {
            id: "omitted",
            request: ask("GET", &secret),
            events: vec!["ResponseComplete 404".to_owned()],
            last: json!({"level": "Request", "responseObject": null}),
        },
        Row {
            id: "unknown",
            request: ask("GET", "/version").by("nobody"),
            events: vec!["ResponseStarted 401".to_owned()],
            last: json!({"user": {"username": null}, "responseStatus": failure("Unauthorized"), "annotations": null}),
        },
        Row {
            id: "timeout",
            request: ask("GET", "/version?timeout=soon"),
            events: vec!["ResponseStarted 400".to_owned()],
            last: json!({
                "user": {"username": null}, "annotations": null,
                "responseStatus": {"reason": "BadRequest", "message": "invalid timeout specified in the request URL - time: invalid duration \"soon\""},
            }),
        },
        Row {
            id: "forbidden",
            request: ask("GET", SECRETS).by(USER),
            events: done(403),
            last: forbidden.clone(),
        },
        Row {
            id: "forbidden-watch",
            request: ask("GET", &watch).by(USER),
            events: lasting(403),
            last: forbidden,
        },
        Row {
            id: "watch",
            request: ask("GET", &watch),
            events: lasting(200),
            last: json!({"verb": "watch", "annotations": {FORBIDDEN: "allow", "apiserver.latency.k8s.io/total": null}}),
        },
        Row {
            id: "timeout-of-a-watch",
            request: ask(
                "GET",
                "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1&timeout=soon",
            ),
            events: lasting(200),
            last: json!({"verb": "watch"}),
        },
        Row {
            id: "exec",
            request: ask("POST", exec),
            events: lasting(404),
            last: json!({"verb": "create", "requestURI": exec, "objectRef": {"resource": "pods", "subresource": "exec", "name": "none"}}),
        },
        Row {
            id: "as-bob",
            request: ask("GET", "/version")
                .header("Impersonate-User", "bob")
                .header("Impersonate-Extra-a", "b"),
            events: done(200),
            last: json!({"user": {"username": "admin"}, "impersonatedUser": {"username": "bob", "extra": {"a": ["b"]}}}),
        },
        Row {
            id: "as-nobody",
            request: ask("GET", "/version")
                .by(USER)
                .header("Impersonate-User", "bob"),
            events: done(403),
            last: json!({"user": {"username": "alice"}, "impersonatedUser": null, "responseStatus": failure("Forbidden")}),
        },
    ];
    for row in rows {
        check(&world, server, row).await;
    }
}

/// Leaves bob, who may do everything, no more than one seat.
async fn one_seat(server: &TestServer) {
    let flow = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let bob = json!({"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"});
    let role = json!({"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"});
    let any = json!(["*"]);
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "bob"}}],
        "resourceRules": [{"verbs": any, "apiGroups": any, "resources": any, "clusterScope": true, "namespaces": any}],
        "nonResourceRules": [{"verbs": any, "nonResourceURLs": any}]});
    for (path, object) in [
        (
            rbac.to_owned(),
            json!({"metadata": {"name": "bob"}, "subjects": [bob], "roleRef": role}),
        ),
        (
            format!("{flow}/prioritylevelconfigurations"),
            json!({"metadata": {"name": "one"}, "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}}),
        ),
        (
            format!("{flow}/flowschemas"),
            json!({"metadata": {"name": "one"}, "spec": {
                "priorityLevelConfiguration": {"name": "one"}, "matchingPrecedence": 5, "rules": [rule]}}),
        ),
    ] {
        create(server, &path, &object).await;
    }
    let is_one = async || {
        let answer = as_bob(ask("GET", "/version")).send(server).await;
        let uid = answer.headers.get("x-kubernetes-pf-prioritylevel-uid");
        let level = format!("{flow}/prioritylevelconfigurations/one");
        let (_, level) = ask("GET", &level).answer(server).await;
        uid.is_some_and(|uid| level["metadata"]["uid"] == uid.to_str().unwrap())
    };
    until("it comes", is_one).await;
}

fn as_bob(request: Ask<'_>) -> Ask<'_> {
    request.header("Impersonate-User", "bob")
}

async fn create(server: &TestServer, path: &str, object: &Value) {
    let (status, made) = ask("POST", path).json(object).answer(server).await;
    assert_eq!(status, 201, "{path}: {made}");
}

/// Denies what is created with the name `denied`, and does not answer for `hangs`.
fn judge(seen: &Seen) -> Reply {
    let request = &seen.body["request"];
    match request["name"].as_str() {
        Some("hangs") => Reply::Hang,
        name => Reply::Json(json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {
                "uid": request["uid"], "allowed": name != Some("denied"),
                "status": {"message": "no", "code": 403},
                "auditAnnotations": {"seen": "yes"},
            },
        })),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_answer_is_told() {
    let webhook = Webhook::start(judge).await;
    let extension = Webhook::start_as(Identity::new(&["ext.default.svc"]), |seen| {
        match seen.uri.ends_with("/broken") {
            true => Reply::Raw(503, Vec::new(), b"no".to_vec()),
            false => Reply::Json(json!({"kind": "Thing"})),
        }
    })
    .await;
    let world = World::new(&["{level: RequestResponse}"]);
    let server = &world.start_logging(&[]).await;
    set_up(server, &webhook, &extension).await;
    let hangs = format!("{CONFIG_MAPS}?timeout=700ms");
    let things = "/apis/wardle.example.com/v1/namespaces/default/things";
    let (broken, status) = (format!("{things}/broken"), format!("{things}/a/status"));
    let rows = [
        Row {
            id: "denied",
            request: ask("POST", CONFIG_MAPS).json(&object("denied")),
            events: done(403),
            last: json!({
                "responseStatus": {"code": 403, "message": "admission webhook \"judge.example.com\" denied the request: no"},
                "annotations": {"judge.example.com/seen": "yes"},
            }),
        },
        Row {
            id: "hangs",
            request: ask("POST", &hangs).json(&object("hangs")),
            events: done(504),
            last: json!({"objectRef": {"name": "hangs"}, "responseStatus": failure("Timeout")}),
        },
        Row {
            id: "extension",
            request: ask("GET", &status),
            events: done(200),
            last: json!({
                "verb": "get", "requestObject": null, "responseObject": null,
                "objectRef": {"apiGroup": "wardle.example.com", "apiVersion": "v1", "resource": "things", "name": "a", "subresource": "status"},
            }),
        },
        Row {
            id: "extension-breaks",
            request: ask("PUT", &broken).json(&json!({"kind": "Thing"})),
            events: done(503),
            last: json!({"verb": "update", "requestObject": null, "responseStatus": {"reason": null}}),
        },
    ];
    for row in rows {
        check(&world, server, row).await;
    }
    one_seat(server).await;
    let lasts = format!("{CONFIG_MAPS}?timeout=5s");
    let holds = as_bob(ask("POST", &lasts)).json(&object("hangs"));
    let rejected = async {
        let holds = async || {
            webhook
                .seen()
                .iter()
                .any(|seen| seen.body["request"]["userInfo"]["username"] == "bob")
        };
        until("it comes", holds).await;
        let row = Row {
            id: "rejected",
            request: as_bob(ask("GET", "/version")),
            events: done(429),
            last: json!({"impersonatedUser": {"username": "bob"}, "responseStatus": {"metadata": {}, "reason": null}, "annotations": null}),
        };
        check(&world, server, row).await;
    };
    assert_eq!(tokio::join!(holds.status(server), rejected).0, 504);
    // Where the time of a slow request went.
    let slow = world.events("hangs", 2).await;
    let annotations = slow[1]["annotations"].as_object().unwrap();
    for part in ["authentication", "authorization", "total"] {
        let time = &annotations[&format!("apiserver.latency.k8s.io/{part}")];
        assert!(time.as_str().unwrap().ends_with('s'), "{part}: {time}");
    }
    assert!(slow[0].get("annotations").is_none());
}

/// A webhook for ConfigMaps, and an extension server.
async fn set_up(server: &TestServer, webhook: &Webhook, extension: &Webhook) {
    let hooks = json!({"metadata": {"name": "judges"}, "webhooks": [{
        "name": "judge.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": webhook.client_config("/judge"),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }]});
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let api = json!({"metadata": {"name": "v1.wardle.example.com"}, "spec": {
        "group": "wardle.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "default", "name": "ext", "port": extension.port},
        "caBundle": BASE64_STANDARD.encode(&extension.ca),
    }});
    for (path, object) in [
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            hooks,
        ),
        ("/api/v1/namespaces/default/services", service),
        ("/apis/apiregistration.k8s.io/v1/apiservices", api),
    ] {
        create(server, path, &object).await;
    }
    let thing = "/apis/wardle.example.com/v1/namespaces/default/things/a";
    until("it comes", async || {
        ask("GET", thing).status(server).await == 200
    })
    .await;
}
