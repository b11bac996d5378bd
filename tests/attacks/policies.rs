//! Admission policies hold from the moment that they are written, on every server, in upstream's
//! words, and end whatever they say.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::etcd::Etcd;
use super::support::{Store, TestServer, USER};
use super::{PATIENCE, ask, both, start};

pub const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The rule of policies about a resource of a group.
pub fn rule(group: &str, resource: &str) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"],
        "resources": [resource],
    })
}

/// A policy of a kind with a `spec` that is about what `rule` selects.
pub fn policy_of(kind: &str, name: &str, rule: &Value, spec: &Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    });
    policy["spec"]["matchConstraints"] = json!({"resourceRules": [rule]});
    policy
}

fn policy(name: &str, rule: &Value, spec: &Value) -> Value {
    policy_of("ValidatingAdmissionPolicy", name, rule, spec)
}

/// A binding of a policy of a kind. One of a validating policy denies unless it says otherwise.
pub fn binding_of(kind: &str, name: &str, spec: &Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}Binding"),
        "metadata": {"name": name}, "spec": spec,
    });
    binding["spec"]["policyName"] = name.into();
    if kind.starts_with("Validating") && binding["spec"]["validationActions"].is_null() {
        binding["spec"]["validationActions"] = json!(["Deny"]);
    }
    binding
}

fn binding(name: &str, spec: &Value) -> Value {
    binding_of("ValidatingAdmissionPolicy", name, spec)
}

/// The resources of a kind of policies, and of its bindings.
fn resources(kind: &str) -> [String; 2] {
    let kind = kind.to_lowercase();
    [
        kind.replace("policy", "policies"),
        format!("{kind}bindings"),
    ]
}

pub async fn create(server: &TestServer, resource: &str, object: &Value) {
    let answer = ask("POST", &format!("{GROUP}/{resource}"))
        .json(object)
        .answer(server)
        .await;
    assert_eq!(answer.0, 201, "{answer:?}");
}

/// Writes a policy and a binding of it.
pub async fn enforce(server: &TestServer, policy: &Value, bound: &Value) {
    let (kind, name) = (
        policy["kind"].as_str().unwrap(),
        policy["metadata"]["name"].as_str().unwrap(),
    );
    let [policies, bindings] = resources(kind);
    create(server, &policies, policy).await;
    create(server, &bindings, &binding_of(kind, name, bound)).await;
}

/// Deletes a policy and its binding, the binding first.
pub async fn lift(server: &TestServer, kind: &str, name: &str) {
    for resource in resources(kind).iter().rev() {
        let path = format!("{GROUP}/{resource}/{name}");
        assert_eq!(ask("DELETE", &path).status(server).await, 200, "{path}");
    }
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// The status and message of a dry run that creates a ConfigMap.
async fn tried(server: &TestServer, object: &Value) -> (u16, String) {
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let (status, answer) = ask("POST", &path).json(object).answer(server).await;
    (status, answer["message"].as_str().unwrap_or("").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_in_effect_when_its_binding_was_answered_and_until_it_is_deleted() {
    both(&[], async |server| {
        let spec = json!({"validations": [{"expression": "object.metadata.name != 'bad'", "reason": "Forbidden"}]});
        enforce(server, &policy("p", &rule("", "configmaps"), &spec), &json!({})).await;
        let (status, why) = tried(server, &config_map("bad")).await;
        assert_eq!(
            (status, why.as_str()),
            (403, "configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: \
                  failed expression: object.metadata.name != 'bad'")
        );
        for (method, media) in [("PATCH", APPLY_PATCH), ("POST", "application/json")] {
            let path = match method {
                "PATCH" => format!("{CONFIG_MAPS}/bad?fieldManager=m"),
                _ => CONFIG_MAPS.to_owned(),
            };
            let refused = ask(method, &path).body(media, config_map("bad").to_string());
            assert_eq!(refused.status(server).await, 403, "{method}");
        }
        let path = format!("{GROUP}/validatingadmissionpolicies/p");
        let relaxed = json!({"spec": {"validations": [{"expression": "true"}]}});
        let changed = ask("PATCH", &path).body(MERGE_PATCH, relaxed.to_string());
        assert_eq!(changed.status(server).await, 200);
        assert_eq!(tried(server, &config_map("bad")).await.0, 201);
        let strict = json!({"spec": {"validations": [{"expression": "false"}]}});
        let changed = ask("PATCH", &path).body(MERGE_PATCH, strict.to_string());
        assert_eq!(changed.status(server).await, 200);
        assert_eq!(tried(server, &config_map("good")).await.0, 422);
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        assert_eq!(tried(server, &config_map("bad")).await.0, 201);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_soon_in_effect_on_other_servers() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let endpoint = etcd.endpoint();
    let one = start(folders[0].path(), Store::Etcd(&endpoint), &[]).await;
    let other = start(folders[1].path(), Store::Etcd(&endpoint), &[]).await;
    let spec = json!({"validations": [{"expression": "false"}]});
    enforce(
        &one,
        &policy("p", &rule("", "configmaps"), &spec),
        &json!({}),
    )
    .await;
    let begun = Instant::now();
    while tried(&other, &config_map("a")).await.0 != 422 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it is not in effect"
        );
    }
    let path = format!("{GROUP}/validatingadmissionpolicybindings/p");
    assert_eq!(ask("DELETE", &path).status(&other).await, 200);
    assert_eq!(tried(&other, &config_map("a")).await.0, 201);
    let begun = Instant::now();
    while tried(&one, &config_map("a")).await.0 != 201 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it is still in effect"
        );
    }
}

/// The verdict on what cannot be evaluated is the failure policy's to judge.
#[tokio::test(flavor = "multi_thread")]
async fn an_expression_that_fails_or_runs_away_is_judged_by_the_failure_policy() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let runaway = (0..9).fold("true".to_owned(), |inner, depth| {
        format!("{ten}.all(v{depth}, {inner})")
    });
    let over_budget = "validation failed due to running out of cost budget, no further validation rules will be run";
    let large = "x".repeat(200_000);
    let cancelled = "operation cancelled: actual cost limit exceeded";
    let long = (0..5).fold("true".to_owned(), |inner, depth| {
        format!("{ten}.all(v{depth}, {inner})")
    });
    let many = vec![json!({"expression": long}); 64];
    let cases = [
        (json!({"validations": many}), over_budget),
        (
            json!({"validations": [{"expression": "object.nope == 1"}]}),
            "expression 'object.nope == 1' resulted in error: no such key: nope",
        ),
        (json!({"validations": [{"expression": runaway}]}), cancelled),
        (
            json!({"validations": [{"expression": "true"}], "matchConditions": [{"name": "m", "expression": runaway}]}),
            cancelled,
        ),
        (
            json!({"validations": [{"expression": "variables.v == 1"}], "variables": [{"name": "v", "expression": "object.nope"}]}),
            "no such key: nope",
        ),
        (
            json!({"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "string(object.nope)"}]}),
            "no such key: nope",
        ),
        (
            json!({"validations": [{"expression": "object.data.l.matches('(x*)*y')"}]}),
            "",
        ),
        (
            json!({"validations": [{"expression": "(object.data.l + object.data.l).replace('x', object.data.l).size() > 0"}]}),
            "",
        ),
    ];
    both(&[], async |server| {
        for (spec, told) in &cases {
            for (failure_policy, wanted) in [("Fail", 422), ("Ignore", 201)] {
                let mut spec = spec.clone();
                spec["failurePolicy"] = failure_policy.into();
                enforce(
                    server,
                    &policy("p", &rule("", "configmaps"), &spec),
                    &json!({}),
                )
                .await;
                let mut object = config_map("a");
                object["data"] = json!({"l": large});
                let (status, why) = tried(server, &object).await;
                if told.is_empty() {
                    // What it comes to is the expression's own business: that it ends is enough.
                    assert!(matches!(status, 201 | 422), "{why}");
                } else {
                    assert_eq!(status, wanted, "{spec}: {why}");
                    assert!(status == 201 || why.contains(told), "{why}");
                }
                lift(server, "ValidatingAdmissionPolicy", "p").await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_may_be_missing_or_vanish_and_come_again() {
    both(&[], async |server| {
        let spec = json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "object.metadata.name != params.data.deny"}],
            "matchConditions": [{"name": "own", "expression": "request.name != 'param'"}],
        });
        let bound = |action: &str| json!({"paramRef": {"name": "param", "parameterNotFoundAction": action}});
        enforce(server, &policy("deny", &rule("", "configmaps"), &spec), &bound("Deny")).await;
        let none = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'deny' with binding 'deny' denied request: \
                    failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
        assert_eq!(tried(server, &config_map("a")).await, (422, none.to_owned()));
        let path = format!("{GROUP}/validatingadmissionpolicybindings/deny");
        let allow = json!({"spec": bound("Allow")}).to_string();
        assert_eq!(ask("PATCH", &path).body(MERGE_PATCH, allow).status(server).await, 200);
        for _ in 0..2 {
            assert_eq!(tried(server, &config_map("a")).await.0, 201);
            let mut param = config_map("param");
            param["data"] = json!({"deny": "a"});
            assert_eq!(ask("POST", CONFIG_MAPS).json(&param).status(server).await, 201);
            assert_eq!(tried(server, &config_map("a")).await.0, 422);
            let change = json!({"data": {"deny": "b"}}).to_string();
            let path = format!("{CONFIG_MAPS}/param");
            assert_eq!(ask("PATCH", &path).body(MERGE_PATCH, change).status(server).await, 200);
            assert_eq!(tried(server, &config_map("a")).await.0, 201);
            assert_eq!(tried(server, &config_map("b")).await.0, 422);
            assert_eq!(ask("DELETE", &path).status(server).await, 200);
            assert_eq!(tried(server, &config_map("b")).await.0, 201);
        }
    })
    .await;
}

/// Thousands of policies cost requests that they are not about nothing.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_policies_do_not_stall_requests_about_other_resources() {
    const POLICIES: usize = 10_000;
    /// The most operations of a transaction, as etcd has it.
    const BATCH: usize = 128;
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let endpoint = etcd.endpoint();
    let mut client = etcd_client::Client::connect([endpoint.clone()], None)
        .await
        .unwrap();
    let spec = json!({"failurePolicy": "Fail", "validations": [{"expression": "object.metadata.name != 'bad'"}]});
    let objects = (0..POLICIES).flat_map(|number| {
        let name = format!("p{number}");
        let mut policy = policy(&name, &rule("", "secrets"), &spec);
        let constraints = &mut policy["spec"]["matchConstraints"];
        (
            constraints["namespaceSelector"],
            constraints["objectSelector"],
        ) = (json!({}), json!({}));
        let put = |resource: &str, object: &Value| {
            etcd_client::TxnOp::put(
                format!("/registry/{resource}/{name}"),
                object.to_string(),
                None,
            )
        };
        [
            put("validatingadmissionpolicies", &policy),
            put(
                "validatingadmissionpolicybindings",
                &binding(&name, &json!({})),
            ),
        ]
    });
    let objects: Vec<_> = objects.collect();
    for batch in objects.chunks(BATCH) {
        let transaction = etcd_client::Txn::new().and_then(batch);
        client.txn(transaction).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Etcd(&endpoint), &[]).await;
    let secret =
        |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let secrets = "/api/v1/namespaces/default/secrets?dryRun=All";
    let refused = ask("POST", secrets).json(&secret("bad"));
    assert_eq!(refused.status(&server).await, 422);
    let (busy, other) = (
        ask("POST", secrets).json(&secret("good")),
        config_map("bad"),
    );
    let (busy, other) = tokio::join!(busy.status(&server), tried(&server, &other));
    assert_eq!((busy, other.0), (201, 201));
}

/// The writer who locked everybody out can mend it.
#[tokio::test(flavor = "multi_thread")]
async fn policies_are_not_asked_about_themselves() {
    both(&[], async |server| {
        let spec = json!({"validations": [{"expression": "false"}]});
        let everything = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
        enforce(server, &policy("p", &everything, &spec), &json!({})).await;
        assert_eq!(tried(server, &config_map("a")).await.0, 422);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}},
        });
        let asked = ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").json(&review);
        assert_eq!(asked.status(server).await, 201);
        let other = policy("q", &rule("", "pods"), &spec);
        create(server, "validatingadmissionpolicies", &other).await;
        lift(server, "ValidatingAdmissionPolicy", "p").await;
        assert_eq!(tried(server, &config_map("a")).await.0, 201);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_are_told_and_do_not_refuse() {
    both(&[], async |server| {
        let spec = json!({"validations": [{"expression": "false", "messageExpression": "'not ' + object.metadata.name"}]});
        let bound = json!({"validationActions": ["Warn", "Audit"]});
        enforce(server, &policy("p", &rule("", "configmaps"), &spec), &bound).await;
        let answer = ask("POST", CONFIG_MAPS).json(&config_map("a")).send(server).await;
        assert_eq!(answer.status, 201);
        let told = answer.headers.get("warning").and_then(|text| text.to_str().ok());
        assert_eq!(
            told,
            Some("299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': not a\"")
        );
    })
    .await;
}

/// A connection is judged by its options, a Scale as a Scale.
#[tokio::test(flavor = "multi_thread")]
async fn subresources_are_judged_in_their_own_kinds() {
    both(&[], async |server| {
        let dump = "request.operation + ' ' + request.kind.kind + ' ' + (object == null ? 'null' : object.kind)";
        let spec = json!({"validations": [{"expression": "false", "messageExpression": dump}]});
        let rules = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        });
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        assert_eq!(ask("POST", deployments).json(&deployment).status(server).await, 201);
        enforce(server, &policy("p", &rules, &spec), &json!({})).await;
        let pods = "/api/v1/namespaces/default/pods";
        for (method, path, body, told) in [
            ("PATCH", format!("{deployments}/d/scale"), json!({"spec": {"replicas": 2}}), "UPDATE Scale Scale"),
            ("PATCH", format!("{deployments}/d/status"), json!({"status": {"replicas": 2}}), "UPDATE Deployment Deployment"),
            ("DELETE", format!("{deployments}/d"), Value::Null, "DELETE Deployment null"),
            ("POST", format!("{pods}/p/exec?command=ls&stdout=true"), Value::Null, "CONNECT PodExecOptions PodExecOptions"),
            ("GET", format!("{pods}/p/proxy/x"), Value::Null, "CONNECT PodProxyOptions PodProxyOptions"),
        ] {
            let asked = match &body {
                Value::Null => ask(method, &path),
                body => ask(method, &path).body(MERGE_PATCH, body.to_string()),
            };
            let (status, answer) = asked.answer(server).await;
            let why = answer["message"].as_str().unwrap_or("");
            assert_eq!(status, 422, "{method} {path}: {why}");
            assert!(why.ends_with(&format!("denied request: {told}")), "{why}");
        }
    })
    .await;
}

/// A request in one version is what a rule about another one selects, and is judged in that.
#[tokio::test(flavor = "multi_thread")]
async fn equivalent_versions_match_unless_the_policy_wants_exact_ones() {
    both(&[], async |server| {
        let rules = json!({
            "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"],
            "resources": ["horizontalpodautoscalers"],
        });
        let spec = json!({"validations": [{
            "expression": "!has(object.spec.metrics)",
            "messageExpression": "object.apiVersion + ' ' + request.requestKind.version + ' ' + request.kind.version",
        }]});
        let mut strict = policy("p", &rules, &spec);
        enforce(server, &strict, &json!({})).await;
        let autoscaler = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}},
        });
        let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers?dryRun=All";
        let (status, answer) = ask("POST", path).json(&autoscaler).answer(server).await;
        let why = answer["message"].as_str().unwrap_or("");
        assert_eq!(status, 422, "{why}");
        assert!(why.ends_with("autoscaling/v2 v1 v2"), "{why}");
        strict["spec"]["matchConstraints"]["matchPolicy"] = "Exact".into();
        let exact = json!({"spec": strict["spec"]}).to_string();
        let place = format!("{GROUP}/validatingadmissionpolicies/p");
        assert_eq!(ask("PATCH", &place).body(MERGE_PATCH, exact).status(server).await, 200);
        assert_eq!(ask("POST", path).json(&autoscaler).status(server).await, 201);
    })
    .await;
}

/// A stored policy that cannot be read is none; the others hold.
#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_policy_does_not_keep_others_from_effect() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let endpoint = etcd.endpoint();
    let mut client = etcd_client::Client::connect([endpoint.clone()], None)
        .await
        .unwrap();
    let prefix = "/registry/validatingadmissionpolicies";
    client
        .put(format!("{prefix}/broken"), "garbage", None)
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Etcd(&endpoint), &[]).await;
    let spec = json!({"validations": [{"expression": "false"}]});
    enforce(
        &server,
        &policy("p", &rule("", "configmaps"), &spec),
        &json!({}),
    )
    .await;
    assert_eq!(tried(&server, &config_map("a")).await.0, 422);
    // One that was read before and cannot be any more goes on.
    client
        .put(format!("{prefix}/p"), "garbage", None)
        .await
        .unwrap();
    let probe = policy("probe", &rule("", "secrets"), &spec);
    enforce(&server, &probe, &json!({})).await;
    assert_eq!(tried(&server, &config_map("a")).await.0, 422);
}

/// Expressions are compiled when a policy is written, and who writes one may read its parameters.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_policies_and_unreadable_parameters_are_refused_when_they_are_written() {
    both(&[], async |server| {
        let path = format!("{GROUP}/validatingadmissionpolicies");
        let spec = json!({
            "variables": [{"name": "v", "expression": "1 +"}],
            "validations": [{"expression": "variables.w"}, {"expression": "1"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "object"}],
            "matchConditions": [{"name": "m", "expression": "variables.v"}],
        });
        let wrong = policy("p", &rule("", "configmaps"), &spec);
        let (status, answer) = ask("POST", &path).json(&wrong).answer(server).await;
        let causes: Vec<&str> = answer["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| cause["field"].as_str().unwrap())
            .collect();
        assert_eq!(status, 422);
        assert_eq!(
            causes,
            [
                "spec.matchConditions[0].expression", "spec.variables[0].expression", "spec.validations[0].expression",
                "spec.validations[1].expression", "spec.auditAnnotations[0].valueExpression",
            ]
        );
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "w"},
            "rules": [{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}],
        });
        let bound = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "w"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "w"},
            "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
        });
        for (resource, object) in [("clusterroles", role), ("clusterrolebindings", bound)] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{resource}");
            assert_eq!(ask("POST", &path).json(&object).status(server).await, 201);
        }
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}, "validations": [{"expression": "true"}]});
        let spying = policy("s", &rule("", "configmaps"), &spec);
        // Her rights are known soon, if not at once.
        let permitted = async {
            loop {
                let answered = ask("POST", &path).by(USER).json(&spying).answer(server).await;
                if answered.0 != 403 {
                    return answered;
                }
            }
        };
        let (status, answer) = tokio::time::timeout(PATIENCE, permitted).await.unwrap();
        let why = answer["message"].as_str().unwrap_or("");
        assert_eq!(status, 422, "{why}");
        assert!(why.contains("must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"), "{why}");
        assert_eq!(ask("POST", &path).json(&spying).status(server).await, 201);
        let reference = json!({"paramRef": {"name": "x", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}});
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        let refused = ask("POST", &path).by(USER).json(&binding("s", &reference));
        let (status, answer) = refused.answer(server).await;
        let why = answer["message"].as_str().unwrap_or("");
        assert_eq!(status, 422, "{why}");
        assert!(why.contains("does not have \"get\" permission on the object referenced by paramRef"), "{why}");
    })
    .await;
}
