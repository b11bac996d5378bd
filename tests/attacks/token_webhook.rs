//! Tokens that a webhook knows: whom it names, what of its answers is kept, and what it cannot do.

use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::support::webhook::{Reply, Seen, Webhook};
use super::support::{ADMIN, Store, TestServer};
use super::{ask, start};

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

/// Starts a webhook, and a server that asks it.
async fn world(
    flags: &[&str],
    answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> (Webhook, tempfile::TempDir, TestServer) {
    let (webhook, folder) = (Webhook::start(answer).await, tempfile::tempdir().unwrap());
    let file = folder.path().join("kubeconfig.json");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "webhook",
        "contexts": [{"name": "webhook", "context": {"cluster": "tokens", "user": "server"}}],
        "clusters": [{"name": "tokens", "cluster": {
            "server": format!("https://localhost:{}/authenticate", webhook.port),
            "certificate-authority-data": base64(&webhook.ca),
        }}],
        "users": [{"name": "server", "user": {"username": "u", "password": "p"}}],
    });
    fs::write(&file, config.to_string()).unwrap();
    let flag = format!(
        "--authentication-token-webhook-config-file={}",
        file.display()
    );
    let flags = [&[flag.as_str()], flags].concat();
    let server = start(folder.path(), Store::Embedded, &flags).await;
    (webhook, folder, server)
}

fn base64(text: &str) -> String {
    use ::base64::Engine;
    ::base64::prelude::BASE64_STANDARD.encode(text)
}

/// The answer of a webhook.
fn review(seen: &Seen, status: Value) -> Reply {
    Reply::Json(json!({
        "apiVersion": seen.body["apiVersion"], "kind": "TokenReview", "status": status,
    }))
}

/// The user of a token.
async fn user(server: &TestServer, token: &str) -> (u16, Value) {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = ask("POST", WHOAMI).by(token).json(&asked);
    let (status, body) = ask.answer(server).await;
    (status, body["status"]["userInfo"].clone())
}

/// The status of a TokenReview.
async fn reviewed(server: &TestServer, spec: Value) -> Value {
    let asked =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    ask("POST", REVIEWS).json(&asked).answer(server).await.1["status"].clone()
}

#[tokio::test]
async fn a_webhook_names_the_users_of_tokens() {
    let (webhook, _folder, server) = world(&[], |seen| match seen.body["spec"]["token"].as_str() {
        Some("token-of-jane") => review(
            seen,
            json!({"authenticated": true, "user": {"username": "jane", "uid": "42",
                "groups": ["developers"], "extra": {"scope": ["a", "b"]}}}),
        ),
        Some("other") => review(
            seen,
            json!({"authenticated": true, "audiences": ["elsewhere"], "user": {"username": "x"}}),
        ),
        Some("gone") => review(seen, json!({"authenticated": false, "error": "it is gone"})),
        _ => review(seen, json!({"authenticated": false})),
    })
    .await;
    let (status, jane) = user(&server, "token-of-jane").await;
    assert_eq!(status, 201);
    let want = json!({"username": "jane", "uid": "42", "groups": ["developers", "system:authenticated"],
        "extra": {"scope": ["a", "b"]}});
    assert_eq!(jane, want);
    let seen = webhook.take();
    assert_eq!(seen[0].uri, "/authenticate?timeout=30s");
    assert_eq!(
        seen[0].headers["authorization"],
        format!("Basic {}", base64("u:p"))
    );
    let want = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1beta1", "metadata": {},
        "spec": {"token": "token-of-jane", "audiences": [AUDIENCE]}, "status": {"user": {}}});
    assert_eq!(seen[0].body, want);

    for token in ["unknown", "unknown", "other", "gone", "gone"] {
        assert_eq!(user(&server, token).await.0, 401, "{token}");
    }
    // That a token is unknown is known for a while; why it is refused is asked again.
    let tokens: Vec<_> = webhook
        .take()
        .iter()
        .map(|seen| seen.body["spec"]["token"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(tokens, ["unknown", "other", "gone", "gone"]);
    // A token of the server's own is not shown to others.
    assert_eq!(user(&server, ADMIN).await.0, 201);
    assert_eq!(webhook.take().len(), 0);
    let log = server.log();
    assert!(!log.contains("token-of-jane"), "{log}");
}

#[tokio::test]
async fn reviews_of_tokens_ask_for_their_audiences() {
    let flags = ["--authentication-token-webhook-version=v1"];
    let (webhook, _folder, server) = world(&flags, |seen| {
        let wanted = &seen.body["spec"]["audiences"];
        match seen.body["spec"]["token"].as_str() {
            Some("aware") => review(
                seen,
                json!({"authenticated": true, "audiences": [wanted[0]], "user": {"username": "a"}}),
            ),
            _ => review(
                seen,
                json!({"authenticated": true, "user": {"username": "b"}}),
            ),
        }
    })
    .await;
    let found = reviewed(
        &server,
        json!({"token": "aware", "audiences": ["one", "two"]}),
    )
    .await;
    assert_eq!(found["audiences"], json!(["one"]));
    assert_eq!(found["user"]["username"], "a");
    let version = webhook.seen()[0].body["apiVersion"].clone();
    assert_eq!(version, "authentication.k8s.io/v1");
    // Who does not know of audiences means this server.
    let found = reviewed(&server, json!({"token": "plain"})).await;
    assert_eq!(found["audiences"], json!([AUDIENCE]));
    let found = reviewed(&server, json!({"token": "plain", "audiences": ["one"]})).await;
    assert_eq!(found["authenticated"], Value::Null, "{found}");
}

#[tokio::test]
async fn answers_are_kept_as_long_as_the_flag_says() {
    let flags = ["--authentication-token-webhook-cache-ttl=0s"];
    let (webhook, _folder, server) =
        world(&flags, |seen| review(seen, json!({"authenticated": false}))).await;
    for _ in 0..2 {
        assert_eq!(user(&server, "t").await.0, 401);
    }
    assert_eq!(webhook.seen().len(), 2);
}

/// A service cannot fill the server's memory with what it says of its users.
#[tokio::test]
async fn large_answers_are_not_kept() {
    let (webhook, _folder, server) = world(&[], |seen| {
        let groups = match seen.body["spec"]["token"].as_str() {
            Some("large") => vec!["g".repeat(100); 200],
            _ => vec!["g".repeat(100); 100],
        };
        let user = json!({"username": "jane", "groups": groups});
        review(seen, json!({"authenticated": true, "user": user}))
    })
    .await;
    for (token, asked) in [("small", 1), ("large", 3)] {
        for _ in 0..3 {
            assert_eq!(user(&server, token).await.0, 201, "{token}");
        }
        assert_eq!(webhook.take().len(), asked, "{token}");
    }
}

#[tokio::test]
async fn a_webhook_that_fails_names_nobody() {
    let reply = Arc::new(Mutex::new(Reply::Close));
    let next = reply.clone();
    let (_webhook, _folder, server) = world(&[], move |_| next.lock().unwrap().clone()).await;
    let json_type = || vec![("Content-Type", "application/json".to_owned())];
    let bodies = [
        json!({"kind": "Pod", "apiVersion": "v1", "status": {"authenticated": true}}),
        json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
            "status": {"authenticated": true, "user": {"username": "root"}}}),
        json!([true]),
    ];
    let mut replies = vec![
        Reply::Close,
        Reply::Endless(64 << 20),
        Reply::Raw(200, json_type(), b"{".to_vec()),
        Reply::Raw(403, json_type(), b"{}".to_vec()),
    ];
    replies.extend(bodies.map(|body| Reply::Raw(200, json_type(), body.to_string().into_bytes())));
    for (at, one) in replies.into_iter().enumerate() {
        *reply.lock().unwrap() = one.clone();
        assert_eq!(user(&server, &format!("t{at}")).await.0, 401, "{one:?}");
    }
    let found = reviewed(&server, json!({"token": "t"})).await;
    let why = found["error"].as_str().unwrap();
    assert!(why.starts_with("[invalid bearer token, "), "{why}");
}
