//! KMS plugins of version 1, behind their gate: a key for each value, values of older servers, and
//! plugins that are not what they should be.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use keelson::internals::storage::encryption::Cipher;
use serde_json::json;
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use super::support::Store;
use super::support::etcd::Etcd;
use super::{ask, start};
use api::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use api::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, VersionRequest,
    VersionResponse,
};

#[allow(clippy::all)]
mod api {
    include!(concat!(env!("OUT_DIR"), "/v1beta1.rs"));
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PREFIX: &[u8] = b"k8s:enc:kms:v1:old:";

/// A plugin that "encrypts" with exclusive or.
#[derive(Default)]
struct Plugin {
    /// True if it tells of another version.
    is_other: AtomicBool,
    fails: AtomicBool,
    encrypted: AtomicU64,
}

fn mask(bytes: &[u8]) -> Bytes {
    bytes.iter().map(|byte| byte ^ 0x5a).collect()
}

#[tonic::async_trait]
impl KeyManagementService for Arc<Plugin> {
    async fn version(
        &self,
        _: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        let version = match self.is_other.load(Ordering::Relaxed) {
            true => "v9",
            false => "v1beta1",
        };
        Ok(Response::new(VersionResponse {
            version: version.to_owned(),
            ..VersionResponse::default()
        }))
    }

    async fn encrypt(
        &self,
        request: Request<EncryptRequest>,
    ) -> Result<Response<EncryptResponse>, Status> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(Status::internal("the vault is closed"));
        }
        self.encrypted.fetch_add(1, Ordering::Relaxed);
        let cipher = mask(&request.get_ref().plain);
        Ok(Response::new(EncryptResponse { cipher }))
    }

    async fn decrypt(
        &self,
        request: Request<DecryptRequest>,
    ) -> Result<Response<DecryptResponse>, Status> {
        let plain = mask(&request.get_ref().cipher);
        Ok(Response::new(DecryptResponse { plain }))
    }
}

/// Starts a plugin in a folder, and returns its socket.
fn listen(folder: &Path, plugin: &Arc<Plugin>) -> PathBuf {
    let socket = folder.join("kms.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let incoming = futures::stream::unfold(listener, async |listener| {
        let stream = listener.accept().await.map(|(stream, _)| stream);
        Some((stream, listener))
    });
    let service = KeyManagementServiceServer::new(plugin.clone());
    let serving = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(Box::pin(incoming));
    tokio::spawn(serving);
    socket
}

fn configure(folder: &Path, socket: &Path) -> String {
    let path = folder.join("encryption.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{{kms: {{name: old, endpoint: 'unix://{}', timeout: 2s}}}}]\n",
        socket.display()
    );
    fs::write(&path, text).unwrap();
    format!("--encryption-provider-config={}", path.display())
}

async fn stored(etcd: &mut etcd_client::Client, name: &str) -> Vec<u8> {
    let key = format!("/registry/secrets/default/{name}");
    let found = etcd.get(key, None).await.unwrap();
    found.kvs()[0].value().to_vec()
}

/// The encrypted key of a value.
fn key_of(value: &[u8]) -> &[u8] {
    let rest = value.strip_prefix(PREFIX).expect("the prefix");
    let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    &rest[2..2 + length]
}

#[tokio::test(flavor = "multi_thread")]
async fn values_have_keys_of_their_own() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), Arc::new(Plugin::default()));
    let socket = listen(folder.path(), &plugin);
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let flags = [
        configure(folder.path(), &socket),
        "--feature-gates=KMSv1=true".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let endpoint = etcd.endpoint();
    let mut server = start(folder.path(), Store::Etcd(&endpoint), &flags).await;
    for name in ["a", "b"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"a": "hidden"}});
        let (status, made) = ask("POST", SECRETS).json(&secret).answer(&server).await;
        assert_eq!(status, 201, "{made}");
    }
    let mut client = etcd_client::Client::connect([&endpoint], None)
        .await
        .unwrap();
    let (a, b) = (
        stored(&mut client, "a").await,
        stored(&mut client, "b").await,
    );
    assert_eq!(key_of(&a).len(), 32);
    assert_ne!(key_of(&a), key_of(&b));

    // As servers before 1.25 wrote it.
    let plain = br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"cbc","namespace":"default","uid":"u"}}"#;
    let mut old = [PREFIX, &32_u16.to_be_bytes()[..], &mask(&[7; 32])[..]].concat();
    let cipher = Cipher::aes_cbc(&[7; 32]).unwrap();
    cipher.encrypt("", plain, &mut old).unwrap();
    client
        .put("/registry/secrets/default/cbc", old.clone(), None)
        .await
        .unwrap();
    server.terminate().await;
    let server = start(folder.path(), Store::Etcd(&endpoint), &flags).await;
    for name in ["a", "b", "cbc"] {
        let path = format!("{SECRETS}/{name}");
        let (status, secret) = ask("GET", &path).answer(&server).await;
        assert_eq!(status, 200, "{secret}");
        let (status, written) = ask("PUT", &path).json(&secret).answer(&server).await;
        assert_eq!(status, 200, "{written}");
    }
    let new = stored(&mut client, "cbc").await;
    assert_ne!(key_of(&new), key_of(&old), "it is written anew");
    assert_eq!(stored(&mut client, "a").await, a, "nothing has changed");
    assert_eq!(
        ask("GET", "/healthz/kms-provider-0").status(&server).await,
        200
    );

    plugin.fails.store(true, Ordering::Relaxed);
    let secret = json!({"metadata": {"name": "c"}});
    let (status, refused) = ask("POST", SECRETS).json(&secret).answer(&server).await;
    assert_eq!(status, 500, "{refused}");
    assert_eq!(
        ask("GET", &format!("{SECRETS}/a")).status(&server).await,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_of_another_version_is_not_used() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), Arc::new(Plugin::default()));
    plugin.is_other.store(true, Ordering::Relaxed);
    let socket = listen(folder.path(), &plugin);
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let flags = [
        configure(folder.path(), &socket),
        "--feature-gates=KMSv1=true".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = super::support::TestServer::start_live(
        folder.path(),
        Store::Etcd(&etcd.endpoint()),
        &flags,
    )
    .await;
    let answer = ask("GET", "/readyz/kms-provider-0").send(&server).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, 500, "{text}");
    let why = "KMS provider api version v9 is not supported, only v1beta1 is supported now";
    assert!(server.log().contains(why) || text.contains(why), "{text}");
    assert_eq!(plugin.encrypted.load(Ordering::Relaxed), 0);
}
