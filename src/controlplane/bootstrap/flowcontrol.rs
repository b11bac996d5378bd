//! Flow schemas and priority levels of a fresh server (apiserver `apis/flowcontrol/bootstrap`).

use super::rbac::Repair;
use crate::meta::{Gvr, Object, Value, go, json};
use crate::options::flags::parse_bool;

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Priority levels that queue: name, shares, lendable percentage, queues, hand size.
const LEVELS: [(&str, i64, i64, i64, i64); 6] = [
    ("global-default", 20, 50, 128, 6),
    ("leader-election", 10, 0, 16, 4),
    ("node-high", 40, 25, 64, 6),
    ("system", 30, 33, 64, 6),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
];
const QUEUE_LENGTH: i64 = 50;
/// The flow schemas and levels that are put right in any case.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];
/// The annotation of objects that the server keeps.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The parts of the exempt level that are the operator's.
const FREE: [&str; 2] = ["nominalConcurrencyShares", "lendablePercent"];

/// The annotation of an object, if it is a boolean.
fn auto_update(object: &Object) -> Option<bool> {
    let value = object.annotations()?.get(AUTO_UPDATE)?;
    parse_bool(value.as_str()?)
}

/// Puts right an object that exists: its spec, unless an operator has taken it over, and the
/// annotation that says whose it is (kube-apiserver `registry/flowcontrol/ensurer/strategy.go`).
pub(super) fn revise(existing: &Object, expected: &Object) -> Repair {
    // Without an annotation, whoever has changed the spec wants to keep it.
    let updates = MANDATORY.contains(&existing.name())
        || auto_update(existing).unwrap_or(existing.generation() == 1);
    let mut revised = existing.clone();
    if updates && let Some(spec) = expected.get("spec") {
        let mut spec = spec.clone();
        if let Some(exempt) = spec.get_mut("exempt").and_then(Value::as_object_mut) {
            for name in FREE {
                if let Some(own) = existing.at(&format!("/spec/exempt/{name}")) {
                    exempt.insert(name, own.clone());
                }
            }
        }
        revised.insert("spec", spec);
    }
    if auto_update(existing) != Some(updates) {
        revised.set_annotation(AUTO_UPDATE, if updates { "true" } else { "false" });
    }
    if revised == *existing {
        return Repair::Nothing;
    }
    Repair::Update(revised)
}

/// Reports whether an object was made by a server and is not any more.
pub fn is_unwanted(object: &Object) -> bool {
    let wanted = || {
        let (schemas, levels) = (system_schemas(), workload_schemas());
        match object.kind() {
            "FlowSchema" => schemas
                .iter()
                .chain(&levels)
                .any(|one| one.0 == object.name()),
            _ => {
                MANDATORY.contains(&object.name())
                    || LEVELS.iter().any(|one| one.0 == object.name())
            }
        }
    };
    auto_update(object) == Some(true) && !wanted()
}

fn new(kind: &str, name: &str, spec: Value) -> Object {
    let mut object = super::object(&format!("{GROUP}/v1"), kind, "", name);
    object
        .metadata_mut()
        .insert("annotations", json!({(AUTO_UPDATE): "true"}));
    object.insert("spec", spec);
    object
}

/// Every PriorityLevelConfiguration.
pub(super) fn priority_levels() -> Vec<(Gvr, Object)> {
    let mut specs = vec![
        (
            "exempt",
            json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
        ),
        (
            "catch-all",
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}, "lendablePercent": 0}}),
        ),
    ];
    for (name, shares, lendable, queues, hand) in LEVELS {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH});
        let response = json!({"type": "Queue", "queuing": queuing});
        let limited = json!({"nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable});
        specs.push((name, json!({"type": "Limited", "limited": limited})));
    }
    let gvr = Gvr::new(GROUP, "v1", "prioritylevelconfigurations");
    specs
        .into_iter()
        .map(|(name, spec)| (gvr.clone(), new("PriorityLevelConfiguration", name, spec)))
        .collect()
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

/// Every service account of kube-system.
fn system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

/// A rule that matches all requests of the subjects.
fn everything(subjects: Value) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

/// A FlowSchema: name, priority level, precedence, distinguisher (empty for none), rule.
type Schema = (&'static str, &'static str, i64, &'static str, Value);

fn everybody() -> Value {
    json!([
        group("system:unauthenticated"),
        group("system:authenticated")
    ])
}

/// Returns the FlowSchemas of masters, probes, leader election and nodes.
fn system_schemas() -> Vec<Schema> {
    let leases = |verbs: Value| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    let nodes = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true, "namespaces": ["*"]});
    let electors = json!([
        user("system:kube-controller-manager"),
        user("system:kube-scheduler"),
        system_accounts()
    ]);
    let probes = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]);
    vec![
        (
            "exempt",
            "exempt",
            1,
            "",
            everything(json!([group("system:masters")])),
        ),
        (
            "probes",
            "exempt",
            2,
            "",
            json!({"subjects": everybody(), "nonResourceRules": probes}),
        ),
        (
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            json!({"subjects": electors, "resourceRules": [leases(json!(["get", "create", "update"]))]}),
        ),
        (
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            json!({"subjects": [group("system:nodes")], "resourceRules": [nodes, leases(json!(["*"]))]}),
        ),
        (
            "system-nodes",
            "system",
            500,
            "ByUser",
            everything(json!([group("system:nodes")])),
        ),
    ]
}

/// Returns the FlowSchemas of controllers, service accounts and all others.
fn workload_schemas() -> Vec<Schema> {
    vec![
        (
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            everything(json!([user("system:kube-controller-manager")])),
        ),
        (
            "kube-scheduler",
            "workload-high",
            800,
            "ByNamespace",
            everything(json!([user("system:kube-scheduler")])),
        ),
        (
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            everything(json!([system_accounts()])),
        ),
        (
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            everything(json!([group("system:serviceaccounts")])),
        ),
        (
            "global-default",
            "global-default",
            9900,
            "ByUser",
            everything(everybody()),
        ),
        (
            "catch-all",
            "catch-all",
            10000,
            "ByUser",
            everything(everybody()),
        ),
    ]
}

/// Returns the condition of a FlowSchema that names a priority level, which exists or does not.
/// `now` is RFC 3339.
pub fn dangling(level: &str, exists: bool, now: &str) -> Value {
    let (status, reason, what) = if exists {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {} {what}",
        go::quote(level)
    );
    json!({"type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}

/// Every FlowSchema, with the status condition that its priority level exists. `now` is RFC 3339.
pub(super) fn flow_schemas(now: &str) -> Vec<(Gvr, Object, Value)> {
    let gvr = Gvr::new(GROUP, "v1", "flowschemas");
    let one = |(name, level, precedence, distinguisher, rule): Schema| {
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence});
        if !distinguisher.is_empty() {
            spec["distinguisherMethod"] = json!({"type": distinguisher});
        }
        spec["rules"] = json!([rule]);
        (
            gvr.clone(),
            new("FlowSchema", name, spec),
            json!({"conditions": [dangling(level, true, now)]}),
        )
    };
    let all = system_schemas().into_iter().chain(workload_schemas());
    all.map(one).collect()
}
