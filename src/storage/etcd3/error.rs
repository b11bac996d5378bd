//! Translates errors of etcd for the layers above.

use etcd_client::Error;

use crate::storage::{Revision, StorageError};

/// The gRPC status codes that matter here (grpc/status.proto); the names are gRPC's.
mod code {
    pub const INVALID_ARGUMENT: i32 = 3;
    pub const DEADLINE_EXCEEDED: i32 = 4;
    pub const NOT_FOUND: i32 = 5;
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    pub const OUT_OF_RANGE: i32 = 11;
    pub const UNAVAILABLE: i32 = 14;
}

/// Code and message of an error that etcd returned, or that a broken connection is reported as.
fn status(error: &Error) -> Option<(i32, &str)> {
    match error {
        Error::GRpcStatus(status) => Some((status.code() as i32, status.message())),
        _ => None,
    }
}

/// Interprets an error. `asked` is the revision that the request named, if any.
pub fn interpret(error: &Error, asked: Revision) -> StorageError {
    let Some((code, message)) = status(error) else {
        return match error {
            Error::IoError(_) | Error::TransportError(_) | Error::WatchError(_) => {
                StorageError::Unavailable(message_of(error))
            }
            _ => StorageError::Internal(error.to_string()),
        };
    };
    match code {
        code::OUT_OF_RANGE if message.contains("compacted") => {
            StorageError::Compacted { oldest: None }
        }
        // Whoever can fills in the current revision.
        code::OUT_OF_RANGE if message.contains("future revision") => {
            StorageError::FutureRevision { asked, current: 0 }
        }
        code::INVALID_ARGUMENT if message.contains("request is too large") => {
            StorageError::TooLarge(message.to_owned())
        }
        code::RESOURCE_EXHAUSTED if message.contains("larger than max") => {
            StorageError::TooLarge(message.to_owned())
        }
        code::RESOURCE_EXHAUSTED if message.contains("database space exceeded") => {
            StorageError::NoSpace("etcd's quota".to_owned())
        }
        code::RESOURCE_EXHAUSTED if message.contains("too many requests") => {
            StorageError::Unavailable(message.to_owned())
        }
        code::UNAVAILABLE | code::DEADLINE_EXCEEDED => StorageError::Unavailable(message_of(error)),
        // Not from etcd: the status reports a failure of the connection.
        _ if cause(error).is_some() => StorageError::Unavailable(message_of(error)),
        _ => StorageError::Internal(message.to_owned()),
    }
}

/// Reports whether the lease that a write named is gone.
pub fn lease_is_gone(error: &Error) -> bool {
    matches!(status(error), Some((code::NOT_FOUND, message)) if message.contains("lease not found"))
}

/// Reports whether the request cannot have reached a server, so that even a write may be sent
/// again.
pub fn was_never_sent(error: &Error) -> bool {
    std::iter::successors(cause(error), |e| e.source())
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// The message of an error with those of its causes: the innermost is the most specific (which
/// file, which address, refused or unknown).
fn message_of(error: &Error) -> String {
    let mut text =
        status(error).map_or_else(|| error.to_string(), |(_, message)| message.to_owned());
    let first = cause(error).or_else(|| std::error::Error::source(error));
    for cause in std::iter::successors(first, |error| error.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns the error that a status was made from, if it was made on this side.
fn cause(error: &Error) -> Option<&(dyn std::error::Error + 'static)> {
    match error {
        Error::GRpcStatus(status) => std::error::Error::source(status),
        _ => None,
    }
}
