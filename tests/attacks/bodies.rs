//! No request costs time or memory out of proportion to its size. The bodies here once took minutes
//! or gigabytes: the time limit of a request ([`super::PATIENCE`]) and the memory limit of the
//! server ([`PEAK_MEMORY`]) are far below that.

use std::fmt::Write;

use serde_json::{Value, json};

use super::support::{Store, TestServer, USER, until};
use super::{Ask, JSON, ask, both, start};

/// The maximum memory that the server may ever have had, in KiB. It is built without optimisation
/// and keeps a part of what it freed.
const PEAK_MEMORY: u64 = 2 * 1024 * 1024;

const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Items of a JSON list, made by their numbers.
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

/// Runs attacks on a server with the embedded store: what a body costs does not depend on the
/// store.
async fn alone(attack: impl AsyncFn(&TestServer)) {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Embedded, &[]).await;
    attack(&server).await;
    survived(&server).await;
}

/// Checks that the server still answers, and how much memory it ever had.
async fn survived(server: &TestServer) {
    assert_eq!(ask("GET", "/readyz").status(server).await, 200);
    let peak = server.memory_kib("VmHWM");
    assert!(peak < PEAK_MEMORY, "{peak} KiB");
}

/// Sends a request whose answer must be small, and have one of these codes.
async fn expect(what: &str, codes: &[u16], request: Ask<'_>, server: &TestServer) -> Value {
    let answer = request.send(server).await;
    assert!(
        codes.contains(&answer.status),
        "{what}: {} {:.300}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    assert!(
        answer.body.len() < 24 * 1024 * 1024,
        "{what}: {} bytes",
        answer.body.len()
    );
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

fn pod(spec: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{spec}}}"#)
}

fn container(rest: &str) -> String {
    pod(&format!(
        r#"{{"containers":[{{"name":"c","image":"i",{rest}}}]}}"#
    ))
}

/// A definition of `widgets.example.com` with fields of many shapes.
fn widgets() -> Value {
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}});
    let filled = json!({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string", "default": "y".repeat(10_000)}}}});
    let spec = json!({"type": "object", "properties": {
        "keyed": keyed, "filled": filled,
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "maps": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}},
    })
}

/// Creates the definition and waits until it is served.
async fn define_widgets(server: &TestServer) {
    assert_eq!(
        ask("POST", DEFINITIONS)
            .json(&widgets())
            .status(server)
            .await,
        201
    );
    until("widgets are served", async || {
        ask("GET", WIDGETS).status(server).await == 200
    })
    .await;
}

/// Creates the service account that pods have.
async fn create_account(server: &TestServer) {
    let account = json!({"metadata": {"name": "default"}});
    let status = ask("POST", "/api/v1/namespaces/default/serviceaccounts")
        .json(&account)
        .status(server)
        .await;
    assert!(matches!(status, 201 | 409), "{status}");
}

fn widget(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn aliases_do_not_multiply_texts() {
    both(&[], async |server| {
        const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let long = "a".repeat(1_500_000);
        let aliases = format!("{{\"x\":[&a \"{long}\"{}]}}", ",*a".repeat(400_000));
        let refused = expect(
            "aliases",
            &[400],
            ask("POST", REVIEWS).by(USER).body(YAML, aliases),
            server,
        )
        .await;
        assert!(
            refused["message"]
                .as_str()
                .unwrap()
                .contains("yaml: document contains excessive aliasing"),
            "{:.300}",
            refused["message"]
        );
        let tags = format!("%TAG !a! {long}\n---\nx: [{}]\n", "!a!b c,".repeat(150_000));
        expect(
            "tags",
            &[400],
            ask("POST", REVIEWS).by(USER).body(YAML, tags),
            server,
        )
        .await;
        survived(server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_metadata_are_checked_in_one_pass() {
    alone(async |server| {
        let with = |meta: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c",{meta}}}}}"#);
        let owners = with(&format!(r#""ownerReferences":[{}]"#, list(60_000, |number| format!(r#"{{"uid":"a{number}"}}"#))));
        let refused = expect("owners", &[422], ask("POST", CONFIG_MAPS).body(JSON, owners), server).await;
        assert!(refused["details"]["causes"].as_array().unwrap().len() <= 1_000);
        let controllers =
            list(20_000, |number| format!(r#"{{"apiVersion":"v1","kind":"A","name":"a","uid":"{number}","controller":true}}"#));
        let controllers = with(&format!(r#""ownerReferences":[{controllers}]"#));
        expect("controllers", &[422], ask("POST", CONFIG_MAPS).body(JSON, controllers), server).await;
        let managers = list(12_000, |number| {
            let entry = r#""operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}"#;
            format!(r#"{{"manager":"m{number}",{entry}}}"#)
        });
        expect("managers", &[201], ask("POST", CONFIG_MAPS).body(JSON, with(&format!(r#""managedFields":[{managers}]"#))), server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_fields_are_counted() {
    alone(async |server| {
        let review = format!(
            r#"{{"spec":{{"resourceAttributes":{{"labelSelector":{{"requirements":[{}]}}}}}}}}"#,
            list(400_000, |_| "{}".to_owned())
        );
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        expect(
            "requirements",
            &[400, 422],
            ask("POST", path).by(USER).body(JSON, review),
            server,
        )
        .await;
        let spec = [0x12, 0x00].repeat(1_000_000);
        let mut raw = vec![0x12];
        varint(spec.len(), &mut raw);
        raw.extend(spec);
        let mut body = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12".to_vec();
        varint(raw.len(), &mut body);
        body.extend(raw);
        expect(
            "empty containers",
            &[400],
            ask("POST", PODS).body(PROTOBUF, body),
            server,
        )
        .await;
        for (what, empty) in [("nothing", &b""[..]), ("the prefix alone", b"k8s\0")] {
            expect(
                what,
                &[400],
                ask("POST", PODS).body(PROTOBUF, empty),
                server,
            )
            .await;
        }
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
        expect(
            "a Table of protobuf",
            &[406],
            ask("GET", "/api/v1/pods").header("Accept", table),
            server,
        )
        .await;
    })
    .await;
}

/// Appends a number as protobuf has it.
fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_pods_are_compared_by_sets() {
    alone(async |server| {
        create_account(server).await;
        let equal = list(30_000, |_| r#"{"containerPort":80}"#.to_owned());
        expect("equal ports", &[201], ask("POST", PODS).body(JSON, container(&format!(r#""ports":[{equal}]"#))), server).await;
        let apart = list(30_000, |number| format!(r#"{{"containerPort":80,"hostPort":{}}}"#, number + 1));
        expect("ports of the host", &[201], ask("POST", PODS).body(JSON, container(&format!(r#""ports":[{apart}]"#))), server).await;
        let variables = list(60_000, |_| r#"{"name":"A"}"#.to_owned());
        expect("variables", &[201], ask("POST", PODS).body(JSON, container(&format!(r#""env":[{variables}]"#))), server).await;
        let mounts = list(30_000, |number| format!(r#"{{"name":"m{number}","mountPath":"/m{number}"}}"#));
        let devices = list(30_000, |number| format!(r#"{{"name":"d{number}","devicePath":"/d{number}"}}"#));
        let both = container(&format!(r#""volumeMounts":[{mounts}],"volumeDevices":[{devices}]"#));
        expect("mounts and devices", &[422], ask("POST", PODS).body(JSON, both), server).await;
        let names = list(30_000, |number| format!(r#"{{"name":"c{number}"}}"#));
        let claims = format!(
            r#"{{"resourceClaims":[{names}],"containers":[{{"name":"c","image":"i","resources":{{"claims":[{}]}}}}]}}"#,
            list(30_000, |number| format!(r#"{{"name":"x{number}"}}"#))
        );
        expect("claims", &[422], ask("POST", PODS).body(JSON, pod(&claims)), server).await;
        let files = list(50_000, |number| format!(r#"{{"key":"k","path":"f{number}"}}"#));
        let volume = format!(
            r#"{{"containers":[{{"name":"c","image":"i"}}],"volumes":[{{"name":"v","configMap":{{"name":"m","items":[{files}]}}}}]}}"#
        );
        expect("files", &[201], ask("POST", PODS).body(JSON, pod(&volume)), server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_other_kinds_are_compared_by_sets() {
    alone(async |server| {
        let usages = list(300_000, |number| format!("\"u{number}\""));
        let request = format!(
            r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"name":"r"}},
                "spec":{{"signerName":"example.com/s","request":"AA==","usages":[{usages}]}}}}"#
        );
        expect("usages", &[422], ask("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests").body(JSON, request), server).await;
        let service = |addresses: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s"}},
                    "spec":{{"ports":[{{"port":80}}],"externalIPs":[{addresses}]}}}}"#
            )
        };
        let services = "/api/v1/namespaces/default/services";
        let before = list(100_000, |_| "\"1.1.1.1\"".to_owned());
        assert_eq!(ask("POST", services).body(JSON, service(&before)).status(server).await, 201);
        let after = list(200_000, |_| "\"1.1.1.2\"".to_owned());
        let update = ask("PUT", "/api/v1/namespaces/default/services/s?dryRun=All").body(JSON, service(&after));
        expect("external addresses", &[200, 422, 500], update, server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_move_within_bounds() {
    alone(async |server| {
        let created = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        assert_eq!(
            ask("POST", "/api/v1/namespaces/default/configmaps")
                .json(&created)
                .status(server)
                .await,
            201
        );
        let long = list(300_000, |_| "\"a/b\"".to_owned());
        let mut operations =
            format!(r#"[{{"op":"add","path":"/metadata/finalizers","value":[{long}]}}"#);
        for _ in 1..10_000 {
            operations.push_str(r#",{"op":"add","path":"/metadata/finalizers/0","value":"a/b"}"#);
        }
        operations.push(']');
        let path = "/api/v1/namespaces/default/configmaps/c?dryRun=All";
        expect(
            "moves",
            &[413],
            ask("PATCH", path).body(JSON_PATCH, operations),
            server,
        )
        .await;

        create_account(server).await;
        let variables = list(15_000, |number| format!(r#"{{"name":"V{number}"}}"#));
        let created = container(&format!(r#""env":[{variables}]"#));
        expect(
            "a pod",
            &[201],
            ask("POST", "/api/v1/namespaces/default/pods").body(JSON, created),
            server,
        )
        .await;
        let deleted = list(15_000, |number| {
            format!(r#"{{"$patch":"delete","name":"V{number}"}}"#)
        });
        let patch = format!(r#"{{"spec":{{"containers":[{{"name":"c","env":[{deleted}]}}]}}}}"#);
        let path = "/api/v1/namespaces/default/pods/p?dryRun=All";
        expect(
            "directives",
            &[422],
            ask("PATCH", path).body(STRATEGIC_PATCH, patch),
            server,
        )
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_not_taken_apart_without_end() {
    alone(async |server| {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]);
        let role = json!({"metadata": {"name": "creator"}, "rules": rules});
        assert_eq!(ask("POST", &format!("{rbac}/clusterroles")).json(&role).status(server).await, 201);
        let binding = json!({"metadata": {"name": "creator"}, "subjects": [{"kind": "User", "name": "alice"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "creator"}});
        assert_eq!(ask("POST", &format!("{rbac}/clusterrolebindings")).json(&binding).status(server).await, 201);
        let names = |letter: char| (0..2_000).map(|number| format!("{letter}{number}")).collect::<Vec<_>>();
        let wide =
            json!({"metadata": {"name": "wide"}, "rules": [{"apiGroups": names('g'), "resources": names('r'), "verbs": names('v')}]});
        let roles = format!("{rbac}/namespaces/default/roles?dryRun=All");
        expect("a role", &[403], ask("POST", &roles).by(USER).json(&wide), server).await;
        expect("a role by who may do all", &[201], ask("POST", &roles).json(&wide), server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_of_many_requirements_look_once() {
    both(&[], async |server| {
        for number in 0..200 {
            let labels = json!({"app": "a", "number": number.to_string()});
            let created = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number}"), "labels": labels}});
            assert_eq!(ask("POST", "/api/v1/namespaces/default/configmaps").json(&created).status(server).await, 201);
        }
        let absent = (0..9_000).map(|number| format!("!k{number}")).collect::<Vec<_>>().join(",");
        let path = |more: &str| format!("/api/v1/namespaces/default/configmaps?labelSelector={absent},{more}");
        for (more, found) in [("app=a", 200), ("number%20in%20(1,2)", 2), ("zz", 0)] {
            let (status, list) = ask("GET", &path(more)).answer(server).await;
            assert_eq!((status, list["items"].as_array().unwrap().len()), (200, found), "{more}");
        }
        survived(server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_objects_cost_what_they_weigh() {
    alone(async |server| {
        define_widgets(server).await;
        let dry = format!("{WIDGETS}?dryRun=All");
        let unknown = widget(
            "w",
            &format!(
                "{{{}}}",
                list(50_000, |number| format!(
                    "\"a_field_that_no_schema_of_widgets_knows_{number}\":1"
                ))
            ),
        );
        let answer = ask("POST", &dry)
            .body(JSON, unknown.clone())
            .send(server)
            .await;
        assert_eq!(answer.status, 201);
        assert!(answer.headers.get_all("warning").iter().count() > 10);
        let strict = format!("{dry}&fieldValidation=Strict");
        expect(
            "unknown fields",
            &[400],
            ask("POST", &strict).body(JSON, unknown),
            server,
        )
        .await;
        let wrong = widget(
            "w",
            &format!(
                r#"{{"numbers":[{}]}}"#,
                list(300_000, |_| "\"\"".to_owned())
            ),
        );
        expect(
            "wrong types",
            &[422],
            ask("POST", &dry).body(JSON, wrong),
            server,
        )
        .await;
        let twice = widget(
            "w",
            &format!(
                r#"{{"set":[{}]}}"#,
                list(150_000, |number| format!("\"{}\"", number / 2))
            ),
        );
        expect("a set", &[422], ask("POST", &dry).body(JSON, twice), server).await;
        let below = |item: &str| {
            let mut spec = format!(r#"{{"maps":{{"{}":["#, "k".repeat(500_000));
            write!(spec, "{}]}}}}", list(100_000, |_| item.to_owned())).unwrap();
            widget("w", &spec)
        };
        for item in [r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":""}"#] {
            expect(
                "below a long key",
                &[201, 422, 500],
                ask("POST", &dry).body(JSON, below(item)),
                server,
            )
            .await;
        }
        let filled = widget(
            "w",
            &format!(r#"{{"filled":[{}]}}"#, list(300_000, |_| "{}".to_owned())),
        );
        let answer = ask("POST", WIDGETS).body(JSON, filled).send(server).await;
        assert!(answer.status >= 400, "{}", answer.status);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_custom_objects_are_found_by_key() {
    alone(async |server| {
        define_widgets(server).await;
        let keyed = |last: &str| {
            widget(
                "k",
                &format!(
                    r#"{{"keyed":[{},{{"k":"last","v":{last}}}]}}"#,
                    list(40_000, |number| format!(r#"{{"k":"{number}"}}"#))
                ),
            )
        };
        let live = expect(
            "a list map",
            &[201],
            ask("POST", WIDGETS).body(JSON, keyed("1")),
            server,
        )
        .await;
        let path = format!("{WIDGETS}/k?dryRun=All");
        let mut changed: Value = serde_json::from_str(&keyed("\"x\"")).unwrap();
        changed["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
        expect("a change", &[422], ask("PUT", &path).json(&changed), server).await;

        let entries = list(60_000, |number| format!("\"k{number}\":1"));
        let many = widget("n", &format!(r#"{{"any":{{{entries}}}}}"#));
        expect(
            "many keys",
            &[201],
            ask("POST", WIDGETS).body(JSON, many),
            server,
        )
        .await;
        let nulls = list(60_000, |number| format!("\"k{number}\":null"));
        let patch = format!(r#"{{"spec":{{"any":{{{nulls}}}}}}}"#);
        expect(
            "nulls",
            &[200],
            ask("PATCH", &format!("{WIDGETS}/n?dryRun=All")).body(MERGE_PATCH, patch),
            server,
        )
        .await;
    })
    .await;
}

/// The definition of `widgets.example.com` with another schema of `spec`, and with changes.
fn widgets_with(spec: Value, change: impl Fn(&mut Value)) -> Value {
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    change(&mut definition["spec"]);
    definition
}

/// An object schema with one property.
fn with_property(name: &str, schema: Value) -> Value {
    json!({"type": "object", "properties": {name: schema}})
}

/// An object schema with as many properties, made by their numbers.
fn with_properties(count: usize, schema: impl Fn(usize) -> Value) -> Value {
    let properties: serde_json::Map<String, Value> = (0..count)
        .map(|number| (format!("p{number}"), schema(number)))
        .collect();
    json!({"type": "object", "properties": properties})
}

/// Sends a definition for a trial.
async fn propose(what: &str, codes: &[u16], definition: &Value, server: &TestServer) -> String {
    let path = format!("{DEFINITIONS}?dryRun=All");
    let request = ask("POST", &path).json(definition);
    let answer = expect(what, codes, request, server).await;
    answer["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_of_definitions_are_bounded() {
    alone(async |server| {
        let patterns = |count: usize, pattern: &str| {
            let one = |number| json!({"type": "string", "pattern": format!("{pattern}{number}")});
            widgets_with(with_properties(count, one), |_| {})
        };
        for (what, count, pattern) in [
            ("large programs", 10_000, "(?:\\pL{100}){1000}"),
            ("many programs", 20_000, "[a-z]{100}"),
            ("long patterns", 2, "[:".repeat(500_000).as_str()),
            ("classes", 300, "(?i)[^a]".repeat(1_000).as_str()),
        ] {
            propose(what, &[422], &patterns(count, pattern), server).await;
        }
        let why = propose("too many", &[422], &patterns(9_000, "[a-z]{9}"), server).await;
        assert!(why.contains("when compiled"), "{why:.300}");
        let fair = patterns(200, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$|");
        propose("a few", &[201], &fair, server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_cost_what_they_weigh() {
    alone(async |server| {
        let text = || json!({"type": "string"});
        let below = with_property(&"k".repeat(300_000), with_properties(30_000, |_| text()));
        propose("long paths", &[201], &widgets_with(below, |_| {}), server).await;

        let keys: Vec<String> = (0..30_000).map(|number| format!("p{number}")).collect();
        let mut items = with_properties(keys.len(), |_| text());
        items["required"] = json!(keys);
        let list = json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": keys, "items": items});
        let keyed = widgets_with(with_property("l", list), |_| {});
        propose("many keys", &[201], &keyed, server).await;

        let rule = json!({"rule": "true", "fieldPath": ".p0"});
        let mut ruled = with_properties(10_000, |_| text());
        ruled["x-kubernetes-validations"] = vec![rule; 20_000].into();
        propose("many rules", &[201], &widgets_with(ruled, |_| {}), server).await;

        let named = widgets_with(json!({"type": "object"}), |spec| {
            let version = |number| {
                let mut version = spec["versions"][0].clone();
                version["name"] = format!("v{}", number + 1).into();
                version["storage"] = (number == 0).into();
                version["deprecated"] = (number > 0).into();
                version
            };
            let versions: Vec<Value> = (0..5_000).map(version).collect();
            spec["versions"] = versions.into();
            let names: Vec<String> = (0..20_000).map(|number| format!("w{number}")).collect();
            spec["names"]["shortNames"] = json!(names);
        });
        let why = propose("versions with names", &[422], &named, server).await;
        assert!(why.contains("repeated for every version"), "{why:.300}");
    })
    .await;
}

/// The schema that an expression sees of a node is a part of those of the nodes above it.
#[tokio::test(flavor = "multi_thread")]
async fn nested_rules_share_their_schemas() {
    const DEPTH: usize = 2_000;
    let rules = r#""x-kubernetes-validations":[{"rule":"has(self.a)"}]"#;
    let begin = format!(r#"{{"type":"object",{rules},"properties":{{"a":"#);
    let schema = [
        &*begin.repeat(DEPTH),
        r#"{"type":"string"}"#,
        &"}}".repeat(DEPTH),
    ]
    .concat();
    let versions =
        json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": 0}}]);
    let definition = json!({
        "metadata": {"name": "nests.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "nests", "kind": "Nest"},
            "versions": versions,
        },
    });
    let whole = definition.to_string();
    let whole = whole.replace(
        r#""openAPIV3Schema":0"#,
        &format!(r#""openAPIV3Schema":{schema}"#),
    );
    alone(async |server| {
        let made = ask("POST", DEFINITIONS).body(JSON, whole.clone());
        expect("nested rules", &[201], made, server).await;
        let nest =
            json!({"apiVersion": "example.com/v1", "kind": "Nest", "metadata": {"name": "a"}});
        let path = "/apis/example.com/v1/nests";
        let begun = std::time::Instant::now();
        while ask("GET", path).status(server).await == 404 {
            assert!(begun.elapsed() < super::PATIENCE, "nests are not served");
        }
        let answer = expect("an object", &[422], ask("POST", path).json(&nest), server).await;
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("failed rule: has(self.a)"), "{message}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_and_objects_do_not_multiply() {
    alone(async |server| {
        let listed: Vec<String> = (0..30_000).map(|number| format!("v{number}")).collect();
        let one_of = |count: usize| -> Vec<Value> {
            (0..count)
                .map(|number| json!({"maximum": number}))
                .collect()
        };
        let filled = with_properties(20_000, |_| json!({"type": "integer", "default": 1}));
        let spec = json!({"type": "object", "properties": {
            "listed": {"type": "array", "items": {"type": "string", "enum": listed}},
            "some": {"type": "array", "items": {"type": "integer", "anyOf": one_of(3_000)}},
            "filled": {"type": "array", "items": filled},
        }});
        let definition = widgets_with(spec, |spec| {
            let column = |path: &str| json!({"name": "c", "type": "string", "jsonPath": path});
            let path = format!(".spec{}.none", "..[*]".repeat(8));
            let columns = [column(&path), column(".metadata.name")];
            spec["versions"][0]["additionalPrinterColumns"] = json!(columns);
        });
        let request = ask("POST", DEFINITIONS).json(&definition);
        expect("the definition", &[201], request, server).await;
        until("widgets are served", async || {
            ask("GET", WIDGETS).status(server).await == 200
        })
        .await;

        let dry = format!("{WIDGETS}?dryRun=All");
        let last = list(100_000, |_| "\"v29999\"".to_owned());
        let last = widget("w", &format!(r#"{{"listed":[{last}]}}"#));
        let request = ask("POST", &dry).body(JSON, last);
        expect("an enumeration", &[201], request, server).await;

        let large = list(100_000, |_| "2999".to_owned());
        let large = widget("w", &format!(r#"{{"some":[{large}]}}"#));
        let request = ask("POST", &dry).body(JSON, large);
        let why = expect("alternatives", &[422], request, server).await;
        let why = why["message"].as_str().unwrap_or_default();
        assert!(why.contains("steps to validate"), "{why:.300}");

        let empty = list(300_000, |_| "{}".to_owned());
        let empty = widget("w", &format!(r#"{{"filled":[{empty}]}}"#));
        let answer = ask("POST", WIDGETS).body(JSON, empty).send(server).await;
        assert!(answer.status >= 400, "{}", answer.status);

        let many = list(500, |_| "\"v1\"".to_owned());
        let many = widget("w", &format!(r#"{{"listed":[{many}]}}"#));
        let request = ask("POST", WIDGETS).body(JSON, many);
        expect("an object", &[201], request, server).await;
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = ask("GET", WIDGETS).header("accept", table);
        let rows = expect("a table", &[200], request, server).await;
        assert_eq!(rows["rows"][0]["cells"][1], Value::Null);
    })
    .await;
}
