//! The server side of WebSocket connections that the proxy ends itself.

mod frames;

use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

pub use frames::Said;

use super::inbound::{self, ResponseBody};

/// The version of the protocol, the only one there is.
const VERSION: &str = "13";

type Io = TokioIo<Upgraded>;

/// The side of a connection on which the client speaks.
pub type Reader = frames::Reader<ReadHalf<Io>>;
/// The side of a connection on which the client listens.
pub type Writer = frames::Writer<WriteHalf<Io>>;

/// The protocols that a client asks for, in its order of preference.
pub fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .collect()
}

/// A request for WebSocket that is no handshake (Go's `x/net/websocket`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("bad method")]
    Method,
    #[error("mismatch challenge/response")]
    Key,
    #[error("missing or bad WebSocket Version")]
    Version,
}

impl HandshakeError {
    /// The answer to the request, after which the connection ends.
    pub fn answer(self) -> Response<ResponseBody> {
        let mut response = Response::new(inbound::full(self.to_string()));
        *response.status_mut() = match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Key | Self::Version => StatusCode::BAD_REQUEST,
        };
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if self == Self::Version {
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        }
        response
    }
}

/// Returns the answer that switches to a protocol of WebSocket.
///
/// # Errors
/// The request is no handshake.
pub fn switch(
    method: &Method,
    headers: &HeaderMap,
    protocol: Option<&str>,
) -> Result<Response<ResponseBody>, HandshakeError> {
    if method != Method::GET {
        return Err(HandshakeError::Method);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY);
    let key = key.filter(|key| !key.is_empty());
    let key = key.ok_or(HandshakeError::Key)?;
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != VERSION) {
        return Err(HandshakeError::Version);
    }
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let accept = accept.map_err(|_| HandshakeError::Key)?;
    // It comes from a header.
    let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
    let mut response = Response::new(inbound::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

/// Waits for the connection of a client.
///
/// # Errors
/// The client is gone.
pub async fn accept(upgrade: OnUpgrade) -> hyper::Result<(Reader, Writer)> {
    let (reader, writer) = split(TokioIo::new(upgrade.await?));
    Ok((Reader::new(reader), Writer::new(writer)))
}
