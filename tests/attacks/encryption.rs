//! Encryption at rest: nothing that is to be hidden is in a store, keys are rotated, and a KMS
//! plugin that misbehaves does no harm to what it has not encrypted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

use super::support::etcd::Etcd;
use super::support::{Store, TestServer, until};
use super::{ask, start};
use plugin_api::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use plugin_api::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};

#[allow(clippy::all)]
mod plugin_api {
    include!(concat!(env!("OUT_DIR"), "/v2.rs"));
}

/// The text that must not be found in a store.
const HIDDEN: &str = "hidden-plain-text";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const KEY_ONE: &str = "{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
const KEY_TWO: &str = "{name: two, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}";

/// A KMS plugin that can be told to misbehave. It "encrypts" with exclusive or.
#[derive(Default)]
struct Plugin {
    /// Counts the keys.
    key: AtomicU64,
    hangs: AtomicBool,
    fails: AtomicBool,
    /// Decrypts to something else.
    lies: AtomicBool,
    /// Names another key each time.
    flutters: AtomicBool,
    decrypted: AtomicU64,
}

impl Plugin {
    async fn misbehave(&self) -> Result<(), Status> {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Status::internal("the vault is closed")),
            false => Ok(()),
        }
    }

    fn key_id(&self) -> String {
        let step = u64::from(self.flutters.load(Ordering::Relaxed));
        format!("key-{}", self.key.fetch_add(step, Ordering::Relaxed))
    }
}

fn mask(bytes: &[u8]) -> Bytes {
    bytes.iter().map(|byte| byte ^ 0x5a).collect()
}

/// The service of a shared plugin.
#[derive(Clone)]
struct Service(Arc<Plugin>);

#[tonic::async_trait]
impl KeyManagementService for Service {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        self.0.misbehave().await?;
        Ok(Response::new(StatusResponse {
            version: "v2".to_owned(),
            healthz: "ok".to_owned(),
            key_id: self.0.key_id(),
        }))
    }

    async fn encrypt(
        &self,
        request: Request<EncryptRequest>,
    ) -> Result<Response<EncryptResponse>, Status> {
        self.0.misbehave().await?;
        let annotations = [("version.example.com".to_owned(), Bytes::from_static(b"1"))];
        Ok(Response::new(EncryptResponse {
            ciphertext: mask(&request.get_ref().plaintext),
            key_id: self.0.key_id(),
            annotations: BTreeMap::from(annotations),
        }))
    }

    async fn decrypt(
        &self,
        request: Request<DecryptRequest>,
    ) -> Result<Response<DecryptResponse>, Status> {
        self.0.misbehave().await?;
        self.0.decrypted.fetch_add(1, Ordering::Relaxed);
        assert!(
            request
                .get_ref()
                .annotations
                .contains_key("version.example.com")
        );
        let mut plaintext = mask(&request.get_ref().ciphertext);
        if self.0.lies.load(Ordering::Relaxed) {
            plaintext = mask(&plaintext);
        }
        Ok(Response::new(DecryptResponse { plaintext }))
    }
}

/// A plugin that listens. Dropping it closes the socket.
pub struct Listening {
    plugin: Arc<Plugin>,
    socket: PathBuf,
    task: JoinHandle<()>,
}

impl Listening {
    pub fn start(folder: &Path) -> Self {
        Self::with(folder, Arc::default())
    }

    fn with(folder: &Path, plugin: Arc<Plugin>) -> Self {
        let socket = folder.join("kms.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let incoming = futures::stream::unfold(listener, async |listener| {
            let stream = listener.accept().await.map(|(stream, _)| stream);
            Some((stream, listener))
        });
        let service = KeyManagementServiceServer::new(Service(plugin.clone()));
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

    pub fn provider(&self) -> String {
        let socket = self.socket.display();
        format!(
            "{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{socket}', timeout: 500ms}}}}"
        )
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes a configuration; each entry has resources and providers in flow style.
pub fn configure(folder: &Path, entries: &[(&str, &[&str])]) -> String {
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            .to_owned();
    for (resources, providers) in entries {
        let providers = providers.join(", ");
        text += &format!("- {{resources: [{resources}], providers: [{providers}]}}\n");
    }
    let (path, new) = (
        folder.join("encryption.yaml"),
        folder.join("encryption.new"),
    );
    fs::write(&new, text).unwrap();
    fs::rename(new, &path).unwrap();
    format!("--encryption-provider-config={}", path.display())
}

fn aes(cipher: &str, keys: &[&str]) -> String {
    format!("{{{cipher}: {{keys: [{}]}}}}", keys.join(", "))
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "stringData": {"password": HIDDEN}, "type": "Opaque"})
}

async fn create(server: &TestServer, path: &str, object: &Value) {
    let (status, answer) = ask("POST", path).json(object).answer(server).await;
    assert_eq!(status, 201, "{path}: {answer}");
}

/// Replaces an object by itself, and returns its revision.
async fn touch(server: &TestServer, path: &str) -> String {
    let (status, object) = ask("GET", path).answer(server).await;
    assert_eq!(status, 200, "{path}: {object}");
    let (status, answer) = ask("PUT", path).json(&object).answer(server).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The values of an etcd below a prefix.
async fn values(etcd: &Etcd, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    let options = etcd_client::GetOptions::new().with_prefix();
    let found = client.get(prefix, Some(options)).await.unwrap();
    let each = |kv: &etcd_client::KeyValue| (kv.key_str().unwrap().to_owned(), kv.value().to_vec());
    found.kvs().iter().map(each).collect()
}

async fn value(etcd: &Etcd, key: &str) -> Vec<u8> {
    let found = values(etcd, key).await;
    found.into_iter().find(|(name, _)| name == key).unwrap().1
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

/// Reports whether a file below a folder contains the text.
fn any_file_contains(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            any_file_contains(&path, text)
        } else {
            contains(&fs::read(path).unwrap_or_default(), text)
        }
    })
}

fn definition() -> Value {
    json!({"metadata": {"name": "pandas.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "pandas", "singular": "panda", "kind": "Panda", "listKind": "PandaList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// Objects of resources under different providers: path, body, key and prefix in the store.
fn hidden_objects() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let labelled = json!({"metadata": {"name": "a", "labels": {"text": HIDDEN}}});
    let panda = json!({"apiVersion": "example.com/v1", "kind": "Panda", "metadata": {"name": "a"}, "text": HIDDEN});
    let deployment = json!({"metadata": {"name": "a", "labels": {"text": HIDDEN}}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    vec![
        (
            SECRETS,
            secret("a"),
            "secrets/default/a",
            "k8s:enc:aescbc:v1:one:",
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            labelled.clone(),
            "configmaps/default/a",
            "k8s:enc:secretbox:v1:one:",
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            deployment,
            "deployments/default/a",
            "k8s:enc:aesgcm:v1:one:",
        ),
        (
            "/apis/example.com/v1/namespaces/default/pandas",
            panda,
            "example.com/pandas/default/a",
            "k8s:enc:kms:v2:vault:",
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            labelled,
            "serviceaccounts/default/a",
            "k8s:enc:kms:v2:vault:",
        ),
    ]
}

/// Starts a server, writes objects under every provider, restarts it and reads them.
async fn hide(folder: &Path, store: Store<'_>, plugin: &Listening) -> TestServer {
    let config = configure(
        folder,
        &[
            ("secrets", &[&aes("aescbc", &[KEY_ONE])]),
            ("configmaps", &[&aes("secretbox", &[KEY_ONE])]),
            ("'*.apps'", &[&aes("aesgcm", &[KEY_ONE])]),
            ("'*.*'", &[&plugin.provider()]),
        ],
    );
    let mut server = start(folder, store, &[&config]).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&server, definitions, &definition()).await;
    until("pandas are served", async || {
        ask("GET", "/apis/example.com/v1/namespaces/default/pandas")
            .status(&server)
            .await
            == 200
    })
    .await;
    for (path, object, ..) in hidden_objects() {
        create(&server, path, &object).await;
    }
    server.terminate().await;
    let server = start(folder, store, &[&config]).await;
    for (path, _, key, _) in hidden_objects() {
        for read in [
            path.to_owned(),
            format!("{path}?resourceVersion=0"),
            format!("{path}?limit=1"),
        ] {
            let (status, list) = ask("GET", &read).answer(&server).await;
            assert_eq!(status, 200, "{read}: {list}");
            assert!(
                list["items"][0]["metadata"]["name"].is_string(),
                "{read}: {list}"
            );
        }
        let one = format!("{path}/{}", key.rsplit('/').next().unwrap());
        assert_eq!(ask("GET", &one).status(&server).await, 200, "{one}");
    }
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn every_provider_hides_what_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Listening::start(folder.path());
    let mut server = hide(folder.path(), Store::Embedded, &plugin).await;
    server.terminate().await;
    let data = folder.path().join("data");
    assert!(any_file_contains(&data, "k8s:enc:kms:v2:vault:"));
    let encoded = "aGlkZGVuLXBsYWluLXRleHQ=";
    for text in [HIDDEN, encoded] {
        assert!(!any_file_contains(&data, text), "{text} is on disk");
    }

    let folder = tempfile::tempdir().unwrap();
    let plugin = Listening::start(folder.path());
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let server = hide(folder.path(), Store::Etcd(&etcd.endpoint()), &plugin).await;
    let all = values(&etcd, "").await;
    for (key, bytes) in &all {
        assert!(
            !contains(bytes, HIDDEN) && !contains(bytes, encoded),
            "{key}"
        );
        // Keys of the server's own belong to no resource.
        let own = [
            "/registry/ranges/",
            "/registry/masterleases/",
            "/registry/peerserverleases/",
            "compact_rev_key",
        ];
        if !own.iter().any(|prefix| key.starts_with(prefix)) {
            assert!(bytes.starts_with(b"k8s:enc:"), "{key} is not encrypted");
        }
    }
    for (_, _, key, prefix) in hidden_objects() {
        let stored = value(&etcd, &format!("/registry/{key}")).await;
        assert!(stored.starts_with(prefix.as_bytes()), "{key}");
    }
    assert!(
        plugin.plugin.decrypted.load(Ordering::Relaxed) <= 32,
        "keys are kept"
    );
    let metrics = server.metrics().await;
    for line in [
        "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"OK\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:aescbc:v1:\"}",
        "apiserver_storage_transformation_operations_total{resource=\"pandas.example.com\",status=\"OK\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:kms:v2:vault:\"}",
        "apiserver_envelope_encryption_key_id_hash_total{",
        "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"vault\"}",
        "apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code=\"OK\",method_name=\"/v2.KeyManagementService/Status\",provider_name=\"vault\"}",
        "apiserver_encryption_config_controller_last_config_info{",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

/// A value that was moved to another key, or that was damaged, is that one object's trouble.
#[tokio::test(flavor = "multi_thread")]
async fn values_that_were_tampered_with_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let config = configure(folder.path(), &[("secrets", &[&aes("aesgcm", &[KEY_ONE])])]);
    let server = start(folder.path(), Store::Etcd(&etcd.endpoint()), &[&config]).await;
    for name in ["a", "b"] {
        create(&server, SECRETS, &secret(name)).await;
    }
    let moved = value(&etcd, "/registry/secrets/default/a").await;
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    client
        .put("/registry/secrets/default/b", moved, None)
        .await
        .unwrap();
    let path = format!("{SECRETS}/b");
    until("the change is seen", async || {
        ask("GET", &path).status(&server).await == 500
    })
    .await;
    let (_, answer) = ask("GET", &path).answer(&server).await;
    assert_eq!(
        answer["message"],
        "Internal error occurred: cipher: message authentication failed"
    );
    let (status, answer) = ask("GET", SECRETS).answer(&server).await;
    assert_eq!(status, 500, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("/registry/secrets/default/b"), "{message}");
    assert_eq!(
        ask("GET", &format!("{SECRETS}/a")).status(&server).await,
        200
    );
    for method in ["PUT", "DELETE"] {
        let status = ask(method, &path).json(&secret("b")).status(&server).await;
        assert_eq!(status, 500, "{method}");
    }
    // Values that are not encrypted are refused where nothing says that there may be some.
    let plain =
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b","namespace":"default"}}"#;
    client
        .put("/registry/secrets/default/b", plain, None)
        .await
        .unwrap();
    until("the change is seen", async || {
        let (_, answer) = ask("GET", &path).answer(&server).await;
        answer["message"] == "Internal error occurred: no matching prefix found"
    })
    .await;
    assert_eq!(ask("GET", SECRETS).status(&server).await, 500);
}

/// Restarts a server with other providers for secrets.
async fn restart(server: &mut TestServer, folder: &Path, etcd: &Etcd, providers: &[&str]) {
    server.terminate().await;
    let config = configure(folder, &[("secrets", providers)]);
    *server = start(folder, Store::Etcd(&etcd.endpoint()), &[&config]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_changes_nothing_encrypts_with_the_new_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let (one, two) = (aes("aescbc", &[KEY_ONE]), aes("aesgcm", &[KEY_TWO]));
    let (both, path) = (aes("aescbc", &[KEY_TWO, KEY_ONE]), format!("{SECRETS}/a"));
    let mut server = start(folder, Store::Etcd(&etcd.endpoint()), &[]).await;
    create(&server, SECRETS, &secret("a")).await;
    assert!(contains(
        &value(&etcd, "/registry/secrets/default/a").await,
        HIDDEN
    ));
    let first = touch(&server, &path).await;
    assert_eq!(touch(&server, &path).await, first, "nothing is written");
    let mut before = first;
    let identity = "{identity: {}}";
    for (providers, prefix) in [
        (
            [one.as_str(), identity].as_slice(),
            "k8s:enc:aescbc:v1:one:",
        ),
        (&[&both], "k8s:enc:aescbc:v1:two:"),
        (&[&two, &both], "k8s:enc:aesgcm:v1:two:"),
        (&[identity, &two], "k8s\0"),
    ] {
        restart(&mut server, folder, &etcd, providers).await;
        let after = touch(&server, &path).await;
        assert_ne!(after, before, "{prefix}: it is written");
        let stored = value(&etcd, "/registry/secrets/default/a").await;
        assert!(stored.starts_with(prefix.as_bytes()), "{prefix}");
        assert_eq!(touch(&server, &path).await, after, "{prefix}: once");
        before = after;
    }
    // Without the key: what is encrypted is lost, the rest is not.
    restart(&mut server, folder, &etcd, &[&two, identity]).await;
    touch(&server, &path).await;
    restart(&mut server, folder, &etcd, &[&one]).await;
    let (status, answer) = ask("GET", &path).answer(&server).await;
    let why = "Internal error occurred: no matching prefix found";
    assert_eq!((status, &answer["message"]), (500, &json!(why)));
    assert_eq!(ask("GET", "/api/v1/namespaces").status(&server).await, 200);
    server.terminate().await;
    server = start(folder, Store::Etcd(&etcd.endpoint()), &[]).await;
    let (status, answer) = ask("GET", &path).answer(&server).await;
    let why = "Internal error occurred: identity transformer tried to read encrypted data";
    assert_eq!((status, &answer["message"]), (500, &json!(why)));
}

/// The number of reloads that ended like that.
async fn reloads(server: &TestServer, status: &str) -> u64 {
    let metrics = server.metrics().await;
    let name = "apiserver_encryption_config_controller_automatic_reloads_total{";
    let status = format!("status=\"{status}\"");
    let line = metrics
        .lines()
        .find(|line| line.starts_with(name) && line.contains(&status));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_is_brought_into_force() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let (one, both) = (
        aes("aesgcm", &[KEY_ONE]),
        aes("aesgcm", &[KEY_TWO, KEY_ONE]),
    );
    let config = configure(folder, &[("secrets", &[&one])]);
    let reload = "--encryption-provider-config-automatic-reload=true";
    let server = start(folder, Store::Etcd(&etcd.endpoint()), &[&config, reload]).await;
    assert_eq!(
        ask("GET", "/healthz/kms-providers").status(&server).await,
        200
    );
    create(&server, SECRETS, &secret("a")).await;

    // A wrong file changes nothing, and is told of.
    fs::write(folder.join("encryption.yaml"), "kind: Pod").unwrap();
    server.hang_up();
    until("the failure is counted", async || {
        reloads(&server, "failure").await > 0
    })
    .await;
    let log = server.log();
    assert!(log.contains("Object 'apiVersion' is missing"), "{log}");
    create(&server, SECRETS, &secret("b")).await;
    let stored = value(&etcd, "/registry/secrets/default/b").await;
    assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:one:"));

    configure(folder, &[("secrets", &[&both])]);
    server.hang_up();
    until("the success is counted", async || {
        reloads(&server, "success").await > 0
    })
    .await;
    for name in ["a", "b"] {
        touch(&server, &format!("{SECRETS}/{name}")).await;
        let stored = value(&etcd, &format!("/registry/secrets/default/{name}")).await;
        assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:two:"), "{name}");
    }

    // A key that comes back makes readable what was not.
    configure(folder, &[("secrets", &[&one])]);
    server.hang_up();
    until("the key is gone", async || {
        reloads(&server, "success").await > 1
    })
    .await;
    create(&server, SECRETS, &secret("c")).await;
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    let stored = value(&etcd, "/registry/secrets/default/a").await;
    client
        .put("/registry/secrets/default/a", stored, None)
        .await
        .unwrap();
    let path = format!("{SECRETS}/a");
    until("it is unreadable", async || {
        ask("GET", &path).status(&server).await == 500
    })
    .await;
    configure(folder, &[("secrets", &[&both])]);
    server.hang_up();
    until("it is readable", async || {
        ask("GET", &path).status(&server).await == 200
    })
    .await;
    until("so is the list", async || {
        ask("GET", SECRETS).status(&server).await == 200
    })
    .await;
    assert!(
        !server.log().contains("MDEyMzQ1Njc4OWFi"),
        "no key is logged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_configurations_keep_a_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let short = aes("aescbc", &["{name: one, secret: c2hvcnQ=}"]);
    let v1 = "{kms: {name: old, endpoint: 'unix:///none.sock'}}";
    for (providers, why) in [
        (
            short.as_str(),
            "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [16 24 32]",
        ),
        (
            "{aescbc: {keys: [{name: one, key: x}]}}",
            "unknown field \"resources[0].providers[0].aescbc.keys[0].key\"",
        ),
        (
            v1,
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.",
        ),
        (
            "{}",
            "provider does not contain any of the expected providers",
        ),
    ] {
        let config = configure(folder, &[("secrets", &[providers])]);
        let data = format!("--data-dir={}", folder.join("data").display());
        let flags = [
            data,
            config,
            "--secure-port=0".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        ];
        let mut process = TestServer::run(folder, &flags);
        assert!(!process.ends().await, "{providers}");
        assert!(
            process.log().contains(why),
            "{providers}: {}",
            process.log()
        );
    }
    let alone = ["--encryption-provider-config-automatic-reload=true".to_owned()];
    let mut process = TestServer::run(folder, &alone);
    assert!(!process.ends().await);
    let why = "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config";
    assert!(process.log().contains(why), "{}", process.log());
}

/// Reads of other resources, each of which must be quick.
async fn others_go_on(server: &TestServer) {
    for path in ["/api/v1/namespaces", "/api/v1/pods", "/livez"] {
        let start = Instant::now();
        assert_eq!(ask("GET", path).status(server).await, 200, "{path}");
        assert!(start.elapsed() < Duration::from_secs(5), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_plugin_harms_nothing_but_what_it_encrypts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let listening = Listening::start(folder);
    let plugin = listening.plugin.clone();
    let config = configure(folder, &[("secrets", &[&listening.provider()])]);
    let mut server = start(folder, Store::Etcd(&etcd.endpoint()), &[&config]).await;
    create(&server, SECRETS, &secret("a")).await;
    let path = format!("{SECRETS}/a");

    // It hangs: what is known is read, and written as long as the key may be used.
    plugin.hangs.store(true, Ordering::Relaxed);
    assert_eq!(ask("GET", &path).status(&server).await, 200);
    create(&server, SECRETS, &secret("b")).await;
    until("it is not healthy", async || {
        ask("GET", "/healthz/kms-providers").status(&server).await == 500
    })
    .await;
    let answer = ask("GET", "/healthz/kms-providers").send(&server).await;
    let answer = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        answer.contains("kms-provider-0: failed to perform status section of the healthz check for KMS Provider vault, error: rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        "{answer}"
    );
    assert_eq!(ask("GET", "/livez").status(&server).await, 200);

    // It hangs while the server starts, which knows no key.
    server.kill();
    let endpoint = etcd.endpoint();
    let store = Store::Etcd(&endpoint);
    let restarted = TestServer::start_live(folder, store, &[&config]).await;
    let (status, answer) = ask("GET", &path).answer(&restarted).await;
    assert_eq!(status, 500, "{answer}");
    others_go_on(&restarted).await;
    let (status, answer) = ask("POST", SECRETS)
        .json(&secret("c"))
        .answer(&restarted)
        .await;
    assert_eq!(status, 500, "{answer}");
    plugin.hangs.store(false, Ordering::Relaxed);
    until("it recovers", async || {
        ask("GET", &path).status(&restarted).await == 200
    })
    .await;
    create(&restarted, SECRETS, &secret("c")).await;

    // It lies about keys of another server: its values are refused, the others are read.
    let other = tempfile::tempdir().unwrap();
    plugin.key.store(7, Ordering::Relaxed);
    let second = start(other.path(), Store::Etcd(&etcd.endpoint()), &[&config]).await;
    plugin.lies.store(true, Ordering::Relaxed);
    create(&second, SECRETS, &secret("d")).await;
    until("d is refused", async || {
        ask("GET", &format!("{SECRETS}/d")).status(&restarted).await == 500
    })
    .await;
    assert_eq!(ask("GET", &path).status(&restarted).await, 200);
    others_go_on(&restarted).await;
    plugin.lies.store(false, Ordering::Relaxed);
    assert_eq!(
        ask("GET", &format!("{SECRETS}/d")).status(&restarted).await,
        200
    );
    drop(second);

    // It names another key with each answer, then dies.
    plugin.flutters.store(true, Ordering::Relaxed);
    until("fluttering keys are not healthy", async || {
        ask("GET", "/healthz/kms-providers")
            .status(&restarted)
            .await
            == 500
    })
    .await;
    drop(listening);
    assert_eq!(ask("GET", &path).status(&restarted).await, 200);
    others_go_on(&restarted).await;
    plugin.flutters.store(false, Ordering::Relaxed);
    let _back = Listening::with(folder, plugin.clone());
    until("it is healthy again", async || {
        ask("GET", "/healthz/kms-providers")
            .status(&restarted)
            .await
            == 200
    })
    .await;
}

/// A plugin with another key: objects are stale from then on.
#[tokio::test(flavor = "multi_thread")]
async fn another_key_of_a_plugin_makes_values_stale() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let listening = Listening::start(folder);
    let config = configure(folder, &[("secrets", &[&listening.provider()])]);
    let mut server = start(folder, Store::Etcd(&etcd.endpoint()), &[&config]).await;
    create(&server, SECRETS, &secret("a")).await;
    let path = format!("{SECRETS}/a");
    let before = touch(&server, &path).await;
    server.terminate().await;
    // The same key with another seed: nothing is stale.
    server = start(folder, Store::Etcd(&etcd.endpoint()), &[&config]).await;
    assert_eq!(touch(&server, &path).await, before);
    listening.plugin.key.store(1, Ordering::Relaxed);
    server.terminate().await;
    server = start(folder, Store::Etcd(&etcd.endpoint()), &[&config]).await;
    let after = touch(&server, &path).await;
    assert_ne!(after, before);
    let stored = value(&etcd, "/registry/secrets/default/a").await;
    assert!(contains(&stored, "key-1"));
    assert_eq!(touch(&server, &path).await, after);
}
