//! More requests than the server has capacity for, and slow clients.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::connections::Http2;
use crate::support::http::Answer;
use crate::support::{ADMIN, TestServer, USER, http as wire, until};
use crate::{PATIENCE, ask, both, embedded};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The flag by which requests are limited by number.
const WITHOUT_FAIRNESS: &str = "--enable-priority-and-fairness=false";
/// Bytes that fill an object.
const FILLING: usize = 500_000;

/// Lets `alice` and `bob` do what they like.
pub async fn let_users(server: &TestServer) {
    let user =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "users"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [user("alice"), user("bob")]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(ask("POST", path).json(&role).status(server).await, 201);
    until("it comes", async || {
        ask("GET", MAPS).by(USER).status(server).await == 200
    })
    .await;
}

/// Makes so many large objects.
pub async fn fill(server: &TestServer, objects: usize) {
    for number in 0..objects {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{number}")},
            "data": {"filling": "x".repeat(FILLING)}});
        assert_eq!(ask("POST", MAPS).json(&object).status(server).await, 201);
    }
}

/// The sum of the samples of a metric whose lines contain all of these texts.
pub async fn metric(server: &TestServer, name: &str, parts: &[&str]) -> f64 {
    let text = server.metrics().await;
    let lines = text
        .lines()
        .filter(|line| line.starts_with(name) && parts.iter().all(|part| line.contains(part)));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Reports whether an answer turns a client away as kube-apiserver does.
fn is_turned_away(answer: &Answer) -> bool {
    let header = |name: &str| {
        answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
            .to_owned()
    };
    answer.status == 429
        && header("retry-after") == "1"
        && header("content-type") == "text/plain; charset=utf-8"
        && answer.body == "Too many requests, please try again later.\n"
}

#[tokio::test]
async fn reads_beyond_the_limit_are_turned_away() {
    both(&["--max-requests-inflight=1", WITHOUT_FAIRNESS], async |server| {
        let_users(server).await;
        fill(server, 4).await;
        // The answer is under way, and takes the only place until it has been read.
        let mut client = Http2::to(server).await;
        let list = client.get(MAPS, USER).await.unwrap();
        assert_eq!(list.status(), 200);
        assert!(is_turned_away(
            &ask("GET", "/version").by(USER).send(server).await
        ));
        assert!(is_turned_away(
            &ask("GET", MAPS).by(USER).send(server).await
        ));
        assert_eq!(
            ask("GET", MAPS).status(server).await,
            200,
            "the administrator"
        );
        assert_eq!(
            ask("GET", "/readyz").by(USER).status(server).await,
            200,
            "a probe"
        );
        let watch = client.get(&format!("{MAPS}?watch=1"), USER).await.unwrap();
        assert_eq!(watch.status(), 200, "a watch");
        let write =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}});
        assert_eq!(
            ask("POST", MAPS).by(USER).json(&write).status(server).await,
            201,
            "a write"
        );
        assert_eq!(
            metric(server, "apiserver_current_inflight_requests", &["readOnly"]).await,
            1.0
        );
        assert_eq!(
            metric(
                server,
                "apiserver_request_terminations_total",
                &["code=\"429\""]
            )
            .await,
            2.0
        );
        assert_eq!(
            metric(
                server,
                "apiserver_longrunning_requests",
                &["WATCH", "configmaps"]
            )
            .await,
            1.0
        );
        let sizes = metric(
            server,
            "apiserver_response_sizes_sum",
            &["LIST", "configmaps"],
        )
        .await;
        let read = list.into_body().collect().await.unwrap().to_bytes().len() as f64;
        until("it comes", async || ask("GET", "/version").by(USER).status(server).await == 200).await;
        let more = metric(
            server,
            "apiserver_response_sizes_sum",
            &["LIST", "configmaps"],
        )
        .await
            - sizes;
        assert!(more >= read, "{more} of {read}");
    })
    .await;
}

/// Without credentials that are good for anything, too, a client could otherwise keep everybody
/// else out.
#[tokio::test]
async fn unread_refusals_keep_no_place_in_flight() {
    let (_folder, server) = embedded(&["--max-requests-inflight=1", WITHOUT_FAIRNESS]).await;
    let (mut client, mut unread) = (Http2::with_window(&server, 0).await, Vec::new());
    for _ in 0..3 {
        let answer = client.get("/api/v1/secrets", USER).await.unwrap();
        assert_eq!(answer.status(), 403);
        unread.push(answer);
    }
    assert_eq!(ask("GET", "/version").by(USER).status(&server).await, 200);
}

/// A POST of which the body is not sent.
async fn post_head(
    server: &TestServer,
    token: &str,
    len: usize,
) -> impl AsyncReadExt + AsyncWriteExt + Unpin + Send + use<> {
    let mut stream = wire::connect(server.port()).await.unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
         Content-Length: {len}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// [`post_head`], once the server reads the body.
async fn begun_post(
    server: &TestServer,
    token: &str,
    len: usize,
) -> impl AsyncReadExt + AsyncWriteExt + Unpin + Send + use<> {
    let mut stream = post_head(server, token, len).await;
    let mut told = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut told).await.unwrap();
    stream
}

/// All bodies together have memory for 64 large ones of ordinary users; one user for 16.
#[tokio::test]
async fn one_user_cannot_hold_the_memory_for_all_bodies() {
    let (_folder, server) = embedded(&["--request-timeout=1h", WITHOUT_FAIRNESS]).await;
    let_users(&server).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(begun_post(&server, USER, 3 * 1024 * 1024).await);
    }
    let mut waiting = Vec::new();
    for _ in 0..64 {
        waiting.push(post_head(&server, USER, 3 * 1024 * 1024).await);
    }
    until("it comes", async || {
        let kind = "apiserver_current_inflight_requests";
        metric(&server, kind, &["mutating"]).await == 80.0
    })
    .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}});
    let other = ask("POST", MAPS)
        .header("Impersonate-User", "bob")
        .json(&map);
    assert_eq!(other.status(&server).await, 201);
}

/// A client that sends a little now and then holds memory for a while only, however long its
/// request may take; one with a slow line is waited for.
#[tokio::test]
async fn bodies_that_trickle_are_not_waited_for() {
    let (_folder, server) = embedded(&[]).await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slow"}, "data": {"a": "x".repeat(60_000)}})
        .to_string();
    for (bytes, status) in [(1, "408"), (2_000, "201")] {
        let stream = begun_post(&server, ADMIN, body.len()).await;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent = body.clone();
        let sending = tokio::spawn(async move {
            for part in sent.as_bytes().chunks(bytes) {
                if writer.write_all(part).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let mut answer = [0; "HTTP/1.1 408".len()];
        let read = tokio::time::timeout(PATIENCE, reader.read_exact(&mut answer)).await;
        assert!(read.is_ok_and(|read| read.is_ok()), "no answer");
        assert_eq!(String::from_utf8_lossy(&answer[9..]), status);
        sending.abort();
    }
}

#[tokio::test]
async fn writes_beyond_the_limit_are_turned_away() {
    let (_folder, server) =
        embedded(&["--max-mutating-requests-inflight=1", WITHOUT_FAIRNESS]).await;
    let_users(&server).await;
    let slow = begun_post(&server, USER, 100).await;
    let write =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}});
    assert!(is_turned_away(
        &ask("POST", MAPS).by(USER).json(&write).send(&server).await
    ));
    assert_eq!(
        ask("POST", MAPS).json(&write).status(&server).await,
        201,
        "the administrator"
    );
    assert_eq!(
        ask("GET", MAPS).by(USER).status(&server).await,
        200,
        "a read"
    );
    drop(slow);
    until("it comes", async || {
        ask("POST", MAPS)
            .by(USER)
            .json(&write)
            .status(&server)
            .await
            == 201
    })
    .await;
}

#[tokio::test]
async fn missing_body_ends_with_the_request_timeout() {
    both(&["--request-timeout=1s"], async |server| {
        let mut slow = begun_post(server, ADMIN, 100).await;
        let mut answer = Vec::new();
        // The connection is of no use any more.
        let read = tokio::time::timeout(PATIENCE / 2, slow.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the server waits");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        let status: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(
            (&status["reason"], &status["code"]),
            (&json!("Timeout"), &json!(504))
        );
        assert_eq!(
            status["message"],
            "Timeout: request did not complete within the allotted timeout"
        );
        assert_eq!(
            metric(
                server,
                "apiserver_request_terminations_total",
                &["POST", "configmaps", "code=\"504\""]
            )
            .await,
            1.0
        );
    })
    .await;
}

/// A client asks for less time than the server would give, and cannot ask for more.
#[tokio::test]
async fn timeout_parameter_is_bounded() {
    let (_folder, server) = embedded(&["--request-timeout=1s"]).await;
    let (status, answer) = ask("GET", "/api/v1/namespaces?timeout=x")
        .answer(&server)
        .await;
    assert_eq!(
        (status, answer["message"].as_str().unwrap()),
        (
            400,
            "invalid timeout specified in the request URL - time: invalid duration \"x\""
        )
    );
    let mut stream = wire::connect(server.port()).await.unwrap();
    let head = format!(
        "POST {MAPS}?timeout=1h HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    assert!(
        tokio::time::timeout(PATIENCE / 2, stream.read_to_end(&mut answer))
            .await
            .is_ok(),
        "the server waits"
    );
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 504 "));
}

#[tokio::test]
async fn lists_that_are_not_read_are_cut_off() {
    both(&["--request-timeout=1s"], async |server| {
        fill(server, 24).await;
        let aborted = async |count: f64| {
            metric(
                server,
                "apiserver_request_aborts_total",
                &["LIST", "configmaps"],
            )
            .await
                == count
        };
        let mut client = Http2::to(server).await;
        let list = client.get(MAPS, ADMIN).await.unwrap();
        until("it comes", async || aborted(1.0).await).await;
        assert!(
            list.into_body().collect().await.is_err(),
            "the stream is reset"
        );
        assert_eq!(
            client.status("/version", ADMIN).await,
            200,
            "the connection is not"
        );
        // The same over HTTP/1.1, with little room for what is not read.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 * 1024).unwrap();
        let mut stream = wire::connect_on(socket, server.port()).await.unwrap();
        let head =
            format!("GET {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        until("it comes", async || aborted(2.0).await).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap();
        assert!(
            answer.starts_with(b"HTTP/1.1 200 OK") && !answer.ends_with(b"0\r\n\r\n"),
            "{}",
            answer.len()
        );
    })
    .await;
}

/// A watch that begins with what there is holds that until it has been sent.
#[tokio::test]
async fn watches_that_are_not_read_are_cut_off() {
    let (_folder, server) = embedded(&["--request-timeout=1s"]).await;
    fill(&server, 8).await;
    let mut client = Http2::to(&server).await;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    let slow = client.get(&path, ADMIN).await.unwrap();
    assert_eq!(slow.status(), 200);
    // One that has nothing to say yet stays, however long.
    let mut quiet = client
        .get(
            "/api/v1/namespaces/kube-public/configmaps?watch=1&resourceVersion=0&labelSelector=a=b",
            ADMIN,
        )
        .await
        .unwrap();
    assert_eq!(quiet.status(), 200);
    until("it comes", async || {
        metric(
            &server,
            "apiserver_longrunning_requests",
            &["WATCH", "configmaps"],
        )
        .await
            == 1.0
    })
    .await;
    assert!(
        slow.into_body().collect().await.is_err(),
        "the stream is reset"
    );
    let event = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "told", "labels": {"a": "b"}}});
    assert_eq!(
        ask("POST", "/api/v1/namespaces/kube-public/configmaps")
            .json(&event)
            .status(&server)
            .await,
        201
    );
    let told = tokio::time::timeout(PATIENCE, quiet.body_mut().frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(String::from_utf8_lossy(told.data_ref().unwrap()).contains("\"told\""));
}

/// Requests are told apart in the log, where nothing that may be a secret is.
#[tokio::test]
async fn requests_have_an_id_and_a_line() {
    let (_folder, server) = embedded(&["--v=3"]).await;
    let named = ask("GET", "/version?access_token=hidden&limit=7")
        .header("Audit-ID", "chosen\tid")
        .send(&server)
        .await;
    assert_eq!(named.headers["audit-id"], "chosen\tid");
    let unnamed = ask("GET", "/version")
        .header("Audit-ID", "")
        .send(&server)
        .await;
    assert_eq!(unnamed.headers["audit-id"].len(), 36);
    let unknown = ask("GET", "/version")
        .by("forged")
        .header("Audit-ID", "forger")
        .send(&server)
        .await;
    assert_eq!(
        (unknown.status, unknown.headers["audit-id"].as_bytes()),
        (401, &b"forger"[..])
    );
    until("it comes", async || {
        server.log().contains("audit-ID=\"forger\"")
    })
    .await;
    let log = server.log();
    let line = log.lines().find(|line| line.contains("chosen")).unwrap();
    for part in [
        "\"HTTP\" verb=\"GET\"",
        "URI=\"/version?access_token=REDACTED&limit=7\"",
        "audit-ID=\"chosen\\tid\"",
        "srcIP=\"127.0.0.1:",
        "resp=200",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(
        log.lines()
            .any(|line| line.contains("\"forger\"") && line.contains("resp=401")),
        "{log}"
    );
    assert!(!log.contains("hidden") && !log.contains(ADMIN), "{log}");
    let apply = Bytes::from_static(
        b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}",
    );
    let path = format!("{MAPS}/a?fieldManager=m");
    assert_eq!(
        ask("PATCH", &path)
            .body("application/apply-patch+yaml", apply)
            .status(&server)
            .await,
        201
    );
    assert_eq!(
        metric(
            &server,
            "apiserver_request_total",
            &["verb=\"APPLY\"", "configmaps", "code=\"201\""]
        )
        .await,
        1.0
    );
}
