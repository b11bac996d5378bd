//! Stores that hold undecodable objects, disconnect, fill up or are restored: the server's view
//! stays true, and it reports what it cannot do.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::{BodyExt, Full};
use keelson::internals::storage::Embedded;
use keelson::internals::storage::Storage;
use serde_json::{Value, json};

use super::support::etcd::Etcd;
use super::support::{ADMIN, Store, TestServer, USER, http as wire, until};
use super::{PATIENCE, ask};

/// Time limit for the server to notice a change, or to recover.
const NOTICED: Duration = Duration::from_secs(30);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that are no object, nor the beginning of one.
const GARBAGE: [&[u8]; 6] = [
    b"garbage",
    b"\xff\x00\x01\x80",
    b"k8s\0\xff\xff\xff",
    b"k8s\0",
    b"{\"kind\":",
    b"",
];
/// Objects that are put in their places, each under its own name.
const PLACES: [&str; 9] = [
    "roles/default/bad",
    "rolebindings/default/bad",
    "clusterroles/bad",
    "clusterrolebindings/bad",
    "resourcequotas/default/bad",
    "limitranges/default/bad",
    "pods/default/bad",
    "leases/kube-system/bad",
    "apiextensions.k8s.io/customresourcedefinitions/bads.example.com",
];
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Keys with bytes that are no object.
fn garbage() -> impl Iterator<Item = (String, &'static [u8])> {
    let all = GARBAGE
        .iter()
        .enumerate()
        .flat_map(|(number, bytes)| PLACES.map(|place| (place, number, *bytes)));
    all.map(|(place, number, bytes)| (format!("/registry/{place}{number}"), bytes))
}

/// The status of a GET; 0 where there is no answer.
async fn get(server: &TestServer, path: &str) -> u16 {
    wire::get_status(server.port(), path)
        .await
        .unwrap_or_default()
}

fn config_map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}})
}

fn binding(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-view"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
    })
}

/// Makes a namespace in which alice may look around.
async fn admit_alice(server: &TestServer) {
    assert_eq!(
        ask("POST", "/api/v1/namespaces")
            .json(&json!({"metadata": {"name": "team"}}))
            .status(server)
            .await,
        201
    );
    assert_eq!(
        ask("POST", &format!("{RBAC}/namespaces/team/rolebindings"))
            .json(&binding("look"))
            .status(server)
            .await,
        201
    );
    until("alice may look", async || alice(server).await == 200).await;
}

/// Returns the status of alice's read.
async fn alice(server: &TestServer) -> u16 {
    ask("GET", "/api/v1/namespaces/team/configmaps")
        .by(USER)
        .status(server)
        .await
}

/// With garbage in the store: what it is not in goes on, and what it is in says so.
async fn everything_else_goes_on(server: &TestServer) {
    for (path, status) in [
        ("/api/v1/namespaces/default/pods", 500),
        ("/api/v1/pods", 500),
        ("/api/v1/namespaces/team/pods", 200),
    ] {
        assert_eq!(ask("GET", path).status(server).await, status, "{path}");
    }
    for kind in [
        "clusterroles",
        "namespaces/default/roles",
        "rolebindings",
        "clusterrolebindings",
    ] {
        let (status, answer) = ask("GET", &format!("{RBAC}/{kind}")).answer(server).await;
        assert_eq!(status, 500, "{kind}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().contains("bad0"),
            "it names the key: {answer}"
        );
        assert_eq!(
            ask("GET", &format!("{RBAC}/{kind}?labelSelector=a%3Db"))
                .status(server)
                .await,
            500,
            "{kind}, selected"
        );
        assert_eq!(
            ask("GET", &format!("{RBAC}/{kind}?limit=1"))
                .status(server)
                .await,
            500,
            "{kind}, a page"
        );
    }
    for number in 0..GARBAGE.len() {
        assert_eq!(
            ask("GET", &format!("{RBAC}/clusterroles/bad{number}"))
                .status(server)
                .await,
            500
        );
    }
    // Quotas and limits that can be read still count; those that cannot hold nobody up.
    assert_eq!(
        ask("POST", "/api/v1/namespaces/default/configmaps")
            .json(&config_map("made", 10))
            .status(server)
            .await,
        201
    );
    let pod = json!({"metadata": {"name": "made"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let made = ask("POST", "/api/v1/namespaces/default/pods")
        .json(&pod)
        .answer(server)
        .await;
    assert!(
        made.0 == 201
            || made.0 == 403
                && made.1["message"]
                    .as_str()
                    .unwrap()
                    .contains("service account"),
        "{made:?}"
    );
    custom_resources_work(server).await;
    // Rights come and go.
    assert_eq!(alice(server).await, 200);
    assert_eq!(
        ask(
            "DELETE",
            &format!("{RBAC}/namespaces/team/rolebindings/look")
        )
        .status(server)
        .await,
        200
    );
    until("alice may no longer look", async || {
        alice(server).await == 403
    })
    .await;
    assert_eq!(
        ask("POST", &format!("{RBAC}/namespaces/team/rolebindings"))
            .json(&binding("again"))
            .status(server)
            .await,
        201
    );
    until("alice may look again", async || alice(server).await == 200).await;
    assert_eq!(
        ask("DELETE", "/api/v1/namespaces/team")
            .status(server)
            .await,
        200
    );
    let (_, mut namespace) = ask("GET", "/api/v1/namespaces/team").answer(server).await;
    namespace["spec"]["finalizers"] = json!([]);
    assert_eq!(
        ask("PUT", "/api/v1/namespaces/team/finalize")
            .json(&namespace)
            .status(server)
            .await,
        200
    );
    until("the namespace is gone", async || {
        ask("GET", "/api/v1/namespaces/team").status(server).await == 404
    })
    .await;
    assert_eq!(get(server, "/readyz").await, 200);
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
    for (key, _) in garbage().filter(|(key, _)| key.contains("roles/")) {
        assert_eq!(
            log.matches(&format!("{key}\"")).count() + log.matches(&format!("{key} ")).count(),
            1,
            "{key} is logged once:\n{log}"
        );
    }
}

async fn custom_resources_work(server: &TestServer) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": {"name": "goods.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "goods", "kind": "Good"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    assert_eq!(
        ask("POST", definitions)
            .json(&definition)
            .status(server)
            .await,
        201
    );
    let good = json!({"apiVersion": "example.com/v1", "kind": "Good", "metadata": {"name": "one"}});
    until("the kind is served", async || {
        ask("POST", "/apis/example.com/v1/goods")
            .json(&good)
            .status(server)
            .await
            == 201
    })
    .await;
    assert_eq!(
        ask("DELETE", &format!("{definitions}/goods.example.com"))
            .status(server)
            .await,
        200
    );
    until("the kind is gone", async || {
        ask("GET", &format!("{definitions}/goods.example.com"))
            .status(server)
            .await
            == 404
    })
    .await;
}

#[tokio::test]
async fn garbage_in_the_embedded_store_stops_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    admit_alice(&server).await;
    server.terminate().await;
    let store = Embedded::open(folder.path().join("data")).unwrap();
    for (key, bytes) in garbage() {
        store.create(&key, bytes.into(), None).await.unwrap();
    }
    drop(store);
    let server = TestServer::start_in(folder.path(), Store::Embedded).await;
    everything_else_goes_on(&server).await;
}

async fn on_etcd(folder: &Path) -> (Etcd, TestServer) {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let server = TestServer::start_in(folder, Store::Etcd(&etcd.endpoint())).await;
    (etcd, server)
}

#[tokio::test]
async fn garbage_in_etcd_under_a_running_server_stops_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (etcd, server) = on_etcd(folder.path()).await;
    admit_alice(&server).await;
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    for (key, bytes) in garbage() {
        client.put(key, bytes, None).await.unwrap();
    }
    everything_else_goes_on(&server).await;
}

/// A right that can no longer be read is none.
#[tokio::test]
async fn a_binding_that_turns_into_garbage_binds_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (etcd, server) = on_etcd(folder.path()).await;
    admit_alice(&server).await;
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    client
        .put("/registry/rolebindings/team/look", "garbage", None)
        .await
        .unwrap();
    until("alice may no longer look", async || {
        alice(&server).await == 403
    })
    .await;
}

#[tokio::test]
async fn etcd_goes_away_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut etcd, server) = on_etcd(folder.path()).await;
    admit_alice(&server).await;
    etcd.kill();
    until("it is not ready", async || {
        get(&server, "/readyz").await == 500
    })
    .await;
    let (status, refused) = ask("POST", "/api/v1/namespaces/team/configmaps")
        .json(&config_map("lost", 1))
        .answer(&server)
        .await;
    assert_eq!(
        (status, refused["reason"].as_str()),
        (500, Some("ServerTimeout")),
        "{refused}"
    );
    let restart = move || {
        etcd.restart();
        etcd
    };
    let etcd = tokio::task::spawn_blocking(restart).await.unwrap();
    until("it is ready again", async || {
        get(&server, "/readyz").await == 200
    })
    .await;
    assert_eq!(
        ask("POST", "/api/v1/namespaces/team/configmaps")
            .json(&config_map("made", 1))
            .status(&server)
            .await,
        201
    );
    assert_eq!(
        ask(
            "DELETE",
            &format!("{RBAC}/namespaces/team/rolebindings/look")
        )
        .status(&server)
        .await,
        200
    );
    until("alice may no longer look", async || {
        alice(&server).await == 403
    })
    .await;
    let log = server.log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("reaching etcd"))
        .collect();
    assert!(
        told.iter()
            .any(|line| line.contains(&etcd.endpoint()) && line.contains("fails")),
        "{log}"
    );
    assert!(
        told.iter().any(|line| line.contains("works again")) && told.len() <= 10,
        "few words about one outage:\n{log}"
    );
}

/// etcd restored from a backup of long ago, under a running server: what is gone is gone for
/// clients and caches, too.
#[tokio::test]
async fn an_etcd_that_was_restored_is_noticed() {
    for flags in [&[][..], &["--watch-cache=false"]] {
        notices_a_restore(flags).await;
    }
}

async fn notices_a_restore(flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let store = Store::Etcd(&etcd.endpoint());
    let server = TestServer::start_with(folder.path(), store, flags).await;
    admit_alice(&server).await;
    let (_, list) = ask("GET", "/api/v1/namespaces").answer(&server).await;
    let path = format!(
        "/api/v1/namespaces?watch=1&resourceVersion={}",
        list["metadata"]["resourceVersion"].as_str().unwrap()
    );
    let request = Request::get(&path)
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {ADMIN}"));
    let mut watch = wire::send(server.port(), request.body(Full::default()).unwrap())
        .await
        .unwrap()
        .into_body();
    let restart = move || {
        etcd.restart_empty();
        etcd
    };
    let _etcd = tokio::task::spawn_blocking(restart).await.unwrap();
    let mut told = Vec::new();
    tokio::time::timeout(PATIENCE, async {
        while let Some(Ok(frame)) = watch.frame().await {
            told.extend_from_slice(frame.data_ref().unwrap());
        }
    })
    .await
    .expect("the watch ends");
    let last: Value = serde_json::from_slice(
        told.split(|byte| *byte == b'\n')
            .rfind(|line| !line.is_empty())
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{last}"
    );
    let mut verbose = ask("GET", "/readyz?verbose").send(&server).await;
    let end = Instant::now() + NOTICED;
    while verbose.status != 200 {
        assert!(
            Instant::now() < end,
            "it is not ready: {}",
            String::from_utf8_lossy(&verbose.body)
        );
        tokio::time::sleep(LOOK).await;
        verbose = ask("GET", "/readyz?verbose").send(&server).await;
    }
    for path in [
        "/api/v1/namespaces/team",
        "/api/v1/namespaces/team?resourceVersion=0",
    ] {
        assert_eq!(ask("GET", path).status(&server).await, 404, "{path}");
    }
    until("nobody has bound alice", async || {
        alice(&server).await == 403
    })
    .await;
}

/// A limit on the size of files does what a full disk does.
#[tokio::test]
async fn a_full_disk_refuses_writes_and_is_left_behind_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start_after(
        "trap '' XFSZ; ulimit -S -f 16384",
        folder.path(),
        Store::Embedded,
        &[],
    )
    .await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("large-{}", made.len());
        let (status, answer) = ask("POST", path)
            .json(&config_map(&name, 500_000))
            .answer(&server)
            .await;
        if status != 201 {
            break answer;
        }
        made.push(name);
        assert!(made.len() < 200, "the limit is not kept");
    };
    assert_eq!(refused["code"], 500, "{refused}");
    assert_eq!(
        refused["message"],
        "etcdserver: mvcc: database space exceeded"
    );
    let (status, list) = ask("GET", path).answer(&server).await;
    assert_eq!(status, 200);
    let names = |list: &Value| -> Vec<String> {
        let names = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "kube-root-ca.crt").collect()
    };
    assert!(
        made.iter().all(|name| names(&list).contains(name)),
        "what was acknowledged is read"
    );
    until("it is not ready, and live", async || {
        let refused = ask("POST", path)
            .json(&config_map("more", 500_000))
            .status(&server)
            .await
            != 201;
        refused && get(&server, "/readyz").await == 500 && get(&server, "/livez").await == 200
    })
    .await;
    let raised = Command::new("prlimit")
        .args([
            format!("--pid={}", server.id()),
            "--fsize=unlimited".to_owned(),
        ])
        .status()
        .unwrap();
    assert!(raised.success());
    until("there is room", async || {
        ask("POST", path)
            .json(&config_map("more", 500_000))
            .status(&server)
            .await
            != 500
    })
    .await;
    made.push("more".to_owned());
    until("it is ready", async || get(&server, "/readyz").await == 200).await;
    let (_, list) = ask("GET", path).answer(&server).await;
    assert!(made.iter().all(|name| names(&list).contains(name)));
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// Many write to a store on a small file system until it is full, and again when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn writers_survive_a_file_system_without_room() {
    const WRITERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("data");
    std::fs::create_dir(&disk).unwrap();
    // In a mount namespace of its own, which needs no rights outside.
    let mount = format!(
        "mount -t tmpfs -o size=24m,mode=0700 tmpfs {0} && head -c 8M /dev/zero > {0}/ballast",
        disk.display()
    );
    let apart = format!(
        "exec unshare --user --map-root-user --mount sh -c '{mount} && exec \"$0\" \"$@\"' \"$0\" \"$@\""
    );
    let server = TestServer::start_after(&apart, folder.path(), Store::Embedded, &[]).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let create = async |name: &str| {
        let body = config_map(name, 100_000);
        ask("POST", path).json(&body).answer(&server).await
    };
    let write = async |writer: usize| {
        let mut made = Vec::new();
        loop {
            let name = format!("w{writer}-{}", made.len());
            let (status, answer) = create(&name).await;
            if status != 201 {
                assert_eq!(
                    answer["message"],
                    "etcdserver: mvcc: database space exceeded"
                );
                return made;
            }
            made.push(name);
            assert!(made.len() < 500, "the disk is endless");
        }
    };
    let made = futures::future::join_all((0..WRITERS).map(write)).await;
    let mut made: Vec<String> = made.into_iter().flatten().collect();
    assert!(made.len() > WRITERS, "{made:?}");
    assert_eq!(get(&server, "/livez").await, 200);
    assert_eq!(ask("GET", path).status(&server).await, 200);

    let ballast = format!("/proc/{}/root{}/ballast", server.id(), disk.display());
    std::fs::remove_file(ballast).unwrap();
    until("there is room", async || {
        matches!(create("more").await.0, 201 | 409)
    })
    .await;
    made.push("more".to_owned());
    until("it is ready", async || get(&server, "/readyz").await == 200).await;
    let (_, list) = ask("GET", path).answer(&server).await;
    let items = list["items"].as_array().unwrap();
    let has = |name: &String| {
        items
            .iter()
            .any(|item| item["metadata"]["name"] == name.as_str())
    };
    assert!(made.iter().all(has), "what was acknowledged is there");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// The file of the embedded store is replaced by an old copy under a running server, which notices
/// when it has to open the file again.
#[tokio::test]
async fn readiness_names_an_embedded_store_that_lost_acknowledged_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data/keelson.redb");
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    server.terminate().await;
    let copy = file.with_extension("old");
    std::fs::copy(&file, &copy).unwrap();
    let limit = "trap '' XFSZ; ulimit -S -f 16384";
    let server = TestServer::start_after(limit, folder.path(), Store::Embedded, &[]).await;
    let check = "/readyz/storage-integrity";
    assert_eq!(ask("GET", check).status(&server).await, 200);
    std::fs::rename(&copy, &file).unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let create = async |name: &str| {
        let body = config_map(name, 500_000);
        ask("POST", path).json(&body).status(&server).await
    };
    let mut made = 0;
    while create(&format!("large-{made}")).await == 201 {
        made += 1;
        assert!(made < 200, "the limit is not kept");
    }
    until("the loss is noticed", async || {
        ask("GET", check).status(&server).await == 500
    })
    .await;
    let why = ask("GET", check).send(&server).await.body;
    let why = String::from_utf8_lossy(&why).into_owned();
    assert!(why.contains("lost changes that were acknowledged"), "{why}");
    let verbose = ask("GET", "/readyz?verbose").send(&server).await;
    let lines = String::from_utf8_lossy(&verbose.body).into_owned();
    assert_eq!(verbose.status, 500);
    assert!(lines.contains("[-]storage-integrity failed"), "{lines}");
    assert_eq!(create("after").await, 500, "no write is accepted");
}
