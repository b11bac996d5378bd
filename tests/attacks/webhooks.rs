//! Admission webhooks: they are asked what upstream asks them, their answers have upstream's
//! effect, and whatever they do instead of answering, nobody else waits.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::future::join_all;
use serde_json::{Value, json};

use super::support::TestServer;
use super::support::webhook::{Identity, Reply, Seen, Webhook};
use super::{ask, both};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The kinds of webhooks, by their resources.
const KINDS: [(&str, &str); 2] = [
    (
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
];
const MUTATING: usize = 0;
const VALIDATING: usize = 1;

/// A webhook of that name about a resource, with more fields.
fn hook(name: &str, client: Value, resource: &str, more: Value) -> Value {
    let (group, resource) = resource.split_once('.').unwrap_or(("", resource));
    let mut hook = json!({
        "name": format!("{name}.example.com"), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}],
    });
    let more = more.as_object().expect("an object").clone();
    hook.as_object_mut().expect("an object").extend(more);
    hook
}

/// Registers webhooks of a kind.
async fn register(server: &TestServer, kind: usize, name: &str, webhooks: &[Value]) {
    let (kind, resource) = KINDS[kind];
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": webhooks,
    });
    let path = format!("{GROUP}/{resource}");
    let answer = ask("POST", &path).json(&configuration).send(server).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(!answer.headers.contains_key("warning"), "{answer:?}");
}

async fn unregister(server: &TestServer, kind: usize, name: &str) {
    let path = format!("{GROUP}/{}/{name}", KINDS[kind].1);
    assert_eq!(ask("DELETE", &path).status(server).await, 200);
}

/// An answer to a review with these fields.
fn answer(seen: &Seen, response: Value) -> Reply {
    let mut review = json!({
        "apiVersion": seen.body["apiVersion"], "kind": "AdmissionReview", "response": response,
    });
    review["response"]["uid"] = seen.body["request"]["uid"].clone();
    Reply::Json(review)
}

fn allow(seen: &Seen) -> Reply {
    answer(seen, json!({"allowed": true}))
}

/// An answer that changes the object.
fn patch(seen: &Seen, operations: &Value) -> Reply {
    let patch = BASE64_STANDARD.encode(operations.to_string());
    let response = json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
    answer(seen, response)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// The status and message of the creation of a ConfigMap.
async fn create(server: &TestServer, name: &str) -> (u16, String) {
    let request = ask("POST", CONFIG_MAPS).json(&config_map(name));
    let (status, answer) = request.answer(server).await;
    (status, answer["message"].as_str().unwrap_or("").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_asked_with_upstreams_review() {
    both(&[], async |server| {
        let webhook = Webhook::start(allow).await;
        let hooks = [hook("a", webhook.client_config("/v"), "configmaps", json!({}))];
        register(server, VALIDATING, "c", &hooks).await;
        assert_eq!(create(server, "a").await.0, 201);
        let path = format!("{CONFIG_MAPS}/a");
        let change = ask("PATCH", &path).body(MERGE_PATCH, json!({"data": {"k": "v"}}).to_string());
        assert_eq!(change.status(server).await, 200);
        let dry = format!("{path}?dryRun=All&propagationPolicy=Orphan");
        assert_eq!(ask("DELETE", &dry).status(server).await, 200);
        unregister(server, VALIDATING, "c").await;
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        let mut seen = webhook.take();
        // A write asks again where the object was newer than this server knew: the last one counts.
        seen.reverse();
        seen.dedup_by_key(|review| review.body["request"]["operation"].clone());
        seen.reverse();
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert_eq!(seen[0].uri, "/v?timeout=5s");
        let mut review = seen[0].body.clone();
        let request = &mut review["request"];
        for key in ["uid", "object"] {
            assert!(!request[key].is_null());
            request[key] = Value::Null;
        }
        let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
        let expected = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": null, "kind": kind, "resource": resource,
                "requestKind": kind, "requestResource": resource,
                "name": "a", "namespace": "default", "operation": "CREATE",
                "userInfo": {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]},
                "object": null, "oldObject": null, "dryRun": false,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            },
        });
        assert_eq!(review.to_string(), expected.to_string());
        let object = &seen[0].body["request"]["object"];
        assert_eq!((&object["kind"], &object["metadata"]["name"]), (&"ConfigMap".into(), &"a".into()));
        let update = &seen[1].body["request"];
        assert_eq!(update["operation"], "UPDATE");
        assert_eq!((&update["object"]["data"]["k"], &update["oldObject"]["data"]), (&"v".into(), &Value::Null));
        assert_eq!(update["options"]["kind"], "UpdateOptions");
        let delete = &seen[2].body["request"];
        assert_eq!((&delete["operation"], &delete["dryRun"]), (&"DELETE".into(), &true.into()));
        assert_eq!((&delete["object"], &delete["oldObject"]["data"]["k"]), (&Value::Null, &"v".into()));
        assert_eq!(delete["options"]["propagationPolicy"], "Orphan");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_answered_in_the_webhooks_words() {
    both(&[], async |server| {
        for (kind, status, expected) in [
            (VALIDATING, json!(null), (400, json!(null), "denied the request without explanation")),
            (MUTATING, json!({"reason": "Because"}), (400, json!("Because"), "denied the request: Because")),
            (
                VALIDATING,
                json!({"status": "Success", "code": 403, "reason": "Forbidden", "message": "no", "details": {"name": "n"}}),
                (403, json!("Forbidden"), "denied the request: no"),
            ),
        ] {
            let webhook = Webhook::start(move |seen| {
                let warnings = ["first", "second \"q\""];
                answer(seen, json!({"allowed": false, "status": status, "warnings": warnings}))
            })
            .await;
            let hooks = [hook("a", webhook.client_config("/"), "configmaps", json!({}))];
            register(server, kind, "c", &hooks).await;
            let refused = ask("POST", CONFIG_MAPS).json(&config_map("a")).send(server).await;
            let told: Value = serde_json::from_slice(&refused.body).unwrap();
            let (code, reason, message) = expected;
            assert_eq!((refused.status, &told["reason"]), (code, &reason));
            assert_eq!(told["message"], format!("admission webhook \"a.example.com\" {message}"));
            let warnings: Vec<_> = refused.headers.get_all("warning").iter().collect();
            assert_eq!(warnings, ["299 - \"first\"", "299 - \"second \\\"q\\\"\""]);
            unregister(server, kind, "c").await;
        }
    })
    .await;
}

/// An answer that is no answer, and the end of the message that it leads to.
fn faults() -> Vec<(&'static str, Reply, &'static str)> {
    let review = |response: Value| {
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
        )
    };
    vec![
        (
            "hang",
            Reply::Hang,
            "failed to call webhook: Post \"URL\": context deadline exceeded",
        ),
        (
            "500",
            Reply::Raw(500, Vec::new(), b"boom".to_vec()),
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding",
        ),
        (
            "garbage",
            Reply::Raw(200, Vec::new(), b"garbage".to_vec()),
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'g' looking for beginning of value",
        ),
        (
            "endless",
            Reply::Endless(100_000_000),
            "failed to call webhook: unexpected error when reading response body. Please retry. Original error: the answer is larger than 16777216 bytes",
        ),
        (
            "redirect",
            Reply::Raw(
                302,
                vec![("Location", "http://localhost/a".to_owned())],
                Vec::new(),
            ),
            "failed to call webhook: Post \"URL\": a redirect to http://localhost/a is not followed: it is not encrypted",
        ),
        (
            "absent",
            review(json!(null)),
            "received invalid webhook response: webhook response was absent",
        ),
        (
            "uid",
            review(json!({"uid": "other", "allowed": true})),
            "received invalid webhook response: expected response.uid=\"UID\", got \"other\"",
        ),
        (
            "type",
            review(json!({"uid": "x", "allowed": "true"})),
            "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_does_not_answer_counts_as_its_failure_policy_says() {
    both(&[], async |server| {
        let webhook = Webhook::start(|seen| {
            let name = seen
                .uri
                .trim_start_matches('/')
                .split('?')
                .next()
                .unwrap_or_default();
            let fault = faults().into_iter().find(|(known, ..)| *known == name);
            fault.map_or(Reply::Close, |(_, reply, _)| reply)
        })
        .await;
        for (kind, (fault, _, expected)) in [MUTATING, VALIDATING]
            .into_iter()
            .flat_map(|kind| faults().into_iter().map(move |fault| (kind, fault)))
        {
            for policy in ["Fail", "Ignore"] {
                let more = json!({"failurePolicy": policy, "timeoutSeconds": 1});
                let path = format!("/{fault}");
                let hooks = [hook("a", webhook.client_config(&path), "configmaps", more)];
                register(server, kind, "c", &hooks).await;
                let (status, why) = create(server, &format!("{kind}-{fault}")).await;
                unregister(server, kind, "c").await;
                let seen = webhook.take();
                if policy == "Ignore" {
                    assert_eq!((status, why.as_str()), (201, ""), "{fault}");
                    continue;
                }

                let uid = seen[0].body["request"]["uid"].as_str().unwrap().to_owned();
                let url = format!("https://localhost:{}{path}?timeout=1s", webhook.port);
                let expected = expected.replace("URL", &url).replace("UID", &uid);
                let prefix = "Internal error occurred: failed calling webhook \"a.example.com\"";
                assert_eq!((status, why), (500, format!("{prefix}: {expected}")));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_webhook_that_is_not_about_the_request() {
    both(&[], async |server| {
        let webhook = Webhook::start(|_| Reply::Hang).await;
        let hang = hook("a", webhook.client_config("/"), "configmaps", json!({"timeoutSeconds": 1}));
        register(server, MUTATING, "c", &[hang]).await;
        let begun = Instant::now();
        let slow = join_all((0..50).map(|number| create_owned(server, format!("c{number}"))));
        let fast = join_all((0..50).map(|number| async move {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{number}")}});
            let status = ask("POST", SECRETS).json(&secret).status(server).await;
            (status, begun.elapsed())
        }));
        let (slow, fast) = tokio::join!(slow, fast);
        assert!(slow.iter().all(|(status, _)| *status == 500), "{slow:?}");
        let slowest = fast.iter().map(|(_, time)| *time).max().unwrap();
        assert!(fast.iter().all(|(status, _)| *status == 201), "{fast:?}");
        assert!(slowest < begun.elapsed(), "{slowest:?}");
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    })
    .await;
}

async fn create_owned(server: &TestServer, name: String) -> (u16, String) {
    create(server, &name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_changed_in_the_order_of_the_configurations() {
    both(&[], async |server| {
        let webhook = Webhook::start(|seen| {
            let object = &seen.body["request"]["object"];
            let log = object["data"]["log"].as_str().unwrap_or("");
            let name = seen
                .uri
                .trim_start_matches('/')
                .split('?')
                .next()
                .unwrap_or_default();
            let data = json!({"log": format!("{log}{name}")});
            patch(
                seen,
                &json!([{"op": "add", "path": "/data", "value": data}]),
            )
        })
        .await;
        let entry = |name: &str, more: Value| {
            hook(
                name,
                webhook.client_config(&format!("/{name}")),
                "configmaps",
                more,
            )
        };
        let again = json!({"reinvocationPolicy": "IfNeeded"});
        register(
            server,
            MUTATING,
            "b",
            &[entry("c", json!({})), entry("d", json!({}))],
        )
        .await;
        register(
            server,
            MUTATING,
            "a",
            &[entry("a", again), entry("b", json!({}))],
        )
        .await;
        let (status, made) = ask("POST", CONFIG_MAPS)
            .json(&config_map("x"))
            .answer(server)
            .await;
        assert_eq!((status, &made["data"]), (201, &json!({"log": "abcda"})));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_cannot_be_used_is_refused() {
    both(&[], async |server| {
        for (operations, policy, expected) in [
            (
                json!([{"op": "remove", "path": "/nothing"}]),
                "Ignore",
                (500, "Internal error occurred: error in remove for path: '/nothing': Unable to remove nonexistent key: nothing: missing value"),
            ),
            (
                json!({"op": "remove"}),
                "Fail",
                (500, "Internal error occurred: failed calling webhook \"a.example.com\": received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
            ),
            (json!({"op": "remove"}), "Ignore", (201, "")),
            (json!([]), "Fail", (201, "")),
            (
                json!([{"op": "add", "path": "/data", "value": {"no/key": "v"}}]),
                "Ignore",
                (422, "ConfigMap \"@\" is invalid: data[no/key]: Invalid value: \"no/key\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"),
            ),
            (
                json!([{"op": "add", "path": "/data", "value": ["a"]}]),
                "Ignore",
                (500, "Internal error occurred: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
            ),
        ] {
            let name = format!("c-{}-{}", expected.0, policy.to_lowercase());
            let name = format!("{name}-{}", operations.as_array().map_or(0, Vec::len));
            let webhook = Webhook::start(move |seen| patch(seen, &operations)).await;
            let hooks = [hook("a", webhook.client_config("/"), "configmaps", json!({"failurePolicy": policy}))];
            register(server, MUTATING, "c", &hooks).await;
            let (status, why) = create(server, &name).await;
            unregister(server, MUTATING, "c").await;
            assert_eq!((status, why), (expected.0, expected.1.replace('@', &name)));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_configures_admission_can_always_be_mended() {
    both(&[], async |server| {
        let nobody = json!({"url": "https://localhost:1/"});
        for kind in [MUTATING, VALIDATING] {
            let all = hook("a", nobody.clone(), "*.*", json!({"rules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"],
            }]}));
            register(server, kind, "c", std::slice::from_ref(&all)).await;
            assert_eq!(create(server, "x").await.0, 500);
            register(server, kind, "d", &[all]).await;
            for name in ["c", "d"] {
                let path = format!("{GROUP}/{}/{name}", KINDS[kind].1);
                let change = json!({"metadata": {"labels": {"a": "b"}}});
                let changed = ask("PATCH", &path).body(MERGE_PATCH, change.to_string());
                assert_eq!(changed.status(server).await, 200);
                unregister(server, kind, name).await;
            }
        }
        assert_eq!(create(server, "x").await.0, 201);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_and_conditions_choose_the_requests() {
    both(&[], async |server| {
        let webhook = Webhook::start(allow).await;
        let at = |path: &str| webhook.client_config(path);
        let labels = json!({"matchLabels": {"a": "b"}});
        let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
        register(server, VALIDATING, "c", &[
            hook("a", at("/object"), "configmaps", json!({"objectSelector": labels})),
            hook("b", at("/namespace"), "configmaps", json!({"namespaceSelector": labels})),
            hook("c", at("/condition"), "configmaps", condition("object.metadata.name == 'x'")),
            hook("d", at("/other"), "secrets", json!({})),
        ]).await;
        assert_eq!(create(server, "x").await.0, 201);
        let paths = || -> Vec<String> { webhook.take().into_iter().map(|seen| seen.uri.replace("?timeout=5s", "")).collect() };
        assert_eq!(paths(), ["/condition"]);
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        for path in ["/api/v1/namespaces/default", &format!("{CONFIG_MAPS}/x")] {
            let change = ask("PATCH", path).body(MERGE_PATCH, labelled.to_string());
            assert_eq!(change.status(server).await, 200);
        }
        let mut asked = paths();
        asked.sort();
        assert_eq!(asked, ["/condition", "/namespace", "/object"]);
        unregister(server, VALIDATING, "c").await;
        register(server, VALIDATING, "c", &[hook("a", at("/"), "configmaps", condition("object.none == 1"))]).await;
        let (status, why) = create(server, "y").await;
        assert_eq!((status, why.as_str()), (403, "configmaps \"y\" is forbidden: expression 'object.none == 1' resulted in error: no such key: none"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_sees_and_changes_the_version_that_it_names() {
    both(&[], async |server| {
        let webhook = Webhook::start(|seen| {
            let operations = json!([{"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": 7}]);
            patch(seen, &operations)
        })
        .await;
        let rule = json!({"rules": [{
            "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"],
            "resources": ["horizontalpodautoscalers"],
        }]});
        register(server, MUTATING, "c", &[hook("a", webhook.client_config("/"), "x", rule)]).await;
        let autoscaler = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
                     "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        });
        let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
        let (status, made) = ask("POST", path).json(&autoscaler).answer(server).await;
        assert_eq!((status, &made["spec"]["targetCPUUtilizationPercentage"]), (201, &json!(7)), "{made}");
        let request = webhook.take().remove(0).body["request"].clone();
        assert_eq!(request["kind"]["version"], "v2");
        assert_eq!(request["requestKind"]["version"], "v1");
        assert_eq!(request["resource"]["version"], "v2");
        assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_and_streams_are_asked_about() {
    both(&[], async |server| {
        let webhook = Webhook::start(|seen| {
            let denied = seen.body["request"]["subResource"] == "exec";
            answer(seen, json!({"allowed": !denied, "status": {"message": "no shell"}}))
        })
        .await;
        let rule = |resources: &[&str]| json!({"rules": [{
            "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": resources,
        }]});
        let hooks = [hook("a", webhook.client_config("/"), "x", rule(&["pods/exec", "deployments/scale"]))];
        register(server, VALIDATING, "c", &hooks).await;
        let container = json!({"name": "a", "image": "a:1"});
        let labels = json!({"a": "b"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        });
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        assert_eq!(ask("POST", deployments).json(&deployment).status(server).await, 201);
        let scale = ask("PATCH", "/apis/apps/v1/namespaces/default/deployments/web/scale");
        let scale = scale.body(MERGE_PATCH, json!({"spec": {"replicas": 2}}).to_string());
        assert_eq!(scale.status(server).await, 200);
        let exec = "/api/v1/namespaces/default/pods/p/exec?command=sh&stdin=true";
        let (status, told) = ask("POST", exec).answer(server).await;
        assert_eq!((status, &told["message"]), (400, &json!("admission webhook \"a.example.com\" denied the request: no shell")));
        let seen = webhook.take();
        assert_eq!(seen.len(), 2, "{seen:?}");
        let scale = &seen[0].body["request"];
        assert_eq!(scale["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
        assert_eq!((&scale["object"]["spec"]["replicas"], &scale["oldObject"]["spec"]["replicas"]), (&json!(2), &json!(1)));
        let exec = &seen[1].body["request"];
        assert_eq!((&exec["operation"], &exec["kind"]["kind"]), (&"CONNECT".into(), &"PodExecOptions".into()));
        assert_eq!(exec["object"]["command"], json!(["sh"]));
        assert_eq!(exec["options"], Value::Null);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_asked_about() {
    both(&[], async |server| {
        let webhook = Webhook::start(|seen| {
            answer(
                seen,
                json!({"allowed": seen.body["request"]["object"]["spec"]["user"] != "bad"}),
            )
        })
        .await;
        let rule = json!({"rules": [{
            "apiGroups": ["authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["subjectaccessreviews"],
        }]});
        let hooks = [hook("a", webhook.client_config("/"), "x", rule)];
        register(server, VALIDATING, "c", &hooks).await;
        for (user, expected) in [("good", 201), ("bad", 400)] {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": user, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            });
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            assert_eq!(
                ask("POST", path).json(&review).status(server).await,
                expected
            );
        }
        assert_eq!(webhook.seen().len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_lead_to_webhooks() {
    for (flag, to_endpoints) in [
        ("--enable-aggregator-routing=false", false),
        ("--enable-aggregator-routing=true", true),
    ] {
        both(&[flag], async |server| {
            let webhook = Webhook::start_as(Identity::new(&["hook.default.svc"]), allow).await;
            let bundle = BASE64_STANDARD.encode(&webhook.ca);
            let client = json!({
                "service": {"namespace": "default", "name": "hook", "port": webhook.port, "path": "/p"},
                "caBundle": bundle,
            });
            register(server, VALIDATING, "c", &[hook("a", client, "configmaps", json!({}))]).await;
            let failed = |why: &str| {
                let url = format!("https://hook.default.svc:{}/p?timeout=5s", webhook.port);
                (500, format!("Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: Post \"{url}\": {why}"))
            };
            assert_eq!(create(server, "a").await, failed("service \"hook\" not found"));
            let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": spec});
            let headless = service(json!({"clusterIP": "None", "ports": [{"port": webhook.port}]}));
            assert_eq!(ask("POST", SERVICES).json(&headless).status(server).await, 201);
            assert_eq!(create(server, "a").await, failed(match to_endpoints {
                false => "cannot route to service with ClusterIP \"None\"",
                true => "no endpoints available for service \"hook\"",
            }));
            assert_eq!(ask("DELETE", &format!("{SERVICES}/hook")).status(server).await, 200);
            let named = service(json!({"type": "ExternalName", "externalName": "localhost"}));
            assert_eq!(ask("POST", SERVICES).json(&named).status(server).await, 201);
            match to_endpoints {
                false => assert_eq!(create(server, "a").await, (201, String::new())),
                true => assert_eq!(create(server, "a").await, failed("unsupported service type \"ExternalName\"")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_this_server_is_this_server() {
    let (_folder, server) = super::embedded(&[]).await;
    let stranger = Identity::new(&["kubernetes.default.svc"]);
    let own = json!({
        "service": {"namespace": "default", "name": "kubernetes", "path": "/version"},
        "caBundle": BASE64_STANDARD.encode(&stranger.ca),
    });
    register(
        &server,
        VALIDATING,
        "own",
        &[hook("own", own, "configmaps", json!({}))],
    )
    .await;
    let (status, why) = create(&server, "a").await;
    // It is found without its cluster IP, which leads nowhere here.
    let want = "Internal error occurred: failed calling webhook \"own.example.com\": failed to call \
                webhook: Post \"https://kubernetes.default.svc:443/version?timeout=5s\": tls: failed to \
                verify certificate: x509: certificate signed by unknown authority";
    assert_eq!((status, why.as_str()), (500, want));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_with_a_webhook_in_between() {
    both(&[], async |server| {
        let webhook = Webhook::start(allow).await;
        for kind in [MUTATING, VALIDATING] {
            let hooks = [hook("a", webhook.client_config("/"), "secrets", json!({}))];
            register(server, kind, "c", &hooks).await;
        }
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"secrets": "20"}},
        });
        let quotas = "/api/v1/namespaces/default/resourcequotas";
        assert_eq!(ask("POST", quotas).json(&quota).status(server).await, 201);
        let status = json!({"status": {"hard": {"secrets": "20"}, "used": {"secrets": "0"}}});
        let status = ask("PATCH", "/api/v1/namespaces/default/resourcequotas/q/status").body(MERGE_PATCH, status.to_string());
        assert_eq!(status.status(server).await, 200);
        let answers = join_all((0..50).map(|number| async move {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{number}")}});
            ask("POST", SECRETS).json(&secret).status(server).await
        }))
        .await;
        let made = answers.iter().filter(|status| **status == 201).count();
        let refused = answers.iter().filter(|status| **status == 403).count();
        assert_eq!((made, refused), (20, 30), "{answers:?}");
        assert!(webhook.seen().len() >= 40);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_come_from_the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kubeconfig) = (
        folder.path().join("admission.yaml"),
        folder.path().join("config"),
    );
    let users = json!([
        {"name": "localhost:*", "user": {"token": "no pattern"}},
        {"name": "*", "user": {"username": "u", "password": "p"}},
    ]);
    let config = json!({"apiVersion": "v1", "kind": "Config", "users": users});
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let plugin = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": kubeconfig,
    });
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": plugin}],
    });
    std::fs::write(&file, configuration.to_string()).unwrap();
    let flag = format!("--admission-control-config-file={}", file.display());
    both(&[&flag], async |server| {
        let webhook = Webhook::start(allow).await;
        for kind in [MUTATING, VALIDATING] {
            let hooks = [hook(
                "a",
                webhook.client_config("/"),
                "configmaps",
                json!({}),
            )];
            register(server, kind, "c", &hooks).await;
        }
        assert_eq!(create(server, "a").await.0, 201);
        let seen = webhook.take();
        assert!(!seen[0].headers.contains_key("authorization"));
        assert_eq!(seen[1].headers["authorization"], "Basic dTpw");
    })
    .await;
}
