//! The cost of knowing the user of a token, and of a decision: RBAC with thousands of bindings, and
//! a change of one of them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use criterion::{Criterion, criterion_group, criterion_main};
use futures::executor::block_on;
use http::HeaderMap;
use jiff::Timestamp;
use keelson::internals::auth::authn::Authenticator as _;
use keelson::internals::auth::{
    Attributes, Authorizer, Chain, Link, ObjectSource, PrivilegedGroup, RbacStore, User, authn, jwt,
};
use keelson::internals::base::Clock;
use keelson::internals::meta::{Gvr, Object, Value, json};

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
    let store = Arc::new(store());
    let chain = Chain(vec![
        Link::implicit(Arc::new(PrivilegedGroup)),
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

/// A source with one service account.
struct Accounts;

#[async_trait]
impl ObjectSource for Accounts {
    async fn get(&self, _: &Gvr, namespace: &str, name: &str) -> Option<Object> {
        let meta = json!({"namespace": namespace, "name": name, "uid": "uid"});
        Some(object(json!({"metadata": meta})))
    }
}

/// A key as PEM, and the public one.
fn key() -> (String, String) {
    let pair = rcgen::KeyPair::generate().expect("a key");
    (pair.serialize_pem(), pair.public_key_pem())
}

fn authentication(c: &mut Criterion) {
    let clock = Clock::manual(Timestamp::UNIX_EPOCH);
    let (private, public) = key();
    let signing = authn::SigningKey::from_pem(private.as_bytes()).expect("a key");
    let issuer = authn::Issuer::new("https://own", signing, clock.clone());
    let audiences = ["https://own".to_owned()];
    let spec = authn::TokenSpec {
        namespace: "default",
        account: jwt::Ref {
            name: "robot".to_owned(),
            uid: "uid".to_owned(),
        },
        audiences: &audiences,
        expiration_seconds: 1 << 40,
        ..authn::TokenSpec::default()
    };
    let token = block_on(issuer.issue(&spec)).expect("a token").token;
    let accounts = authn::ServiceAccounts {
        issuers: audiences.to_vec(),
        keys: authn::KeySet::from_pem(&[public]).expect("keys"),
        external: None,
        api_audiences: audiences.to_vec(),
        lookup: true,
        objects: Arc::new(Accounts),
    };
    let options = authn::Options {
        service_accounts: Some(accounts),
        api_audiences: audiences.to_vec(),
        ..authn::Options::default()
    };
    let chain = authn::Chain::new(options, clock.clone());
    let (mut headers, peer) = (HeaderMap::new(), authn::Peer::default());
    let value = format!("Bearer {token}").parse().expect("a header");
    headers.insert("authorization", value);
    let ask = || {
        let credentials = authn::Credentials {
            path: "/api",
            headers: &headers,
            peer: &peer,
        };
        block_on(chain.authenticate(&credentials))
    };
    let user = ask().expect("valid").expect("known").user;
    assert_eq!(user.name, "system:serviceaccount:default:robot");
    c.bench_function("authenticate: a token that is cached", |b| {
        b.iter(|| black_box(ask()));
    });
    c.bench_function("authenticate: a token that is verified", |b| {
        b.iter(|| {
            // The entry of the cache is too old.
            clock.advance(Duration::from_secs(11));
            black_box(ask())
        });
    });
}

criterion_group!(benches, authentication, authorization);
criterion_main!(benches);
