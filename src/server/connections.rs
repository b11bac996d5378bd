//! The connections of a listener: limits on their number, and the choice of those to close.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits::{Limits, MAX_REFUSED_STREAMS, USUAL_UNAUTHENTICATED_BYTES};
use super::outbound::Outbound;
use crate::auth::User;
use crate::auth::authn::Peer;
use crate::telemetry::metrics::{Counter, Declared};

/// The bytes that an HTTP/2 client sends first: its preface and the head of its settings (RFC 9113,
/// 3.4).
const PREFACE_BYTES: u64 = 24 + 9;

static CLOSED: Counter = Counter::new(
    "keelson_connections_closed_total",
    "[ALPHA] Number of connections closed to keep within a limit, by reason.",
    &["reason"],
);

pub static METRICS: &[&dyn Declared] = &[&CLOSED];

/// The view that requests have of their connection.
#[derive(Debug)]
pub struct Connection {
    pub remote: SocketAddr,
    /// The identity that the client proved in the handshake.
    pub peer: Peer,
    /// It speaks HTTP/2.
    pub http2: bool,
    pub(super) state: Arc<ConnectionState>,
}

impl Connection {
    /// Notes the authenticated user of the connection. The first user counts: false where that one
    /// has too many connections already, and the connection is closed.
    pub fn authenticated(&self, user: &User) -> bool {
        self.state.authenticated(user)
    }

    /// Asks an HTTP/2 client to send its next requests on another connection (GOAWAY). Does
    /// nothing to HTTP/1.1.
    pub fn go_away(&self) {
        if self.http2 {
            self.state.set_phase(DRAINING);
        }
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    open: AtomicUsize,
    /// The bytes that unauthenticated clients have sent beyond what is usual. May be
    /// below zero for a moment.
    excess: AtomicI64,
    next: AtomicU64,
    /// Those whose client is not authenticated, oldest first.
    unauthenticated: Mutex<BTreeMap<u64, Arc<ConnectionState>>>,
    users: Mutex<UserConnections>,
    outbound: Arc<Outbound>,
}

/// The number of connections of each user.
#[derive(Debug, Default)]
struct UserConnections {
    by_name: HashMap<Arc<str>, usize>,
    /// Those of all users that are not essential.
    ordinary: usize,
}

/// A connection that counts against the limit of its user, until dropped.
#[derive(Debug)]
struct UserConnection {
    user: Arc<str>,
    is_ordinary: bool,
}

impl Connections {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            outbound: Outbound::new(&limits),
            limits,
            open: AtomicUsize::new(0),
            excess: AtomicI64::new(0),
            next: AtomicU64::new(0),
            unauthenticated: Mutex::default(),
            users: Mutex::default(),
        })
    }

    /// Takes in a new connection. Where there are too many, the oldest whose client is not
    /// authenticated is closed for it; `None` where there is no such connection, and the new one is
    /// to be closed at once.
    pub fn admit(self: &Arc<Self>) -> Option<Arc<ConnectionState>> {
        let mut unauthenticated = self.unauthenticated.lock();
        let full = self.open.load(Ordering::Relaxed) >= self.limits.connections;
        if full || unauthenticated.len() >= self.limits.unauthenticated {
            match unauthenticated.pop_first() {
                Some((_, oldest)) => {
                    CLOSED.inc(&["unauthenticated"]);
                    oldest.set_phase(ABORTED);
                }
                None => {
                    CLOSED.inc(&["refused"]);
                    return None;
                }
            }
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(ConnectionState::new(number, self.clone()));
        unauthenticated.insert(number, state.clone());
        Some(state)
    }

    fn deregister(&self, number: u64) {
        self.unauthenticated.lock().remove(&number);
    }

    /// Counts a connection as a user's, unless `claim` shows that it is counted already. False
    /// where the user has as many as it may.
    fn claim(&self, user: &User, claim: &OnceLock<UserConnection>) -> bool {
        if user.is_privileged() {
            return true;
        }
        let users = &mut *self.users.lock();
        if claim.get().is_some() {
            return true;
        }
        let is_ordinary = !user.is_essential();
        let open = users.by_name.get(user.name.as_str()).copied().unwrap_or(0);
        if open >= self.limits.user || is_ordinary && users.ordinary >= self.limits.ordinary {
            return false;
        }
        let user: Arc<str> = user.name.as_str().into();
        *users.by_name.entry(user.clone()).or_default() += 1;
        users.ordinary += usize::from(is_ordinary);
        claim.get_or_init(|| UserConnection { user, is_ordinary });
        true
    }

    fn release(&self, claim: &UserConnection) {
        let users = &mut *self.users.lock();
        users.ordinary -= usize::from(claim.is_ordinary);
        if let Some(open) = users.by_name.get_mut(&claim.user) {
            *open -= 1;
            if *open == 0 {
                users.by_name.remove(&claim.user);
            }
        }
    }
}

/// The phases of a connection, in order.
const OPEN: u8 = 0;
/// Requests in progress finish, new ones are refused.
const DRAINING: u8 = 1;
/// The connection ends at once.
const ABORTED: u8 = 2;
/// No time.
const NEVER: u64 = 0;

/// The ways to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Requests finish, others are not taken.
    Gracefully,
    Now,
}

/// The state of a connection. Times are milliseconds since it began, and at least 1.
#[derive(Debug)]
pub struct ConnectionState {
    number: u64,
    connections: Arc<Connections>,
    begun: Instant,
    /// Bytes that were received, without those of TLS.
    received: AtomicU64,
    /// Bytes of requests that have not been answered, as long as the client is not authenticated.
    pending: AtomicUsize,
    /// Requests that are being answered.
    requests: AtomicUsize,
    /// Requests that came too long after the client was told to go away.
    refused: AtomicUsize,
    /// The time at which the last request ended.
    idle_since: AtomicU64,
    /// The time at which the next request began to arrive.
    header_since: AtomicU64,
    is_authenticated: AtomicBool,
    /// The user that it is counted for.
    claim: OnceLock<UserConnection>,
    phase: AtomicU8,
    /// The time at which the phase began.
    phase_since: AtomicU64,
    /// A phase has begun.
    closing: Notify,
    aborting: Notify,
}

impl ConnectionState {
    /// The requests that are handed on, of all connections.
    pub fn outbound(&self) -> &Arc<Outbound> {
        &self.connections.outbound
    }

    fn new(number: u64, connections: Arc<Connections>) -> Self {
        Self {
            number,
            connections,
            begun: Instant::now(),
            received: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            idle_since: AtomicU64::new(NEVER),
            header_since: AtomicU64::new(NEVER),
            is_authenticated: AtomicBool::new(false),
            claim: OnceLock::new(),
            phase: AtomicU8::new(OPEN),
            phase_since: AtomicU64::new(NEVER),
            closing: Notify::new(),
            aborting: Notify::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Notes bytes that were received.
    pub fn bytes_received(&self, bytes: usize) {
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
                    self.set_phase(ABORTED);
                }
            }
        }
    }

    /// Notes that nothing is left of what was received.
    fn release_pending(&self) {
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

    /// Notes that a request begins; false where it is to be refused, since its client was told to
    /// go away long enough ago to have heard it. Requests that run are not disturbed by that, but a
    /// client that goes on loses the connection.
    #[must_use]
    pub fn request_began(&self) -> bool {
        let limits = &self.connections.limits;
        let is_draining = self.phase.load(Ordering::Relaxed) == DRAINING;
        if is_draining && self.since(&self.phase_since) > limits.goaway {
            if self.refused.fetch_add(1, Ordering::Relaxed) == MAX_REFUSED_STREAMS {
                CLOSED.inc(&["ignored_goaway"]);
                self.set_phase(ABORTED);
            }
            return false;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Reports whether there has been a request.
    pub fn has_requested(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
            || self.idle_since.load(Ordering::Relaxed) != NEVER
    }

    /// Returns the time that the client still has for its first request when the server closes.
    pub fn first_request_due(&self) -> Duration {
        let limit = self.connections.limits.first_request;
        limit.saturating_sub(self.begun.elapsed())
    }

    /// Notes that a request has been answered.
    pub fn request_ended(&self) {
        // Stored first: readers that see no requests also see since when.
        self.header_since.store(NEVER, Ordering::Relaxed);
        self.idle_since.store(self.now(), Ordering::Relaxed);
        if self.requests.fetch_sub(1, Ordering::Release) == 1 {
            self.release_pending();
        }
    }

    /// See [`Connection::authenticated`].
    fn authenticated(&self, user: &User) -> bool {
        if self.is_authenticated.load(Ordering::Relaxed) {
            return true;
        }
        if !self.connections.claim(user, &self.claim) {
            CLOSED.inc(&["user"]);
            self.set_phase(DRAINING);
            return false;
        }
        if !self.is_authenticated.swap(true, Ordering::Relaxed) {
            self.connections.deregister(self.number);
            self.release_pending();
        }
        true
    }

    /// Begins a phase, unless it is in a later one.
    fn set_phase(&self, phase: u8) {
        if self.phase.fetch_max(phase, Ordering::Relaxed) < phase {
            self.phase_since.store(self.now(), Ordering::Relaxed);
            // Each has one waiter.
            self.closing.notify_one();
            if phase == ABORTED {
                self.aborting.notify_one();
            }
        }
    }

    fn since(&self, time: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(time.load(Ordering::Relaxed)))
    }

    /// Waits until the connection is aborted to make room for others.
    pub async fn aborted(&self) {
        while self.phase.load(Ordering::Relaxed) != ABORTED {
            self.aborting.notified().await;
        }
    }

    /// Waits until the connection is to be closed: by its phase, or because its client has been
    /// silent for too long.
    pub async fn until_close(&self, http2: bool) -> Close {
        loop {
            let left = match self.time_left(http2) {
                Ok(left) => left,
                Err(close) => return close,
            };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.closing.notified() => {}
            }
        }
    }

    /// Returns the time until the connection may have to be closed, in its present state. What
    /// happens on it wakes nobody: this is looked at again later.
    fn time_left(&self, http2: bool) -> Result<Duration, Close> {
        let limits = &self.connections.limits;
        match self.phase.load(Ordering::Relaxed) {
            OPEN => {}
            DRAINING => return Err(Close::Gracefully),
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

    /// Waits until a connection that is closed gracefully has no requests any more, and its client
    /// has had time to read the answers; or for as long as it may take.
    pub async fn drained(&self) {
        let limits = &self.connections.limits;
        let closing = Instant::now();
        loop {
            let idle = self.requests.load(Ordering::Acquire) == 0
                && self.since(&self.idle_since) >= limits.linger
                && closing.elapsed() >= limits.linger;
            let aborted = self.phase.load(Ordering::Relaxed) == ABORTED;
            if idle || aborted || closing.elapsed() >= limits.drain {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(limits.linger) => {}
                () = self.closing.notified() => {}
            }
        }
    }
}

/// Releases the capacity of a connection when its last part is dropped.
impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.release_pending();
        if let Some(claim) = self.claim.get() {
            self.connections.release(claim);
        }
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes the connection from the unauthenticated ones when its task ends.
#[derive(Debug)]
pub struct Deregistration(pub Arc<ConnectionState>);

impl Drop for Deregistration {
    fn drop(&mut self) {
        self.0.connections.deregister(self.0.number);
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

    fn user(name: &str) -> User {
        User {
            name: name.to_owned(),
            ..User::default()
        }
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_connection_makes_room() {
        let all = connections(10, 2);
        let (first, second) = (all.admit().expect("room"), all.admit().expect("room"));
        assert!(second.authenticated(&user("alice")));
        let third = all.admit().expect("room");
        assert!(
            [&first, &second, &third]
                .iter()
                .all(|state| state.time_left(true).is_ok())
        );
        let _fourth = all.admit().expect("room");
        assert_eq!(first.until_close(true).await, Close::Now);
        assert!(second.time_left(true).is_ok() && third.time_left(true).is_ok());
    }

    #[tokio::test]
    async fn connections_are_refused_when_all_clients_are_authenticated() {
        let all = connections(2, 2);
        let states = [all.admit().expect("room"), all.admit().expect("room")];
        states
            .iter()
            .for_each(|state| assert!(state.authenticated(&user("alice"))));
        assert!(all.admit().is_none());
        drop(states);
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
            let state = all.admit().expect("room");
            if received > 0 {
                state.bytes_received(received);
            }
            let begun = Instant::now();
            assert_eq!(state.until_close(http2).await, close, "{http2} {received}");
            assert_eq!(begun.elapsed().as_secs(), within, "{http2} {received}");
            drop(Deregistration(state));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_requests_stays_open() {
        let all = connections(10, 10);
        for http2 in [true, false] {
            let state = all.admit().expect("room");
            state.bytes_received(100);
            assert!(state.request_began());
            let over =
                tokio::time::timeout(Duration::from_secs(1000), state.until_close(http2)).await;
            assert!(over.is_err(), "{over:?}");
            state.request_ended();
            let begun = Instant::now();
            state.until_close(http2).await;
            assert_eq!(begun.elapsed().as_secs(), 90);
            drop(Deregistration(state));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_header_must_come_in_time() {
        let state = connections(10, 10).admit().expect("room");
        state.bytes_received(100);
        assert!(state.request_began());
        state.request_ended();
        tokio::time::sleep(Duration::from_secs(50)).await;
        state.bytes_received(1);
        let begun = Instant::now();
        assert_eq!(state.until_close(false).await, Close::Now);
        assert_eq!(begun.elapsed().as_secs(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_long_after_a_goaway_are_refused_and_then_abort_the_connection() {
        let state = connections(10, 10).admit().expect("room");
        state.bytes_received(100);
        assert!(state.request_began());
        state.set_phase(DRAINING);
        assert_eq!(state.until_close(true).await, Close::Gracefully);
        assert!(state.request_began(), "the client has not heard yet");
        tokio::time::sleep(Duration::from_secs(2)).await;
        for _ in 0..MAX_REFUSED_STREAMS {
            assert!(!state.request_began());
        }
        let running = Duration::from_secs(1000);
        let drained = tokio::time::timeout(running, state.drained()).await;
        assert!(drained.is_err(), "requests that run are not disturbed");
        assert!(!state.request_began());
        state.drained().await;
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_after_its_limit() {
        let state = connections(10, 10).admit().expect("room");
        assert!(state.request_began());
        state.set_phase(DRAINING);
        let begun = Instant::now();
        state.drained().await;
        assert_eq!(begun.elapsed(), state.connections.limits.drain);
    }

    #[tokio::test]
    async fn users_have_shares_of_the_connections() {
        let all = Connections::new(Limits {
            connections: 100,
            unauthenticated: 100,
            user: 2,
            ordinary: 3,
            ..Limits::of_descriptors(1024)
        });
        let connect = |user: &User| {
            let state = all.admit().expect("room");
            state.authenticated(user).then_some(state)
        };
        let (alice, bob) = (user("alice"), user("bob"));
        let first = connect(&alice).expect("a share");
        assert!(first.authenticated(&alice), "it is counted once");
        assert!(first.authenticated(&bob), "and for the first user");
        let second = connect(&alice).expect("a share");
        assert!(connect(&alice).is_none());
        let _third = connect(&bob).expect("a share of his own");
        assert!(connect(&bob).is_none(), "the share of all is exhausted");
        let node = User {
            groups: vec![crate::auth::authz::node::NODES.to_owned()],
            ..user("system:node:a")
        };
        let nodes = [connect(&node), connect(&node)];
        assert!(nodes.iter().all(Option::is_some) && connect(&node).is_none());
        let master = User {
            groups: vec![crate::auth::MASTERS.to_owned()],
            ..user("admin")
        };
        let masters: Vec<_> = (0..5).map(|_| connect(&master)).collect();
        assert!(masters.iter().all(Option::is_some));
        drop(second);
        assert!(connect(&bob).is_some());
    }

    #[tokio::test]
    async fn unauthenticated_clients_share_a_limit_of_bytes() {
        let all = Connections::new(Limits {
            unauthenticated_bytes: 1000,
            ..Limits::of_descriptors(1024)
        });
        let states: Vec<_> = (0..4).map(|_| all.admit().expect("room")).collect();
        states
            .iter()
            .for_each(|state| state.bytes_received(USUAL_UNAUTHENTICATED_BYTES));
        states[0].bytes_received(600);
        assert!(states[1].authenticated(&user("alice")));
        states[1].bytes_received(1_000_000);
        assert!(states.iter().all(|state| state.time_left(true).is_ok()));
        states[2].bytes_received(600);
        states[2].aborted().await;
        drop(Deregistration(states[2].clone()));
        // What has been answered counts no more, nor what is gone.
        assert!(states[0].request_began());
        states[0].request_ended();
        drop(states);
        assert_eq!(all.excess.load(Ordering::Relaxed), 0);
    }
}
