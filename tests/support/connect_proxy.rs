//! A proxy that is asked for connections with CONNECT.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// The proxy's answer to a request for an address.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Connects to a port of this machine.
    Port(u16),
    /// Sends some bytes, and ends.
    Say(&'static str),
}

type Answer = dyn Fn(&str) -> Reply + Send + Sync;

/// The proxy. Dropping it ends its connections.
pub struct ConnectProxy {
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl ConnectProxy {
    /// A proxy at a socket.
    pub fn at_socket(path: &Path, answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let serving = Serving::new(answer);
        let asked = serving.asked.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serving.clone().serve(stream));
            }
        });
        Self { asked, task }
    }

    /// A proxy at a port with TLS; returns the port, too.
    pub async fn at_port(
        tls: ServerConfig,
        answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> (Self, u16) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (serving, acceptor) = (Serving::new(answer), TlsAcceptor::from(Arc::new(tls)));
        let asked = serving.asked.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, acceptor) = (serving.clone(), acceptor.clone());
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serving.serve(stream).await;
                    }
                });
            }
        });
        (Self { asked, task }, port)
    }

    /// The addresses that it was asked for.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Serving {
    asked: Arc<Mutex<Vec<String>>>,
    answer: Arc<Answer>,
}

impl Serving {
    fn new(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            asked: Arc::default(),
            answer: Arc::new(answer),
        }
    }

    /// Serves a connection; clients may leave when they like.
    async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let address = head
            .strip_prefix("CONNECT ")
            .and_then(|rest| rest.split_once(" HTTP/1.1\r\n"))
            .map_or_else(|| head.clone(), |(address, _)| address.to_owned());
        assert!(
            head.to_lowercase().contains("\r\nhost: 127.0.0.1\r\n"),
            "{head}"
        );
        self.asked.lock().expect("no panic").push(address.clone());
        match (self.answer)(&address) {
            Reply::Port(port) => {
                let Ok(mut target) = TcpStream::connect(("127.0.0.1", port)).await else {
                    return;
                };
                let _ = stream
                    .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .await;
                let _ = copy_bidirectional(&mut stream, &mut target).await;
            }
            Reply::Say(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    }
}

/// Writes a configuration by which networks are reached through a proxy, and returns its file.
pub fn selecting(folder: &Path, networks: &[&str], transport: &str) -> String {
    let selections = networks.iter().map(|network| {
        format!(
            "- name: {network}\n  connection:\n    proxyProtocol: HTTPConnect\n    transport: {transport}\n"
        )
    });
    let selections: String = selections.collect();
    let file: PathBuf = folder.join("egress.yaml");
    let text = format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n{selections}"
    );
    std::fs::write(&file, text).expect("written");
    file.display().to_string()
}
