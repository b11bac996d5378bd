//! Memory that all requests share: who wants more than there is waits for others to end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::auth::User;
use crate::meta::Status;
use crate::meta::status::Result;

/// The divisor of the share that is reserved for system users, without whom the cluster stops.
const ESSENTIAL_SHARE: usize = 4;
/// The divisor of the share of one user in the memory for users of its kind.
const USER_SHARE: usize = 4;
/// The unit in which memory is counted, in bytes.
const UNIT: usize = 1024;
/// The time for which a request waits for memory.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// The time after which a client is told to come again, in seconds.
const RETRY_AFTER: u32 = 1;

/// An amount of memory that requests share.
#[derive(Debug)]
pub struct MemoryBudget {
    name: &'static str,
    /// The maximum of one request: each pool has room for as much.
    most: usize,
    shared: Arc<Pool>,
    essential: Arc<Pool>,
}

impl MemoryBudget {
    /// Returns a budget of so many bytes, of which a request takes at most `most`. `name` is what
    /// metrics call it.
    pub fn new(name: &'static str, bytes: usize, most: usize) -> Self {
        let essential = bytes / ESSENTIAL_SHARE;
        let pool = |bytes| Arc::new(Pool::new(bytes, most));
        Self {
            name,
            most,
            shared: pool(bytes - essential),
            essential: pool(essential),
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the bytes that requests may hold.
    pub fn limit(&self) -> usize {
        self.shared.bytes() + self.essential.bytes()
    }

    /// Returns the bytes that requests hold.
    pub fn used(&self) -> usize {
        self.shared.used() + self.essential.used()
    }

    /// Waits for memory.
    ///
    /// # Errors
    /// 429 if there is none for [`MAX_WAIT`].
    pub async fn acquire(&self, user: &User, bytes: usize) -> Result<MemoryPermit> {
        let pool = match user.is_essential() {
            true => &self.essential,
            false => &self.shared,
        };
        let waiting = pool.acquire(&user.name, bytes.min(self.most));
        match timeout(MAX_WAIT, waiting).await {
            Ok(permit) => permit,
            Err(_) => Err(Status::too_many_requests(
                "the server has no memory left for the request, please try again later",
                RETRY_AFTER,
            )),
        }
    }
}

/// Memory that users of a kind share.
#[derive(Debug)]
struct Pool {
    all: Arc<Semaphore>,
    /// The share of one user, in units.
    user_units: usize,
    /// The rest of the share of each user that holds or waits for some.
    users: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    units: usize,
}

impl Pool {
    fn new(bytes: usize, most: usize) -> Self {
        let units = |bytes: usize| bytes.max(most).div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(units(bytes))),
            user_units: units(bytes / USER_SHARE),
            users: Mutex::default(),
            units: units(bytes),
        }
    }

    fn bytes(&self) -> usize {
        self.units.saturating_mul(UNIT)
    }

    fn used(&self) -> usize {
        self.units.saturating_sub(self.all.available_permits()) * UNIT
    }

    /// Waits for memory: first behind the user's own requests, so that a user who holds its whole
    /// share delays nobody else. All is taken at once, so nobody waits for others who wait.
    async fn acquire(self: &Arc<Self>, user: &str, bytes: usize) -> Result<MemoryPermit> {
        let closed = |_: AcquireError| Status::internal("the server is ending");
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let share = UserShare::of(self, user);
        let own = share.left.clone().acquire_many_owned(units).await;
        let own = own.map_err(closed)?;
        let all = self.all.clone().acquire_many_owned(units).await;
        Ok(MemoryPermit {
            _all: all.map_err(closed)?,
            _own: own,
            _share: share,
        })
    }
}

/// One user's part of a pool, which is dropped when it is no longer used.
#[derive(Debug)]
struct UserShare {
    pool: Arc<Pool>,
    user: Arc<str>,
    left: Arc<Semaphore>,
}

impl UserShare {
    fn of(pool: &Arc<Pool>, user: &str) -> Self {
        let mut users = pool.users.lock();
        let (user, left) = match users.get_key_value(user) {
            Some((user, left)) => (user.clone(), left.clone()),
            None => {
                let user: Arc<str> = user.into();
                let left = Arc::new(Semaphore::new(pool.user_units));
                users.insert(user.clone(), left.clone());
                (user, left)
            }
        };
        drop(users);
        Self {
            pool: pool.clone(),
            user,
            left,
        }
    }
}

impl Drop for UserShare {
    fn drop(&mut self) {
        let mut users = self.pool.users.lock();
        // This one, and the one in the map.
        if Arc::strong_count(&self.left) == 2 {
            users.remove(&self.user);
        }
    }
}

/// The memory that a request holds, until the drop. The user's share is released last.
#[derive(Debug)]
pub struct MemoryPermit {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _share: UserShare,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 3 * 1024 * 1024;

    fn pool(bytes: usize) -> Arc<Pool> {
        Arc::new(Pool::new(bytes, LARGE))
    }

    #[tokio::test]
    async fn acquire_waits_for_the_users_own_share_only() {
        let pool = pool(USER_SHARE * LARGE);
        let first = pool.acquire("alice", LARGE).await.expect("room");
        let mut second = Box::pin(pool.acquire("alice", 1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        let mut others = Vec::new();
        for user in ["bob", "carol", "dave"] {
            others.push(pool.acquire(user, LARGE).await.expect("room"));
        }
        let mut erin = Box::pin(pool.acquire("erin", 1));
        assert!(
            futures::poll!(erin.as_mut()).is_pending(),
            "the pool is empty"
        );
        drop(first);
        let (second, erin) = (second.await, erin.await);
        assert!(second.is_ok() && erin.is_ok());
        drop((second, erin, others));
        assert!(pool.users.lock().is_empty());
    }

    #[tokio::test]
    async fn acquire_that_is_cancelled_leaves_nothing_behind() {
        let pool = pool(LARGE);
        let held = pool.acquire("alice", LARGE).await.expect("room");
        let mut waiting = Box::pin(pool.acquire("bob", LARGE));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop((waiting, held));
        assert!(pool.users.lock().is_empty());
        assert_eq!(pool.all.available_permits(), LARGE / UNIT);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_find_no_memory_are_to_come_again() {
        let budget = MemoryBudget::new("test", 2 * LARGE, LARGE);
        let user = |name: &str| User {
            name: name.to_owned(),
            ..User::default()
        };
        // A request that wants more than any may have takes what one may have.
        let held = budget.acquire(&user("alice"), usize::MAX).await;
        let refused = budget.acquire(&user("alice"), 1).await.expect_err("full");
        assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
        let node = User {
            groups: vec!["system:nodes".to_owned()],
            ..user("system:node:n")
        };
        assert!(
            budget.acquire(&node, LARGE).await.is_ok(),
            "it has memory of its own"
        );
        drop(held);
        assert!(budget.acquire(&user("alice"), LARGE).await.is_ok());
    }
}
