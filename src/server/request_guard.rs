//! The capacity of the server that a request holds while it is being answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::connections::ConnectionState;
use super::filters::Permit;
use super::outbound::{NoPlace, OutboundPlace};
use crate::audit::Audit;
use crate::auth::User;
use crate::endpoints::Held;
use crate::flowcontrol::{Seat, WatchRegistration};
use crate::telemetry::requests::LongRunning;

/// A part of the server's capacity.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held until they are dropped")]
pub enum Capacity {
    /// A slot among the requests in flight.
    InFlight(Permit),
    /// Seats in a priority level.
    Seat(Seat),
    /// The place of a watch among those that writes wake.
    Watch(Option<WatchRegistration>),
}

/// The capacity that a request holds: that of the server, and its part of the connection. It is
/// kept by all work on the request, also after the client has disconnected.
#[derive(Debug)]
pub struct RequestGuard {
    connection: Arc<ConnectionState>,
    capacity: Mutex<Option<Capacity>>,
    is_routed: AtomicBool,
    has_timed_out: AtomicBool,
    /// A shutdown waits for it.
    in_progress: OnceLock<TaskTrackerToken>,
    /// The place of a request that is handed on to another server.
    outbound: Mutex<Option<OutboundPlace>>,
    /// One of the connections that went on after their request, and the event that ends with it.
    open: Mutex<Option<(LongRunning, Option<Arc<Audit>>)>>,
}

impl RequestGuard {
    /// Returns a guard for a request that a connection begins; `None` where the connection takes
    /// no requests any more.
    pub fn new(connection: Arc<ConnectionState>) -> Option<Arc<Self>> {
        connection.request_began().then(|| {
            Arc::new(Self {
                connection,
                capacity: Mutex::default(),
                is_routed: AtomicBool::new(false),
                has_timed_out: AtomicBool::new(false),
                in_progress: OnceLock::new(),
                outbound: Mutex::default(),
                open: Mutex::default(),
            })
        })
    }

    /// Keeps a part of the server's capacity.
    pub fn hold(&self, capacity: Capacity) {
        *self.capacity.lock() = Some(capacity);
    }

    /// Takes a place for handing the request on, for as long as anything works on it.
    ///
    /// # Errors
    /// There is none for its user.
    pub fn hand_on(&self, user: &User) -> Result<(), NoPlace> {
        *self.outbound.lock() = self.connection.outbound().admit(user)?;
        Ok(())
    }

    /// Keeps the request counted among those that are open, and its event incomplete, for as long
    /// as anything works on it.
    pub fn keep_open(&self, counted: LongRunning, audit: Option<Arc<Audit>>) {
        *self.open.lock() = Some((counted, audit));
    }

    /// Releases the capacity before the response has been read, if no task works on the request any
    /// more. A client may take its time to read even a refusal; what it holds meanwhile is a short
    /// answer and no more.
    pub fn release_early(self: &Arc<Self>) {
        if Arc::strong_count(self) == 1 {
            *self.capacity.lock() = None;
        }
    }

    /// Lets a shutdown wait for the request.
    pub fn set_in_progress(&self, token: TaskTrackerToken) {
        // Once is enough.
        let _ = self.in_progress.set(token);
    }

    /// Notes that the request has passed all filters.
    pub fn set_routed(&self) {
        self.is_routed.store(true, Ordering::Relaxed);
    }

    /// Notes that the client has been told that the request has timed out.
    pub fn set_timed_out(&self) {
        self.has_timed_out.store(true, Ordering::Relaxed);
    }

    pub fn is_routed(&self) -> bool {
        self.is_routed.load(Ordering::Relaxed)
    }
}

impl Held for RequestGuard {
    fn has_timed_out(&self) -> bool {
        self.has_timed_out.load(Ordering::Relaxed)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.connection.request_ended();
    }
}
