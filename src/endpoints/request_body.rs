//! Request bodies. A body is read whole, within memory budgets for all requests and for those of
//! one user, and only while its client keeps sending.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::memory_budget::{MemoryBudget, MemoryPermit};
use crate::auth::User;
use crate::base::blocking::LARGE_BYTES;
use crate::meta::Status;
use crate::meta::status::Result;
use crate::proxy;

/// The largest body of a request, in bytes.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// The memory that a byte of a body takes when it is decoded, for as long as the request lasts:
/// trees, their copies around admission, owners of fields, and encodings. Short items take twice as
/// much (measured: 50 bytes), usual objects a quarter.
const DECODED_FACTOR: usize = 32;
/// The maximum pause of a client within a body.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The minimum average rate after that time, in bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 1024;

/// The memory for the bodies of all requests, and for what they become.
#[derive(Debug)]
pub struct BodyBudget {
    read: MemoryBudget,
    decoded: MemoryBudget,
}

impl BodyBudget {
    /// Returns budgets of so many bytes for bodies, and for what they are decoded to.
    pub fn new(bodies: usize, decoded: usize) -> Self {
        let most = MAX_BODY_BYTES * DECODED_FACTOR;
        Self {
            read: MemoryBudget::new("request_bodies", bodies, MAX_BODY_BYTES),
            decoded: MemoryBudget::new("decoded_bodies", decoded, most),
        }
    }

    /// Returns the budgets, for those who show them.
    pub fn all(&self) -> [&MemoryBudget; 2] {
        [&self.read, &self.decoded]
    }
}

/// The body of a request, with the permits for its memory, which are held as long as the request.
#[derive(Debug, Default)]
pub struct RequestBody {
    /// The body of a request that the server itself makes.
    whole: Mutex<Option<Bytes>>,
    incoming: Mutex<Option<Incoming>>,
    permits: Mutex<Vec<MemoryPermit>>,
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
    /// 400 where the client breaks off, 408 where it is too slow, 413 for a body that is too large,
    /// 429 where there is no memory for it.
    pub async fn read(&self, budget: &BodyBudget, user: &User) -> Result<Bytes> {
        if let Some(body) = self.whole.lock().take() {
            return Ok(body);
        }
        let incoming = self.incoming.lock().take();
        let Some(incoming) = incoming.filter(|incoming| !incoming.is_end_stream()) else {
            return Ok(Bytes::new());
        };
        let bytes = incoming.size_hint().exact().map_or(MAX_BODY_BYTES, |len| {
            usize::try_from(len).unwrap_or(MAX_BODY_BYTES)
        });
        self.is_reading.store(true, Ordering::Relaxed);
        let read = async {
            let permit = budget.read.acquire(user, bytes).await?;
            self.permits.lock().push(permit);
            collect(incoming).await
        };
        let read = read.await;
        self.is_reading.store(false, Ordering::Relaxed);
        let body = read?;
        self.len.store(body.len(), Ordering::Relaxed);
        // Only now: a client that sends slowly holds nothing of this.
        let decoded = body.len() * DECODED_FACTOR;
        let permit = budget.decoded.acquire(user, decoded).await?;
        self.permits.lock().push(permit);
        Ok(body)
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
}
