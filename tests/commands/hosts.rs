//! `keelson host`: control planes that share a process and nothing else.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use crate::support::{ADMIN, PATIENCE, Process, TestServer, free_port, http as wire, until};

async fn get(port: u16, path: &str) -> (u16, String) {
    let request = http::Request::get(path)
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(Default::default())
        .unwrap();
    let answer = wire::call(port, request, std::time::Duration::from_secs(30))
        .await
        .unwrap();
    (
        answer.status,
        String::from_utf8_lossy(&answer.body).into_owned(),
    )
}

async fn post(port: u16, path: &str, body: &str) -> u16 {
    let request = http::Request::post(path)
        .header("Host", "localhost")
        .header("Content-Type", "application/json")
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(http_body_util::Full::new(body.to_owned().into()))
        .unwrap();
    let answer = wire::call(port, request, std::time::Duration::from_secs(30)).await;
    answer.unwrap().status
}

async fn ready(host: &mut Process, port: u16) {
    host.ready(&format!("the plane on {port}"), || {
        wire::get_status(port, "/readyz")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planes_are_apart_and_one_that_cannot_start_stops_no_other() {
    let (folder, of_all) = world();
    let ports = [free_port(), free_port(), free_port()];
    plane(folder.path(), "a", ports[0], "# the first");
    plane(folder.path(), "b", ports[1], "--quota-backend-bytes=1");
    plane(folder.path(), "c", ports[2], "");
    // The third has no port for now.
    let taken = TcpListener::bind(("0.0.0.0", ports[2])).unwrap();
    let mut flags = ["host", "planes", "--planes=a,b,c"]
        .map(str::to_owned)
        .to_vec();
    flags.extend(of_all);
    let mut host = TestServer::run(folder.path(), &flags);
    ready(&mut host, ports[0]).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let object = r#"{"metadata":{"name":"mine"}}"#;
    assert_eq!(post(ports[0], maps, object).await, 201);
    drop(taken);
    ready(&mut host, ports[2]).await;
    assert_eq!(get(ports[0], &format!("{maps}/mine")).await.0, 200);
    assert_eq!(get(ports[2], &format!("{maps}/mine")).await.0, 404);
    // Nothing fits into the second: its limits are its own.
    until("the quota is told", async || {
        let log = host.log();
        log.contains("etcdserver: mvcc: database space exceeded")
            || log.contains("full by its quota")
    })
    .await;
    for name in ["a", "c"] {
        let config = folder
            .path()
            .join("planes")
            .join(name)
            .join("admin.kubeconfig");
        assert!(config.exists(), "{name}");
    }
    host.terminate();
    assert!(host.ends().await, "{}", host.log());
    let mut host = TestServer::run(folder.path(), &flags);
    ready(&mut host, ports[0]).await;
    assert_eq!(
        get(ports[0], &format!("{maps}/mine")).await.0,
        200,
        "it is still there"
    );
}

/// A folder with flags for all control planes: they know an administrator by a token.
fn world() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    fs::write(
        &tokens,
        format!("{ADMIN},admin,admin-uid,\"system:masters\"\n"),
    )
    .unwrap();
    let flags = vec![
        "--".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=10.0.0.1".to_owned(),
        format!("--token-auth-file={}", tokens.display()),
    ];
    (folder, flags)
}

fn plane(folder: &Path, name: &str, port: u16, flag: &str) {
    let of_plane = folder.join("planes").join(name);
    fs::create_dir_all(&of_plane).unwrap();
    fs::write(
        of_plane.join("flags"),
        format!("--secure-port={port}\n{flag}\n"),
    )
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn planes_that_wait_for_their_stores_hold_up_no_other() {
    let (folder, flags) = world();
    // It takes connections, and says nothing.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let etcd = format!("--etcd-servers=http://{}", silent.local_addr().unwrap());
    let port = free_port();
    for name in ["a", "b", "c", "d", "e", "f"] {
        plane(folder.path(), name, free_port(), &etcd);
    }
    plane(folder.path(), "last", port, "");
    let mut host = TestServer::run(
        folder.path(),
        &[vec!["host".to_owned(), "planes".to_owned()], flags].concat(),
    );
    ready(&mut host, port).await;
    // Those that still wait end at once.
    host.terminate();
    assert!(host.ends().await, "{}", host.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn planes_share_a_port_by_their_names() {
    let (folder, flags) = world();
    let (ports, shared) = ([free_port(), free_port()], free_port());
    plane(folder.path(), "a", ports[0], "");
    plane(folder.path(), "b", ports[1], "");
    let first = [
        "host",
        "planes",
        "--domain=Planes.test",
        &format!("--shared-port={shared}"),
    ]
    .map(str::to_owned);
    let mut host = TestServer::run(folder.path(), &[first.to_vec(), flags].concat());
    for port in ports {
        ready(&mut host, port).await;
    }
    // Each has a certificate of its own with its name in it, and objects of its own.
    for (name, port) in ["a", "b"].into_iter().zip(ports) {
        let server_name = format!("{name}.planes.test");
        let ca = fs::read(folder.path().join("planes").join(name).join("pki/ca.crt")).unwrap();
        let stream = wire::connect_named(shared, &server_name, &ca)
            .await
            .unwrap();
        let body = format!(r#"{{"metadata":{{"name":"of-{name}"}}}}"#);
        let request = http::Request::post("/api/v1/namespaces/default/configmaps")
            .header("Host", &server_name)
            .header("Content-Type", "application/json")
            .header("Authorization", format!("Bearer {ADMIN}"))
            .body(http_body_util::Full::new(body.into()))
            .unwrap();
        let made = wire::call_on(stream, request, PATIENCE).await.unwrap();
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/api/v1/namespaces/default/configmaps/of-{name}");
        assert_eq!(get(port, &path).await.0, 200);
    }
    // Nobody is meant: the alert is that there is no such name, and the port lives on.
    let ca = fs::read(folder.path().join("planes/a/pki/ca.crt")).unwrap();
    for name in ["c.planes.test", "a.planes.test.evil.test", "a", "localhost"] {
        let refused = wire::connect_named(shared, name, &ca).await.err().unwrap();
        assert!(
            refused.to_string().contains("UnrecognisedName"),
            "{refused}"
        );
    }
    assert!(
        wire::connect(shared).await.is_err(),
        "an address is no name"
    );
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[22, 3, 1, 255, 255],
        &[0; 4096],
    ] {
        let mut client = TcpStream::connect(("127.0.0.1", shared)).unwrap();
        client.write_all(garbage).unwrap();
    }
    assert!(
        wire::connect_named(
            shared,
            "b.planes.test",
            &fs::read(folder.path().join("planes/b/pki/ca.crt")).unwrap()
        )
        .await
        .is_ok()
    );
    host.terminate();
    assert!(host.ends().await, "{}", host.log());
}

#[tokio::test]
async fn what_is_wrong_is_told_before_any_plane_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for (args, message) in [
        (&["host", path][..], "there is no control plane in"),
        (
            &["host", path, "--planes=a,../b"],
            "is no name of a control plane",
        ),
        (
            &["host", path, "--planes=a", "--", "--nope"],
            "a: unknown flag: --nope",
        ),
        (
            &["host", path, "--planes=a", "--shared-port=0"],
            "--shared-port is no port: 0",
        ),
        (&["host"], "the arguments are FOLDER"),
    ] {
        crate::keelson(args).await.refused(message);
    }
    assert!(!folder.path().join("a").exists());
}
