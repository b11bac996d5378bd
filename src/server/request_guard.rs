//! The capacity of the server that a request holds while it is being answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::connections::ConnectionState;
use super::filters::Permit;

/// The capacity that a request holds: its slot among the requests in flight, and its part of the
/// connection. It is kept by all work on the request, also after the client has disconnected.
#[derive(Debug)]
pub struct RequestGuard {
    connection: Arc<ConnectionState>,
    permit: Mutex<Option<Permit>>,
    is_routed: AtomicBool,
}

impl RequestGuard {
    /// Returns a guard for a request that a connection begins; `None` where the connection takes
    /// no requests any more.
    pub fn new(connection: Arc<ConnectionState>) -> Option<Arc<Self>> {
        connection.request_began().then(|| {
            Arc::new(Self {
                connection,
                permit: Mutex::default(),
                is_routed: AtomicBool::new(false),
            })
        })
    }

    /// Keeps a place among the requests in flight.
    pub fn hold(&self, permit: Permit) {
        *self.permit.lock() = Some(permit);
    }

    /// Releases the capacity before the response has been read, if no task works on the request any
    /// more. A client may take its time to read even a refusal; what it holds meanwhile is a short
    /// answer and no more.
    pub fn release_permit(self: &Arc<Self>) {
        if Arc::strong_count(self) == 1 {
            *self.permit.lock() = None;
        }
    }

    /// Notes that the request has passed all filters.
    pub fn set_routed(&self) {
        self.is_routed.store(true, Ordering::Relaxed);
    }

    pub fn is_routed(&self) -> bool {
        self.is_routed.load(Ordering::Relaxed)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.connection.request_ended();
    }
}
