//! Calls of plugins on Unix sockets over gRPC, with the names and texts of Go's library.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Error};
use tonic::{Code, Status};

/// The pause before a plugin that has no socket yet is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Returns a channel that connects when it is first used. The path of an abstract socket begins
/// with a zero byte.
///
/// # Errors
/// The path cannot be a part of an address.
pub fn channel(path: &str) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(format!("unix://{path}"))?;
    let origin = http::Uri::from_static("http://localhost");
    Ok(endpoint.origin(origin).connect_lazy())
}

/// Makes a call. As Go's library waits for a connection, one that cannot be made yet is tried again
/// meanwhile.
///
/// # Errors
/// The plugin's, and that it does not answer in time.
pub async fn call_within<T, F: Future<Output = Result<T, Status>> + Send>(
    timeout: Duration,
    call: impl Fn() -> F + Send + Sync,
) -> Result<T, Status> {
    let attempts = async {
        loop {
            match call().await {
                Err(status) if is_unconnected(&status) => tokio::time::sleep(RETRY_PAUSE).await,
                outcome => return outcome,
            }
        }
    };
    let late = || Status::new(Code::DeadlineExceeded, "context deadline exceeded");
    let outcome = tokio::time::timeout(timeout, attempts).await;
    outcome.unwrap_or_else(|_| Err(late()))
}

/// Reports whether there was no connection to make the call on.
fn is_unconnected(status: &Status) -> bool {
    status.code() == Code::Unavailable && std::error::Error::source(status).is_some()
}

/// Formats an error as Go prints it.
pub fn error_text(status: &Status) -> String {
    let (code, text) = (code_name(status.code()), status.message());
    format!("rpc error: code = {code} desc = {text}")
}

/// Returns the name of the code that a call ended with.
pub fn code_of<T>(outcome: &Result<T, Status>) -> &'static str {
    code_name(outcome.as_ref().err().map_or(Code::Ok, Status::code))
}

/// Returns Go's name of a code.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_end_in_time_with_the_texts_of_go() {
        let hangs = || std::future::pending::<Result<(), Status>>();
        let late = call_within(Duration::from_secs(3), hangs).await;
        assert_eq!(code_of(&late), "DeadlineExceeded");
        assert_eq!(
            late.map_err(|why| error_text(&why)),
            Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned())
        );
    }
}
