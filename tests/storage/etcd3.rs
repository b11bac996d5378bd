//! Tests for etcd only: broken connections, transactions of others, leases.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, PutOptions, Txn as Transaction, TxnOp};
use futures::StreamExt;
use keelson::internals::storage::{Config, Etcd3};
use keelson::internals::storage::{Storage, StorageError, WatchEvent};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Backend, bytes, connect, done, events, next, revision};
use crate::etcd::{Etcd, Tls};

async fn start() -> Etcd {
    tokio::task::spawn_blocking(Etcd::start).await.unwrap()
}

/// A port that leads to another one, until the connections are cut.
struct Proxy {
    endpoint: String,
    cut: tokio::sync::watch::Sender<u64>,
}

impl Proxy {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let cut = tokio::sync::watch::Sender::new(0);
        let cuts = cut.subscribe();
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                connections.spawn(async move {
                    let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { endpoint, cut }
    }

    fn cut(&self) {
        self.cut.send_modify(|n| *n += 1);
    }
}

#[tokio::test]
async fn a_watch_goes_on_over_broken_connections() {
    let etcd = start().await;
    let proxy = Proxy::to(etcd.port()).await;
    let (direct, through) = (
        connect(&etcd.endpoint()).await,
        connect(&proxy.endpoint).await,
    );
    let mut stream = through.watch("/", 1).await.unwrap();
    let mut at = done(direct.create("/n", bytes("0"), None).await);
    let mut told = events(&mut stream, 1).await;
    for i in 1..60 {
        if i % 10 == 0 {
            proxy.cut();
        }
        at = done(direct.update("/n", bytes(&i.to_string()), at, None).await);
        if i % 7 == 0 {
            told.extend(events(&mut stream, i + 1 - told.len()).await);
        }
    }
    told.extend(events(&mut stream, 60 - told.len()).await);
    assert!(
        told.iter().map(revision).eq(2..62),
        "each revision once and in order"
    );
    // Reads find the way by themselves, too.
    proxy.cut();
    assert_eq!(through.get("/n").await.unwrap().unwrap().mod_revision, at);
}

#[tokio::test]
async fn compaction_while_away_ends_the_watch() {
    let etcd = start().await;
    let proxy = Proxy::to(etcd.port()).await;
    let (direct, through) = (
        connect(&etcd.endpoint()).await,
        connect(&proxy.endpoint).await,
    );
    let at = done(direct.create("/n", bytes("0"), None).await);
    let at = done(direct.update("/n", bytes("1"), at, None).await);
    direct.compact(at).await.unwrap();
    let mut stream = through.watch("/", 1).await.unwrap();
    assert_eq!(
        next(&mut stream).await,
        Err(StorageError::Compacted { oldest: Some(at) })
    );
}

/// A watch ends that goes on from a revision that etcd has lost, whether it was on its way when
/// that happened or not, and whether anything had happened to its keys or not. A revision that
/// etcd never had may still come.
#[tokio::test]
async fn watches_that_go_on_from_lost_revisions_end() {
    let mut etcd = start().await;
    let store = connect(&etcd.endpoint()).await;
    let mut at = 1;
    for name in ["/a", "/b", "/c"] {
        at = done(store.create(name, bytes("1"), None).await);
    }
    let mut idle = store.watch("/idle/", at).await.unwrap();
    assert!(futures::poll!(idle.next()).is_pending());
    let restart = move || {
        etcd.restart_empty();
        etcd
    };
    let _etcd = tokio::task::spawn_blocking(restart).await.unwrap();
    let lost = Err(StorageError::Restored { was: at });
    assert_eq!(next(&mut idle).await, lost);
    assert_eq!(next(&mut store.watch("/", at).await.unwrap()).await, lost);
    let mut late = store.watch_without_previous("/", at).await.unwrap();
    assert_eq!(next(&mut late).await, lost);

    let mut future = store.watch("/", at + 1).await.unwrap();
    assert_eq!(next(&mut future).await, lost, "it is beyond what is lost");
    let mut now = store.watch("/", 1).await.unwrap();
    let made = done(store.create("/a", bytes("2"), None).await);
    assert_eq!(next(&mut now).await.map(|event| revision(&event)), Ok(made));
}

#[tokio::test]
async fn a_consumer_that_stops_for_long_loses_nothing() {
    let b = Backend::fresh_etcd3().await;
    let mut stream = b.watch(1).await;
    let mut at = b.create("n", "0").await;
    let mut told = events(&mut stream, 1).await;
    // More than the queue of the watch holds.
    for i in 1..1500 {
        at = b.update("n", &i.to_string(), at).await;
    }
    told.extend(events(&mut stream, 1499).await);
    assert!(
        told.iter().map(revision).eq(2..=at),
        "each revision once and in order"
    );
}

/// kube-apiserver writes one key at a time, but others need not; nor does a lease that ends.
#[tokio::test]
async fn events_of_one_revision_come_together() {
    const KEYS: usize = 100;
    let etcd = start().await;
    let (store, mut client) = (
        connect(&etcd.endpoint()).await,
        Client::connect([etcd.endpoint()], None).await.unwrap(),
    );
    let mut stream = store.watch("/", 1).await.unwrap();
    // With the values before, the second is several megabytes.
    for fill in [1, 2] {
        let puts: Vec<_> = (0..KEYS)
            .map(|i| TxnOp::put(format!("/{i:03}"), vec![fill; 14_000], None))
            .collect();
        client.txn(Transaction::new().and_then(puts)).await.unwrap();
        store.request_progress().await.unwrap();
    }
    let mut told = Vec::new();
    while told.len() < 2 * KEYS {
        match next(&mut stream).await.unwrap() {
            WatchEvent::Progress(at) => {
                assert!(told.len() % KEYS == 0 && at == 1 + (told.len() / KEYS) as i64)
            }
            event => told.push(event),
        }
    }
    assert!(
        told.iter()
            .map(revision)
            .eq((0..2 * KEYS).map(|i| 2 + (i / KEYS) as i64))
    );
    assert!(
        told[KEYS..]
            .iter()
            .all(|e| matches!(e, WatchEvent::Put { previous: Some(p), .. } if p.value[0] == 1))
    );
}

#[tokio::test]
async fn keys_share_leases() {
    let etcd = start().await;
    let (store, mut client) = (
        connect(&etcd.endpoint()).await,
        Client::connect([etcd.endpoint()], None).await.unwrap(),
    );
    let hour = Duration::from_secs(3600);
    for i in 0..10 {
        done(store.create(&format!("/{i}"), bytes("x"), Some(hour)).await);
    }
    let leases = client.leases().await.unwrap();
    let [lease] = leases.leases() else {
        panic!("{leases:?}")
    };
    let left = client
        .lease_time_to_live(lease.id(), None)
        .await
        .unwrap()
        .ttl();
    assert!((3600..=3660).contains(&left), "{left}");
    // One that somebody revoked is replaced.
    client.lease_revoke(lease.id()).await.unwrap();
    done(store.create("/0", bytes("x"), Some(hour)).await);
    // Another time to live is another lease.
    done(store.create("/1", bytes("x"), Some(2 * hour)).await);
    done(store.create("/1b", bytes("x"), Some(hour)).await);
    assert_eq!(
        client.leases().await.unwrap().leases().len(),
        2,
        "the first is not forgotten for it"
    );
    // What kube-apiserver left with a lease of its own is nothing special.
    let lease = client.lease_grant(100, None).await.unwrap().id();
    client
        .put("/2", "x", Some(PutOptions::new().with_lease(lease)))
        .await
        .unwrap();
    let at = store.get("/2").await.unwrap().unwrap().mod_revision;
    done(store.update("/2", bytes("y"), at, None).await);
    client.lease_revoke(lease).await.unwrap();
    assert_eq!(store.get("/2").await.unwrap().unwrap().value, bytes("y"));
}

#[tokio::test]
async fn without_etcd_every_call_fails_in_time() {
    // Bound, so that nobody else takes it, and not listened at.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let endpoints = vec![format!("http://127.0.0.1:{port}")];
    let short = Duration::from_secs(2);
    let config = Config {
        endpoints,
        request_timeout: short,
        health_timeout: short,
        ..Config::default()
    };
    let store = Arc::new(Etcd3::connect(config).await.unwrap());
    let outcomes = [
        store.get("/a").await.map(drop),
        store.create("/a", bytes("x"), None).await.map(drop),
        store.create("/a", bytes("x"), Some(short)).await.map(drop),
        store.delete("/a", 7).await.map(drop),
        store.current_revision().await.map(drop),
        store.check_health().await,
    ];
    for outcome in outcomes {
        assert!(
            matches!(outcome, Err(StorageError::Unavailable(_))),
            "{outcome:?}"
        );
    }
}

/// As kubeadm sets it up: https, and a certificate from either side.
#[tokio::test]
async fn https_with_client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let tls = certificates(dir.path());
    let files = tls.clone();
    let etcd = tokio::task::spawn_blocking(|| Etcd::start_with(Some(files)))
        .await
        .unwrap();
    let config = Config {
        endpoints: vec![etcd.endpoint()],
        ca_file: Some(tls.ca),
        health_timeout: Duration::from_secs(30),
        ..Config::default()
    };
    let stranger = Etcd3::connect(config.clone()).await.unwrap();
    assert!(matches!(
        stranger.check_health().await,
        Err(StorageError::Unavailable(_))
    ));
    let config = Config {
        cert_file: Some(tls.cert),
        key_file: Some(tls.key),
        ..config
    };
    let store = Etcd3::connect(config.clone()).await.unwrap();
    assert_eq!(store.check_health().await, Ok(()));
    let mut stream = store.watch("/", 1).await.unwrap();
    let made = done(store.create("/a", bytes("x"), None).await);
    assert_eq!(revision(&events(&mut stream, 1).await[0]), made);
    let config = Config {
        ca_file: Some("/no/such/file".into()),
        ..config
    };
    let Err(StorageError::Internal(why)) = Etcd3::connect(config).await.map(drop) else {
        panic!("connected")
    };
    assert!(why.starts_with("cannot read /no/such/file: "), "{why}");
}

/// An authority, and one certificate of it that serves both sides.
fn certificates(dir: &std::path::Path) -> Tls {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa,
        KeyPair,
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&key, &ca).unwrap();
    let write = |name: &str, pem: String| {
        std::fs::write(dir.join(name), pem).unwrap();
        dir.join(name)
    };
    Tls {
        ca: write("ca.crt", ca.pem()),
        cert: write("etcd.crt", cert.pem()),
        key: write("etcd.key", key.serialize_pem()),
    }
}
