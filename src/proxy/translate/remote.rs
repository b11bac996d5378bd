//! The connection to a kubelet with the streams of a command (client-go
//! `tools/remotecommand/spdy.go`).

use std::io;

use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{ReadHalf, WriteHalf, split};

use super::status::Outcome;
use super::{Streams, channel};
use crate::meta::go;
use crate::proxy::inbound::{self, ResponseBody};
use crate::proxy::location::Location;
use crate::proxy::spdy::{self, FrameReader, FrameWriter};
use crate::proxy::transport::Transport;
use crate::proxy::upgrade::{self, Answer, UpgradeError, is_switch_to};
use crate::webhook::connector::io_text;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The protocols that kubelets speak over SPDY, from the best.
const PROTOCOLS: [&str; 5] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
/// The bytes of a refusal that a client is told.
const MAX_REFUSAL: usize = 64 * 1024;

type Io = TokioIo<Upgraded>;

/// The side of a command that is written to.
pub type Writer = FrameWriter<WriteHalf<Io>>;

/// A command at a kubelet.
pub struct Remote {
    pub reader: FrameReader<ReadHalf<Io>>,
    /// The protocol of the last message.
    pub protocol: String,
    /// The channels and their streams.
    streams: Vec<(u8, u32)>,
}

impl Remote {
    /// The stream of a channel.
    pub fn stream(&self, channel: u8) -> Option<u32> {
        let found = self.streams.iter().find(|(one, _)| *one == channel);
        found.map(|(_, stream)| *stream)
    }

    /// The channel of a stream.
    pub fn channel(&self, stream: u32) -> Option<u8> {
        let found = self.streams.iter().find(|(_, one)| *one == stream);
        found.map(|(channel, _)| *channel)
    }
}

/// Starts a command at a kubelet, and opens its streams.
///
/// # Errors
/// The reason that it does not, as the outcome of the command.
pub async fn connect(
    location: &Location,
    transport: &Transport,
    streams: Streams,
) -> Result<(Remote, Writer), Outcome> {
    let mut request = Request::new(inbound::empty());
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(spdy::PROTOCOL));
    if let Ok(host) = HeaderValue::from_str(&location.authority) {
        headers.insert(HOST, host);
    }
    for protocol in PROTOCOLS {
        headers.append(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    }
    let failed = |why: &str| {
        let url = go::quote(&location.to_string());
        Outcome::Failed(format!("error sending request: Post {url}: {why}"))
    };
    let answer = upgrade::connect(transport, location, request).await;
    let switched = match answer {
        Ok(Answer::Switched(switched)) => switched,
        Ok(Answer::Refused(response)) if response.status().is_redirection() => {
            return Err(failed("redirect not allowed"));
        }
        Ok(Answer::Refused(response)) => return Err(refused(response).await),
        Err(UpgradeError::Dial(why) | UpgradeError::Answer(why)) => return Err(failed(&why)),
    };
    if !is_switch_to(&switched.head, spdy::PROTOCOL) {
        return Err(Outcome::Failed(
            "unable to upgrade connection: empty server response".to_owned(),
        ));
    }
    let protocol = switched.head.headers.get(STREAM_PROTOCOL);
    let protocol = protocol.and_then(|protocol| protocol.to_str().ok());
    let protocol = protocol.unwrap_or_default().to_owned();
    let (reader, writer) = split(switched.io);
    let mut remote = Remote {
        reader: FrameReader::new(reader),
        protocol,
        streams: Vec::new(),
    };
    let mut writer = FrameWriter::new(writer);
    match open(&mut remote, &mut writer, streams).await {
        Ok(()) => Ok((remote, writer)),
        Err(why) => Err(Outcome::Failed(io_text(&why))),
    }
}

/// Opens the streams in the order that kubelets know.
async fn open(remote: &mut Remote, writer: &mut Writer, streams: Streams) -> io::Result<()> {
    let wanted = [
        (channel::ERROR, "error", true),
        (channel::STDIN, "stdin", streams.stdin),
        (channel::STDOUT, "stdout", streams.stdout),
        (channel::STDERR, "stderr", streams.stderr && !streams.tty),
        (channel::RESIZE, "resize", streams.tty),
    ];
    // Those of clients have odd numbers.
    let mut next = 1;
    for (channel, name, _) in wanted.into_iter().filter(|(_, _, wanted)| *wanted) {
        let headers = [("streamtype", name)];
        writer.open(next, &headers).await?;
        remote.streams.push((channel, next));
        next += 2;
    }
    Ok(())
}

/// The reason that a kubelet gives for not switching protocols (`spdy/roundtripper.go`,
/// `upgradeErrorMessage`).
async fn refused(response: Response<ResponseBody>) -> Outcome {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < MAX_REFUSAL {
        match body.frame().await {
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(_)) => {
                let why = "unable to upgrade connection: unable to read error from server response";
                return Outcome::Failed(why.to_owned());
            }
            None => break,
        }
    }
    let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    let told = ["message", "error"].iter().find_map(|key| {
        let text = status[*key].as_str().map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    });
    let why = match told {
        Some(told) => told,
        None if text.is_empty() => "empty server response".to_owned(),
        None => text,
    };
    Outcome::Failed(format!("unable to upgrade connection: {why}"))
}
