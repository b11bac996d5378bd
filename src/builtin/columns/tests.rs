//! The rows of built-in kinds, against rows recorded from kube-apiserver v1.36.

use jiff::Timestamp;

use super::*;
use crate::builtin::printer;
use crate::meta::{Value, json};
use crate::registry::table::PRINTED_METADATA;

/// Each line is a group, a resource, an object (what a client sent, completed where defaults show)
/// and its cells.
const ROWS: &str = include_str!("../../../tests/vectors/table-rows.json");

#[test]
fn rows_are_as_recorded() {
    let vectors: Vec<(String, String, Value, Value)> =
        serde_json::from_str(ROWS).expect("the vectors are JSON");
    assert!(vectors.len() > 40);
    let mut wrong = Vec::new();
    for (group, resource, object, want) in vectors {
        let object = Object::from_value(object).expect("an object");
        let printer = printer(&group, &resource);
        let cells = shown(&printer.cells(&object), Timestamp::UNIX_EPOCH);
        if cells != want {
            wrong.push(format!("{resource}: {cells}\n     want: {want}"));
        }
        let extra = usize::from(resource == "ipaddresses");
        assert_eq!(
            printer.columns().len() + extra,
            cells.as_array().map_or(0, Vec::len),
            "{resource}"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rows_need_no_more_than_their_paths() {
    use crate::codec::{from_value, protobuf};
    let vectors: Vec<(String, String, Value, Value)> =
        serde_json::from_str(ROWS).expect("the vectors are JSON");
    let mut compared = 0;
    for (group, resource, object, _) in vectors {
        let schema = crate::schema::builtin();
        let Some(decl) = schema
            .resources
            .iter()
            .find(|decl| decl.group == group && decl.resource == resource)
        else {
            continue;
        };
        let served = crate::meta::Gvk::new(&decl.group, &decl.version, &decl.kind);
        let ty = schema
            .get(decl.storage_gvk.as_ref().unwrap_or(&served))
            .expect("a kind");
        let Ok(whole) = from_value(&object, ty) else {
            panic!("{resource}: {object}")
        };
        let bytes = protobuf::encode(&whole.object, ty);
        let paths = [PRINTED_METADATA, printer(&group, &resource).paths()];
        let part =
            protobuf::Projection::new(ty, paths.iter().flat_map(|paths| paths.split_whitespace()));
        let (part, whole) = (
            protobuf::decode_part(&bytes, ty, &part).expect("valid"),
            protobuf::decode(&bytes, ty).expect("valid"),
        );
        let printer = printer(&group, &resource);
        assert_eq!(printer.cells(&part), printer.cells(&whole), "{resource}");
        assert_eq!(
            printer.condition(&part),
            printer.condition(&whole),
            "{resource}"
        );
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn every_path_leads_to_a_field() {
    let schema = crate::schema::builtin();
    for decl in schema
        .resources
        .iter()
        .filter(|decl| !decl.storage_prefix.is_empty())
    {
        let served = crate::meta::Gvk::new(&decl.group, &decl.version, &decl.kind);
        let ty = schema
            .get(decl.storage_gvk.as_ref().unwrap_or(&served))
            .expect("a kind");
        for path in printer(&decl.group, &decl.resource)
            .paths()
            .split_whitespace()
        {
            let mut at = Some(ty);
            for name in path.split('.') {
                let found = at.unwrap_or_else(|| panic!("{}: {path} leads too far", decl.resource));
                let field = found
                    .field(name)
                    .unwrap_or_else(|| panic!("{}: no {name} in {path}", decl.resource));
                at = match &field.kind {
                    crate::schema::Kind::Message(id) => Some(found.to(*id)),
                    crate::schema::Kind::List(item, _) => match **item {
                        crate::schema::Kind::Message(id) => Some(found.to(id)),
                        _ => None,
                    },
                    _ => None,
                };
            }
        }
    }
}

fn shown(cells: &[Cell], now: Timestamp) -> Value {
    cells.iter().map(|cell| cell.at(now)).collect()
}

fn cells(group: &str, resource: &str, object: Value) -> Value {
    let now = "2026-01-01T01:00:00Z".parse().expect("a time");
    shown(
        &printer(group, resource).cells(&Object::from_value(object).expect("an object")),
        now,
    )
}

#[test]
fn ages_count_from_creation() {
    let lease = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:55:55Z"}, "spec": {"holderIdentity": "h"}});
    assert_eq!(
        cells("coordination.k8s.io", "leases", lease),
        json!(["a", "h", "4m5s"])
    );
    let role = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:55:55Z"}});
    assert_eq!(
        cells("rbac.authorization.k8s.io", "roles", role),
        json!(["a", "2026-01-01T00:55:55Z"])
    );
}

#[test]
fn restarts_say_when() {
    let state = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:50:00Z"}});
    let status = json!({"phase": "Running", "containerStatuses": [
        {"name": "c", "ready": true, "restartCount": 2, "state": {"running": {}}, "lastState": state}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": status});
    let row = cells("", "pods", pod);
    assert_eq!(
        (&row[1], &row[2], &row[3]),
        (&json!("1/1"), &json!("Running"), &json!("2 (10m ago)"))
    );
}

#[test]
fn long_lists_are_cut() {
    let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    let subsets = json!([{"addresses": addresses, "ports": [{"port": 80}, {"port": 443}]}]);
    let endpoints = json!({"metadata": {"name": "a"}, "subsets": subsets});
    assert_eq!(
        cells("", "endpoints", endpoints)[1],
        "10.0.0.1:80,[fd00::1]:80,10.0.0.1:443 + 1 more..."
    );
    let slice = json!({"metadata": {"name": "a"}, "addressType": "IPv4", "ports": [{"name": "any"}, {"port": 1}, {}],
        "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}]});
    assert_eq!(
        cells("discovery.k8s.io", "endpointslices", slice),
        json!([
            "a",
            "IPv4",
            "any,1,*",
            "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...",
            "<unknown>"
        ])
    );
    let rules = json!([{"host": "a"}, {}, {"host": "b"}, {"host": "c"}, {"host": "d"}]);
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"rules": rules}, "status": {"loadBalancer": {"ingress": [{"hostname": "z"}, {"ip": "1.1.1.1"}]}}});
    assert_eq!(
        cells("networking.k8s.io", "ingresses", ingress),
        json!([
            "i",
            "<none>",
            "a,b,c + 2 more...",
            "1.1.1.1,z",
            "80",
            "<unknown>"
        ])
    );
}

#[test]
fn flow_schemas_are_listed_as_they_are_tried() {
    let schema = |name: &str, precedence: i64| {
        Object::from_value(
            json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}}),
        )
        .expect("an object")
    };
    let order = printer("flowcontrol.apiserver.k8s.io", "flowschemas")
        .order()
        .expect("an order");
    let mut list = [schema("b", 5), schema("c", 1), schema("a", 5)];
    list.sort_by(order);
    assert_eq!(
        list.each_ref().map(|object| object.name().to_owned()),
        ["c", "a", "b"]
    );
}
