//! Limits on connections: their number, and the time without a request.

use std::time::Duration;

/// The longest that a TLS handshake may take (Go's `ReadHeaderTimeout` bounds it, more generously).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that an HTTP/2 client may take to send its preface (Go's `prefaceTimeout`).
pub const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that the header of an HTTP/1.1 request may take (`ReadHeaderTimeout` in apiserver
/// `server/secure_serving.go`).
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// The longest that a connection may wait for its next request (`IdleTimeout` in apiserver
/// `server/secure_serving.go`).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The time for which an HTTP/2 client that was told to go away may begin requests on the same
/// connection: it may not have heard yet. Later ones are refused.
pub const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of requests are refused on such a connection before it is cut off.
pub const MAX_REFUSED_STREAMS: usize = 256;
/// The longest that the requests of such a connection may go on: longer than the watches of clients
/// that do not ask for a time of their own.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The time for which an HTTP/2 connection that was told to go away stays open after its last
/// answer, so that it arrives.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of connections, regardless of the limit of file descriptors.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Connections take at most this share of the file descriptors, in percent: the store and its files
/// need some, too.
pub const CONNECTIONS_PERCENT: u64 = 75;
/// Connections whose client is not authenticated, handshakes among them, take at most this share
/// of all, in percent. When there are more, the oldest of them is closed: who wants to keep others
/// out has to be faster than all of them.
pub const UNAUTHENTICATED_PERCENT: usize = 25;
/// The connections of one user take at most this share of all, in percent; those of administrators
/// and of the control plane have no limit.
pub const USER_PERCENT: usize = 25;
/// The connections of all users other than the system's take at most this share, in percent.
pub const ORDINARY_PERCENT: usize = 75;
/// The bytes of unanswered requests that an unauthenticated client may have sent before it counts
/// against the next limit: more than the header of any usual
/// request.
pub const USUAL_UNAUTHENTICATED_BYTES: usize = 32 * 1024;
/// The bytes that all those may have sent beyond that; a connection that sends more is closed.
pub const MAX_UNAUTHENTICATED_BYTES: usize = 128 * 1024 * 1024;
/// The least that the shares come to.
const FEWEST: usize = 16;

/// The limits of connections. Tests set smaller values.
#[derive(Clone, Debug)]
pub struct Limits {
    pub handshake: Duration,
    pub preface: Duration,
    pub header: Duration,
    pub idle: Duration,
    pub goaway: Duration,
    pub drain: Duration,
    pub linger: Duration,
    /// Connections at the same time.
    pub connections: usize,
    /// Those among them whose client has not authenticated itself yet.
    pub unauthenticated: usize,
    /// Those of one user.
    pub user: usize,
    /// Those of all users that are not essential.
    pub ordinary: usize,
    /// The bytes that unauthenticated clients may have sent together beyond
    /// [`USUAL_UNAUTHENTICATED_BYTES`] each.
    pub unauthenticated_bytes: usize,
}

impl Limits {
    /// The limits of a process that may have so many files open.
    pub fn of_descriptors(descriptors: u64) -> Self {
        let share = descriptors.saturating_mul(CONNECTIONS_PERCENT) / 100;
        let connections = usize::try_from(share)
            .unwrap_or(MAX_CONNECTIONS)
            .clamp(FEWEST, MAX_CONNECTIONS);
        Self {
            handshake: HANDSHAKE_TIMEOUT,
            preface: PREFACE_TIMEOUT,
            header: HEADER_TIMEOUT,
            idle: IDLE_TIMEOUT,
            goaway: GOAWAY_TIMEOUT,
            drain: DRAIN_TIMEOUT,
            linger: LINGER_TIMEOUT,
            connections,
            unauthenticated: (connections * UNAUTHENTICATED_PERCENT / 100).max(FEWEST),
            user: (connections * USER_PERCENT / 100).max(FEWEST),
            ordinary: (connections * ORDINARY_PERCENT / 100).max(FEWEST),
            unauthenticated_bytes: MAX_UNAUTHENTICATED_BYTES,
        }
    }
}

/// Raises the limit of open files to what the process may have, as Go programs do at their start,
/// and returns it.
pub fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(why) = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )
    {
        tracing::warn!("raising the limit of open files: {why}");
    }
    descriptors()
}

/// The number of files the process may have open.
pub fn descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_others() {
        let few = Limits::of_descriptors(1024);
        assert_eq!((few.connections, few.unauthenticated), (768, 192));
        let many = Limits::of_descriptors(u64::MAX);
        assert_eq!(
            (many.connections, many.unauthenticated),
            (MAX_CONNECTIONS, MAX_CONNECTIONS / 4)
        );
        assert_eq!(Limits::of_descriptors(0).connections, FEWEST);
    }

    #[test]
    fn open_file_limit_is_raised_to_the_hard_limit() {
        let raised = raise_descriptors();
        let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .maximum
            .unwrap_or(u64::MAX);
        assert_eq!(raised, hard);
    }
}
