//! What is known of each connection while it lasts, and when it has lasted long enough.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits::{Limits, USUAL_UNAUTHENTICATED_BYTES};
use crate::auth::authn::Peer;
use crate::telemetry::metrics::Counter;

/// What an HTTP/2 client sends first: its preface and the head of its settings (RFC 9113, 3.4).
const PREFACE_BYTES: u64 = 24 + 9;

static CLOSED: Counter = Counter::new(
    "keelson_connections_closed_total",
    "[ALPHA] Number of connections closed to keep within a limit, by reason.",
    &["reason"],
);

/// A connection, as far as its requests should know.
#[derive(Debug)]
pub struct Connection {
    pub remote: SocketAddr,
    /// What the other side proved in the handshake.
    pub peer: Peer,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
    pub(super) life: Arc<Life>,
}

impl Connection {
    /// Says that the client has shown who it is.
    pub fn authenticated(&self) {
        self.life.authenticated();
    }

    /// Has an HTTP/2 client told to send its next requests on another connection (GOAWAY). Does
    /// nothing to HTTP/1.1.
    pub fn go_away(&self) {
        if self.http2 {
            self.life.ask(CLOSING);
        }
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    open: AtomicUsize,
    /// What clients who have not shown who they are have sent beyond what is usual. May be below
    /// zero for a moment.
    excess: AtomicI64,
    next: AtomicU64,
    /// Those whose client has not shown who it is, oldest first.
    unauthenticated: Mutex<BTreeMap<u64, Arc<Life>>>,
}

impl Connections {
    pub fn new(limits: Limits) -> Arc<Self> {
        let (open, excess, next) = (AtomicUsize::new(0), AtomicI64::new(0), AtomicU64::new(0));
        Arc::new(Self {
            limits,
            open,
            excess,
            next,
            unauthenticated: Mutex::default(),
        })
    }

    /// Takes in a new connection. Where there are too many, the oldest whose client has not
    /// authenticated itself is closed for it; `None` where there is no such connection, and the new
    /// one is to be closed at once.
    pub fn admit(self: &Arc<Self>) -> Option<Arc<Life>> {
        let mut unauthenticated = self.unauthenticated.lock();
        let full = self.open.load(Ordering::Relaxed) >= self.limits.connections;
        if full || unauthenticated.len() >= self.limits.unauthenticated {
            match unauthenticated.pop_first() {
                Some((_, oldest)) => {
                    CLOSED.inc(&["unauthenticated"]);
                    oldest.ask(CUT);
                }
                None => {
                    CLOSED.inc(&["refused"]);
                    return None;
                }
            }
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let life = Arc::new(Life {
            number,
            connections: self.clone(),
            begun: Instant::now(),
            received: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            header_since: AtomicU64::new(0),
            is_authenticated: AtomicBool::new(false),
            wish: AtomicU8::new(OPEN),
            wished: AtomicU64::new(0),
            closing: Notify::new(),
            cut: Notify::new(),
        });
        unauthenticated.insert(number, life.clone());
        Some(life)
    }

    fn forget(&self, number: u64) {
        self.unauthenticated.lock().remove(&number);
    }
}

/// What is to become of a connection.
const OPEN: u8 = 0;
/// Its client is to go elsewhere.
const CLOSING: u8 = 1;
/// It ends at once.
const CUT: u8 = 2;
/// No time.
const NEVER: u64 = 0;

/// How a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Requests finish, others are not taken.
    Gracefully,
    Now,
}

/// What happens on a connection. Times are milliseconds since it began, and at least 1.
#[derive(Debug)]
pub struct Life {
    number: u64,
    connections: Arc<Connections>,
    begun: Instant,
    /// Bytes that came, without those of TLS.
    received: AtomicU64,
    /// Bytes that came of requests that have not been answered, as long as the client has not shown
    /// who it is.
    pending: AtomicUsize,
    /// Requests that are being answered.
    requests: AtomicUsize,
    /// When the last request ended.
    idle_since: AtomicU64,
    /// When the next request began to come.
    header_since: AtomicU64,
    is_authenticated: AtomicBool,
    wish: AtomicU8,
    /// When the wish was made.
    wished: AtomicU64,
    closing: Notify,
    cut: Notify,
}

impl Life {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Notes bytes that came.
    pub fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.requests.load(Ordering::Relaxed) == 0
            && self.header_since.load(Ordering::Relaxed) == NEVER
        {
            self.header_since.store(self.now(), Ordering::Relaxed);
        }
        if !self.is_authenticated.load(Ordering::Relaxed) {
            let pending = self.pending.fetch_add(bytes, Ordering::Relaxed) + bytes;
            let excess = bytes.min(pending.saturating_sub(USUAL_UNAUTHENTICATED_BYTES));
            if excess > 0 {
                let before = self
                    .connections
                    .excess
                    .fetch_add(excess as i64, Ordering::Relaxed);
                if before.saturating_add(excess as i64)
                    > self.connections.limits.unauthenticated_bytes as i64
                {
                    CLOSED.inc(&["unauthenticated_bytes"]);
                    self.ask(CUT);
                }
            }
        }
    }

    /// Notes that nothing is left of what came.
    fn settle(&self) {
        let excess = self
            .pending
            .swap(0, Ordering::Relaxed)
            .saturating_sub(USUAL_UNAUTHENTICATED_BYTES);
        if excess > 0 {
            self.connections
                .excess
                .fetch_sub(excess as i64, Ordering::Relaxed);
        }
    }

    /// Notes that a request is being answered. A client that has been told to go away and asks
    /// again long after ends its connection.
    pub fn request_began(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let told = self.wish.load(Ordering::Relaxed) == CLOSING;
        if told && self.since(&self.wished) > self.connections.limits.goaway {
            CLOSED.inc(&["ignored_goaway"]);
            self.ask(CUT);
        }
    }

    /// Notes that a request has been answered.
    pub fn request_ended(&self) {
        // First: whoever sees that there are no requests sees since when.
        self.header_since.store(NEVER, Ordering::Relaxed);
        self.idle_since.store(self.now(), Ordering::Relaxed);
        if self.requests.fetch_sub(1, Ordering::Release) == 1 {
            self.settle();
        }
    }

    fn authenticated(&self) {
        if !self.is_authenticated.load(Ordering::Relaxed)
            && !self.is_authenticated.swap(true, Ordering::Relaxed)
        {
            self.connections.forget(self.number);
            self.settle();
        }
    }

    fn ask(&self, wish: u8) {
        if self.wish.fetch_max(wish, Ordering::Relaxed) < wish {
            self.wished.store(self.now(), Ordering::Relaxed);
            // Each has one who waits.
            self.closing.notify_one();
            if wish == CUT {
                self.cut.notify_one();
            }
        }
    }

    fn since(&self, time: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(time.load(Ordering::Relaxed)))
    }

    /// Waits until the connection is cut off to make room for others.
    pub async fn cut(&self) {
        while self.wish.load(Ordering::Relaxed) != CUT {
            self.cut.notified().await;
        }
    }

    /// Waits until the connection is to be closed: it is told so, or its client has been silent for
    /// too long.
    pub async fn over(&self, http2: bool) -> Close {
        loop {
            let left = match self.left(http2) {
                Ok(left) => left,
                Err(close) => return close,
            };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.closing.notified() => {}
            }
        }
    }

    /// How long the connection may go on at least, as it is now. What happens on it wakes nobody:
    /// this is looked at again later.
    fn left(&self, http2: bool) -> Result<Duration, Close> {
        let limits = &self.connections.limits;
        match self.wish.load(Ordering::Relaxed) {
            OPEN => {}
            CLOSING => return Err(Close::Gracefully),
            _ => return Err(Close::Now),
        }
        if self.requests.load(Ordering::Acquire) > 0 {
            return Ok(limits.idle);
        }
        let remaining = |limit: Duration, since: Duration| limit.saturating_sub(since);
        let idle = remaining(limits.idle, self.since(&self.idle_since));
        let (first, header) = (
            self.idle_since.load(Ordering::Relaxed) == NEVER,
            self.header_since.load(Ordering::Relaxed),
        );
        let (left, close) = match http2 {
            true if self.received.load(Ordering::Relaxed) < PREFACE_BYTES => {
                (remaining(limits.preface, self.begun.elapsed()), Close::Now)
            }
            true => (idle, Close::Gracefully),
            // The first header is due at once, others when they have begun.
            false if first => (remaining(limits.header, self.begun.elapsed()), Close::Now),
            false if header != NEVER => (
                remaining(limits.header, self.since(&self.header_since)),
                Close::Now,
            ),
            false => (idle.min(limits.header), Close::Now),
        };
        if left.is_zero() {
            CLOSED.inc(&["idle"]);
            return Err(close);
        }
        // Soon enough to see what has begun meanwhile.
        Ok(left.min(limits.idle))
    }

    /// Waits until a connection that was closed gracefully has no requests any more, and has had
    /// time to say so.
    pub async fn finished(&self) {
        let limit = self.connections.limits.linger;
        let closing = Instant::now();
        loop {
            let idle = self.requests.load(Ordering::Acquire) == 0
                && self.since(&self.idle_since) >= limit
                && closing.elapsed() >= limit;
            if idle || self.wish.load(Ordering::Relaxed) == CUT {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(limit) => {}
                () = self.closing.notified() => {}
            }
        }
    }
}

/// The place that a connection has; given back when nobody has a part of it any more.
impl Drop for Life {
    fn drop(&mut self) {
        self.settle();
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes the connection from those that are waited for, when its task ends.
#[derive(Debug)]
pub struct Forget(pub Arc<Life>);

impl Drop for Forget {
    fn drop(&mut self) {
        self.0.connections.forget(self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(limit: usize, unauthenticated: usize) -> Arc<Connections> {
        Connections::new(Limits {
            connections: limit,
            unauthenticated,
            ..Limits::of_descriptors(1024)
        })
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_connection_makes_room() {
        let all = connections(10, 2);
        let (first, second) = (all.admit().expect("room"), all.admit().expect("room"));
        second.authenticated();
        let third = all.admit().expect("room");
        assert!(
            [&first, &second, &third]
                .iter()
                .all(|life| life.left(true).is_ok())
        );
        let _fourth = all.admit().expect("room");
        assert_eq!(first.over(true).await, Close::Now);
        assert!(second.left(true).is_ok() && third.left(true).is_ok());
    }

    #[tokio::test]
    async fn connections_are_refused_when_all_are_of_known_clients() {
        let all = connections(2, 2);
        let lives = [all.admit().expect("room"), all.admit().expect("room")];
        lives.iter().for_each(|life| life.authenticated());
        assert!(all.admit().is_none());
        drop(lives);
        assert!(all.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_connection() {
        let all = connections(10, 10);
        for (http2, received, within, close) in [
            (true, 0, 10, Close::Now),
            (true, 32, 10, Close::Now),
            (true, 33, 90, Close::Gracefully),
            (false, 0, 32, Close::Now),
            (false, 20, 32, Close::Now),
        ] {
            let life = all.admit().expect("room");
            if received > 0 {
                life.received(received);
            }
            let begun = Instant::now();
            assert_eq!(life.over(http2).await, close, "{http2} {received}");
            assert_eq!(begun.elapsed().as_secs(), within, "{http2} {received}");
            drop(Forget(life));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_requests_stays() {
        let all = connections(10, 10);
        for http2 in [true, false] {
            let life = all.admit().expect("room");
            life.received(100);
            life.request_began();
            let over = tokio::time::timeout(Duration::from_secs(1000), life.over(http2)).await;
            assert!(over.is_err(), "{over:?}");
            life.request_ended();
            let begun = Instant::now();
            life.over(http2).await;
            assert_eq!(begun.elapsed().as_secs(), 90);
            drop(Forget(life));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_header_must_come_in_time() {
        let life = connections(10, 10).admit().expect("room");
        life.received(100);
        life.request_began();
        life.request_ended();
        tokio::time::sleep(Duration::from_secs(50)).await;
        life.received(1);
        let begun = Instant::now();
        assert_eq!(life.over(false).await, Close::Now);
        assert_eq!(begun.elapsed().as_secs(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_on_after_a_goaway_is_cut_off() {
        let life = connections(10, 10).admit().expect("room");
        life.received(100);
        life.request_began();
        life.ask(CLOSING);
        assert_eq!(life.over(true).await, Close::Gracefully);
        life.request_began();
        assert!(
            tokio::time::timeout(Duration::from_millis(500), life.finished())
                .await
                .is_err(),
            "the client has not heard yet"
        );
        tokio::time::sleep(Duration::from_secs(2)).await;
        life.request_began();
        life.finished().await;
    }

    #[tokio::test]
    async fn what_unknown_clients_send_is_bounded_in_all() {
        let all = Connections::new(Limits {
            unauthenticated_bytes: 1000,
            ..Limits::of_descriptors(1024)
        });
        let lives: Vec<_> = (0..4).map(|_| all.admit().expect("room")).collect();
        lives
            .iter()
            .for_each(|life| life.received(USUAL_UNAUTHENTICATED_BYTES));
        lives[0].received(600);
        lives[1].authenticated();
        lives[1].received(1_000_000);
        assert!(lives.iter().all(|life| life.left(true).is_ok()));
        lives[2].received(600);
        lives[2].cut().await;
        drop(Forget(lives[2].clone()));
        // What has been answered counts no more, nor what is gone.
        lives[0].request_began();
        lives[0].request_ended();
        drop(lives);
        assert_eq!(all.excess.load(Ordering::Relaxed), 0);
    }
}
