//! The cost of a decision: RBAC with thousands of bindings, and a change of one of them.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use futures::executor::block_on;
use keelson::internals::auth::{
    Attributes, Authorizer, Chain, Link, PrivilegedGroup, RbacStore, User,
};
use keelson::internals::meta::{Object, Value, json};

/// The number of bindings, half of them of the cluster, each of another user.
const BINDINGS: usize = 10_000;

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn binding(number: usize) -> Object {
    let mut metadata = json!({"name": format!("b{number}")});
    let kind = match number % 2 {
        0 => "ClusterRoleBinding",
        _ => "RoleBinding",
    };
    if kind == "RoleBinding" {
        metadata["namespace"] = format!("ns{}", number % 100).into();
    }
    object(json!({
        "kind": kind, "metadata": metadata,
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": format!("user{number}")}],
    }))
}

fn store() -> RbacStore {
    let store = RbacStore::default();
    store.upsert(&object(json!({
        "kind": "ClusterRole", "metadata": {"name": "view"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "services", "configmaps"], "verbs": ["get", "list", "watch"]}],
    })));
    (0..BINDINGS).for_each(|number| store.upsert(&binding(number)));
    store
}

fn asked(user: &str) -> Attributes {
    let groups = ["system:serviceaccounts", "system:authenticated"];
    let user = User {
        name: user.to_owned(),
        groups: groups.map(str::to_owned).to_vec(),
        ..User::default()
    };
    Attributes {
        user: user.into(),
        verb: "get".to_owned(),
        version: "v1".to_owned(),
        resource: "configmaps".to_owned(),
        namespace: "ns51".to_owned(),
        name: "c".to_owned(),
        resource_request: true,
        ..Attributes::default()
    }
}

fn authorization(c: &mut Criterion) {
    let store = std::sync::Arc::new(store());
    let chain = Chain(vec![
        Link::implicit(std::sync::Arc::new(PrivilegedGroup)),
        Link::new("RBAC", "rbac", store.clone()),
    ]);
    let (allowed, refused) = (asked("user9951"), asked("nobody"));
    assert!(block_on(chain.authorize(&allowed)).is_allowed());
    assert!(!block_on(chain.authorize(&refused)).is_allowed());
    c.bench_function("rbac: allowed, of 10000 bindings", |b| {
        b.iter(|| block_on(chain.authorize(black_box(&allowed))));
    });
    c.bench_function("rbac: not allowed, of 10000 bindings", |b| {
        b.iter(|| block_on(chain.authorize(black_box(&refused))));
    });
    let one = binding(7);
    c.bench_function("rbac: a binding of 10000 changes", |b| {
        b.iter(|| store.upsert(black_box(&one)));
    });
}

criterion_group!(benches, authorization);
criterion_main!(benches);
