//! SPDY within messages of WebSocket, which is how clients forward ports (apiserver
//! `util/proxy/streamtunnel.go`, client-go `tools/portforward/tunneling_connection.go`).

use std::io;
use std::pin::Pin;
use std::time::Duration;

use http::header::{
    CONTENT_LENGTH, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::error::ProxyError;
use super::forward::set_host;
use super::headers::{append_forwarded_for, is_websocket};
use super::inbound::{self, Inbound, RequestBody, ResponseBody};
use super::location::Location;
use super::spdy;
use super::transport::Transport;
use super::tunnel::{Buffer, Movement};
use super::upgrade::{self, Answer, Switched, is_switch_to};
use super::websocket::{self, Reader, Said, Writer, accept};
use crate::telemetry::metrics::{Counter, Declared};

/// The beginning and the end of the names of such protocols.
const PREFIX: &str = "SPDY/3.1+";
const SUFFIX: &str = ".k8s.io";
/// The time in which a client must have heard that the connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

static REQUESTS: Counter = Counter::new(
    "apiserver_stream_tunnel_requests_total",
    "[ALPHA] Total number of requests that were handled by the StreamTunnelProxy, which processes streaming PortForward/V2",
    &["code"],
);

pub static METRICS: &[&dyn Declared] = &[&REQUESTS];

/// Reports whether a request is for a connection within messages.
pub fn is_requested(inbound: &Inbound) -> bool {
    is_websocket(&inbound.headers) && !protocols(inbound).is_empty()
}

/// The protocols within SPDY that a client asks for.
fn protocols(inbound: &Inbound) -> Vec<String> {
    let asked = websocket::protocols(&inbound.headers).into_iter();
    asked
        .filter(|name| name.ends_with(SUFFIX))
        .filter_map(|name| name.strip_prefix(PREFIX))
        .map(str::to_owned)
        .collect()
}

/// Joins the messages of a client to a connection to the server of a URL. The client is answered
/// when that has switched to SPDY.
///
/// # Errors
/// There is no connection, or no answer that could be one.
pub async fn forward(
    mut inbound: Inbound,
    location: &Location,
    transport: &Transport,
) -> Result<Response<ResponseBody>, ProxyError> {
    let request = request(&inbound);
    let Switched { head, io } = match upgrade::connect(transport, location, request).await? {
        Answer::Switched(switched) => switched,
        Answer::Refused(response) => {
            count(response.status());
            return upgrade::refuse(response);
        }
    };
    if !is_switch_to(&head, spdy::PROTOCOL) {
        count(StatusCode::INTERNAL_SERVER_ERROR);
        return Ok(text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unable to upgrade: missing upgrade headers in response\n",
        ));
    }
    let protocol = head.headers.get(STREAM_PROTOCOL);
    let protocol = protocol.and_then(|protocol| protocol.to_str().ok());
    let protocol = protocol
        .map(|protocol| format!("{PREFIX}{}", protocol.trim()))
        .filter(|protocol| websocket::protocols(&inbound.headers).contains(&protocol.as_str()));
    let switched = websocket::switch(&inbound.method, &inbound.headers, protocol.as_deref());
    let (Ok(response), Some(upgrade)) = (switched, inbound.upgrade.take()) else {
        count(StatusCode::INTERNAL_SERVER_ERROR);
        return Ok(text(StatusCode::BAD_REQUEST, "Bad Request\n"));
    };
    count(StatusCode::SWITCHING_PROTOCOLS);
    inbound.lifetime.spawn(async move {
        match accept(upgrade).await {
            Ok((said, heard)) => tunnel(said, heard, io).await,
            Err(why) => tracing::debug!("a connection could not be upgraded: {why}"),
        }
    });
    Ok(response)
}

fn count(status: StatusCode) {
    REQUESTS.inc(&[status.as_str()]);
}

fn text(status: StatusCode, text: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(inbound::full(text));
    *response.status_mut() = status;
    response
}

/// The request for SPDY in the client's place.
fn request(inbound: &Inbound) -> Request<RequestBody> {
    let mut request = Request::new(inbound::empty());
    *request.method_mut() = Method::POST;
    let mut headers = inbound.headers.clone();
    for name in [
        SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION,
        SEC_WEBSOCKET_EXTENSIONS,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        STREAM_PROTOCOL,
    ] {
        headers.remove(name);
    }
    headers.insert(UPGRADE, HeaderValue::from_static(spdy::PROTOCOL));
    for protocol in protocols(inbound) {
        if let Ok(protocol) = HeaderValue::from_str(&protocol) {
            headers.append(STREAM_PROTOCOL, protocol);
        }
    }
    append_forwarded_for(&mut headers, inbound.client);
    set_host(&mut headers, &inbound.host());
    *request.headers_mut() = headers;
    request
}

/// Passes bytes both ways until one side ends, or nothing has moved for too long.
async fn tunnel(said: Reader, heard: Writer, io: TokioIo<Upgraded>) {
    let (reader, writer) = split(io);
    let (movement, heard) = (Movement::new(), Mutex::new(heard));
    let ended = tokio::select! {
        ended = from_server(reader, &heard, &movement) => ended,
        ended = from_client(said, &heard, writer, &movement) => ended,
        () = movement.ceased() => Ok(()),
    };
    if let Err(why) = ended {
        tracing::debug!("a tunnel ended: {why}");
    }
    let closing = async { heard.lock().await.close().await };
    // A client that does not listen is not waited for.
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

async fn from_server(
    mut reader: ReadHalf<TokioIo<Upgraded>>,
    heard: &Mutex<Writer>,
    movement: &Movement,
) -> io::Result<()> {
    let mut buffer = Buffer::new();
    loop {
        let bytes = buffer.read(Pin::new(&mut reader)).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        movement.note();
        heard.lock().await.binary(bytes, &[]).await?;
        movement.note();
    }
}

async fn from_client(
    mut said: Reader,
    heard: &Mutex<Writer>,
    mut writer: WriteHalf<TokioIo<Upgraded>>,
    movement: &Movement,
) -> io::Result<()> {
    while let Some(said) = said.next().await? {
        movement.note();
        match said {
            Said::Part {
                is_text: false,
                bytes,
                ..
            } => {
                writer.write_all(&bytes).await?;
                writer.flush().await?;
                movement.note();
            }
            Said::Part { .. } | Said::Close => return Ok(()),
            Said::Ping(bytes) => heard.lock().await.pong(&bytes).await?,
            Said::Pong => {}
        }
    }
    Ok(())
}
