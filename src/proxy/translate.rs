//! Commands over WebSocket, for kubelets that speak SPDY only (apiserver
//! `util/proxy/streamtranslator.go`, client-go `tools/remotecommand`).
//!
//! The client's connection is answered first; what goes wrong afterwards is told in a message on
//! the channel of errors.

mod channels;
mod remote;
mod status;

use std::sync::Arc;

use http::Response;
use tokio::sync::Mutex;
use tokio::time::{Duration, sleep, timeout};

use status::Outcome;

use super::headers;
use super::inbound::{Inbound, ResponseBody};
use super::location::Location;
use super::transport::Transport;
use super::websocket::{self, HandshakeError, Reader, Said, Writer, accept};
use crate::telemetry::metrics::{Counter, Declared};

/// The protocol that is translated.
const PROTOCOL: &str = "v5.channel.k8s.io";
/// The interval at which a client is pinged while its kubelet is being connected to: what it says
/// must stay unread until then.
const CONNECTING_PING_PERIOD: Duration = Duration::from_secs(1);
/// The time in which the last message must have been sent.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a client has to answer that the connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The channels of a client's connection.
mod channel {
    pub const STDIN: u8 = 0;
    pub const STDOUT: u8 = 1;
    pub const STDERR: u8 = 2;
    pub const ERROR: u8 = 3;
    pub const RESIZE: u8 = 4;
    /// The number of channels.
    pub const COUNT: u8 = 5;
    /// Stands before the channel that is closed.
    pub const CLOSE: u8 = 255;
}

static REQUESTS: Counter = Counter::new(
    "apiserver_stream_translator_requests_total",
    "[ALPHA] Total number of requests that were handled by the StreamTranslatorProxy, which processes streaming RemoteCommand/V5",
    &["code"],
);

pub static METRICS: &[&dyn Declared] = &[&REQUESTS];

/// The streams of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// Reports whether a request is for a command over WebSocket in the protocol that is translated.
pub fn is_requested(inbound: &Inbound) -> bool {
    headers::is_websocket(&inbound.headers)
        && websocket::protocols(&inbound.headers).contains(&PROTOCOL)
}

/// Switches protocols, and runs a command at a kubelet whose streams are the client's.
pub fn translate(
    mut inbound: Inbound,
    location: Location,
    transport: Arc<Transport>,
    streams: Streams,
) -> Response<ResponseBody> {
    let switched = websocket::switch(&inbound.method, &inbound.headers, Some(PROTOCOL));
    let upgrade = inbound.upgrade.take().ok_or(HandshakeError::Method);
    let (response, upgrade) = match switched.and_then(|response| Ok((response, upgrade?))) {
        Ok(switched) => switched,
        Err(why) => {
            REQUESTS.inc(&["400"]);
            return why.answer();
        }
    };
    inbound.lifetime.spawn(async move {
        match accept(upgrade).await {
            Ok(client) => serve(client, &location, &transport, streams).await,
            Err(why) => tracing::debug!("a connection could not be upgraded: {why}"),
        }
    });
    response
}

async fn serve(
    (mut said, heard): (Reader, Writer),
    location: &Location,
    transport: &Transport,
    streams: Streams,
) {
    let heard = Mutex::new(heard);
    // An empty message tells the client that the connection is there.
    let first = match streams {
        Streams { stdout: true, .. } => channel::STDOUT,
        Streams { stderr: true, .. } => channel::STDERR,
        _ => channel::ERROR,
    };
    if send(&heard, first, &[]).await.is_err() {
        return;
    }
    // A kubelet may take its time, and its clients go meanwhile.
    let connected = tokio::select! {
        connected = remote::connect(location, transport, streams) => connected,
        () = gone(&heard) => Err(Outcome::Gone),
    };
    let outcome = match connected {
        Ok((remote, writer)) => channels::join(remote, writer, &heard, &mut said).await,
        Err(outcome) => outcome,
    };
    let Some(told) = outcome.to_json() else {
        return;
    };
    REQUESTS.inc(&[outcome.code()]);
    let last = async {
        send(&heard, channel::ERROR, told.as_bytes()).await?;
        heard.lock().await.close().await
    };
    if matches!(timeout(LAST_MESSAGE_TIMEOUT, last).await, Ok(Ok(()))) {
        // The client answers it.
        let answered =
            async { while !matches!(said.next().await, Ok(Some(Said::Close) | None) | Err(_)) {} };
        let _ = timeout(CLOSE_TIMEOUT, answered).await;
    }
}

/// Waits until a client cannot be sent to any more.
async fn gone(heard: &Mutex<Writer>) {
    loop {
        sleep(CONNECTING_PING_PERIOD).await;
        if heard.lock().await.ping().await.is_err() {
            return;
        }
    }
}

/// Sends bytes on a channel.
async fn send(heard: &Mutex<Writer>, channel: u8, bytes: &[u8]) -> std::io::Result<()> {
    heard.lock().await.binary(&[channel], bytes).await
}
