//! A stream over WebSocket (RFC 6455), each frame of it a message (apiserver `handlers/watch.go`,
//! `apimachinery/util/httpstream/wsstream`).

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt, stream as streams};
use http::Response;
use http::header::{CONNECTION, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use tokio_util::task::TaskTracker;

use crate::meta::status::Result;
use crate::meta::{Status, go};
use crate::proxy::websocket::{self, HandshakeError};

use super::Request;
use super::body::{self, Body};

/// The largest message that a client may send: none is of use here.
const MAX_CLIENT_MESSAGE: usize = 64 * 1024;
/// The longest that a client may take to make room for a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that it may take to answer that the stream has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports whether the client wants to speak WebSocket.
pub fn is_requested(request: &Request) -> bool {
    let names = |header: HeaderName, value: &str| {
        request
            .header_list(header)
            .split(',')
            .any(|one| one.trim().eq_ignore_ascii_case(value))
    };
    names(CONNECTION, "upgrade") && names(UPGRADE, "websocket")
}

/// Switches protocols and sends each frame as a message, as text if `text`, until the frames or the
/// client end. Requests that are no handshake are told so.
pub fn stream(
    request: &Request,
    tasks: &TaskTracker,
    text: bool,
    frames: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    // The one protocol that is asked for is the one that is spoken: frames have the same form in
    // all.
    let protocol = request.header_list(SEC_WEBSOCKET_PROTOCOL);
    let protocol = Some(&*protocol).filter(|asked| !asked.is_empty() && !asked.contains(','));
    switch(request, tasks, protocol, text, frames)
}

fn switch(
    request: &Request,
    tasks: &TaskTracker,
    protocol: Option<&str>,
    text: bool,
    frames: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    let switched = websocket::switch(&request.method, &request.headers, protocol);
    let upgrade = request.upgrade.lock().take().ok_or(HandshakeError::Method);
    let (response, upgrade) = match switched.and_then(|response| Ok((response, upgrade?))) {
        Ok(switched) => switched,
        Err(why) => return why.answer().map(body::stream),
    };
    let guard = request.guard.clone();
    tasks.spawn(async move {
        let _guard = guard;
        match upgrade.await {
            Ok(io) => {
                let config = WebSocketConfig::default().max_message_size(Some(MAX_CLIENT_MESSAGE));
                let socket =
                    WebSocketStream::from_raw_socket(TokioIo::new(io), Role::Server, Some(config))
                        .await;
                send(socket, text, frames).await;
            }
            Err(why) => tracing::debug!("a connection could not be upgraded: {why}"),
        }
    });
    response.map(body::stream)
}

/// The protocols in which bytes are sent as they are, and in base64 (`wsstream`
/// `NewDefaultReaderProtocols`).
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// Switches protocols and sends bytes as messages, after an empty one, until they or the client
/// end.
///
/// # Errors
/// The protocols are others.
pub fn stream_bytes(
    request: &Request,
    tasks: &TaskTracker,
    frames: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Response<Body>> {
    let asked = request.header_list(SEC_WEBSOCKET_PROTOCOL);
    let asked: Vec<&str> = asked.split(',').map(str::trim).collect();
    let known = asked
        .into_iter()
        .find(|one| ["", BINARY, BASE64].contains(one));
    let Some(protocol) = known else {
        return Err(Status::failure(
            403,
            "Forbidden",
            "the protocols are not supported",
        ));
    };
    let is_text = protocol == BASE64;
    let encode = move |frame: Bytes| match is_text {
        true => go::base64::encode(&frame).into(),
        false => frame,
    };
    let frames = streams::once(ready(Bytes::new())).chain(frames.map(encode));
    let protocol = Some(protocol).filter(|protocol| !protocol.is_empty());
    Ok(switch(request, tasks, protocol, is_text, frames))
}

async fn send<I>(mut socket: WebSocketStream<I>, text: bool, frames: impl Stream<Item = Bytes>)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut frames = std::pin::pin!(frames);
    loop {
        tokio::select! {
            frame = frames.next() => {
                let Some(frame) = frame else { break };
                let message = match Utf8Bytes::try_from(frame.clone()) {
                    Ok(frame) if text => Message::Text(frame),
                    _ => Message::Binary(frame),
                };
                if !matches!(timeout(SEND_TIMEOUT, socket.send(message)).await, Ok(Ok(()))) {
                    return;
                }
            }
            // Messages of the client are ignored; reading detects its end. Pings are answered by
            // the socket.
            said = socket.next() => if !matches!(said, Some(Ok(_))) {
                return;
            },
        }
    }
    // The client may be gone already, or not listen.
    let _ = timeout(CLOSE_TIMEOUT, async {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        socket.close(Some(frame)).await?;
        // The client answers it.
        while let Some(Ok(_)) = socket.next().await {}
        Ok::<_, tungstenite::Error>(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    async fn pair() -> (
        WebSocketStream<tokio::io::DuplexStream>,
        WebSocketStream<tokio::io::DuplexStream>,
    ) {
        let (near, far) = tokio::io::duplex(1024);
        (
            WebSocketStream::from_raw_socket(near, Role::Server, None).await,
            WebSocketStream::from_raw_socket(far, Role::Client, None).await,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn websocket_that_reads_nothing_is_dropped() {
        let (server, _client) = pair().await;
        let frames = stream::repeat_with(|| Bytes::from_static(&[7; 100]));
        assert!(
            timeout(2 * SEND_TIMEOUT, send(server, false, frames))
                .await
                .is_ok()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn websocket_is_closed_with_a_handshake() {
        let (server, mut client) = pair().await;
        let listening = async {
            let said = client.next().await.expect("a message").expect("a message");
            let Message::Close(Some(frame)) = said else {
                panic!("{said:?}")
            };
            assert_eq!(frame.code, CloseCode::Normal);
            // The socket answers by itself.
            while let Some(Ok(_)) = client.next().await {}
        };
        tokio::join!(send(server, false, stream::empty()), listening);
        let (server, _client) = pair().await;
        assert!(
            timeout(2 * CLOSE_TIMEOUT, send(server, false, stream::empty()))
                .await
                .is_ok()
        );
    }
}
