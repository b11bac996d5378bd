//! The client of a KMS plugin on a Unix socket (apiserver
//! `storage/value/encrypt/envelope/kmsv2/grpc_service.go`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::Status;
use tonic::transport::Channel;

use crate::base::grpc::{self, call_within, code_of};
use crate::base::random;
use crate::meta::go;
use crate::storage::encryption::metrics::record_call;

use generated::key_management_service_client::KeyManagementServiceClient;
use generated::{DecryptRequest, EncryptRequest, StatusRequest};
pub use generated::{EncryptResponse, StatusResponse};

#[allow(clippy::all, dead_code)]
pub(super) mod generated {
    include!(concat!(env!("OUT_DIR"), "/v2.rs"));
}

/// The maximum size of an answer. Keys and annotations are far smaller.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The calls of one plugin.
#[derive(Clone, Debug)]
pub struct Client {
    provider: String,
    client: KeyManagementServiceClient<Channel>,
    timeout: Duration,
}

impl Client {
    /// A client that connects when it is first used.
    ///
    /// # Errors
    /// The endpoint names no Unix socket.
    pub fn new(provider: &str, endpoint: &str, timeout: Duration) -> Result<Self, String> {
        let channel = grpc::channel(&socket_path(endpoint)?)
            .map_err(|why| format!("failed to create connection to {endpoint}, error: {why}"))?;
        Ok(Self {
            provider: provider.to_owned(),
            client: KeyManagementServiceClient::new(channel)
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            timeout,
        })
    }

    /// Asks for the health of the plugin.
    ///
    /// # Errors
    /// The plugin's, and that it does not answer in time.
    pub async fn status(&self) -> Result<StatusResponse, Status> {
        let call = || {
            let mut client = self.client.clone();
            async move { client.status(StatusRequest {}).await }
        };
        Ok(self.call("Status", call).await?.into_inner())
    }

    /// Lets the plugin encrypt a key.
    ///
    /// # Errors
    /// The plugin's, and that it does not answer in time.
    pub async fn encrypt(&self, plaintext: &[u8]) -> Result<EncryptResponse, Status> {
        let request = EncryptRequest {
            plaintext: Bytes::copy_from_slice(plaintext),
            uid: random::uuid(),
        };
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.encrypt(request).await }
        };
        Ok(self.call("Encrypt", call).await?.into_inner())
    }

    /// Lets the plugin decrypt a key.
    ///
    /// # Errors
    /// The plugin's, and that it does not answer in time.
    pub async fn decrypt(
        &self,
        ciphertext: Bytes,
        key_id: String,
        annotations: BTreeMap<String, Bytes>,
    ) -> Result<Bytes, Status> {
        let request = DecryptRequest {
            ciphertext,
            uid: random::uuid(),
            key_id,
            annotations,
        };
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.decrypt(request).await }
        };
        Ok(self.call("Decrypt", call).await?.into_inner().plaintext)
    }

    /// Makes a call within the time that the plugin has.
    async fn call<T, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        method: &str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, Status> {
        let start = Instant::now();
        let outcome = call_within(self.timeout, call).await;
        let method = format!("/v2.KeyManagementService/{method}");
        let code = code_of(&outcome);
        record_call(&self.provider, &method, code, start.elapsed());
        outcome
    }
}

/// Returns the path of a Unix socket, which begins with a zero byte if it is an abstract one
/// (kms `pkg/util.ParseEndpoint`).
///
/// # Errors
/// The endpoint is another URL.
pub fn socket_path(endpoint: &str) -> Result<String, String> {
    if endpoint.is_empty() {
        return Err("remote KMS provider can't use empty string as endpoint".to_owned());
    }
    let url = go::url::parse_request_uri(endpoint).map_err(|why| {
        format!("invalid endpoint {endpoint:?} for remote KMS provider, error: {why}")
    })?;
    if url.scheme != "unix" {
        let scheme = url.scheme;
        return Err(format!(
            "unsupported scheme {scheme:?} for remote KMS provider"
        ));
    }
    Ok(match url.path.strip_prefix("/@") {
        Some(name) => format!("\0{name}"),
        None => url.path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_name_sockets() {
        assert_eq!(socket_path("unix:///a/b.sock"), Ok("/a/b.sock".to_owned()));
        assert_eq!(socket_path("unix:///@name"), Ok("\0name".to_owned()));
        for wrong in ["", "http://a", "/a", "unix://%zz"] {
            assert!(socket_path(wrong).is_err(), "{wrong}");
        }
    }
}
