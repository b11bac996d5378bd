//! The ways by which connections to other servers are made.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// An error on the way to a connection, with Go's text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// Returns a host without the brackets of an IPv6 address, for certificates and name servers.
pub fn bare_host(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Opens connections to addresses.
#[async_trait]
pub trait Dial: Send + Sync {
    /// Connects to a host and port.
    ///
    /// # Errors
    /// There is no connection; with Go's text.
    async fn dial(&self, address: &str) -> Result<Box<dyn Io>, ConnectError>;
}

/// The networks that this server connects to (apiserver `server/egressselector`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Webhooks by URL, and those of authentication, authorization and audit.
    ControlPlane,
    Etcd,
    /// Nodes, pods and Services.
    Cluster,
}

/// The way into a network.
#[derive(Clone)]
pub enum Way {
    Direct,
    Through(Arc<dyn Dial>),
}

/// The ways into the networks, as far as they have been chosen.
#[derive(Clone, Default)]
pub struct Egress {
    chosen: Vec<(Network, Way)>,
}

impl Egress {
    /// Chooses the way into a network.
    #[must_use]
    pub fn with(mut self, network: Network, way: Way) -> Self {
        self.chosen.push((network, way));
        self
    }

    /// Returns what connects to a network; `None` where connections are direct.
    pub fn dialer(&self, network: Network) -> Option<Arc<dyn Dial>> {
        match self.find(network)? {
            Way::Direct => None,
            Way::Through(dialer) => Some(dialer.clone()),
        }
    }

    /// Reports whether nothing has been chosen at all.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Reports whether a way into a network has been chosen.
    pub fn has(&self, network: Network) -> bool {
        self.find(network).is_some()
    }

    fn find(&self, network: Network) -> Option<&Way> {
        let mut chosen = self.chosen.iter();
        chosen.find(|(one, _)| *one == network).map(|(_, way)| way)
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").finish_non_exhaustive()
    }
}
