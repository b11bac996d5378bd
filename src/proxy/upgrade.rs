//! Upgrades of connections that are handed on: SPDY, WebSocket, or whatever the client and the
//! server speak (apimachinery `util/proxy/upgradeaware.go`, `tryUpgrade`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode, Uri, response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::error::{ProxyError, read_response_text};
use super::forward::set_host;
use super::headers::{append_forwarded_for, remove_hop_by_hop};
use super::inbound::{self, Inbound, Lifetime, RequestBody, ResponseBody};
use super::location::Location;
use super::transport::{MAX_HEADER_BYTES, MAX_HEADERS, Transport};
use super::tunnel::tunnel;

/// The time that a server has to switch protocols. A kubelet asks the container runtime before.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The time in which a refusal must have been read.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection of which the protocol has been switched.
pub struct Switched {
    pub head: response::Parts,
    pub io: TokioIo<Upgraded>,
}

/// The answer to a request for an upgrade.
pub enum Answer {
    Switched(Switched),
    /// Any other, with its body.
    Refused(Response<ResponseBody>),
}

/// A request for an upgrade that got no answer, with Go's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeError {
    /// There is no connection.
    Dial(String),
    /// There is no answer, or one that is none.
    Answer(String),
}

impl From<UpgradeError> for ProxyError {
    fn from(error: UpgradeError) -> Self {
        Self::Other(match error {
            UpgradeError::Dial(why) => format!("error dialing backend: {why}"),
            UpgradeError::Answer(why) => why,
        })
    }
}

/// Asks the server of a URL for an upgrade on a connection of its own.
///
/// # Errors
/// There is no connection, or no answer.
pub async fn connect(
    transport: &Transport,
    location: &Location,
    mut request: Request<RequestBody>,
) -> Result<Answer, UpgradeError> {
    let io = transport.connect(location).await;
    let io = io.map_err(|why| UpgradeError::Dial(why.to_string()))?;
    let target = Uri::try_from(location.path_and_query());
    *request.uri_mut() = target.map_err(|why| UpgradeError::Dial(why.to_string()))?;
    if !request.headers().contains_key(HOST) {
        set_host(request.headers_mut(), &location.authority);
    }
    let failed = |why: &hyper::Error| UpgradeError::Answer(read_response_text(why));
    let handshake = http1::Builder::new()
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(io));
    let (mut sender, connection) = handshake.await.map_err(|why| failed(&why))?;
    let driver = Driver(tokio::spawn(async move {
        if let Err(why) = connection.with_upgrades().await {
            tracing::debug!("a connection for an upgrade: {why}");
        }
    }));
    let late = |_| UpgradeError::Answer("net/http: timeout awaiting response headers".to_owned());
    let answer = timeout(UPGRADE_TIMEOUT, sender.send_request(request)).await;
    let mut answer = answer.map_err(late)?.map_err(|why| failed(&why))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Answer::Refused(answer.map(|body| {
            let deadline = Instant::now() + REFUSAL_TIMEOUT;
            let sleep = Box::pin(sleep_until(deadline));
            let refusal = Refusal {
                body,
                sleep,
                _driver: driver,
            };
            refusal.boxed_unsync()
        })));
    }
    let upgraded = timeout(UPGRADE_TIMEOUT, hyper::upgrade::on(&mut answer)).await;
    let io = upgraded.map_err(late)?.map_err(|why| failed(&why))?;
    let (head, _) = answer.into_parts();
    Ok(Answer::Switched(Switched {
        head,
        io: TokioIo::new(io),
    }))
}

/// Reports whether an upgrade is to HTTP or TLS. After it the client would speak in the name of
/// this server's certificate, with headers that nobody has looked at.
fn asks_for_http(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(UPGRADE).into_iter();
    let mut protocols = asked.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    protocols.any(|protocol| {
        let protocol = protocol.trim_ascii().to_ascii_lowercase();
        let name = protocol.split(|byte| *byte == b'/').next();
        [b"h2c".as_slice(), b"h2", b"h3", b"http", b"tls"].contains(&name.unwrap_or_default())
    })
}

/// Hands a request for an upgrade on. If the server switches protocols, the client's connection and
/// the server's are joined; if it refuses, the client gets its answer.
///
/// # Errors
/// There is no connection, or no answer that could be one.
pub async fn forward(
    mut inbound: Inbound,
    location: &Location,
    transport: &Transport,
) -> Result<Response<ResponseBody>, ProxyError> {
    if asks_for_http(&inbound.headers) {
        return Err(ProxyError::Other(
            "the protocol of the upgrade is not proxied".to_owned(),
        ));
    }
    let host = inbound.host();
    let near = inbound
        .upgrade
        .take()
        .ok_or_else(|| ProxyError::Other("request connection cannot be hijacked".to_owned()))?;
    append_forwarded_for(&mut inbound.headers, inbound.client);
    set_host(&mut inbound.headers, &host);
    let mut request = Request::new(inbound.body);
    *request.method_mut() = inbound.method;
    *request.headers_mut() = inbound.headers;
    match connect(transport, location, request).await? {
        Answer::Refused(response) => refuse(response),
        Answer::Switched(Switched { mut head, io }) => {
            inbound.lifetime.spawn(async move {
                match near.await {
                    Ok(near) => tunnel(TokioIo::new(near), io).await,
                    Err(why) => tracing::debug!("a connection could not be upgraded: {why}"),
                }
            });
            // There is no body for them to be about.
            head.headers.remove(CONTENT_LENGTH);
            head.headers.remove(TRANSFER_ENCODING);
            Ok(Response::from_parts(head, inbound::empty()))
        }
    }
}

/// Reports whether a server has switched to a protocol.
pub fn is_switch_to(head: &response::Parts, protocol: &str) -> bool {
    let names = |name: &HeaderName, wanted: &str| {
        let value = head.headers.get(name).map(HeaderValue::as_bytes);
        let value = String::from_utf8_lossy(value.unwrap_or_default()).to_ascii_lowercase();
        value.contains(&wanted.to_ascii_lowercase())
    };
    head.status == StatusCode::SWITCHING_PROTOCOLS
        && names(&CONNECTION, "upgrade")
        && names(&UPGRADE, protocol)
}

/// The answer of a server that does not switch protocols: its error, which is for the client.
///
/// # Errors
/// It is no error, and so no answer to the request.
pub fn refuse(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, ProxyError> {
    let code = response.status().as_u16();
    if code < 400 {
        return Err(ProxyError::Other(format!(
            "invalid upgrade response: status code {code}"
        )));
    }
    let (mut head, body) = response.into_parts();
    remove_hop_by_hop(&mut head.headers);
    let close = HeaderValue::from_static("close");
    head.headers.insert(CONNECTION, close);
    Ok(Response::from_parts(head, body))
}

impl Lifetime {
    /// Runs a task for an upgraded connection, until it ends or the server does.
    pub fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        let Self {
            hold,
            tasks,
            draining,
        } = self;
        tasks.spawn(async move {
            let _hold = hold;
            tokio::select! {
                () = task => {}
                () = draining.wait() => {}
            }
        });
    }
}

/// The task of a connection, which ends with this.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a refusal, with the connection that it comes from.
struct Refusal {
    body: Incoming,
    sleep: Pin<Box<Sleep>>,
    _driver: Driver,
}

impl Body for Refusal {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Poll::Ready(polled) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(polled.map(|frame| frame.map_err(io::Error::other)));
        }
        let late = self.sleep.as_mut().poll(cx);
        late.map(|()| Some(Err(io::ErrorKind::TimedOut.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_to_http_are_told_from_others() {
        let asked = |protocol: &'static str| {
            let mut headers = HeaderMap::new();
            headers.append(UPGRADE, HeaderValue::from_static("x"));
            headers.append(UPGRADE, HeaderValue::from_static(protocol));
            asks_for_http(&headers)
        };
        for protocol in ["h2c", "websocket, H2C", "HTTP/2.0", "TLS/1.2"] {
            assert!(asked(protocol), "{protocol}");
        }
        for protocol in ["websocket", "SPDY/3.1", "", "h2cx"] {
            assert!(!asked(protocol), "{protocol}");
        }
        assert!(!asks_for_http(&HeaderMap::new()));
    }
}
