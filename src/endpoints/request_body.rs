//! Request bodies. A body is read whole, within memory budgets for all requests and for those of
//! one user, and only while its client keeps sending.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::auth::User;
use crate::base::blocking::LARGE_BYTES;
use crate::meta::Status;
use crate::meta::status::Result;
use crate::proxy;

/// The largest body of a request, in bytes.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// The memory for the bodies of all requests in progress, in bytes.
pub const MAX_ALL_BODIES: usize = 256 * 1024 * 1024;
/// The divisor of the share that is reserved for system users, without whom the cluster stops.
const ESSENTIAL_SHARE: usize = 4;
/// The divisor of the share of one user in the memory for users of its kind.
const USER_SHARE: usize = 4;
/// The unit in which memory is counted, in bytes.
const UNIT: usize = 1024;
/// The maximum pause of a client within a body.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The minimum average rate after that time, in bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 1024;

/// The memory for the bodies of all requests.
#[derive(Debug)]
pub struct BodyBudget {
    shared: Arc<Pool>,
    essential: Arc<Pool>,
}

impl BodyBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let essential = bytes / ESSENTIAL_SHARE;
        Self {
            shared: Arc::new(Pool::new(bytes - essential)),
            essential: Arc::new(Pool::new(essential)),
        }
    }

    /// The bytes that may be taken.
    pub fn limit(&self) -> usize {
        self.shared.bytes + self.essential.bytes
    }

    /// The bytes that are taken.
    pub fn taken(&self) -> usize {
        let free = [&self.shared, &self.essential].map(|pool| pool.all.available_permits() * UNIT);
        self.limit() - free.iter().sum::<usize>().min(self.limit())
    }
}

/// Memory that users share.
#[derive(Debug)]
struct Pool {
    all: Arc<Semaphore>,
    bytes: usize,
    /// The share of one user, in units.
    user_units: usize,
    /// The rest of the share of each user that holds or waits for some.
    users: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let units = |bytes: usize| (bytes / UNIT).max(MAX_BODY_BYTES / UNIT);
        Self {
            all: Arc::new(Semaphore::new(units(bytes))),
            bytes: units(bytes) * UNIT,
            user_units: units(bytes / USER_SHARE),
            users: Mutex::default(),
        }
    }

    /// Waits for memory for a body: first behind the user's own requests, so that a user who holds
    /// its whole share delays nobody else. All is taken at once, so nobody waits for others who
    /// wait.
    async fn acquire(self: &Arc<Self>, user: &str, bytes: usize) -> Result<BodyPermit> {
        let closed = |_: AcquireError| Status::internal("the server is ending");
        let units = bytes.min(MAX_BODY_BYTES).div_ceil(UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = UserShare::of(self, user);
        let own = share.left.clone().acquire_many_owned(units).await;
        let own = own.map_err(closed)?;
        let all = self.all.clone().acquire_many_owned(units).await;
        Ok(BodyPermit {
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

/// The memory that a body takes. The user's share is released last.
#[derive(Debug)]
struct BodyPermit {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _share: UserShare,
}

/// The body of a request, with the permit for its memory, which is held as long as the request.
#[derive(Debug, Default)]
pub struct RequestBody {
    /// The body of a request that the server itself makes.
    whole: Mutex<Option<Bytes>>,
    incoming: Mutex<Option<Incoming>>,
    permit: Mutex<Option<BodyPermit>>,
    is_reading: AtomicBool,
    /// The bytes that have been read.
    len: AtomicUsize,
}

impl RequestBody {
    pub fn new(incoming: Incoming) -> Self {
        Self {
            incoming: Mutex::new(Some(incoming)),
            ..Self::default()
        }
    }

    /// A body that is in memory, for requests that the server itself makes.
    pub fn whole(body: Bytes) -> Self {
        Self {
            whole: Mutex::new(Some(body)),
            ..Self::default()
        }
    }

    /// Takes the body as it comes in, for another server; `None` if it has been read before.
    pub fn take(&self) -> Option<Incoming> {
        self.incoming.lock().take()
    }

    /// Reports whether the rest of the body is awaited.
    pub fn is_reading(&self) -> bool {
        self.is_reading.load(Ordering::Relaxed)
    }

    /// Reports whether work on the body that has been read may take milliseconds.
    pub fn is_large(&self) -> bool {
        self.len.load(Ordering::Relaxed) > LARGE_BYTES
    }

    /// Returns the body as it comes in, for one that hands it on; empty if it has been read before.
    pub fn stream(&self) -> proxy::RequestBody {
        match self.incoming.lock().take() {
            Some(body) if !body.is_end_stream() => proxy::incoming(body),
            _ => proxy::empty(),
        }
    }

    /// Returns the whole body, once there is memory for it; empty if it has been read before.
    ///
    /// # Errors
    /// 400 where the client breaks off, 408 where it is too slow, 413 for a body that is too large.
    pub async fn read(&self, budget: &BodyBudget, user: &User) -> Result<Bytes> {
        if let Some(body) = self.whole.lock().take() {
            return Ok(body);
        }
        let incoming = self.incoming.lock().take();
        let Some(incoming) = incoming.filter(|incoming| !incoming.is_end_stream()) else {
            return Ok(Bytes::new());
        };
        let pool = if user.is_essential() {
            &budget.essential
        } else {
            &budget.shared
        };
        let bytes = incoming.size_hint().exact().map_or(MAX_BODY_BYTES, |len| {
            usize::try_from(len).unwrap_or(MAX_BODY_BYTES)
        });
        self.is_reading.store(true, Ordering::Relaxed);
        let read = async {
            *self.permit.lock() = Some(pool.acquire(&user.name, bytes).await?);
            collect(incoming).await
        };
        let read = read.await;
        self.is_reading.store(false, Ordering::Relaxed);
        let len = read.as_ref().map_or(0, Bytes::len);
        self.len.store(len, Ordering::Relaxed);
        read
    }
}

/// Reads a body while its client keeps to [`STALL_TIMEOUT`] and [`MIN_BYTES_PER_SECOND`].
async fn collect<B>(mut body: B) -> Result<Bytes>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let begun = Instant::now();
    let mut progress = begun;
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let total = first.len() + rest.len();
        let due = Duration::from_secs(total as u64 / MIN_BYTES_PER_SECOND);
        let deadline = progress.min(begun + due) + STALL_TIMEOUT;
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(why))) => {
                return Err(Status::bad_request(format!(
                    "unable to read the request body: {why}"
                )));
            }
            Ok(None) => break,
            Err(_) => return Err(too_slow()),
        };
        let Some(data) = frame.into_data().ok().filter(|data| !data.is_empty()) else {
            continue;
        };
        if total + data.len() > MAX_BODY_BYTES {
            return Err(Status::too_large(&format!("limit is {MAX_BODY_BYTES}")));
        }
        progress = Instant::now();
        if total == 0 {
            first = data;
            continue;
        }
        if rest.is_empty() {
            let left = usize::try_from(body.size_hint().lower()).unwrap_or(0);
            rest.reserve(total + data.len() + left.min(MAX_BODY_BYTES));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

fn too_slow() -> Status {
    Status::failure(
        408,
        "Timeout",
        "Timeout: the client sent the request body too slowly",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use tokio::time::sleep;

    const LARGE: usize = MAX_BODY_BYTES;

    /// A body of so many chunks of so many bytes, each after a pause.
    fn chunks(
        count: usize,
        bytes: usize,
        pause: Duration,
    ) -> impl HttpBody<Data = Bytes, Error = Infallible> + Unpin {
        let frames = stream::unfold(0, move |sent| async move {
            if sent == count {
                return None;
            }
            sleep(pause).await;
            Some((Ok(Frame::data(Bytes::from(vec![7; bytes]))), sent + 1))
        });
        StreamBody::new(Box::pin(frames))
    }

    #[tokio::test(start_paused = true)]
    async fn collect_ends_bodies_that_stall_or_trickle() {
        const SECOND: Duration = Duration::from_secs(1);
        for (count, bytes, pause, code, within) in [
            (1, 10, 20 * SECOND, 408, 15),
            (1000, 1, SECOND, 408, 15),
            (1000, 100, SECOND, 408, 16),
            (100, 1024, SECOND, 200, 100),
            (300, 10 * 1024, SECOND, 200, 300),
            (3 * 1024 + 1, 1024, Duration::ZERO, 413, 4),
        ] {
            let begun = Instant::now();
            let read = collect(chunks(count, bytes, pause)).await;
            let shown = format!("{count} of {bytes}");
            match read {
                Ok(read) => assert_eq!((200, read.len()), (code, count * bytes), "{shown}"),
                Err(status) => assert_eq!(status.code, code, "{shown}"),
            }
            let elapsed = begun.elapsed().as_secs();
            assert!(
                elapsed <= within && elapsed + 1 >= within || code == 413,
                "{shown}: {elapsed}"
            );
        }
    }

    #[tokio::test]
    async fn acquire_waits_for_the_users_own_share_only() {
        let pool = Arc::new(Pool::new(USER_SHARE * LARGE));
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
        let pool = Arc::new(Pool::new(LARGE));
        let held = pool.acquire("alice", LARGE).await.expect("room");
        let mut waiting = Box::pin(pool.acquire("bob", LARGE));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop((waiting, held));
        assert!(pool.users.lock().is_empty());
        assert_eq!(pool.all.available_permits(), LARGE / UNIT);
    }
}
