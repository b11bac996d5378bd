//! Errors of the proxy, with upstream's texts.

use std::error::Error as StdError;

use super::transport::MAX_HEADER_BYTES;
use crate::meta::Status;
use crate::webhook::connector::cause;

/// A request that could not be handed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Only connections are handed on, and the client asks for none.
    #[error("Upgrade request required")]
    UpgradeRequired,
    /// The server does not answer.
    #[error("error trying to reach service: {0}")]
    Unreachable(String),
    /// The server redirects to what is no URL.
    #[error("Internal error occurred: error trying to parse Location header: {0}")]
    Redirect(String),
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

impl From<ProxyError> for Status {
    fn from(error: ProxyError) -> Self {
        let text = error.to_string();
        match error {
            ProxyError::UpgradeRequired => Self::bad_request(text),
            ProxyError::Unreachable(_) => Self::unavailable(text),
            ProxyError::Redirect(why) => {
                Self::internal(format!("error trying to parse Location header: {why}"))
            }
            // Errors that are no Status have no reason (apiserver `ErrorToAPIStatus`).
            ProxyError::Other(_) => Self::failure(500, "", text),
        }
    }
}

/// The error of an answer whose head is too large.
pub fn large_head() -> String {
    format!("net/http: server response headers exceeded {MAX_HEADER_BYTES} bytes; aborted")
}

/// The error of a request to a server in Go's words (`net/http.Transport.RoundTrip`).
pub fn round_trip_text(error: &(dyn StdError + 'static)) -> String {
    match parse_problem(error) {
        Some(Problem::TooLarge) => large_head(),
        Some(Problem::Malformed) => {
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned()
        }
        None => http2_text(error).unwrap_or_else(|| cause(error)),
    }
}

/// The error of an HTTP/2 stream in Go's words (`net/http` `http2StreamError`), if that is the
/// error. Go tells the number of the stream too.
fn http2_text(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut current = Some(error);
    let known = loop {
        let error = current?;
        match error.downcast_ref::<h2::Error>() {
            Some(known) => break known,
            None => current = error.source(),
        }
    };
    let reason = known.reason()?;
    Some(match (known.is_remote(), known.is_go_away()) {
        (true, true) => {
            format!("http2: server sent GOAWAY and closed the connection; ErrCode={reason:?}")
        }
        (true, false) => format!("stream error: {reason:?}; received from peer"),
        // The headers go on in too many frames.
        (false, _) if reason == h2::Reason::ENHANCE_YOUR_CALM => {
            "http2: response header list larger than advertised limit".to_owned()
        }
        (false, _) => format!("stream error: {reason:?}"),
    })
}

/// The error of the answer to an upgrade in Go's words (`net/http.ReadResponse`).
pub fn read_response_text(error: &(dyn StdError + 'static)) -> String {
    match parse_problem(error) {
        Some(Problem::TooLarge) => "header size limit exceeded".to_owned(),
        Some(Problem::Malformed) => "malformed HTTP response".to_owned(),
        None => match cause(error) {
            text if text == "EOF" => "unexpected EOF".to_owned(),
            text => text,
        },
    }
}

enum Problem {
    TooLarge,
    Malformed,
}

/// The reason that the head of an answer cannot be read, if that is the error.
fn parse_problem(error: &(dyn StdError + 'static)) -> Option<Problem> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(known) = error.downcast_ref::<hyper::Error>() {
            if known.is_parse_too_large() {
                return Some(Problem::TooLarge);
            }
            if known.is_parse() {
                return Some(Problem::Malformed);
            }
        }
        current = error.source();
    }
    None
}
