//! `keelson host`: control planes that share a process and nothing else.

use std::fs;
use std::net::TcpListener;

use crate::support::{ADMIN, Process, TestServer, free_port, http as wire};

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
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    fs::write(
        &tokens,
        format!("{ADMIN},admin,admin-uid,\"system:masters\"\n"),
    )
    .unwrap();
    let ports = [free_port(), free_port(), free_port()];
    for (name, port) in ["a", "b", "c"].into_iter().zip(ports) {
        let of_plane = folder.path().join("planes").join(name);
        fs::create_dir_all(&of_plane).unwrap();
        let quota = if name == "b" {
            "--quota-backend-bytes=1"
        } else {
            ""
        };
        let flags = format!("# plane {name}\n--secure-port={port}\n{quota}\n");
        fs::write(of_plane.join("flags"), flags).unwrap();
    }
    // The third has no port for now.
    let taken = TcpListener::bind(("0.0.0.0", ports[2])).unwrap();
    let flags = [
        "host".to_owned(),
        "planes".to_owned(),
        "--planes=a,b,c".to_owned(),
        "--".to_owned(),
        "--advertise-address=10.0.0.1".to_owned(),
        format!("--token-auth-file={}", tokens.display()),
    ];
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
    while !host
        .log()
        .contains("etcdserver: mvcc: database space exceeded")
        && !host.log().contains("full by its quota")
    {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
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
        (&["host"], "the arguments are FOLDER"),
    ] {
        crate::keelson(args).await.refused(message);
    }
    assert!(!folder.path().join("a").exists());
}
