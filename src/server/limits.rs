//! Limits on connections: their number, and the time without a request.

use std::time::Duration;

/// The timeout of a TLS handshake (Go's `ReadHeaderTimeout` bounds it, more generously).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of an HTTP/2 client's preface (Go's `prefaceTimeout`).
pub const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of the header of an HTTP/1.1 request (`ReadHeaderTimeout` in apiserver
/// `server/secure_serving.go`).
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// The time from its start that a connection has for its first request when the server closes (Go
/// `Server.closeIdleConns`).
pub const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of an idle connection (`IdleTimeout` in apiserver `server/secure_serving.go`).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The interval at which an HTTP/2 client is pinged, and the time that it has to answer.
pub const PING_INTERVAL: Duration = Duration::from_secs(60);
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The time after a GOAWAY in which requests on the same connection are still accepted: the client
/// may not have received it yet. Later ones are refused.
pub const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of requests that are refused on such a connection before it is closed.
pub const MAX_REFUSED_STREAMS: usize = 256;
/// The maximum duration of requests on such a connection: longer than watches without a timeout of
/// their own.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The time for which an HTTP/2 connection stays open after a GOAWAY and its last response, so that
/// the response arrives.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of connections, regardless of the limit of file descriptors.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Connections take at most this share of the file descriptors, in percent: the store and its files
/// need some, too.
pub const CONNECTIONS_PERCENT: u64 = 60;
/// Connections whose client is not authenticated, handshakes among them, take at most this share of
/// all, in percent. When there are more, the oldest of them is closed: an attacker would have to
/// connect faster than all other clients together.
pub const UNAUTHENTICATED_PERCENT: usize = 25;
/// The connections of one user take at most this share of all, in percent; those of administrators
/// and of the control plane have no limit.
pub const USER_PERCENT: usize = 25;
/// The connections of all users other than the system's take at most this share, in percent.
pub const ORDINARY_PERCENT: usize = 75;
/// The requests of all users that are handed on to other servers, each over a connection to one, in
/// percent of the file descriptors: half as many as connections, of which most need none.
pub const OUTBOUND_PERCENT: u64 = 30;
/// The bytes of unanswered requests that an unauthenticated client may have sent before it counts
/// against the next limit: more than the header of any usual
/// request.
pub const USUAL_UNAUTHENTICATED_BYTES: usize = 32 * 1024;
/// The bytes that all those may have sent beyond that; a connection that sends more is closed.
pub const MAX_UNAUTHENTICATED_BYTES: usize = 128 * 1024 * 1024;
/// The minimum of each share.
const FEWEST: usize = 16;

/// The limits of connections. Tests set smaller values.
#[derive(Clone, Debug)]
pub struct Limits {
    pub handshake: Duration,
    pub preface: Duration,
    pub header: Duration,
    pub first_request: Duration,
    pub idle: Duration,
    pub ping: Duration,
    pub pong: Duration,
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
    /// Requests that are handed on to other servers at the same time.
    pub outbound: usize,
    /// Those of all users that are not essential.
    pub ordinary_outbound: usize,
    /// Those of one user.
    pub user_outbound: usize,
    /// The bytes that unauthenticated clients may have sent together beyond
    /// [`USUAL_UNAUTHENTICATED_BYTES`] each.
    pub unauthenticated_bytes: usize,
}

impl Limits {
    /// The limits of a process that may have so many files open.
    pub fn of_descriptors(descriptors: u64) -> Self {
        let share = |percent: u64| {
            usize::try_from(descriptors.saturating_mul(percent) / 100)
                .unwrap_or(MAX_CONNECTIONS)
                .clamp(FEWEST, MAX_CONNECTIONS)
        };
        let connections = share(CONNECTIONS_PERCENT);
        let outbound = share(OUTBOUND_PERCENT);
        Self {
            handshake: HANDSHAKE_TIMEOUT,
            preface: PREFACE_TIMEOUT,
            header: HEADER_TIMEOUT,
            first_request: FIRST_REQUEST_TIMEOUT,
            idle: IDLE_TIMEOUT,
            ping: PING_INTERVAL,
            pong: PING_TIMEOUT,
            goaway: GOAWAY_TIMEOUT,
            drain: DRAIN_TIMEOUT,
            linger: LINGER_TIMEOUT,
            connections,
            unauthenticated: (connections * UNAUTHENTICATED_PERCENT / 100).max(FEWEST),
            user: (connections * USER_PERCENT / 100).max(FEWEST),
            ordinary: (connections * ORDINARY_PERCENT / 100).max(FEWEST),
            outbound,
            ordinary_outbound: (outbound * ORDINARY_PERCENT / 100).max(FEWEST),
            user_outbound: (outbound * USER_PERCENT / 100).max(FEWEST),
            unauthenticated_bytes: MAX_UNAUTHENTICATED_BYTES,
        }
    }
}

/// Raises the soft limit of open files to the hard limit, as Go programs do at their start, and
/// returns it.
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

/// Returns the limit of open files of the process.
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
        assert_eq!((few.connections, few.unauthenticated), (614, 153));
        let many = Limits::of_descriptors(u64::MAX);
        assert_eq!(
            (many.connections, many.unauthenticated),
            (MAX_CONNECTIONS, MAX_CONNECTIONS / 4)
        );
        assert_eq!(Limits::of_descriptors(0).connections, FEWEST);
        // A user may have a thousand streams where a server may have no more files than is usual.
        assert!(Limits::of_descriptors(20_000).user_outbound > 1_000);
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
