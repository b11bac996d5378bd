//! Leases shared by keys that expire at about the same time: granting one per key would cost etcd
//! too much.
//!
//! The rule is that of kube-apiserver (`apiserver/pkg/storage/etcd3/lease_manager.go`).

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{Error, LeaseClient};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::metrics::{self, Method};

/// Maximum delay of a key's expiry (`--lease-reuse-duration-seconds`' default).
pub const REUSE_MAX: Duration = Duration::from_secs(60);
/// Delay of a key's expiry as a fraction of its time to live.
const REUSE_DIVISOR: u32 = 20;
/// Keys on one lease, at most (`--lease-max-object-count`'s default).
const LEASE_KEYS: usize = 1000;

/// The maximum number of distinct times to live: one for events, and one for the servers' own keys.
/// Beyond that, all are forgotten.
const TTLS: usize = 8;

/// Finds or grants the lease for a time to live. Remembers the last one of each.
pub struct Leases {
    last: Mutex<HashMap<Duration, Lease>>,
    reuse: Duration,
}

struct Lease {
    id: i64,
    expires: Instant,
    keys: usize,
}

impl Leases {
    /// Leases that let a key live longer than asked by `reuse` at most.
    pub fn new(reuse: Duration) -> Self {
        Self {
            last: Mutex::default(),
            reuse,
        }
    }

    /// A lease that ends no sooner than `ttl` from now.
    ///
    /// # Errors
    /// etcd's, when a lease has to be granted.
    pub async fn get(&self, client: &mut LeaseClient, ttl: Duration) -> Result<i64, Error> {
        let mut last = self.last.lock().await;
        let now = Instant::now();
        let slack = (ttl / REUSE_DIVISOR).min(self.reuse);
        if let Some(lease) = last.get_mut(&ttl)
            && lease.keys < LEASE_KEYS
            && (now + ttl..now + ttl + slack).contains(&lease.expires)
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        // etcd counts in whole seconds.
        let wanted = ttl + slack;
        let seconds = wanted.as_secs() + u64::from(wanted.subsec_nanos() > 0);
        let grant = client.grant(i64::try_from(seconds).unwrap_or(i64::MAX), None);
        let granted = Method::LeaseGrant.count(grant).await?;
        if last.len() >= TTLS {
            last.clear();
        }
        let full = last.insert(
            ttl,
            Lease {
                id: granted.id(),
                expires: now + Duration::from_secs(seconds),
                keys: 1,
            },
        );
        if let Some(full) = full {
            metrics::lease_is_full(full.keys);
        }
        Ok(granted.id())
    }

    /// Forgets the leases: etcd no longer knows one of them.
    pub async fn forget(&self) {
        self.last.lock().await.clear();
    }
}
