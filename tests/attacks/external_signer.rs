//! A plugin that signs service account tokens: what it signs is accepted, and what it does wrong
//! lets nobody in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

use super::support::oidc::{Key, encode};
use super::support::{Store, TestServer};
use super::{ask, start};
use plugin_api::external_jwt_signer_server::{ExternalJwtSigner, ExternalJwtSignerServer};
use plugin_api::{
    FetchKeysRequest, FetchKeysResponse, MetadataRequest, MetadataResponse, SignJwtRequest,
    SignJwtResponse, Timestamp,
};

#[allow(clippy::all)]
mod plugin_api {
    include!(concat!(env!("OUT_DIR"), "/v1.rs"));
}

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// The state of a plugin.
struct Plugin {
    /// The keys that it tells of, each with whether it is hidden.
    keys: Vec<(&'static str, Arc<Key>, bool)>,
    /// The key that it signs with, and the header that it writes.
    signs: Arc<Key>,
    header: Value,
    max_seconds: i64,
    fetches: usize,
    fails: bool,
}

impl Plugin {
    fn new() -> Self {
        let key = Arc::new(Key::ec());
        Self {
            keys: vec![("one", key.clone(), false)],
            signs: key,
            header: json!({"alg": "ES256", "kid": "one", "typ": "JWT"}),
            max_seconds: 3600,
            fetches: 0,
            fails: false,
        }
    }
}

#[derive(Clone)]
struct Service(Arc<Mutex<Plugin>>);

#[tonic::async_trait]
impl ExternalJwtSigner for Service {
    async fn sign(
        &self,
        request: Request<SignJwtRequest>,
    ) -> Result<Response<SignJwtResponse>, Status> {
        let plugin = self.0.lock().unwrap();
        if plugin.fails {
            return Err(Status::internal("the vault is closed"));
        }
        let claims = super::support::oidc::decode(&request.get_ref().claims);
        let token = plugin.signs.sign(&plugin.header, &claims);
        let mut parts = token.split('.');
        let header = parts.next().unwrap().to_owned();
        // The claims are signed as they came, in the order of the server.
        assert_eq!(parts.next().unwrap(), request.get_ref().claims);
        let signature = parts.next().unwrap().to_owned();
        Ok(Response::new(SignJwtResponse { header, signature }))
    }

    async fn fetch_keys(
        &self,
        _: Request<FetchKeysRequest>,
    ) -> Result<Response<FetchKeysResponse>, Status> {
        let mut plugin = self.0.lock().unwrap();
        plugin.fetches += 1;
        let keys = plugin.keys.iter().map(|(id, key, hidden)| plugin_api::Key {
            key_id: (*id).to_owned(),
            key: Bytes::from(key.public_der()),
            exclude_from_oidc_discovery: *hidden,
        });
        Ok(Response::new(FetchKeysResponse {
            keys: keys.collect(),
            data_timestamp: Some(Timestamp {
                seconds: 1,
                nanos: 0,
            }),
            refresh_hint_seconds: 3600,
        }))
    }

    async fn metadata(
        &self,
        _: Request<MetadataRequest>,
    ) -> Result<Response<MetadataResponse>, Status> {
        Ok(Response::new(MetadataResponse {
            max_token_expiration_seconds: self.0.lock().unwrap().max_seconds,
        }))
    }
}

/// A plugin that listens. Dropping it closes the socket.
struct Listening {
    plugin: Arc<Mutex<Plugin>>,
    socket: PathBuf,
    task: JoinHandle<()>,
}

impl Listening {
    fn start(folder: &Path, plugin: Plugin) -> Self {
        let socket = folder.join("signer.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let incoming = futures::stream::unfold(listener, async |listener| {
            let stream = listener.accept().await.map(|(stream, _)| stream);
            Some((stream, listener))
        });
        let plugin = Arc::new(Mutex::new(plugin));
        let service = ExternalJwtSignerServer::new(Service(plugin.clone()));
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(Box::pin(incoming));
        let task = tokio::spawn(async move { drop(serving.await) });
        Self {
            plugin,
            socket,
            task,
        }
    }

    fn flag(&self) -> String {
        format!(
            "--service-account-signing-endpoint={}",
            self.socket.display()
        )
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks for a token of a service account.
async fn request(server: &TestServer, seconds: i64) -> (u16, Value) {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": seconds}});
    let path = format!("{ACCOUNTS}/robot/token");
    ask("POST", &path).json(&body).answer(server).await
}

/// The status of a TokenReview.
async fn review(server: &TestServer, token: &str) -> Value {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    ask("POST", REVIEWS).json(&asked).answer(server).await.1["status"].clone()
}

/// The names of the keys that the server shows.
async fn shown(server: &TestServer) -> Vec<Value> {
    let (_, keys) = ask("GET", "/openid/v1/jwks").answer(server).await;
    let keys = keys["keys"].as_array().unwrap().iter();
    keys.map(|key| key["kid"].clone()).collect()
}

#[tokio::test]
async fn a_plugin_signs_tokens_and_knows_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let old = Arc::new(Key::ec());
    let mut plugin = Plugin::new();
    plugin.keys.push(("hidden", old.clone(), true));
    let listening = Listening::start(folder.path(), plugin);
    let flag = listening.flag();
    let server = start(folder.path(), Store::Embedded, &[&flag]).await;
    let account = json!({"metadata": {"name": "robot"}});
    assert_eq!(
        ask("POST", ACCOUNTS).json(&account).status(&server).await,
        201
    );
    assert_eq!(shown(&server).await, ["one"]);

    // No token lives longer than the plugin says.
    let (status, made) = request(&server, 7200).await;
    assert_eq!(
        (status, &made["spec"]["expirationSeconds"]),
        (201, &json!(3600))
    );
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 7200}});
    let path = format!("{ACCOUNTS}/robot/token");
    let answer = ask("POST", &path).json(&body).send(&server).await;
    let warning = answer.headers["warning"].to_str().unwrap();
    let want = "299 - \"requested expiration of 7200 seconds shortened to 3600 seconds\"";
    assert_eq!(warning, want);
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    let found = review(&server, &token).await;
    assert_eq!(
        found["user"]["username"],
        "system:serviceaccount:default:robot"
    );
    let claims = super::support::oidc::decode(token.split('.').nth(1).unwrap());
    let seconds = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(seconds, 3600);

    // A key that is not shown verifies what there is.
    let forge = |key: &Key, kid: &str| {
        let mut claims = claims.clone();
        claims["jti"] = kid.into();
        key.sign(&json!({"alg": "ES256", "kid": kid, "typ": "JWT"}), &claims)
    };
    let found = review(&server, &forge(&old, "hidden")).await;
    assert_eq!(found["authenticated"], true, "{found}");
    // A new key is known as soon as it is used.
    let new = Arc::new(Key::ec());
    listening
        .plugin
        .lock()
        .unwrap()
        .keys
        .push(("two", new.clone(), false));
    let found = review(&server, &forge(&new, "two")).await;
    assert_eq!(found["authenticated"], true, "{found}");
    let found = review(&server, &forge(&Key::ec(), "one")).await;
    assert_eq!(found["authenticated"], Value::Null, "{found}");
    // Unknown keys cannot have the plugin asked all the time.
    listening.plugin.lock().unwrap().fetches = 0;
    for _ in 0..40 {
        let found = review(&server, &forge(&Key::ec(), "unknown")).await;
        assert!(
            found["error"].as_str().unwrap().contains("no keys found"),
            "{found}"
        );
    }
    let fetches = listening.plugin.lock().unwrap().fetches;
    assert!(fetches <= 20, "{fetches}");
}

#[tokio::test]
async fn what_a_plugin_does_wrong_is_not_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut plugin = Plugin::new();
    plugin.keys.push(("hidden", Arc::new(Key::ec()), true));
    let listening = Listening::start(folder.path(), plugin);
    let flag = listening.flag();
    let server = start(folder.path(), Store::Embedded, &[&flag]).await;
    let account = json!({"metadata": {"name": "robot"}});
    assert_eq!(
        ask("POST", ACCOUNTS).json(&account).status(&server).await,
        201
    );
    for (header, why) in [
        (json!({"alg": "ES256", "kid": "one"}), "bad type"),
        (json!({"alg": "ES256", "typ": "JWT"}), "key id missing"),
        (
            json!({"alg": "none", "kid": "one", "typ": "JWT"}),
            "bad signing algorithm \"none\"",
        ),
        (
            json!({"alg": "ES256", "kid": "one", "typ": "JWT", "jku": "x"}),
            "while parsing header JSON",
        ),
        (
            json!({"alg": "ES256", "kid": "hidden", "typ": "JWT"}),
            "key used for signing JWT (kid: hidden) is excluded from OIDC discovery docs",
        ),
    ] {
        listening.plugin.lock().unwrap().header = header;
        let (status, body) = request(&server, 3600).await;
        let message = body["message"].as_str().unwrap();
        assert_eq!(status, 500, "{why}");
        assert!(
            message.contains("failed to generate token: while validating header: "),
            "{message}"
        );
        assert!(message.contains(why), "{message}");
    }
    listening.plugin.lock().unwrap().fails = true;
    let (status, body) = request(&server, 3600).await;
    let want = "failed to generate token: while signing jwt: rpc error: code = Internal desc = the vault is closed";
    let message = body["message"].as_str().unwrap();
    assert!(status == 500 && message.contains(want), "{message}");
}

#[tokio::test]
async fn a_plugin_that_cannot_be_used_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut plugin = Plugin::new();
    plugin.max_seconds = 60;
    let listening = Listening::start(folder.path(), plugin);
    let refused = async |flags: &[&str]| {
        let mut all = vec![
            format!("--data-dir={}", folder.path().join("data").display()),
            "--secure-port=0".to_owned(),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut process = TestServer::run(folder.path(), &all);
        assert!(!process.ends().await, "it started");
        process.log()
    };
    let flag = listening.flag();
    let log = refused(&[&flag]).await;
    assert!(log.contains("max token life supported by external-jwt-signer (60s) is less than acceptable (min 600s)"), "{log}");
    listening.plugin.lock().unwrap().max_seconds = 3600;
    let log = refused(&[&flag, "--service-account-max-token-expiration=2h"]).await;
    assert!(log.contains("2h0m0s > 1h0m0s"), "{log}");
    listening.plugin.lock().unwrap().keys.clear();
    let log = refused(&[&flag]).await;
    assert!(log.contains("found no keys"), "{log}");
    let log = refused(&["--service-account-signing-endpoint=@a/b"]).await;
    assert!(
        log.contains("must be a valid abstract socket name"),
        "{log}"
    );
    let key = folder.path().join("sa.key");
    fs::write(&key, encode("no key")).unwrap();
    let key = format!("--service-account-key-file={}", key.display());
    let log = refused(&[&flag, &key]).await;
    assert!(log.contains("They are mutually exclusive"), "{log}");
}
