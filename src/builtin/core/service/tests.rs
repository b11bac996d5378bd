//! Addresses and ports after a failure of storage in the middle of a write.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::allocation::ServiceAllocator;
use super::node_ports::NodePorts;
use crate::auth::User;
use crate::base::clock::Clock;
use crate::builtin;
use crate::meta::options::DeleteOptions;
use crate::meta::{Object, Status, json};
use crate::registry::store::{AdmitAll, Warnings, WriteContext};
use crate::registry::{Resource, Store};
use crate::storage::embedded::Embedded;
use crate::storage::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchStream,
    WriteOutcome,
};

/// A store that does what it is asked for services, and then says that it does not know.
struct Doubtful {
    inner: Embedded,
    error: Mutex<Option<StorageError>>,
}

impl Doubtful {
    fn answer(&self, key: &str, done: Result<WriteOutcome>) -> Result<WriteOutcome> {
        let error = self
            .error
            .lock()
            .clone()
            .filter(|_| key.contains("/services/"));
        error.map_or(done, Err)
    }
}

#[async_trait]
impl Storage for Doubtful {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        self.inner.get(key).await
    }
    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        self.inner.get_with_revision(key).await
    }
    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.inner.list(request).await
    }
    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        if matches!(*self.error.lock(), Some(StorageError::TooLarge(_)))
            && key.contains("/services/")
        {
            return Err(StorageError::TooLarge(String::new()));
        }
        self.answer(key, self.inner.create(key, value, ttl).await)
    }
    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        self.answer(key, self.inner.update(key, value, expected, ttl).await)
    }
    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        self.answer(key, self.inner.delete(key, expected).await)
    }
    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        self.inner.watch(prefix, after).await
    }
    async fn request_progress(&self) -> Result<()> {
        self.inner.request_progress().await
    }
    async fn current_revision(&self) -> Result<Revision> {
        self.inner.current_revision().await
    }
    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }
    async fn check_health(&self) -> Result<()> {
        self.inner.check_health().await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    fn check_integrity(&self) -> Result<()> {
        self.inner.check_integrity()
    }
}

struct Cluster {
    storage: Arc<Doubtful>,
    services: Store,
    addresses: Arc<Store>,
    ports: Arc<NodePorts>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let storage = Arc::new(Doubtful {
            inner: Embedded::open(folder.path()).unwrap(),
            error: Mutex::default(),
        });
        let resource = |group: &str, name: &str| {
            let mut all = crate::schema::builtin().resources.iter();
            let decl = all
                .find(|decl| decl.group == group && decl.resource == name)
                .unwrap();
            Resource::builtin(decl, builtin::strategy(group, name))
        };
        let store = |resource| {
            Store::new(
                Arc::new(resource),
                storage.clone(),
                Clock::system(),
                "/registry",
            )
        };
        let addresses = Arc::new(store(resource("networking.k8s.io", "ipaddresses")));
        let cidrs = Arc::new(store(resource("networking.k8s.io", "servicecidrs")));
        let cidr = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/24"]}});
        create(&cidrs, "", Object::from_value(cidr).unwrap())
            .await
            .unwrap();
        let ports = Arc::new(NodePorts::new(storage.clone(), "/registry", 30000..=30009));
        assert!(
            ports
                .replace(&ports.allocation().await.unwrap(), &[].into())
                .await
                .unwrap()
        );
        let endpoints = Arc::new(store(resource("", "endpoints")));
        let mut services = resource("", "services");
        services.hooks = Some(Arc::new(ServiceAllocator::new(
            addresses.clone(),
            cidrs,
            endpoints,
            vec!["IPv4"],
            ports.clone(),
        )));
        Self {
            services: store(services),
            storage,
            addresses,
            ports,
            _folder: folder,
        }
    }

    async fn create(&self, name: &str) -> std::result::Result<Object, Status> {
        let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30009}]});
        let service = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        create(
            &self.services,
            "default",
            Object::from_value(service).unwrap(),
        )
        .await
    }

    async fn delete(&self, name: &str) -> bool {
        let (user, warnings) = (User::default(), Warnings::default());
        let ctx = WriteContext {
            user: &user,
            namespace: "default",
            dry_run: false,
            warnings: &warnings,
        };
        self.services
            .delete(&ctx, name, &DeleteOptions::default(), &AdmitAll)
            .await
            .is_ok()
    }

    /// Reports whether the address and the port are both taken, or both free.
    async fn taken(&self) -> bool {
        let address = self
            .addresses
            .cached_get("", "10.96.0.9")
            .await
            .unwrap()
            .is_some();
        assert_eq!(
            self.ports
                .allocation()
                .await
                .unwrap()
                .ports
                .contains(&30009),
            address
        );
        address
    }
}

async fn create(
    store: &Store,
    namespace: &str,
    mut object: Object,
) -> std::result::Result<Object, Status> {
    let (user, warnings) = (User::default(), Warnings::default());
    store.codec.to_storage(&mut object);
    let ctx = WriteContext {
        user: &user,
        namespace,
        dry_run: false,
        warnings: &warnings,
    };
    store
        .create(&ctx, object, &AdmitAll)
        .await
        .map(|live| live.object)
}

#[tokio::test]
async fn what_may_have_been_written_keeps_what_it_took() {
    let cluster = Cluster::new().await;
    *cluster.storage.error.lock() = Some(StorageError::TooLarge(String::new()));
    assert!(
        cluster.create("large").await.is_err() && !cluster.taken().await,
        "certainly not written"
    );

    *cluster.storage.error.lock() = Some(StorageError::Unavailable("gone".to_owned()));
    assert_eq!(
        cluster.create("first").await.unwrap_err().reason,
        "ServerTimeout"
    );
    assert!(cluster.taken().await);
    *cluster.storage.error.lock() = None;
    assert!(
        cluster
            .services
            .cached_get("default", "first")
            .await
            .unwrap()
            .is_some(),
        "it was written"
    );
    assert_eq!(cluster.create("second").await.unwrap_err().code, 422);

    *cluster.storage.error.lock() = Some(StorageError::Unavailable("gone".to_owned()));
    assert!(
        !cluster.delete("first").await && cluster.taken().await,
        "it may not have been deleted"
    );
    *cluster.storage.error.lock() = None;
    assert!(
        !cluster.delete("first").await && cluster.taken().await,
        "it was, and is found by the repair"
    );
}

#[tokio::test]
async fn what_was_written_or_refused_for_certain_settles_at_once() {
    let cluster = Cluster::new().await;
    cluster.create("first").await.unwrap();
    assert!(
        cluster.create("first").await.is_err()
            && cluster.create("second").await.is_err()
            && cluster.taken().await
    );
    assert!(cluster.delete("first").await && !cluster.taken().await);
    cluster.create("second").await.unwrap();
    assert!(cluster.taken().await);
}
