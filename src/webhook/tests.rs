//! The client against a real server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::meta::{Object, json};

#[allow(dead_code)]
#[path = "../../tests/support/webhook.rs"]
mod server;

use server::{Identity, Reply, Webhook};

/// Services that are all on this machine.
struct Here(u16);

#[async_trait]
impl ServiceResolver for Here {
    async fn resolve(&self, _: &str, name: &str, _: u16) -> Result<String, String> {
        match name {
            "none" => Err(r#"service "none" not found"#.to_owned()),
            _ => Ok(format!("127.0.0.1:{}", self.0)),
        }
    }
}

const LIMITS: Limits = Limits {
    timeout: Duration::from_secs(10),
    answer_bytes: 1024 * 1024,
};

fn client(port: u16) -> Client {
    Client::new(AuthInfos::default(), Arc::new(Here(port)))
}

fn url(text: String, ca: &str) -> ClientConfig {
    ClientConfig {
        place: Place::Url(text),
        ca_bundle: ca.as_bytes().to_vec(),
    }
}

fn service(name: &str, ca: &str) -> ClientConfig {
    ClientConfig {
        place: Place::Service(ServiceReference {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            port: 8443,
            path: "a//b/".to_owned(),
        }),
        ca_bundle: ca.as_bytes().to_vec(),
    }
}

fn review() -> serde_json::Value {
    serde_json::json!({"kind": "Review", "apiVersion": "v1", "a": 1})
}

async fn post(client: &Client, config: &ClientConfig) -> Result<Value, WebhookError> {
    let body = Bytes::from_static(br#"{"asked":true}"#);
    client.post(config, body, LIMITS).await
}

async fn error(client: &Client, config: &ClientConfig) -> String {
    match post(client, config).await.expect_err("an error") {
        WebhookError::Call(why) => why.text,
        WebhookError::Configuration(why) => format!("configuration: {why}"),
    }
}

#[tokio::test]
async fn a_review_is_posted_and_connections_are_used_again() {
    let server = Webhook::start(|_| Reply::Json(review())).await;
    let client = client(server.port);
    let config = url(format!("https://localhost:{}/a/", server.port), &server.ca);
    for _ in 0..3 {
        let answer = post(&client, &config).await.expect("an answer");
        assert_eq!(i64_at(&answer, "/a"), Some(1));
    }
    let seen = server.take();
    assert!(seen.iter().all(|one| one.connection == 1), "{seen:?}");
    assert_eq!(seen[0].uri, "/a?timeout=10s");
    assert_eq!(seen[0].version, http::Version::HTTP_2);
    assert_eq!(seen[0].body["asked"], true);
    assert_eq!(seen[0].headers["content-type"], "application/json");
    assert_eq!(seen[0].headers["accept"], "application/json, */*");
    assert_eq!(seen[0].headers["user-agent"], "kube-apiserver-admission");
}

#[tokio::test]
async fn a_service_is_resolved_and_named_in_tls() {
    let server =
        Webhook::start_as(Identity::new(&["hook.ns.svc"]), |_| Reply::Json(review())).await;
    let client = client(server.port);
    let hook = service("hook", &server.ca);
    post(&client, &hook).await.expect("an answer");
    post(&client, &hook).await.expect("an answer");
    let seen = server.take();
    assert_eq!(seen[0].uri, "/a/b?timeout=10s");
    assert_eq!(seen[0].version, http::Version::HTTP_11);
    assert_eq!(seen[0].headers["host"], "hook.ns.svc:8443");
    assert_eq!(seen[1].connection, 1);
    for (name, why) in [
        (
            "other",
            "tls: failed to verify certificate: x509: certificate is valid for hook.ns.svc, not other.ns.svc",
        ),
        ("none", r#"service "none" not found"#),
    ] {
        assert_eq!(
            error(&client, &service(name, &server.ca)).await,
            format!(r#"Post "https://{name}.ns.svc:8443/a/b?timeout=10s": {why}"#)
        );
    }
}

#[tokio::test]
async fn certificates_are_trusted_as_go_trusts_them() {
    let itself = Webhook::start_as(
        Identity::self_signed("localhost"),
        |_| Reply::Json(review()),
    );
    let itself = itself.await;
    let client = client(itself.port);
    let at = |host: &str, port: u16, ca: &str| url(format!("https://{host}:{port}"), ca);
    post(&client, &at("localhost", itself.port, &itself.ca))
        .await
        .expect("an answer");
    let x509 = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
    let other = Webhook::start(|_| Reply::Json(review())).await;
    for (config, why) in [
        (
            at("localhost", itself.port, &other.ca),
            x509("certificate signed by unknown authority"),
        ),
        (
            at("127.0.0.1", itself.port, &itself.ca),
            x509(
                "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
            ),
        ),
    ] {
        let found = error(&client, &config).await;
        assert!(found.ends_with(&why), "{found}");
    }
    assert_eq!(
        error(&client, &at("localhost", itself.port, "nothing")).await,
        "configuration: unable to load root certificates: unable to parse bytes as PEM block"
    );
}

#[tokio::test]
async fn answers_that_are_none_are_told() {
    let replies: Vec<(Reply, &str)> = vec![
        (
            Reply::Raw(500, Vec::new(), b"boom \"x\"\n".to_vec()),
            r#"an error on the server ("boom \"x\"") has prevented the request from succeeding"#,
        ),
        (
            Reply::Raw(404, Vec::new(), Vec::new()),
            "the server could not find the requested resource",
        ),
        (
            Reply::Raw(
                500,
                Vec::new(),
                br#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#
                    .to_vec(),
            ),
            "no",
        ),
        (
            Reply::Raw(
                307,
                vec![("Location", "http://localhost/b".to_owned())],
                Vec::new(),
            ),
            "Post \"URL\": a redirect to http://localhost/b is not followed: it is not encrypted",
        ),
        (
            Reply::Raw(
                302,
                vec![("Location", "ftp://localhost/b".to_owned())],
                Vec::new(),
            ),
            "Post \"URL\": unsupported protocol scheme \"ftp\"",
        ),
        (
            Reply::Raw(302, Vec::new(), Vec::new()),
            "the server responded with the status code 302 but did not return more information",
        ),
        (
            Reply::Raw(200, Vec::new(), Vec::new()),
            "0-length response with status code: 200 and content type: application/json",
        ),
        (
            Reply::Raw(200, Vec::new(), b"garbage".to_vec()),
            "couldn't get version/kind; json parse error: invalid character 'g' looking for beginning of value",
        ),
        (
            Reply::Json(serde_json::json!({"a": 1})),
            r#"Object 'Kind' is missing in '{"a":1}'"#,
        ),
        (
            Reply::Endless(100_000_000),
            "unexpected error when reading response body. Please retry. Original error: the answer is larger than 1048576 bytes",
        ),
    ];
    let (answers, expected): (Vec<_>, Vec<_>) = replies.into_iter().unzip();
    let next = AtomicUsize::new(0);
    let server = Webhook::start(move |_| {
        answers[next.fetch_add(1, Ordering::Relaxed) % answers.len()].clone()
    })
    .await;
    let at = format!("https://127.0.0.1:{}/", server.port);
    for path in [at.clone(), at.replace("127.0.0.1", "localhost")] {
        let config = url(path.clone(), &server.ca);
        let client = client(server.port);
        for expected in &expected {
            let found = error(&client, &config).await;
            assert_eq!(
                found.replace(&format!("{path}?timeout=10s"), "URL"),
                *expected
            );
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_is_told() {
    let server = Webhook::start_as(Identity::new(&["hook.ns.svc"]), |_| Reply::Close).await;
    let found = error(&client(server.port), &service("hook", &server.ca)).await;
    assert_eq!(
        found,
        r#"Post "https://hook.ns.svc:8443/a/b?timeout=10s": EOF"#
    );
}

#[tokio::test]
async fn a_webhook_that_hangs_is_left_and_nobody_else_waits() {
    let server = Webhook::start(|seen| match seen.uri.starts_with("/hang") {
        true => Reply::Hang,
        false => Reply::Json(review()),
    })
    .await;
    let client = client(server.port);
    let at = |path: &str| {
        url(
            format!("https://localhost:{}{path}", server.port),
            &server.ca,
        )
    };
    let limits = Limits {
        timeout: Duration::from_millis(50),
        ..LIMITS
    };
    let (hang, other) = (at("/hang"), at("/other"));
    let (late, answer) = tokio::join!(
        client.post(&hang, Bytes::new(), limits),
        post(&client, &other)
    );
    answer.expect("an answer");
    let expected = format!(
        "Post \"https://localhost:{}/hang?timeout=1s\": context deadline exceeded",
        server.port
    );
    assert_eq!(late, Err(WebhookError::Call(CallError::late(expected))));
}

#[tokio::test]
async fn a_webhook_that_asks_for_time_is_called_again() {
    let calls = AtomicUsize::new(0);
    let server = Webhook::start(move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Raw(429, vec![("Retry-After", "0".to_owned())], Vec::new()),
        1 => Reply::Raw(503, vec![("Retry-After", "0".to_owned())], Vec::new()),
        _ => Reply::Json(review()),
    })
    .await;
    let config = url(format!("https://localhost:{}", server.port), &server.ca);
    post(&client(server.port), &config)
        .await
        .expect("an answer");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn nobody_there_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let ca = Identity::new(&["a"]).ca;
    let found = error(
        &client(port),
        &url(format!("https://127.0.0.1:{port}/a b"), &ca),
    )
    .await;
    assert_eq!(
        found,
        format!(
            "Post \"https://127.0.0.1:{port}/a%20b?timeout=10s\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
}

#[tokio::test]
async fn credentials_are_those_of_the_host() {
    let server = Webhook::start(|_| Reply::Json(review())).await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("token"), "from-file\n").expect("a file");
    let config = folder.path().join("config");
    std::fs::write(
        &config,
        format!(
            "kind: Config\napiVersion: v1\nusers:\n\
             - {{name: 'localhost:{}', user: {{tokenFile: token}}}}\n\
             - {{name: '*.0.0.1', user: {{username: u, password: p, as: bob, as-groups: [g]}}}}\n",
            server.port
        ),
    )
    .expect("a file");
    let auth = AuthInfos::read(&config).expect("a kubeconfig");
    let client = Client::new(auth, Arc::new(Here(server.port)));
    for host in ["localhost", "127.0.0.1"] {
        let config = url(format!("https://{host}:{}", server.port), &server.ca);
        // The pattern is for a host without its port, which is another than 443.
        post(&client, &config).await.expect("an answer");
    }
    let seen = server.take();
    assert_eq!(seen[0].headers["authorization"], "Bearer from-file");
    assert!(!seen[1].headers.contains_key("authorization"));
}

#[test]
fn users_are_found_by_host_then_pattern_then_star_then_context() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    let read = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        AuthInfos::read(&path).map_err(|why| why.replace(&path.display().to_string(), "FILE"))
    };
    let users = |names: &[&str]| {
        let users = names
            .iter()
            .map(|name| format!("- {{name: '{name}', user: {{token: '{name}'}}}}\n"));
        format!(
            "kind: Config\nusers:\n{}contexts: [{{name: c, context: {{user: 'me'}}}}]\ncurrent-context: c\n",
            users.collect::<String>()
        )
    };
    let all = [
        "a.b.svc:443",
        "*.b.svc:443",
        "a.b.svc",
        "*.b.svc",
        "*",
        "me",
    ];
    let find = |names: &[&str], host: &str| {
        let infos = read(&users(names)).expect("users");
        infos.of(host).map(|found| found.token().to_owned())
    };
    for skipped in 0..all.len() {
        let found = find(&all[skipped..], "a.b.svc:443");
        assert_eq!(found.as_deref(), Some(all[skipped]));
    }
    assert_eq!(find(&all[..3], "x.c:443"), None);
    assert_eq!(find(&all[2..4], "a.b.svc:8443"), None);
    let refused = read("kind: Config\nusers: [{name: a, user: {exec: {command: x}}}]\n");
    let why = "FILE: user \"a\": exec is not supported";
    assert_eq!(refused.map(drop), Err(why.to_owned()));
}

#[test]
fn services_have_an_address_or_say_why_not() {
    let object = |value| Object::from_value(value).expect("an object");
    let of = |spec| object(json!({"metadata": {"name": "a"}, "spec": spec}));
    let ports = json!([{"name": "https", "port": 443, "targetPort": 9443}]);
    for (spec, port, expected) in [
        (
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": ports}),
            443,
            Ok("10.0.0.1:443"),
        ),
        (
            json!({"type": "NodePort", "clusterIP": "fd00::1", "ports": ports}),
            443,
            Ok("[fd00::1]:443"),
        ),
        (
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": ports}),
            80,
            Err(r#"no service port 80 found for service "a""#),
        ),
        (
            json!({"type": "ClusterIP", "clusterIP": "None", "ports": ports}),
            443,
            Err(r#"cannot route to service with ClusterIP "None""#),
        ),
        (
            json!({"type": "ExternalName", "externalName": "b.example.com"}),
            8443,
            Ok("b.example.com:8443"),
        ),
    ] {
        let found = service::cluster_address(&of(spec), port);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }
    let service = of(json!({
        "type": "ClusterIP", "clusterIP": "None", "ports": ports, "ipFamilies": ["IPv6", "IPv4"],
    }));
    let slice = |family: &str, address: &str, ready: bool| {
        object(json!({
            "addressType": family,
            "ports": [{"name": "https", "port": 9443}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
        }))
    };
    let find = |slices: &[Object]| service::endpoint_address(&service, slices.iter(), 443);
    let (four, six) = (
        slice("IPv4", "10.1.0.1", true),
        slice("IPv6", "fd00::2", true),
    );
    assert_eq!(find(&[four.clone(), six]), Ok("[fd00::2]:9443".to_owned()));
    assert_eq!(
        find(&[slice("IPv6", "fd00::2", false), four]),
        Ok("10.1.0.1:9443".to_owned())
    );
    assert_eq!(
        find(&[]),
        Err(r#"no endpoints available for service "a""#.to_owned())
    );
}

#[tokio::test]
async fn redirects_are_followed_as_go_follows_them() {
    let other = Webhook::start(|_| Reply::Json(review())).await;
    let elsewhere = format!("https://127.0.0.1:{}/c?d=e", other.port);
    let server = Webhook::start(move |seen| {
        let to = |code, place: &str| {
            Reply::Raw(
                code,
                vec![("Location", place.to_owned())],
                b"moved".to_vec(),
            )
        };
        match seen.uri.split('?').next().unwrap_or_default() {
            "/a/start" => to(308, "next?x=y#fragment"),
            "/a/next" => to(307, "/b"),
            "/b" => to(302, "/got"),
            "/away" => to(307, &elsewhere),
            "/circle" => to(308, "/circle"),
            _ => Reply::Json(review()),
        }
    })
    .await;
    let config =
        serde_json::json!({"kind": "Config", "users": [{"name": "*", "user": {"token": "t"}}]});
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    std::fs::write(&path, config.to_string()).expect("a file");
    let auth = AuthInfos::read(&path).expect("credentials");
    let client = Client::new(auth, Arc::new(Here(server.port)));
    let ca = format!("{}{}", server.ca, other.ca);
    let at = |path: &str| url(format!("https://localhost:{}{path}", server.port), &ca);
    post(&client, &at("/a/start")).await.expect("an answer");
    let seen = server.take();
    let requests: Vec<_> = seen
        .iter()
        .map(|one| (one.uri.as_str(), one.body["asked"] == true))
        .collect();
    let (posted, got) = (true, false);
    let expected = [
        ("/a/start?timeout=10s", posted),
        ("/a/next?x=y", posted),
        ("/b", posted),
        ("/got", got),
    ];
    assert_eq!(requests, expected);
    assert!(
        seen.iter()
            .all(|one| one.headers["authorization"] == "Bearer t")
    );
    post(&client, &at("/away")).await.expect("an answer");
    let seen = other.take();
    assert_eq!(
        (seen[0].uri.as_str(), seen[0].body["asked"] == true),
        ("/c?d=e", true)
    );
    assert!(!seen[0].headers.contains_key("authorization"));
    let url = format!("https://localhost:{}/circle?timeout=10s", server.port);
    let expected = format!("Post \"{url}\": stopped after 10 redirects");
    assert_eq!(error(&client, &at("/circle")).await, expected);
    assert_eq!(server.take().len(), 11, "and the one that led away");
    // What a Service redirects to itself stays at its endpoints.
    let ca = Identity::new(&["hook.ns.svc"]);
    let trusted = ca.ca.clone();
    let server = Webhook::start_as(ca, |seen| match seen.uri.contains("moved") {
        true => Reply::Json(review()),
        false => Reply::Raw(307, vec![("Location", "/moved".to_owned())], Vec::new()),
    })
    .await;
    let client = Client::new(AuthInfos::default(), Arc::new(Here(server.port)));
    post(&client, &service("hook", &trusted))
        .await
        .expect("an answer");
}
