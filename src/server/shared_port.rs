//! A port that several servers of a process share: the server name in a client's TLS handshake says
//! which of them is meant.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::StartHandshake;

use super::connections::{Connections, Deregistration};
use super::limits::{HANDSHAKE_TIMEOUT, Limits, descriptors};
use super::listener::{self, ACCEPT_PAUSE};

/// Connections whose client has not said yet which server it wants; more cut off the oldest.
const MAX_NAMELESS: usize = 1024;
/// Connections that wait until their server takes them; more are cut off.
const MAX_WAITING: usize = 64;
/// A TLS record with the alert that there is no such name (RFC 8446, 6.2), which is fatal.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A connection whose client has begun the handshake.
pub struct Begun {
    pub handshake: StartHandshake<TcpStream>,
    pub remote: SocketAddr,
}

/// Returns the two ends of the way from a shared port to a server.
pub fn channel() -> (mpsc::Sender<Begun>, mpsc::Receiver<Begun>) {
    mpsc::channel(MAX_WAITING)
}

/// The servers that are reached by name. Clones share them.
#[derive(Clone, Default)]
pub struct Servers(Arc<RwLock<HashMap<String, mpsc::Sender<Begun>>>>);

impl Servers {
    /// Sends the connections for a name (in small letters) to a server, and to no other any more.
    pub fn set(&self, name: &str, server: mpsc::Sender<Begun>) {
        self.0.write().insert(name.to_owned(), server);
    }

    fn get(&self, name: &str) -> Option<mpsc::Sender<Begun>> {
        self.0.read().get(&name.to_ascii_lowercase()).cloned()
    }
}

/// A bound socket that does not answer yet.
pub struct SharedPort {
    tcp: TcpListener,
    servers: Servers,
    limits: Limits,
}

impl SharedPort {
    /// Binds an address for these servers.
    ///
    /// # Errors
    /// The address is taken or not this machine's.
    pub fn bind(address: SocketAddr, servers: Servers) -> io::Result<Self> {
        let tcp = listener::listen(address, false)?;
        let limits = Limits {
            unauthenticated: MAX_NAMELESS,
            ..Limits::of_descriptors(descriptors())
        };
        Ok(Self {
            tcp,
            servers,
            limits,
        })
    }

    /// Takes connections, and never ends.
    pub async fn serve(self) {
        let connections = Connections::new(self.limits.clone());
        loop {
            match self.tcp.accept().await {
                Ok((tcp, remote)) => {
                    let Some(state) = connections.admit() else {
                        continue;
                    };
                    let servers = self.servers.clone();
                    tokio::spawn(async move {
                        let _deregistration = Deregistration(state.clone());
                        let routed = timeout(HANDSHAKE_TIMEOUT, route(tcp, remote, &servers));
                        tokio::select! {
                            routed = routed => {
                                if !matches!(routed, Ok(Ok(()))) {
                                    tracing::debug!("connection of {remote}: no server is meant");
                                }
                            }
                            () = state.aborted() => tracing::debug!("connection of {remote}: closed to make room for others"),
                        }
                    });
                }
                Err(why) => {
                    tracing::warn!("accepting a connection on the shared port: {why}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Reads the beginning of a handshake, and passes the connection on to the server that is named.
async fn route(tcp: TcpStream, remote: SocketAddr, servers: &Servers) -> io::Result<()> {
    let mut handshake = LazyConfigAcceptor::new(Acceptor::default(), tcp).await?;
    let hello = handshake.client_hello();
    let server = hello.server_name().and_then(|name| servers.get(name));
    let Some(server) = server else {
        handshake.io.write_all(&UNRECOGNIZED_NAME).await?;
        return handshake.io.shutdown().await;
    };
    // A server that has ended, or takes none for now, has its clients try again.
    server
        .try_send(Begun { handshake, remote })
        .map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn clients_that_name_no_server_make_room_for_later_ones() {
        let mut port =
            SharedPort::bind(([127, 0, 0, 1], 0).into(), Servers::default()).expect("a free port");
        port.limits.unauthenticated = 2;
        let address = port.tcp.local_addr().expect("an address");
        let serving = tokio::spawn(port.serve());
        let connect = async || TcpStream::connect(address).await.expect("connected");
        let (mut first, mut second) = (connect().await, connect().await);
        let _third = connect().await;
        // The oldest is closed before its time is over, and no other.
        let ended = timeout(HANDSHAKE_TIMEOUT / 2, first.read(&mut [0])).await;
        assert!(ended.is_ok(), "it is kept");
        let mut buffer = [0];
        assert!(futures::poll!(std::pin::pin!(second.read(&mut buffer))).is_pending());
        serving.abort();
    }
}
