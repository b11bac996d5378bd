//! Connections that are held without need, clients that nobody knows, and the end of a server.

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
use crate::{PATIENCE, ask, both};

/// The window of a client that takes little at a time: the default of HTTP/2.
const WINDOW: u32 = 65_535;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server with the embedded store, in a folder that lasts as long as what is returned.
pub async fn server(flags: &[&str]) -> (tempfile::TempDir, TestServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(folder.path(), Store::Embedded, flags).await;
    (folder, server)
}

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
async fn who_is_not_authenticated_keeps_no_connection() {
    let (_folder, server) = server(&[]).await;
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
async fn who_does_not_hear_a_goaway_is_cut_off() {
    let (_folder, server) = server(&[]).await;
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

#[tokio::test]
async fn a_connection_has_a_hundred_streams() {
    let (_folder, server) = server(&[]).await;
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
async fn bodies_of_unknown_clients_are_not_waited_for() {
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
    let (_folder, server) = server(&["--goaway-chance=0.02"]).await;
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
    let (_folder, mut server) = server(&[
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
    let (_folder, mut server) = server(&[]).await;
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
async fn a_second_signal_ends_the_process_at_once() {
    let (_folder, mut server) = server(&["--shutdown-delay-duration=1h"]).await;
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
async fn a_server_that_waits_for_its_store_can_be_ended() {
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

/// How many reads an etcd has served.
async fn reads(endpoint: &str) -> f64 {
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
async fn health_checks_are_shared() {
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
