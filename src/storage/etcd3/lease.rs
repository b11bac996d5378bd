//! Leases shared by keys that expire at about the same time: granting one per key would cost etcd too much.
//!
//! The rule is that of kube-apiserver (`apiserver/pkg/storage/etcd3/lease_manager.go`).

use std::time::Duration;

use etcd_client::{Error, LeaseClient};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How much later than asked a key may expire, at most.
const REUSE_MAX: Duration = Duration::from_secs(60);
/// How much later than asked a key may expire: this part of its time to live.
const REUSE_DIVISOR: u32 = 20;
/// Keys on one lease, at most (`--lease-max-object-count`'s default).
const LEASE_KEYS: usize = 1000;

/// Finds or grants the lease for a time to live. Remembers the last one only: nearly all keys with one (events) have the same.
#[derive(Default)]
pub struct Leases(Mutex<Option<Lease>>);

struct Lease {
    id: i64,
    expires: Instant,
    keys: usize,
}

impl Leases {
    /// A lease that ends no sooner than `ttl` from now.
    pub async fn get(&self, client: &mut LeaseClient, ttl: Duration) -> Result<i64, Error> {
        let mut last = self.0.lock().await;
        let now = Instant::now();
        let slack = (ttl / REUSE_DIVISOR).min(REUSE_MAX);
        if let Some(lease) = last.as_mut()
            && lease.keys < LEASE_KEYS
            && (now + ttl..now + ttl + slack).contains(&lease.expires)
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        // etcd counts in whole seconds.
        let wanted = ttl + slack;
        let seconds = wanted.as_secs() + u64::from(wanted.subsec_nanos() > 0);
        let granted = client.grant(i64::try_from(seconds).unwrap_or(i64::MAX), None).await?;
        let lease = Lease { id: granted.id(), expires: now + Duration::from_secs(seconds), keys: 1 };
        Ok(last.insert(lease).id)
    }

    /// Forgets the lease: etcd no longer knows it.
    pub async fn forget(&self) {
        *self.0.lock().await = None;
    }
}
