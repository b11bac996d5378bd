//! The handover: the API server asks the etcd that it is given whether it is a stand-in, and learns
//! where to keep its data.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::command_line::Settings;

/// The path that only a stand-in answers.
pub const PATH: &str = "/keelson/handover";

/// The time that an etcd has to say that it is none of this.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest answer.
const MAX_BYTES: usize = 64 * 1024;

/// The store of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    pub data_dir: PathBuf,
    pub unsafe_no_fsync: bool,
}

impl Handover {
    pub(super) fn of(settings: &Settings) -> Self {
        let folder = &settings.data_dir;
        Self {
            data_dir: std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
            unsafe_no_fsync: settings.unsafe_no_fsync,
        }
    }
}

/// Asks the only etcd that an API server is given; `None` if it is a real one, or elsewhere, or not
/// there (yet).
pub async fn ask(servers: &[String]) -> Option<Handover> {
    let [server] = servers else { return None };
    let host = server.strip_prefix("http://")?.trim_end_matches('/');
    let address: SocketAddr = host.replace("localhost:", "127.0.0.1:").parse().ok()?;
    // A folder means something on this machine alone.
    if !address.ip().is_loopback() {
        return None;
    }
    timeout(TIMEOUT, request(address)).await.ok()?
}

async fn request(address: SocketAddr) -> Option<Handover> {
    let stream = TcpStream::connect(address).await.ok()?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.ok()?;
    let connection = tokio::spawn(connection);
    let request = Request::get(PATH)
        .header(http::header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .ok()?;
    let answer = sender.send_request(request).await.ok()?;
    let is_stand_in = answer.status().is_success();
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    connection.abort();
    let body = body.ok()?.to_bytes();
    is_stand_in
        .then(|| serde_json::from_slice(&body).ok())
        .flatten()
}
