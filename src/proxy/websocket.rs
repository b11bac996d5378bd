//! The server side of WebSocket connections that the proxy ends itself.

use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::inbound::{self, ResponseBody};

/// The longest message of a client. Upstream takes 32 MiB.
pub const MAX_MESSAGE: usize = 4 << 20;
/// The bytes that are buffered of a connection; most of them are silent at most times.
const BUFFER: usize = 4 * 1024;

/// The connection of a client.
pub type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The protocols that a client asks for, in its order of preference.
pub fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .collect()
}

/// The answer that switches to a protocol of WebSocket; `None` where the request is no handshake.
pub fn switch(
    method: &Method,
    headers: &HeaderMap,
    protocol: Option<&str>,
) -> Option<Response<ResponseBody>> {
    let key = headers.get(SEC_WEBSOCKET_KEY)?;
    let version = headers.get(SEC_WEBSOCKET_VERSION)?;
    if method != Method::GET || key.is_empty() || version != "13" {
        return None;
    }
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()?;
    let protocol = protocol.map(HeaderValue::from_str).transpose().ok()?;
    let mut response = Response::new(inbound::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Some(response)
}

/// Waits for the connection of a client.
///
/// # Errors
/// The client is gone.
pub async fn accept(upgrade: OnUpgrade) -> hyper::Result<Socket> {
    let io = TokioIo::new(upgrade.await?);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(BUFFER)
        .write_buffer_size(0);
    Ok(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await)
}
