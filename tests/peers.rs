//! Several servers on one etcd: each is an endpoint of the `kubernetes` service for as long as it
//! lives. One server on two etcds.

#![allow(clippy::unwrap_used)]

mod support;

use etcd_client::{GetOptions, PutOptions};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Event, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use support::etcd::Etcd;
use support::{ADMIN, Store, TestServer};

/// Returns the addresses in the endpoints of the service; the slice must have the same.
async fn addresses(server: &TestServer) -> Vec<String> {
    let client = server.client(ADMIN);
    let all = Api::<Endpoints>::namespaced(client.clone(), "default")
        .get("kubernetes")
        .await
        .unwrap();
    let all: Vec<String> = all
        .subsets
        .into_iter()
        .flatten()
        .flat_map(|set| set.addresses.unwrap_or_default())
        .map(|a| a.ip)
        .collect();
    let slice = Api::<EndpointSlice>::namespaced(client, "default")
        .get("kubernetes")
        .await
        .unwrap();
    let sliced: Vec<String> = slice
        .endpoints
        .into_iter()
        .flatten()
        .flat_map(|endpoint| endpoint.addresses)
        .collect();
    assert_eq!(all, sliced);
    all
}

/// The addresses that live by their keys in etcd, with the seconds that they have left.
async fn keys(etcd: &Etcd) -> Vec<(String, i64)> {
    const PREFIX: &str = "/registry/masterleases/";
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    let found = client
        .get(PREFIX, Some(GetOptions::new().with_prefix()))
        .await
        .unwrap();
    let mut keys = Vec::new();
    for kv in found.kvs() {
        let left = client
            .lease_time_to_live(kv.lease(), None)
            .await
            .unwrap()
            .ttl();
        keys.push((
            kv.key_str()
                .unwrap()
                .strip_prefix(PREFIX)
                .unwrap()
                .to_owned(),
            left,
        ));
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_endpoints_while_they_live() {
    let (folders, etcd) = (
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
        Etcd::start(),
    );
    let endpoint = etcd.endpoint();
    let first = TestServer::start_in(folders[0].path(), Store::Etcd(&endpoint)).await;
    assert_eq!(addresses(&first).await, ["10.0.0.1"]);
    let flags = ["--advertise-address=10.0.0.2"];
    let mut second =
        TestServer::start_with(folders[1].path(), Store::Etcd(&endpoint), &flags).await;
    for server in [&first, &second] {
        assert_eq!(addresses(server).await, ["10.0.0.1", "10.0.0.2"]);
    }
    let living = keys(&etcd).await;
    assert_eq!(
        living
            .iter()
            .map(|(address, _)| address.as_str())
            .collect::<Vec<_>>(),
        ["10.0.0.1", "10.0.0.2"]
    );
    assert!(
        living.iter().all(|(_, left)| (0..=16).contains(left)),
        "{living:?}"
    );
    second.terminate().await;
    assert_eq!(addresses(&first).await, ["10.0.0.1"]);
    assert_eq!(keys(&etcd).await.len(), 1);

    // One that does not keep the endpoints changes nothing about them, and makes none.
    let flags = [
        "--advertise-address=10.0.0.3",
        "--endpoint-reconciler-type=none",
    ];
    let mut third = TestServer::start_with(folders[1].path(), Store::Etcd(&endpoint), &flags).await;
    assert_eq!(addresses(&third).await, ["10.0.0.1"]);
    third.terminate().await;
    assert_eq!(addresses(&first).await, ["10.0.0.1"]);
}

/// A server that died without a word is known to be gone when its key is; what others put into the
/// store is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_finds_who_lives_and_puts_right_what_is_missing() {
    let (folder, etcd) = (tempfile::tempdir().unwrap(), Etcd::start());
    let endpoint = etcd.endpoint();
    let mut server = TestServer::start_in(folder.path(), Store::Etcd(&endpoint)).await;
    // What kube-apiserver at 10.0.0.7 would have written, had it just started.
    let mut client = etcd_client::Client::connect([endpoint.clone()], None)
        .await
        .unwrap();
    let mine = client
        .get("/registry/masterleases/10.0.0.1", None)
        .await
        .unwrap()
        .kvs()[0]
        .value()
        .to_vec();
    let theirs: Vec<u8> = String::from_utf8_lossy(&mine)
        .replace("10.0.0.1", "10.0.0.7")
        .into_bytes();
    let lease = client.lease_grant(600, None).await.unwrap().id();
    client
        .put(
            "/registry/masterleases/10.0.0.7",
            theirs,
            Some(PutOptions::new().with_lease(lease)),
        )
        .await
        .unwrap();
    let services: Api<Service> = Api::namespaced(server.client(ADMIN), "default");
    let before = services.get("kubernetes").await.unwrap();
    services
        .delete("kubernetes", &DeleteParams::default())
        .await
        .unwrap();
    server.kill();

    let mut server = TestServer::start_in(folder.path(), Store::Etcd(&endpoint)).await;
    assert_eq!(addresses(&server).await, ["10.0.0.1", "10.0.0.7"]);
    let services: Api<Service> = Api::namespaced(server.client(ADMIN), "default");
    let after = services.get("kubernetes").await.unwrap();
    let cluster_ip = |service: Service| service.spec.unwrap().cluster_ip;
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(cluster_ip(after), cluster_ip(before));
    client.lease_revoke(lease).await.unwrap();
    server.kill();

    let server = TestServer::start_in(folder.path(), Store::Etcd(&endpoint)).await;
    assert_eq!(addresses(&server).await, ["10.0.0.1"]);
    // The identity lease is one, and renewed by each start.
    let leases: Api<Lease> = Api::namespaced(server.client(ADMIN), "kube-system");
    let identity = leases
        .list(&ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver"))
        .await
        .unwrap()
        .items;
    assert_eq!(identity.len(), 1);
    let spec = identity[0].spec.clone().unwrap();
    let holder = format!("{}_", identity[0].name_any());
    assert!(
        spec.holder_identity.unwrap().starts_with(&holder)
            && spec.renew_time.unwrap().0
                > identity[0].metadata.creation_timestamp.clone().unwrap().0
    );
    let again = leases.create(&PostParams::default(), &identity[0]).await;
    assert!(again.is_err(), "it is there");
}

/// The names below a prefix of keys.
async fn names(etcd: &Etcd, prefix: &str) -> Vec<String> {
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    let found = client
        .get(
            prefix,
            Some(GetOptions::new().with_prefix().with_keys_only()),
        )
        .await
        .unwrap();
    found
        .kvs()
        .iter()
        .map(|kv| {
            kv.key_str()
                .unwrap()
                .strip_prefix(prefix)
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_in_an_etcd_of_their_own() {
    let (folder, common, events) = (tempfile::tempdir().unwrap(), Etcd::start(), Etcd::start());
    let flags = [
        &*format!("--etcd-servers-overrides=/events#{}", events.endpoint()),
        "--etcd-prefix=custom/",
    ];
    let server =
        TestServer::start_with(folder.path(), Store::Etcd(&common.endpoint()), &flags).await;
    let client = server.client(ADMIN);
    let mut event = Event {
        reason: Some("Tested".into()),
        ..Event::default()
    };
    event.metadata.name = Some("one".into());
    event.involved_object.namespace = Some("default".into());
    let api: Api<Event> = Api::namespaced(client.clone(), "default");
    let made = api.create(&PostParams::default(), &event).await.unwrap();
    let mut other = ConfigMap::default();
    other.metadata.name = Some("other".into());
    Api::<ConfigMap>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &other)
        .await
        .unwrap();

    assert_eq!(names(&events, "/custom/events/").await, ["default/one"]);
    assert_eq!(
        names(&events, "/").await,
        ["custom/events/default/one"],
        "nothing but events is there"
    );
    assert_eq!(names(&common, "/custom/events/").await, [""; 0]);
    assert_eq!(
        names(&common, "/custom/configmaps/default/").await,
        ["other"]
    );
    assert_eq!(names(&common, "/registry").await, [""; 0]);
    // The other group's events are the same ones.
    let newer: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(client.clone(), "default");
    assert_eq!(
        newer.get("one").await.unwrap().reason.as_deref(),
        Some("Tested")
    );
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        (list.items.len(), list.items[0].resource_version()),
        (1, made.resource_version())
    );
    let health = |path: &'static str| {
        client.request_text(http::Request::get(path).body(Vec::new()).unwrap())
    };
    for check in [
        "/readyz/etcd-override-readiness-0",
        "/livez/etcd-override-0",
    ] {
        assert_eq!(health(check).await.unwrap(), "ok", "{check}");
    }
    assert!(
        health("/livez/etcd-override-1").await.is_err(),
        "there is one only"
    );
}
