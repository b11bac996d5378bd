//! Mutating admission policies change what they are about, in upstream's order and words, and what
//! they make is judged like what a client sends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::policies::{
    self, APPLY_PATCH, CONFIG_MAPS, GROUP, MERGE_PATCH, binding_of, config_map, enforce, policy_of,
    rule,
};
use super::support::etcd::Etcd;
use super::support::{Store, TestServer};
use super::{ask, both, embedded, start};

const DRY_RUN: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn applied(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

const KIND: &str = "MutatingAdmissionPolicy";

/// A policy with a `spec` that is about what `rule` selects; it runs once unless it says otherwise.
fn policy(name: &str, rule: &Value, spec: &Value) -> Value {
    let mut policy = policy_of(KIND, name, rule, spec);
    if policy["spec"]["reinvocationPolicy"].is_null() {
        policy["spec"]["reinvocationPolicy"] = "Never".into();
    }
    policy
}

async fn lift(server: &TestServer, name: &str) {
    policies::lift(server, KIND, name).await;
}

/// Puts policies about ConfigMaps with one mutation each into effect.
async fn mutate(server: &TestServer, mutations: &[(&str, Value)]) {
    for (name, mutation) in mutations {
        let spec = json!({"mutations": [mutation]});
        enforce(
            server,
            &policy(name, &rule("", "configmaps"), &spec),
            &json!({}),
        )
        .await;
    }
}

/// The status of a dry run that creates a ConfigMap, and the answer.
async fn tried(server: &TestServer, object: &Value) -> (u16, Value) {
    ask("POST", DRY_RUN).json(object).answer(server).await
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or("")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_is_in_effect_when_its_binding_was_answered_and_until_it_is_deleted() {
    both(&[], async |server| {
        let by = "Object{metadata: Object.metadata{labels: {'by': request.operation + '-' + request.userInfo.username}}}";
        mutate(server, &[("p", applied(by))]).await;
        let label = |answer: &Value| answer["metadata"]["labels"]["by"].clone();
        let (status, answer) = ask("POST", CONFIG_MAPS).json(&config_map("a")).answer(server).await;
        assert_eq!((status, label(&answer)), (201, json!("CREATE-admin")));
        let path = format!("{CONFIG_MAPS}/a");
        let (_, stored) = ask("GET", &path).answer(server).await;
        assert_eq!(stored["metadata"]["labels"], json!({"by": "CREATE-admin"}));
        let managed = stored["metadata"]["managedFields"].to_string();
        assert!(!managed.contains("f:labels"), "nobody owns what a policy sets: {managed}");
        let mut changed = config_map("a");
        changed["data"] = json!({"k": "v"});
        for (method, path, media) in [
            ("PUT", path.clone(), "application/json"),
            ("PATCH", path.clone(), MERGE_PATCH),
            ("PATCH", format!("{path}?fieldManager=m&force=true"), APPLY_PATCH),
        ] {
            let (status, answer) = ask(method, &path).body(media, changed.to_string()).answer(server).await;
            assert_eq!((status, label(&answer)), (200, json!("UPDATE-admin")), "{method} {media}");
        }
        let (status, answer) = ask("PATCH", &format!("{CONFIG_MAPS}/b?fieldManager=m"))
            .body(APPLY_PATCH, config_map("b").to_string())
            .answer(server)
            .await;
        assert_eq!((status, label(&answer)), (201, json!("CREATE-admin")));
        lift(server, "p").await;
        let (status, answer) = tried(server, &config_map("c")).await;
        assert_eq!((status, label(&answer)), (201, Value::Null));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_is_soon_in_effect_on_other_servers() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let endpoint = etcd.endpoint();
    let one = start(folders[0].path(), Store::Etcd(&endpoint), &[]).await;
    let other = start(folders[1].path(), Store::Etcd(&endpoint), &[]).await;
    mutate(&one, &[("p", applied("Object{data: {'k': 'v'}}"))]).await;
    for wanted in [json!({"k": "v"}), Value::Null] {
        let begun = Instant::now();
        while tried(&other, &config_map("a")).await.1["data"] != wanted {
            assert!(begun.elapsed() < Duration::from_secs(10), "{wanted}");
        }
        if !wanted.is_null() {
            lift(&one, "p").await;
        }
    }
}

/// Policies are in the order of their names, mutations in that of the policy; each sees what those
/// before it did.
#[tokio::test(flavor = "multi_thread")]
async fn each_mutation_sees_what_those_before_it_did() {
    both(&[], async |server| {
        let append = |text: &str| {
            applied(&format!(
                "Object{{data: {{'k': (has(object.data) ? object.data.k : '') + '{text}'}}}}"
            ))
        };
        mutate(server, &[("b", append("3")), ("c", append("4"))]).await;
        let spec = json!({
            "variables": [{"name": "so_far", "expression": "has(object.data) ? object.data.k : ''"}],
            "mutations": [
                applied("Object{data: {'k': variables.so_far + '1'}}"),
                json_patch("[JSONPatch{op: 'replace', path: '/data/k', value: variables.so_far + '2'}]"),
            ],
        });
        let first = policy("a", &rule("", "configmaps"), &spec);
        enforce(server, &first, &json!({})).await;
        let (status, answer) = tried(server, &config_map("a")).await;
        assert_eq!((status, &answer["data"]), (201, &json!({"k": "1234"})));
        // Which policies match is known from the object of the client.
        let matching = json!({
            "mutations": [append("5")],
            "matchConditions": [{"name": "m", "expression": "object.data.k == '1234'"}],
        });
        enforce(server, &policy("d", &rule("", "configmaps"), &matching), &json!({})).await;
        let selecting = json!({"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}});
        let spec = json!({"mutations": [append("6")]});
        enforce(server, &policy("e", &rule("", "configmaps"), &spec), &selecting).await;
        let label = applied("Object{metadata: Object.metadata{labels: {'a': 'b'}}}");
        mutate(server, &[("0", label)]).await;
        let (status, answer) = tried(server, &config_map("a")).await;
        assert_eq!((status, &answer["data"]), (201, &json!({"k": "12345"})));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_ask_for_it_run_again_and_plugins_see_what_they_did() {
    both(&[], async |server| {
        let count = |key: &str| {
            let json = format!(
                "[JSONPatch{{op: 'add', path: '/data/{key}', value: string(('{key}' in object.data ? int(object.data.{key}) : 0) + 1)}}]"
            );
            json!([json_patch(&json)])
        };
        for (name, reinvocation) in [("a", "IfNeeded"), ("b", "Never"), ("c", "IfNeeded")] {
            let spec = json!({"mutations": count(name), "reinvocationPolicy": reinvocation});
            enforce(server, &policy(name, &rule("", "configmaps"), &spec), &json!({})).await;
        }
        let mut object = config_map("a");
        object["data"] = json!({});
        object["data"]["x"] = "y".into();
        let (status, answer) = tried(server, &object).await;
        assert_eq!(status, 201, "{answer}");
        assert_eq!(answer["data"], json!({"a": "2", "b": "1", "c": "2", "x": "y"}));

        let limits = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]},
        });
        let path = "/api/v1/namespaces/default/limitranges";
        assert_eq!(ask("POST", path).json(&limits).status(server).await, 201);
        let sidecar = "[JSONPatch{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{name: 'side', image: 'i'}}]";
        let spec = json!({"mutations": [json_patch(sidecar)]});
        enforce(server, &policy("pods", &rule("", "pods"), &spec), &json!({})).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
        });
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let _ = ask("POST", "/api/v1/namespaces/default/serviceaccounts").json(&account).status(server).await;
        let path = "/api/v1/namespaces/default/pods?dryRun=All";
        let (status, answer) = ask("POST", path).json(&pod).answer(server).await;
        assert_eq!(status, 201, "{answer}");
        let side = &answer["spec"]["containers"][1];
        assert_eq!(side["resources"], json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}));
        assert_eq!(side["imagePullPolicy"], "Always", "it is defaulted");
    })
    .await;
}

/// The failure policy judges mutations that cannot be evaluated or do not apply; they are told in
/// the words of upstream.
#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_that_fails_is_judged_by_the_failure_policy() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let runaway = (0..9).fold("true".to_owned(), |inner, depth| {
        format!("{ten}.all(v{depth}, {inner})")
    });
    let runaway = format!("Object{{immutable: {runaway}}}");
    let cases = [
        (
            json!({"mutations": [applied(&runaway)]}),
            "operation cancelled: actual cost limit exceeded",
        ),
        (
            json!({"mutations": [applied("Object{data: {'k': object.nope}}")]}),
            "expression 'Object{data: {'k': object.nope}}' resulted in error: no such key: nope",
        ),
        (
            json!({"mutations": [json_patch("[JSONPatch{op: 'remove', path: '/data/none'}]")]}),
            "JSON Patch: remove operation does not apply: doc is missing path: \"/data/none\": missing value",
        ),
        (
            json!({"mutations": [applied("Object{data: {'k': 1}}")]}),
            "error applying patch: failed to convert patch object to typed object: .data.k: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            json!({"mutations": [applied("Object{}")], "matchConditions": [{"name": "m", "expression": "object.nope == 1"}]}),
            "no such key: nope",
        ),
    ];
    both(&[], async |server| {
        for (spec, told) in &cases {
            for (failure_policy, wanted) in [("Fail", 403), ("Ignore", 201)] {
                let mut spec = spec.clone();
                spec["failurePolicy"] = failure_policy.into();
                enforce(
                    server,
                    &policy("p", &rule("", "configmaps"), &spec),
                    &json!({}),
                )
                .await;
                let (status, answer) = tried(server, &config_map("a")).await;
                assert_eq!(status, wanted, "{spec} {answer}");
                if wanted == 403 {
                    let why = message(&answer);
                    assert_eq!(answer["reason"], "Invalid", "as upstream has it: {why}");
                    assert!(
                        why.starts_with("policy 'p' with binding 'p' denied request: "),
                        "{why}"
                    );
                    assert!(why.contains(told), "{why}");
                    assert_eq!(answer["details"]["causes"], json!([{"message": why}]));
                }
                lift(server, "p").await;
            }
        }
    })
    .await;
}

/// An object that is none of its kind any more is refused even where failures are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_that_makes_another_kind_of_object_is_refused() {
    let cases = [
        (
            "[JSONPatch{op: 'add', path: '/data', value: 'x'}]",
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "[JSONPatch{op: 'add', path: '/spec', value: {'a': 'b'}}]",
            "strict decoding error: unknown field \"spec\"",
        ),
        (
            "[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]",
            "failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            "[JSONPatch{op: 'replace', path: '/kind', value: 'Nothing'}]",
            "no kind \"Nothing\" is registered for version \"v1\"",
        ),
        ("[JSONPatch{op: 'replace', path: '', value: [1]}]", ""),
    ];
    both(&[], async |server| {
        for (expression, told) in cases {
            let spec = json!({"mutations": [json_patch(expression)], "failurePolicy": "Ignore"});
            enforce(
                server,
                &policy("p", &rule("", "configmaps"), &spec),
                &json!({}),
            )
            .await;
            let (status, answer) = tried(server, &config_map("a")).await;
            let why = message(&answer);
            assert_eq!(status, 500, "{expression} {why}");
            assert!(
                why.starts_with("Internal error occurred: ") && why.contains(told),
                "{why}"
            );
            lift(server, "p").await;
        }
    })
    .await;
}

/// Metadata that a policy sets is held to the rules for what a client sends.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_cannot_be_mutated_into_what_clients_may_not_send() {
    let set = |path: &str, value: &str| {
        json_patch(&format!(
            "[JSONPatch{{op: 'add', path: '/metadata{path}', value: {value}}}]"
        ))
    };
    let other_namespace =
        "the namespace of the provided object does not match the namespace sent on the request";
    let cases = [
        (
            set("/namespace", "'kube-system'"),
            (400, other_namespace),
            (400, other_namespace),
        ),
        (set("/name", "'b'"), (201, ""), (422, "field is immutable")),
        (
            set("/name", "'B a d'"),
            (422, "a lowercase RFC 1123 subdomain"),
            (422, "field is immutable"),
        ),
        (set("/uid", "'x'"), (201, ""), (422, "field is immutable")),
        (set("/resourceVersion", "'x'"), (201, ""), (500, "")),
        (
            set("/labels", "{'a b': 'c'}"),
            (422, "metadata.labels"),
            (422, "metadata.labels"),
        ),
        (
            json_patch("[JSONPatch{op: 'remove', path: '/metadata'}]"),
            (422, "name or generateName is required"),
            (422, ""),
        ),
        (
            json_patch("[JSONPatch{op: 'remove', path: '/metadata/name'}]"),
            (422, "name or generateName is required"),
            (422, ""),
        ),
    ];
    both(&[], async |server| {
        assert_eq!(ask("POST", CONFIG_MAPS).json(&config_map("there")).status(server).await, 201);
        for (mutation, created, updated) in &cases {
            mutate(server, &[("p", mutation.clone())]).await;
            let put = format!("{CONFIG_MAPS}/there?dryRun=All");
            let apply = format!("{CONFIG_MAPS}/new?dryRun=All&fieldManager=m");
            for (method, path, name, wanted) in [
                ("POST", DRY_RUN, "new", created),
                ("PUT", &put, "there", updated),
            ] {
                let asked = ask(method, path).json(&config_map(name));
                let (status, answer) = asked.answer(server).await;
                let why = message(&answer);
                assert_eq!(status, wanted.0, "{method} {mutation} {why}");
                assert!(why.contains(wanted.1), "{why}");
            }
            let asked = ask("PATCH", &apply).body(APPLY_PATCH, config_map("new").to_string());
            let (status, answer) = asked.answer(server).await;
            let name = &answer["metadata"]["name"];
            assert!(status >= 400 || name == "new", "it is stored under its own name: {answer}");
            lift(server, "p").await;
        }
        let broken = set("/managedFields", "[{'manager': 'm', 'operation': 'Nope', 'apiVersion': 'v1'}]");
        mutate(server, &[("p", broken)]).await;
        let answer = ask("POST", DRY_RUN).json(&config_map("a")).send(server).await;
        let told = answer.headers.get("warning").and_then(|text| text.to_str().ok());
        assert_eq!(answer.status, 201);
        assert_eq!(
            told,
            Some("299 - \".metadata.managedFields was in an invalid state after admission; this could be caused by an \
                  outdated mutating admission controller; please fix your requests: operation must be `Apply` or `Update`\"")
        );
    })
    .await;
}

/// No object becomes larger than what a client may send, in as many steps as it takes.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_cannot_be_mutated_beyond_the_limit_of_bodies() {
    both(&[], async |server| {
        let double =
            "[JSONPatch{op: 'add', path: '/data/k', value: object.data.k + object.data.k}]";
        let spec = json!({"mutations": vec![json_patch(double); 12], "failurePolicy": "Ignore"});
        enforce(
            server,
            &policy("p", &rule("", "configmaps"), &spec),
            &json!({}),
        )
        .await;
        let mut object = config_map("a");
        object["data"] = json!({"k": "x".repeat(1 << 10)});
        let (status, answer) = tried(server, &object).await;
        assert_eq!(status, 413, "{}", message(&answer));
        object["data"] = json!({"k": "x"});
        let (status, answer) = tried(server, &object).await;
        assert_eq!(
            (status, answer["data"]["k"].as_str().map(str::len)),
            (201, Some(1 << 12))
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_may_be_many_or_missing_or_vanish() {
    both(&[], async |server| {
        let spec = json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "mutations": [applied("Object{data: {params == null ? 'none' : params.metadata.name: 'x'}}")],
            "matchConditions": [{"name": "own", "expression": "request.name == 'a'"}],
        });
        let bound = |action: &str| {
            let selector = json!({"matchLabels": {"is": "param"}});
            json!({"paramRef": {"selector": selector, "parameterNotFoundAction": action}})
        };
        for name in ["y", "x"] {
            let mut param = config_map(name);
            param["metadata"]["labels"] = json!({"is": "param"});
            assert_eq!(ask("POST", CONFIG_MAPS).json(&param).status(server).await, 201);
        }
        enforce(server, &policy("p", &rule("", "configmaps"), &spec), &bound("Deny")).await;
        let (status, answer) = tried(server, &config_map("a")).await;
        assert_eq!((status, &answer["data"]), (201, &json!({"x": "x", "y": "x"})));
        for name in ["x", "y"] {
            assert_eq!(ask("DELETE", &format!("{CONFIG_MAPS}/{name}")).status(server).await, 200);
        }
        let none = "policy 'p' with binding 'p' denied request: failed to configure binding: \
                    no params found for policy binding with `Deny` parameterNotFoundAction";
        let (status, answer) = tried(server, &config_map("a")).await;
        assert_eq!((status, message(&answer), answer["reason"].as_str()), (403, none, Some("Forbidden")));
        let path = format!("{GROUP}/mutatingadmissionpolicybindings/p");
        let allow = json!({"spec": bound("Allow")}).to_string();
        assert_eq!(ask("PATCH", &path).body(MERGE_PATCH, allow).status(server).await, 200);
        let (status, answer) = tried(server, &config_map("a")).await;
        assert_eq!((status, &answer["data"]), (201, &Value::Null), "nothing is to be done");
        let without = json!({"spec": {"paramRef": null}}).to_string();
        assert_eq!(ask("PATCH", &path).body(MERGE_PATCH, without).status(server).await, 200);
        let (status, answer) = tried(server, &config_map("a")).await;
        assert_eq!((status, &answer["data"]), (201, &json!({"none": "x"})));
    })
    .await;
}

/// A Scale is mutated as a Scale, and what has no object is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn subresources_are_mutated_in_their_own_kinds() {
    both(&[], async |server| {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        });
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        assert_eq!(ask("POST", deployments).json(&deployment).status(server).await, 201);
        let rules = json!({"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments/scale"]});
        let spec = json!({"mutations": [applied("Object{spec: Object.spec{replicas: object.spec.replicas + 5}}")]});
        enforce(server, &policy("p", &rules, &spec), &json!({})).await;
        let path = format!("{deployments}/d/scale");
        let scaled = ask("PATCH", &path).body(MERGE_PATCH, r#"{"spec": {"replicas": 2}}"#);
        let (status, answer) = scaled.answer(server).await;
        assert_eq!((status, &answer["spec"]), (200, &json!({"replicas": 7})), "{answer}");
        let (_, answer) = ask("GET", &format!("{deployments}/d")).answer(server).await;
        assert_eq!(answer["spec"]["replicas"], 7);
        let nameless = json!({"mutations": [json_patch("[JSONPatch{op: 'remove', path: '/metadata'}]")]});
        enforce(server, &policy("nameless", &rules, &nameless), &json!({})).await;
        let scaled = ask("PATCH", &path).body(MERGE_PATCH, r#"{"spec": {"replicas": 2}}"#);
        let (status, answer) = scaled.answer(server).await;
        assert_eq!(status, 422, "{answer}");
        assert!(message(&answer).starts_with("Scale.autoscaling \"d\" is invalid: metadata.name: Required value"), "{answer}");
        lift(server, "nameless").await;

        let rules = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
        let spec = json!({"mutations": [json_patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'m': object.kind}}]")]});
        enforce(server, &policy("q", &rules, &spec), &json!({})).await;
        let path = format!("{deployments}/d/status");
        let status_patch = ask("PATCH", &path).body(MERGE_PATCH, r#"{"status": {"replicas": 2}}"#);
        assert_eq!(status_patch.status(server).await, 200);
        let (_, answer) = ask("GET", &format!("{deployments}/d")).answer(server).await;
        assert_eq!(answer["metadata"]["labels"], Value::Null, "status does not change labels");
        assert_eq!(ask("DELETE", &format!("{deployments}/d")).status(server).await, 200);
        let pods = "/api/v1/namespaces/default/pods";
        let path = format!("{pods}/p/exec?command=ls&stdout=true");
        let refused = ask("POST", &path);
        let (status, answer) = refused.answer(server).await;
        assert!(status >= 400, "{answer}");
        // Those that bind policies are not asked about themselves.
        for name in ["q", "p"] {
            lift(server, name).await;
        }
        let (_, answer) = tried(server, &config_map("a")).await;
        assert_eq!(answer["metadata"]["labels"], Value::Null);
    })
    .await;
}

/// A request in one version is mutated in the one that a rule is about. Policies of several
/// versions do not see what those of others did, and the version of the last one counts.
#[tokio::test(flavor = "multi_thread")]
async fn equivalent_versions_are_mutated_in_the_version_of_the_rule() {
    both(&[], async |server| {
        let rules = |version: &str| json!({
            "apiGroups": ["autoscaling"], "apiVersions": [version], "operations": ["*"],
            "resources": ["horizontalpodautoscalers"],
        });
        let spec = json!({"mutations": [json_patch("[JSONPatch{op: 'replace', path: '/spec/metrics/0/resource/target/averageUtilization', value: 60}]")]});
        enforce(server, &policy("a", &rules("v2"), &spec), &json!({})).await;
        let spec = json!({"mutations": [applied("Object{spec: Object.spec{targetCPUUtilizationPercentage: object.spec.targetCPUUtilizationPercentage + 1}}")]});
        enforce(server, &policy("b", &rules("v1"), &spec), &json!({})).await;
        let autoscaler = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}},
        });
        let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
        let utilization = async || {
            let path = format!("{path}?dryRun=All");
            let (status, answer) = ask("POST", &path).json(&autoscaler).answer(server).await;
            assert_eq!(status, 201, "{answer}");
            answer["spec"]["targetCPUUtilizationPercentage"].as_i64().unwrap()
        };
        assert_eq!(utilization().await, 51);
        let metrics = "Object{metadata: Object.metadata{labels: {'u': string(object.spec.metrics[0].resource.target.averageUtilization)}}}";
        let spec = json!({"mutations": [applied(metrics)]});
        enforce(server, &policy("c", &rules("v2"), &spec), &json!({})).await;
        assert_eq!(utilization().await, 60);
        lift(server, "a").await;
        assert_eq!(utilization().await, 50);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_objects_are_pruned_defaulted_and_validated_after_mutations() {
    both(&[], async |server| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "maximum": 5}, "sub": {"type": "object", "properties": {
                    "given": {"type": "string"}, "filled": {"type": "string", "default": "in"},
                }},
                "names": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "value": {"type": "string"},
                }}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            },
        }}}});
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
                "names": {"plural": "things", "kind": "Thing"}},
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(ask("POST", path).json(&definition).status(server).await, 201);
        let things = rule("example.com", "things");
        let mutations = [
            json!([
                applied("Object{spec: Object.spec{sub: Object.spec.sub{given: object.apiVersion}, names: [Object.spec.names{name: 'n', value: 'm'}]}}"),
                json_patch("[JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]"),
            ]),
            json!([json_patch("[JSONPatch{op: 'add', path: '/spec/size', value: 6}]")]),
            json!([json_patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Other'}]")]),
            json!([json_patch("[JSONPatch{op: 'remove', path: '/kind'}]")]),
            json!([json_patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 1}}]")]),
        ];
        let wanted = [(201, ""), (422, "spec.size"), (422, "kind: Invalid value: \"Other\": must be Thing"), (500, "Object 'Kind' is missing in '{"), (500, "")];
        for (mutations, (code, told)) in mutations.into_iter().zip(wanted) {
            enforce(server, &policy("p", &things, &json!({"mutations": mutations})), &json!({})).await;
            for version in ["v1", "v2"] {
                let thing = json!({
                    "apiVersion": format!("example.com/{version}"), "kind": "Thing",
                    "metadata": {"name": format!("{version}-{code}")}, "spec": {"names": [{"name": "n"}, {"name": "o"}]},
                });
                let path = format!("/apis/example.com/{version}/namespaces/default/things");
                let (status, answer) = ask("POST", &path).json(&thing).answer(server).await;
                assert_eq!(status, code, "{answer}");
                assert!(message(&answer).contains(told), "{answer}");
                if code == 201 {
                    let spec = json!({"names": [{"name": "n", "value": "m"}, {"name": "o"}],
                        "sub": {"filled": "in", "given": "example.com/v1"}});
                    assert_eq!((&answer["spec"], answer["apiVersion"].as_str()), (&spec, thing["apiVersion"].as_str()));
                }
            }
            lift(server, "p").await;
        }
    })
    .await;
}

/// Objects do not nest deeper than what a client may send, in as many steps as it takes.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_cannot_be_mutated_to_any_depth() {
    both(&[], async |server| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "boxes.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(ask("POST", path).json(&definition).status(server).await, 201);
        let layers = (0..50).fold("dyn(object.spec)".to_owned(), |inner, _| format!("{{'a': {inner}}}"));
        let nest = json_patch(&format!("[JSONPatch{{op: 'add', path: '/spec', value: {layers}}}]"));
        let spec = json!({"mutations": vec![nest; 250], "failurePolicy": "Fail"});
        enforce(server, &policy("p", &rule("example.com", "boxes"), &spec), &json!({})).await;
        let made = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"x": "y"}});
        let boxes = "/apis/example.com/v1/namespaces/default/boxes";
        let (status, answer) = ask("POST", boxes).json(&made).answer(server).await;
        let why = message(&answer);
        assert_eq!(status, 403, "{why}");
        assert!(why.contains("exceeded max depth"), "{why}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutations_are_counted() {
    let (_folder, server) = embedded(&[]).await;
    mutate(
        &server,
        &[("p", applied("Object{data: {'k': object.metadata.name}}"))],
    )
    .await;
    mutate(
        &server,
        &[("q", applied("Object{data: {'k': object.nope}}"))],
    )
    .await;
    assert_eq!(tried(&server, &config_map("a")).await.0, 403);
    let metrics = ask("GET", "/metrics").send(&server).await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for (name, error) in [("p", "no_error"), ("q", "invalid_error")] {
        let labels = format!("error_type=\"{error}\",policy=\"{name}\",policy_binding=\"{name}\"");
        for metric in ["check_total", "check_duration_seconds_count"] {
            let line = format!("apiserver_mutating_admission_policy_{metric}{{{labels}}} 1");
            assert!(metrics.lines().any(|it| it == line), "{line}");
        }
    }
}

/// Many policies about the same request are all applied; those about others cost nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_policies_are_applied_to_one_request() {
    const POLICIES: usize = 1_000;
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let endpoint = etcd.endpoint();
    let mut client = etcd_client::Client::connect([endpoint.clone()], None)
        .await
        .unwrap();
    for number in 0..POLICIES {
        let name = format!("p{number}");
        let spec = json!({
            "mutations": [applied(&format!("Object{{data: {{'{name}': 'x'}}}}"))], "failurePolicy": "Fail",
        });
        let mut policy = policy(&name, &rule("", "configmaps"), &spec);
        let constraints = &mut policy["spec"]["matchConstraints"];
        (
            constraints["namespaceSelector"],
            constraints["objectSelector"],
        ) = (json!({}), json!({}));
        for (resource, object) in [
            ("mutatingadmissionpolicies", &policy),
            (
                "mutatingadmissionpolicybindings",
                &binding_of(KIND, &name, &json!({})),
            ),
        ] {
            let key = format!("/registry/{resource}/{name}");
            client.put(key, object.to_string(), None).await.unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Etcd(&endpoint), &[]).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let (object, path) = (
        config_map("a"),
        "/api/v1/namespaces/default/secrets?dryRun=All",
    );
    let other = ask("POST", path).json(&secret);
    let ((status, answer), other) = tokio::join!(tried(&server, &object), other.status(&server));
    assert_eq!((status, other), (201, 201), "{}", message(&answer));
    assert_eq!(
        answer["data"].as_object().map(|data| data.len()),
        Some(POLICIES)
    );
}
