//! The IPAddress objects that say which service has a cluster IP: one for each, with the address as
//! its name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ip_family::family_of;
use crate::auth::User;
use crate::merge::APISERVER_MANAGER;
use crate::meta::options::DeleteOptions;
use crate::meta::status::Result;
use crate::meta::{Object, Value, json, names};
use crate::registry::store::{AdmitAll, StoredKeys, Warnings, WriteContext};
use crate::registry::{Store, Subresource};

const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
/// The manager of the addresses of services (`ControllerName`).
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// The time after which a claim is confirmed once its service is written: well before the repair
/// takes it for a leak.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// The IPAddress objects of the cluster, as the server itself reads and writes them.
pub struct IpAddresses {
    store: Arc<Store>,
    user: User,
    warnings: Warnings,
}

/// An address that was free and has been claimed.
#[derive(Debug)]
pub struct Claim {
    pub ip: IpAddr,
    /// Of the object that was made for it.
    uid: String,
    made: Instant,
}

impl IpAddresses {
    /// Over the store of `networking.k8s.io/v1` ipaddresses.
    pub fn new(store: Arc<Store>) -> Self {
        let user = User::apiserver();
        Self {
            store,
            user,
            warnings: Warnings::default(),
        }
    }

    fn context(&self) -> WriteContext<'_> {
        WriteContext {
            user: &self.user,
            namespace: "",
            dry_run: false,
            warnings: &self.warnings,
        }
    }

    /// Makes the object that gives an address to a service; `None` where it exists, whoever it is
    /// of.
    ///
    /// # Errors
    /// The store's, or the service cannot be referred to: its name is no name.
    pub async fn claim(&self, ip: IpAddr, namespace: &str, name: &str) -> Result<Option<Claim>> {
        let labels = json!({FAMILY_LABEL: family_of(ip), MANAGED_BY_LABEL: ALLOCATOR});
        let parent = json!({"resource": "services", "namespace": namespace, "name": name});
        let value = json!({"metadata": {"name": ip.to_string(), "labels": labels}, "spec": {"parentRef": parent}});
        let mut object = Object::from_value(value).unwrap_or_default();
        self.store.codec.to_storage(&mut object);
        self.store
            .field_manager(Subresource::Main, APISERVER_MANAGER)
            .update(None, &mut object);
        match self.store.create(&self.context(), object, &AdmitAll).await {
            Ok(live) => Ok(Some(Claim {
                ip,
                uid: live.object.uid().to_owned(),
                made: Instant::now(),
            })),
            Err(status) if status.reason == "AlreadyExists" => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Makes sure that the service still has an address, once it is written. The repair releases
    /// addresses without a service, and a slow write may take longer than it waits.
    pub async fn confirm(&self, claim: &Claim, namespace: &str, name: &str) {
        if claim.made.elapsed() < CONFIRM_AFTER {
            return;
        }
        let ip = claim.ip;
        let outcome = match self.store.get("", &ip.to_string(), "").await {
            Ok(stored) => match self.store.codec.decode(&stored) {
                Ok(object) if is_of(&object, namespace, name) => return,
                _ => Ok(None),
            },
            Err(status) if status.code == 404 => self.claim(ip, namespace, name).await,
            Err(status) => Err(status),
        };
        match outcome {
            Ok(Some(_)) => tracing::warn!(%ip, "claimed again for service {namespace}/{name}"),
            Ok(None) => {
                tracing::error!(%ip, "also belongs to another service than {namespace}/{name}")
            }
            Err(status) => {
                tracing::error!(%ip, reason = status.message, "cannot confirm a cluster IP");
            }
        }
    }

    /// Gives back an address that was claimed, as long as its object is the one that was made for
    /// that.
    pub async fn unclaim(&self, claim: &Claim) {
        let options = DeleteOptions {
            uid: Some(claim.uid.clone()),
            ..DeleteOptions::default()
        };
        self.release(&claim.ip.to_string(), &options).await;
    }

    /// Gives back an address that a service had, if the address is its own.
    pub async fn give_back(&self, ip: IpAddr, namespace: &str, name: &str) {
        match self.store.cached_get("", &ip.to_string()).await {
            Ok(Some(object)) if is_of(&object, namespace, name) => {
                self.release(object.name(), &this_one(&object)).await
            }
            Ok(_) => {}
            Err(status) => {
                tracing::warn!(%ip, reason = status.message, "cannot release a cluster IP")
            }
        }
    }

    async fn release(&self, name: &str, options: &DeleteOptions) {
        match self
            .store
            .delete(&self.context(), name, options, &AdmitAll)
            .await
        {
            // Gone, or somebody else's by now.
            Err(status) if !matches!(status.code, 404 | 409) => {
                tracing::warn!(
                    ip = name,
                    reason = status.message,
                    "cannot release a cluster IP"
                );
            }
            _ => {}
        }
    }

    /// Deletes an object that was read, unless it has changed since.
    ///
    /// # Errors
    /// It has changed, or the store's. That it is gone is none.
    pub async fn delete(&self, object: &Object) -> Result<()> {
        match self
            .store
            .delete(&self.context(), object.name(), &this_one(object), &AdmitAll)
            .await
        {
            Err(status) if status.code != 404 => Err(status),
            _ => Ok(()),
        }
    }

    /// The object of an address.
    ///
    /// # Errors
    /// The store's.
    pub async fn find(&self, ip: IpAddr) -> Result<Option<Object>> {
        self.store.cached_get("", &ip.to_string()).await
    }

    /// All of them, whoever manages them.
    ///
    /// # Errors
    /// The store's.
    pub async fn all(&self) -> Result<Vec<Object>> {
        self.store.cached_list("").await
    }

    /// Returns the addresses that have an IPAddress object.
    ///
    /// # Errors
    /// The store's.
    pub async fn taken(&self) -> Result<Taken> {
        Ok(Taken {
            keys: self.store.cached_keys().await?,
            prefix: self.store.prefix(),
        })
    }
}

/// The addresses that have an object at one moment.
pub struct Taken {
    keys: StoredKeys,
    prefix: String,
}

impl Taken {
    pub fn has(&self, ip: IpAddr) -> bool {
        self.keys.has(&format!("{}{ip}", self.prefix))
    }
}

/// Reports whether an object gives its address to the service.
pub fn is_of(object: &Object, namespace: &str, name: &str) -> bool {
    refers_to_service(object) && parent(object) == (namespace, name)
}

/// Reports whether it is a service that the object gives its address to.
pub fn refers_to_service(object: &Object) -> bool {
    object.str_at("/spec/parentRef/group").is_empty()
        && object.str_at("/spec/parentRef/resource") == "services"
}

/// Namespace and name of what the object gives its address to.
pub fn parent(object: &Object) -> (&str, &str) {
    (
        object.str_at("/spec/parentRef/namespace"),
        object.str_at("/spec/parentRef/name"),
    )
}

/// Reports whether the allocator of services made the object.
pub fn is_managed(object: &Object) -> bool {
    label(object, MANAGED_BY_LABEL) == Some(ALLOCATOR)
}

/// Reports whether the object has the labels that the allocator gives.
pub fn is_labelled(object: &Object) -> bool {
    let family = names::parse_ip_sloppy(object.name()).map(family_of);
    is_managed(object) && family.is_some() && label(object, FAMILY_LABEL) == family
}

fn label<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object
        .labels()
        .and_then(|all| all.get(key))
        .and_then(Value::as_str)
}

/// Options that delete just what was read.
fn this_one(object: &Object) -> DeleteOptions {
    let (uid, version) = (
        object.uid().to_owned(),
        object.resource_version().to_owned(),
    );
    DeleteOptions {
        uid: Some(uid),
        resource_version: Some(version),
        ..DeleteOptions::default()
    }
}
