//! Master leases: each server of a cluster keeps a key with its address, which expires unless it is
//! renewed.
//!
//! The keys and their values are kube-apiserver's (`pkg/controlplane/reconcilers/lease.go`): both
//! can be servers of one cluster. So are those by which servers of other versions find this one as
//! a peer (apiserver `reconcilers/peer_endpoint_lease.go`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::codec::protobuf;
use crate::meta::{Gvk, Object, Value, json};
use crate::schema::TypeRef;
use crate::storage::{ListRequest, Result, Revision, Storage, StorageError, Stored, WriteOutcome};

/// The time to live of a server's key (`DefaultEndpointReconcilerTTL`).
const TTL: Duration = Duration::from_secs(15);
/// The maximum number of attempts of a write that conflicts with those of another server of the
/// same address.
const ATTEMPTS: usize = 5;

/// The keys of all servers.
pub struct MasterLeases {
    storage: Arc<dyn Storage>,
    prefix: String,
    peer: Option<Peer>,
}

/// A server as its peers find it.
struct Peer {
    key: String,
    identity: String,
    address: SocketAddr,
}

impl MasterLeases {
    /// The keys under the root of all keys (`/registry`).
    pub fn new(storage: Arc<dyn Storage>, root: &str) -> Self {
        Self {
            storage,
            prefix: format!("{root}/masterleases/"),
            peer: None,
        }
    }

    /// Adds the key by which peers find this server (feature gate
    /// UnknownVersionInteroperabilityProxy).
    #[must_use]
    pub fn with_peer(mut self, root: &str, identity: String, address: SocketAddr) -> Self {
        let key = format!("{root}/peerserverleases/{identity}");
        self.peer = Some(Peer {
            key,
            identity,
            address,
        });
        self
    }

    /// Renews the key of the server at this address.
    ///
    /// # Errors
    /// The store's. Then others may see the server go.
    pub async fn renew(&self, address: IpAddr) -> Result<()> {
        let lease = |generation| encode(address, generation);
        self.renew_key(&self.key(address), lease).await?;
        match &self.peer {
            None => Ok(()),
            Some(peer) => {
                self.renew_key(&peer.key, |generation| peer.encode(generation))
                    .await
            }
        }
    }

    async fn renew_key(&self, key: &str, lease: impl Fn(i64) -> Vec<u8>) -> Result<()> {
        let mut found = self.storage.get(key).await?;
        for _ in 0..ATTEMPTS {
            // A value that is the same would not be written, so it counts.
            let generation = found
                .as_ref()
                .and_then(decode)
                .and_then(|lease| lease.i64_at("/metadata/generation"))
                .unwrap_or(0)
                + 1;
            let value = lease(generation).into();
            let outcome = match &found {
                None => self.storage.create(key, value, Some(TTL)).await?,
                Some(stored) => {
                    self.storage
                        .update(key, value, stored.mod_revision, Some(TTL))
                        .await?
                }
            };
            match outcome {
                WriteOutcome::Committed(_) => return Ok(()),
                WriteOutcome::Conflict(other) => found = other,
            }
        }
        Err(StorageError::Internal(format!("others keep writing {key}")))
    }

    /// Deletes the key of the server at this address.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove(&self, address: IpAddr) -> Result<()> {
        if let Some(peer) = &self.peer {
            self.remove_key(&peer.key).await?;
        }
        self.remove_key(&self.key(address)).await
    }

    async fn remove_key(&self, key: &str) -> Result<()> {
        let mut revision: Revision = self
            .storage
            .get(key)
            .await?
            .map_or(0, |stored| stored.mod_revision);
        while revision != 0 {
            match self.storage.delete(key, revision).await? {
                WriteOutcome::Committed(_) => return Ok(()),
                WriteOutcome::Conflict(other) => {
                    revision = other.map_or(0, |stored| stored.mod_revision)
                }
            }
        }
        Ok(())
    }

    /// The addresses of the servers that live, in order.
    ///
    /// # Errors
    /// The store's.
    pub async fn live_servers(&self) -> Result<Vec<IpAddr>> {
        let page = self
            .storage
            .list(ListRequest {
                prefix: self.prefix.clone(),
                ..ListRequest::default()
            })
            .await?;
        let address = |stored: &Stored| {
            decode(stored)?
                .str_at("/subsets/0/addresses/0/ip")
                .parse()
                .ok()
        };
        let mut all: Vec<IpAddr> = page.items.iter().filter_map(address).collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn key(&self, address: IpAddr) -> String {
        format!("{}{address}", self.prefix)
    }
}

fn ty() -> Option<TypeRef<'static>> {
    crate::schema::builtin().get(&Gvk::new("", "v1", "Endpoints"))
}

impl Peer {
    fn encode(&self, generation: i64) -> Vec<u8> {
        let ports = json!([{"name": "https", "port": self.address.port(), "protocol": "TCP"}]);
        encode_endpoints(&json!({
            "metadata": {"generation": generation, "labels": {"apiserverIdentity": self.identity}},
            "subsets": [{"addresses": [{"ip": self.address.ip().to_string()}], "ports": ports}],
        }))
    }
}

/// The value of a key: Endpoints without a name.
fn encode(address: IpAddr, generation: i64) -> Vec<u8> {
    encode_endpoints(
        &json!({"metadata": {"generation": generation}, "subsets": [{"addresses": [{"ip": address.to_string()}]}]}),
    )
}

fn encode_endpoints(lease: &Value) -> Vec<u8> {
    let object = Object(lease.as_object().cloned().unwrap_or_default());
    let raw = ty()
        .map(|ty| protobuf::encode(&object, ty))
        .unwrap_or_default();
    protobuf::wrap("v1", "Endpoints", &raw)
}

/// `None` if it cannot be read.
fn decode(stored: &Stored) -> Option<Object> {
    protobuf::decode(protobuf::unwrap(&stored.value).ok()?.raw, ty()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::embedded::Embedded;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 10));

    #[tokio::test]
    async fn servers_come_and_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> = Arc::new(Embedded::open(folder.path()).expect("a store"));
        let leases = MasterLeases::new(storage.clone(), "/registry");
        assert_eq!(leases.live_servers().await, Ok(vec![]));
        leases.renew(B).await.expect("written");
        leases.renew(A).await.expect("written");
        leases.renew(A).await.expect("written again");
        assert_eq!(leases.live_servers().await, Ok(vec![A, B]));
        let stored = storage
            .get("/registry/masterleases/10.0.0.9")
            .await
            .expect("read")
            .expect("there");
        assert!(stored.create_revision < stored.mod_revision, "the same key");
        assert_eq!(
            decode(&stored)
                .expect("readable")
                .at("/metadata/generation"),
            Some(&json!(2))
        );
        leases.remove(A).await.expect("removed");
        leases.remove(A).await.expect("not there is as good");
        assert_eq!(leases.live_servers().await, Ok(vec![B]));
    }

    #[tokio::test]
    async fn peers_find_a_server_by_its_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> = Arc::new(Embedded::open(folder.path()).expect("a store"));
        let at = SocketAddr::new(A, 6443);
        let leases = MasterLeases::new(storage.clone(), "/registry").with_peer(
            "/registry",
            "apiserver-a".to_owned(),
            at,
        );
        let stored = async || storage.get("/registry/peerserverleases/apiserver-a").await;
        leases.renew(A).await.expect("written");
        leases.renew(A).await.expect("written again");
        let lease = decode(&stored().await.expect("read").expect("there")).expect("readable");
        assert_eq!(
            Value::Object(lease.0),
            json!({
                "metadata": {"generation": 2, "labels": {"apiserverIdentity": "apiserver-a"}},
                "subsets": [{
                    "addresses": [{"ip": "10.0.0.9"}],
                    "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
                }],
            })
        );
        assert_eq!(leases.live_servers().await, Ok(vec![A]));
        leases.remove(A).await.expect("removed");
        assert_eq!(stored().await, Ok(None));
    }

    /// The value is that of Go, which writes empty strings, too.
    #[test]
    fn the_value_is_kube_apiservers() {
        let message = [
            b"\x0a\x10".as_slice(),
            b"\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x01\x42\x00",
            b"\x12\x0e\x0a\x0c\x0a\x08",
            b"10.0.0.9",
            b"\x1a\x00",
        ]
        .concat();
        let value = encode(A, 1);
        assert_eq!(
            protobuf::unwrap(&value)
                .expect("an envelope")
                .raw
                .escape_ascii()
                .to_string(),
            message.escape_ascii().to_string()
        );
    }
}
