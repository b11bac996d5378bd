//! Connections that are held idle, unauthenticated clients, and the shutdown of a server.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::etcd::Etcd;
use crate::support::{ADMIN, Store, TestServer, USER, free_port, http as wire};
use crate::{PATIENCE, ask, both, embedded};

/// The window of a client that takes little at a time: the default of HTTP/2.
const WINDOW: u32 = 65_535;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A TLS connection that speaks HTTP/2.
pub async fn connect_http2(port: u16) -> TlsStream<TcpStream> {
    let mut config = kube::Config::new(http::Uri::from_static("https://127.0.0.1"));
    config.accept_invalid_certs = true;
    let mut tls = config.rustls_client_config().unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    TlsConnector::from(std::sync::Arc::new(tls))
        .connect(ServerName::try_from("127.0.0.1").unwrap(), stream)
        .await
        .unwrap()
}

/// An HTTP/2 connection, and the task that ends with it.
pub struct Http2 {
    pub sender: SendRequest<Full<Bytes>>,
    pub connection: JoinHandle<Result<(), hyper::Error>>,
}

impl Http2 {
    pub async fn to(server: &TestServer) -> Self {
        Self::with_window(server, WINDOW).await
    }

    /// A client that takes so many bytes of each answer before it is read.
    pub async fn with_window(server: &TestServer, window: u32) -> Self {
        let stream = TokioIo::new(connect_http2(server.port()).await);
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(WINDOW * 100)
            .handshake(stream)
            .await
            .unwrap();
        Self {
            sender,
            connection: tokio::spawn(connection),
        }
    }

    /// Sends a GET; the body of the answer is not read.
    pub async fn get(&mut self, path: &str, token: &str) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::get(format!("https://localhost{path}"));
        if !token.is_empty() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.sender.ready().await?;
        self.sender
            .send_request(request.body(Full::default()).unwrap())
            .await
    }

    /// The status of a GET whose answer is read.
    pub async fn status(&mut self, path: &str, token: &str) -> u16 {
        let answer = self.get(path, token).await.unwrap();
        let status = answer.status().as_u16();
        answer.into_body().collect().await.unwrap();
        status
    }

    /// Waits until the server ends the connection.
    async fn ends(self) {
        // The sender stays: the client would like to go on.
        let ended = tokio::time::timeout(PATIENCE, self.connection).await;
        assert!(ended.is_ok(), "the connection goes on");
    }
}

#[tokio::test]
async fn unauthenticated_clients_keep_no_http2_connection() {
    let (_folder, server) = embedded(&[]).await;
    for (path, token, status) in [
        ("/api/v1/pods", "forged", 401),
        ("/api/v1/pods", "", 403),
        ("/version", "", 200),
    ] {
        let mut client = Http2::to(&server).await;
        assert_eq!(client.status(path, token).await, status, "{path} {token}");
        client.ends().await;
    }
    let mut client = Http2::to(&server).await;
    for _ in 0..10 {
        assert_eq!(client.status("/api/v1/namespaces", ADMIN).await, 200);
    }
    assert!(!client.connection.is_finished());
}

/// A client of HTTP/2 that does not answer pings and does not hear that it is to go away.
#[tokio::test]
async fn clients_that_ignore_goaway_are_disconnected() {
    let (_folder, server) = embedded(&[]).await;
    let mut stream = connect_http2(server.port()).await;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = tokio::spawn(async move { reader.read_to_end(&mut Vec::new()).await });
    // GET https localhost / (static entries 2, 7, 4; a literal authority), again and again.
    let block = b"\x82\x87\x84\x41\x09localhost";
    for stream in (1..u32::MAX).step_by(2) {
        let mut frame = vec![0, 0, block.len() as u8, 1, 5];
        frame.extend(stream.to_be_bytes());
        frame.extend(block);
        if writer.write_all(&frame).await.is_err() || reading.is_finished() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(stream < 3000, "the connection goes on");
    }
}

/// A client of HTTP/2 that writes its frames itself, and answers neither pings nor anything else.
pub struct RawHttp2 {
    pub stream: TlsStream<TcpStream>,
    /// The stream of the latest request.
    latest: u32,
}

/// The head and the payload of a frame.
pub struct Frame {
    pub kind: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A frame of a kind with flags (RFC 9113, 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The headers of a request, each a literal that is not indexed (RFC 7541, 6.2.2).
pub fn header_block(method: &str, path: &str, token: &str) -> Vec<u8> {
    let (mut block, bearer) = (Vec::new(), format!("Bearer {token}"));
    for (name, value) in [
        (":method", method),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
        ("authorization", bearer.as_str()),
    ] {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

impl RawHttp2 {
    pub async fn to(server: &TestServer) -> Self {
        let mut stream = connect_http2(server.port()).await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).await.unwrap();
        Self { stream, latest: 0 }
    }

    /// Begins a GET on the next stream, which it returns.
    pub async fn get(&mut self, path: &str, token: &str) -> u32 {
        self.latest = if self.latest == 0 { 1 } else { self.latest + 2 };
        let frame = frame(1, 5, self.latest, &header_block("GET", path, token));
        self.stream.write_all(&frame).await.unwrap();
        self.latest
    }

    async fn frame(&mut self) -> Frame {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.unwrap();
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).await.unwrap();
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        let kind = head[3];
        Frame {
            kind,
            stream,
            payload,
        }
    }

    /// The next frame for which this holds.
    pub async fn frame_of(&mut self, is_it: impl Fn(&Frame) -> bool) -> Frame {
        let found = async {
            loop {
                let frame = self.frame().await;
                if is_it(&frame) {
                    return frame;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap()
    }
}

/// A client far away receives GOAWAY late: its new requests are refused, but streams in progress go
/// on.
#[tokio::test]
async fn streams_outlive_a_goaway() {
    let (_folder, server) = embedded(&[]).await;
    let mut client = RawHttp2::to(&server).await;
    let watch = client.get(&format!("{MAPS}?watch=1"), ADMIN).await;
    client
        .frame_of(|frame| frame.kind == 1 && frame.stream == watch)
        .await;
    client.get("/version", "forged").await;
    client.frame_of(|frame| frame.kind == 7).await;
    loop {
        let late = client.get("/version", ADMIN).await;
        let answer = client
            .frame_of(|frame| frame.stream == late && matches!(frame.kind, 1 | 3))
            .await;
        if answer.kind == 3 {
            assert_eq!(answer.payload, 7_u32.to_be_bytes(), "REFUSED_STREAM");
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    assert_eq!(ask("POST", MAPS).json(&map).status(&server).await, 201);
    let event = client
        .frame_of(|frame| frame.kind == 0 && frame.stream == watch && !frame.payload.is_empty())
        .await;
    assert!(String::from_utf8_lossy(&event.payload).contains("\"late\""));
}

/// A connection of HTTP/1.1, and the status of a GET on it.
pub async fn held_connection(server: &TestServer, token: &str) -> (impl AsyncReadExt + Unpin, u16) {
    let mut stream = wire::connect(server.port()).await.unwrap();
    let head = format!("GET /livez HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status).await.unwrap();
    let status = String::from_utf8_lossy(&status[9..]).parse().unwrap();
    (stream, status)
}

#[tokio::test]
async fn one_user_cannot_hold_all_connections() {
    let folder = tempfile::tempdir().unwrap();
    // Of 256 files three fifths may be connections, and of these a quarter one user's.
    let server =
        TestServer::start_after("ulimit -n 256", folder.path(), Store::Embedded, &[]).await;
    let (mut held, mut last) = (Vec::new(), None);
    for _ in 0..38 {
        let (stream, status) = held_connection(&server, USER).await;
        assert_eq!(status, 200, "{} connections", held.len());
        held.push(stream);
    }
    for _ in 0..10 {
        let (mut stream, status) = held_connection(&server, USER).await;
        assert_eq!(status, 429);
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "the connection is kept");
        last = Some(held_connection(&server, ADMIN).await);
        assert_eq!(
            last.as_ref().map(|(_, status)| *status),
            Some(200),
            "the administrator"
        );
    }
    held.pop();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while held_connection(&server, USER).await.1 != 200 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the share is not given back"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(last);
}

#[tokio::test]
async fn http2_connection_has_a_hundred_streams() {
    let (_folder, server) = embedded(&[]).await;
    let mut stream = connect_http2(server.port()).await;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "settings come first");
    let mut settings = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let streams = settings
        .chunks(6)
        .find(|setting| setting[..2] == [0, 3])
        .unwrap();
    assert_eq!(streams[2..], 100_u32.to_be_bytes());
}

/// A request of which the body never comes is answered all the same when nobody wants the body.
#[tokio::test]
async fn bodies_of_unauthenticated_clients_are_not_waited_for() {
    both(&[], async |server| {
        for token in ["", "Authorization: Bearer forged\r\n"] {
            let mut stream = wire::connect(server.port()).await.unwrap();
            let head =
                format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\n{token}Content-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{{");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let read = tokio::time::timeout(PATIENCE / 2, stream.read_to_end(&mut answer)).await;
            assert!(read.is_ok(), "the connection is kept for the body");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn goaway_chance_moves_clients() {
    let (_folder, server) = embedded(&["--goaway-chance=0.02"]).await;
    let mut client = Http2::to(&server).await;
    // With this chance, ten thousand requests without one are less likely than a broken machine.
    for _ in 0..10_000 {
        match client.get("/version", ADMIN).await {
            Ok(answer) => drop(answer.into_body().collect().await),
            Err(_) => return client.ends().await,
        }
    }
    panic!("no connection was closed");
}

#[tokio::test]
async fn watches_end_when_the_server_does() {
    let (_folder, mut server) = embedded(&[
        "--shutdown-watch-termination-grace-period=1s",
        "--shutdown-delay-duration=50ms",
    ])
    .await;
    let watch = format!("{MAPS}?watch=true");
    let mut client = Http2::to(&server).await;
    let answer = client.get(&watch, ADMIN).await.unwrap();
    let mut request = format!("wss://localhost{watch}")
        .into_client_request()
        .unwrap();
    request
        .headers_mut()
        .insert("Authorization", format!("Bearer {ADMIN}").parse().unwrap());
    let (mut socket, _) =
        tokio_tungstenite::client_async(request, wire::connect(server.port()).await.unwrap())
            .await
            .unwrap();
    server.process().terminate();
    let read = tokio::time::timeout(PATIENCE, answer.into_body().collect())
        .await
        .unwrap();
    assert!(read.is_ok(), "the stream ends as it should: {read:?}");
    let mut last = None;
    while let Some(Ok(message)) = socket.next().await {
        last = Some(message);
    }
    assert!(
        last.as_ref()
            .is_some_and(tokio_tungstenite::tungstenite::Message::is_close),
        "{last:?}"
    );
    assert!(server.process().ends().await, "{}", server.log());
}

/// Waits until nobody listens on the port.
async fn closes(port: u16) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "it still listens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn requests_finish_when_the_server_ends() {
    let (_folder, mut server) = embedded(&[]).await;
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}).to_string();
    let mut stream = wire::connect(server.port()).await.unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // It is being read.
    let mut told = [0; 12];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100");
    server.process().terminate();
    closes(server.port()).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is closed without a word is closed, too.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        String::from_utf8_lossy(&answer).contains("HTTP/1.1 201 Created"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert!(server.process().ends().await, "{}", server.log());
}

#[tokio::test]
async fn second_signal_ends_the_process_at_once() {
    let (_folder, mut server) = embedded(&["--shutdown-delay-duration=1h"]).await;
    server.process().terminate();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while ask("GET", "/readyz").status(&server).await == 200 {
        assert!(tokio::time::Instant::now() < deadline, "it is still ready");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        ask("GET", "/livez").status(&server).await,
        200,
        "it goes on while it is not ready"
    );
    server.process().terminate();
    assert!(!server.process().ends().await, "it did not end in peace");
}

#[tokio::test]
async fn server_that_waits_for_its_store_can_be_terminated() {
    let folder = tempfile::tempdir().unwrap();
    // It takes connections, and never answers.
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut process = TestServer::spawn(folder.path(), Store::Etcd(&url), free_port());
    let asked = tokio::time::timeout(PATIENCE, silent.accept()).await;
    let _connection = asked
        .unwrap_or_else(|_| panic!("{}", process.log()))
        .unwrap();
    process.terminate();
    assert!(process.ends().await, "{}", process.log());
}

/// Returns the number of reads that an etcd has served.
pub async fn reads(endpoint: &str) -> f64 {
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("http://"))
        .await
        .unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("grpc_server_started_total") && line.contains("\"Range\""))
        .unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Many who ask for nothing but health cost the store next to nothing, and are all answered.
#[tokio::test]
async fn concurrent_health_checks_are_shared() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(
        folder.path(),
        Store::Etcd(&etcd.endpoint()),
        &["--max-requests-inflight=1"],
    )
    .await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(Http2::to(&server).await);
    }
    let before = reads(&etcd.endpoint()).await;
    let flood = clients.iter_mut().map(async |client| {
        let mut asked = Vec::new();
        for _ in 0..100 {
            asked.push(client.status("/readyz", USER).await);
        }
        asked
    });
    let statuses: Vec<u16> = futures::future::join_all(flood).await.concat();
    assert_eq!(statuses, vec![200; 2000]);
    let more = reads(&etcd.endpoint()).await - before;
    assert!(more < 1000.0, "{more} reads of the store");
}
