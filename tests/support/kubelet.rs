//! A kubelet that does what a test tells it, to the byte: over TLS, one request per connection.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress};
use http::{HeaderMap, HeaderName, HeaderValue};
use keelson::internals::proxy::spdy::{Frame, FrameReader, FrameWriter};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

type Stream = TlsStream<TcpStream>;

/// A request that the kubelet got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub uri: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The client has presented a certificate of the kubelet's authority.
    pub has_certificate: bool,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str());
        value.and_then(Result::ok).unwrap_or_default()
    }
}

/// The answer to a request.
pub enum Act {
    /// These bytes, and the end of the connection.
    Say(Vec<u8>),
    /// These bytes, and then nothing until the client leaves.
    Hold(Vec<u8>),
    /// These bytes, and then what the client says.
    Echo(Vec<u8>),
    /// These bytes, and then the others again and again until the client leaves.
    Flood(Vec<u8>, Vec<u8>),
    /// A command over SPDY: see [`Kubelet`].
    Command,
}

/// Answers with a status, a type and a body.
pub fn say(status: &str, body: &str) -> Act {
    let len = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len}\r\n\r\n");
    Act::Say((head + body).into_bytes())
}

/// The certificates of a kubelet and of its clients, by one authority.
pub struct Pki {
    /// PEM.
    pub authority: String,
    server: (CertificateDer<'static>, PrivateKeyDer<'static>),
    client: (String, String),
    root: CertificateDer<'static>,
}

impl Pki {
    /// Certificates of a kubelet at an address.
    pub fn new(address: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "nodes");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("an authority");
        let signed = |names: Vec<String>| {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(names).expect("names");
            let cert = params.signed_by(&key, &authority).expect("a certificate");
            (cert, key)
        };
        let (server, server_key) = signed(vec![address.to_owned()]);
        let (client, client_key) = signed(Vec::new());
        let key = PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key");
        Self {
            authority: authority.pem(),
            server: (server.der().clone(), key),
            client: (client.pem(), client_key.serialize_pem()),
            root: authority.der().clone(),
        }
    }

    /// The same with the clients of another authority.
    pub fn with_clients_of(self, other: &Self) -> Self {
        Self {
            root: other.root.clone(),
            ..self
        }
    }

    /// Writes files with the authority, the certificate of clients and its key, and returns the
    /// flags with their names.
    pub fn write(&self, folder: &Path, flags: [&str; 3]) -> Vec<String> {
        let texts = [&self.authority, &self.client.0, &self.client.1];
        let files = flags.into_iter().zip(texts).map(|(flag, text)| {
            let file = folder.join(flag.trim_start_matches('-'));
            std::fs::write(&file, text).expect("written");
            format!("{flag}={}", file.display())
        });
        files.collect()
    }
}

type Answer = dyn Fn(&Seen) -> Act + Send + Sync;

/// The kubelet. Dropping it closes its connections. Its commands are named by the parameter
/// `command`:
///
/// - `cat` says on stdout what it hears on stdin, and ends with it;
/// - `both` says something on stdout and stderr, and ends with the code 3;
/// - `size` says on stdout what it hears about the size of the terminal, once;
/// - `break` says something and breaks the connection off;
/// - `stay` does nothing.
pub struct Kubelet {
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    left: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Kubelet {
    pub async fn start(pki: &Pki, answer: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(pki.root.clone()).expect("an authority");
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .expect("a verifier");
        let (chain, key) = (vec![pki.server.0.clone()], pki.server.1.clone_key());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .expect("a certificate");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (seen, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let serving = Serving {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            answer: Arc::new(answer),
            seen: seen.clone(),
            left: left.clone(),
        };
        Self {
            port,
            seen,
            left,
            task: tokio::spawn(serving.run(listener)),
        }
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Waits until a client has left that was waited for.
    pub async fn left(&self) {
        self.left.notified().await;
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Serving {
    acceptor: TlsAcceptor,
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<Seen>>>,
    left: Arc<Notify>,
}

impl Serving {
    async fn run(self, listener: TcpListener) {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let serving = self.clone();
            connections.spawn(async move {
                let Ok(stream) = serving.acceptor.accept(stream).await else {
                    return;
                };
                // A client may leave when it likes.
                let _ = serving.serve(stream).await;
            });
        }
    }

    async fn serve(&self, mut stream: Stream) -> std::io::Result<()> {
        let seen = read_request(&mut stream).await?;
        self.seen.lock().expect("no panic").push(seen.clone());
        match (self.answer)(&seen) {
            Act::Say(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Act::Hold(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
            Act::Echo(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                let (mut reader, mut writer) = split(stream);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            }
            Act::Flood(first, again) => {
                stream.write_all(&first).await?;
                while stream.write_all(&again).await.is_ok() {}
            }
            Act::Command => {
                let _ = command(stream, &seen).await;
            }
        }
        self.left.notify_one();
        Ok(())
    }
}

async fn read_request(stream: &mut Stream) -> std::io::Result<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_str(value).expect("a value"));
    }
    let mut body = Vec::new();
    if let Some(len) = headers.get("content-length") {
        let len = len.to_str().expect("text").parse().expect("a number");
        body.resize(len, 0);
        stream.read_exact(&mut body).await?;
    }
    let mut word = || first.next().unwrap_or_default().to_owned();
    Ok(Seen {
        method: word(),
        uri: word(),
        headers,
        body: body.into(),
        has_certificate: stream.get_ref().1.peer_certificates().is_some(),
    })
}

/// The parameters of a request.
fn parameters(uri: &str) -> Vec<(String, String)> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

struct Command {
    reader: FrameReader<ReadHalf<Stream>>,
    writer: FrameWriter<WriteHalf<Stream>>,
    /// The streams by their types.
    streams: Vec<(String, u32)>,
    /// The streams whose end has been heard.
    ended: Vec<u32>,
}

impl Command {
    /// Accepts as many streams as a client is said to open.
    async fn accept(stream: Stream, count: usize) -> std::io::Result<Self> {
        let (reader, writer) = split(stream);
        let mut command = Self {
            reader: FrameReader::new(reader),
            writer: FrameWriter::new(writer),
            streams: Vec::new(),
            ended: Vec::new(),
        };
        let mut zlib = Decompress::new(true);
        while command.streams.len() < count {
            let Some(Frame::SynStream {
                stream, headers, ..
            }) = command.reader.next().await?
            else {
                return Err(std::io::ErrorKind::InvalidData.into());
            };
            let mut block = Vec::with_capacity(1024);
            zlib.decompress_vec(&headers, &mut block, FlushDecompress::Sync)
                .expect("zlib");
            // One name and one value, each after its length.
            let value = block.len() - 4 - 4 - "streamtype".len() - 4;
            let kind = String::from_utf8_lossy(&block[block.len() - value..]).into_owned();
            command.streams.push((kind, stream));
            command.writer.reply(stream).await?;
        }
        Ok(command)
    }

    fn stream(&self, kind: &str) -> u32 {
        let found = self.streams.iter().find(|(one, _)| one == kind);
        found.unwrap_or_else(|| panic!("no {kind}")).1
    }

    async fn say(&mut self, kind: &str, text: &[u8]) -> std::io::Result<()> {
        self.writer.data(self.stream(kind), text, false).await
    }

    /// Waits for what a client says; empty at its end.
    async fn hear(&mut self, kind: &str) -> std::io::Result<Bytes> {
        let wanted = self.stream(kind);
        loop {
            if self.ended.contains(&wanted) {
                return Ok(Bytes::new());
            }
            match self.reader.next().await? {
                Some(Frame::Data {
                    stream,
                    bytes,
                    is_last,
                }) if stream == wanted => {
                    if is_last {
                        self.ended.push(stream);
                    }
                    if !bytes.is_empty() {
                        return Ok(bytes);
                    }
                }
                Some(Frame::Ping(id)) => self.writer.ping(id).await?,
                Some(_) => {}
                None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    async fn end(&mut self, status: &str) -> std::io::Result<()> {
        for (kind, stream) in self.streams.clone() {
            let text = if kind == "error" { status } else { "" };
            self.writer.data(stream, text.as_bytes(), true).await?;
        }
        // Until the client leaves.
        while self.reader.next().await?.is_some() {}
        Ok(())
    }
}

/// Answers with a switch to SPDY.
pub fn switched(protocol: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n\r\n"
    )
}

async fn command(mut stream: Stream, seen: &Seen) -> std::io::Result<()> {
    stream
        .write_all(switched("v5.channel.k8s.io").as_bytes())
        .await?;
    let parameters = parameters(&seen.uri);
    let has = |key: &str| parameters.iter().any(|(name, _)| name == key);
    let streams = [
        has("input"),
        has("output"),
        has("error") && !has("tty"),
        has("tty"),
    ];
    let count = 1 + streams.into_iter().filter(|wanted| *wanted).count();
    let mut command = Command::accept(stream, count).await?;
    let name = parameters.iter().find(|(name, _)| name == "command");
    match name.map_or("", |(_, name)| name.as_str()) {
        "cat" => {
            loop {
                let heard = command.hear("stdin").await?;
                if heard.is_empty() {
                    break;
                }
                command.say("stdout", &heard).await?;
            }
            command.end(r#"{"status":"Success"}"#).await
        }
        "both" => {
            command.say("stdout", b"out").await?;
            command.say("stderr", b"err").await?;
            let exit = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
            command.end(exit).await
        }
        "size" => {
            let size = command.hear("resize").await?;
            command.say("stdout", &size).await?;
            command.end(r#"{"status":"Success"}"#).await
        }
        "break" => command.say("stdout", b"half of it").await,
        _ => {
            while command.reader.next().await?.is_some() {}
            Ok(())
        }
    }
}
