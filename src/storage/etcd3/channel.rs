//! The connection to an etcd that is reached through a dialer: to one member at a time, the next
//! one where that fails.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use etcd_client::Channel;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;
use tower_service::Service;

use super::{Config, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, Result, StorageError};
use crate::base::dial::{ConnectError, Dial, Io, bare_host};

/// The protocol of gRPC.
const HTTP_2: &[u8] = b"h2";

/// Returns a channel to the members; it connects when it is needed.
///
/// # Errors
/// Addresses or files that cannot be used.
pub fn open(config: &Config, dialer: Arc<dyn Dial>) -> Result<Channel> {
    let members: Result<Vec<Member>> = config.endpoints.iter().map(|one| member(one)).collect();
    let members = members?;
    let is_secure = members.iter().any(|member| member.is_secure);
    let tls = is_secure.then(|| tls(config)).transpose()?;
    let first = config.endpoints.first().cloned().unwrap_or_default();
    let origin = Uri::try_from(first).map_err(wrong)?;
    // What connects speaks TLS, too: the name that is verified is that of each member.
    let endpoint = Endpoint::from_static("http://etcd")
        .origin(origin)
        .connect_timeout(config.connect_timeout)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let connector = Connector {
        members: members.into(),
        tls,
        dialer,
        next: Arc::default(),
    };
    Ok(Channel::Tonic(
        endpoint.connect_with_connector_lazy(connector),
    ))
}

fn wrong(why: impl std::fmt::Display) -> StorageError {
    StorageError::Internal(why.to_string())
}

struct Member {
    address: String,
    name: ServerName<'static>,
    is_secure: bool,
}

fn member(endpoint: &str) -> Result<Member> {
    let uri = Uri::try_from(endpoint).map_err(wrong)?;
    let host = uri.host().unwrap_or_default();
    let name = bare_host(host);
    Ok(Member {
        address: format!("{host}:{}", uri.port_u16().unwrap_or(2379)),
        name: ServerName::try_from(name.to_owned()).map_err(wrong)?,
        is_secure: uri.scheme_str() == Some("https"),
    })
}

fn tls(config: &Config) -> Result<TlsConnector> {
    let unreadable = |why: &dyn std::fmt::Display| wrong(format!("certificates for etcd: {why}"));
    let certificates = |path: &std::path::PathBuf| {
        let pem = fs::read(path).map_err(|why| unreadable(&why))?;
        let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        all.map_err(|why| unreadable(&why))
    };
    let mut roots = RootCertStore::empty();
    if let Some(ca) = &config.ca_file {
        roots.add_parsable_certificates(certificates(ca)?);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| unreadable(&why))?
        .with_root_certificates(roots);
    let mut tls = match (&config.cert_file, &config.key_file) {
        (Some(cert), Some(key)) => {
            let pem = fs::read(key).map_err(|why| unreadable(&why))?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|why| unreadable(&why))?;
            builder
                .with_client_auth_cert(certificates(cert)?, key)
                .map_err(|why| unreadable(&why))?
        }
        _ => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![HTTP_2.to_vec()];
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// Connects to the members in turn.
#[derive(Clone)]
struct Connector {
    members: Arc<[Member]>,
    tls: Option<TlsConnector>,
    dialer: Arc<dyn Dial>,
    next: Arc<AtomicUsize>,
}

impl Connector {
    async fn connect(self) -> std::result::Result<TokioIo<Box<dyn Io>>, ConnectError> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.members.len().max(1);
        let none = || ConnectError("no member".to_owned());
        let member = self.members.get(at).ok_or_else(none)?;
        let stream = self.dialer.dial(&member.address).await?;
        let tls = self.tls.filter(|_| member.is_secure);
        let Some(tls) = tls else {
            return Ok(TokioIo::new(stream));
        };
        let stream = tls.connect(member.name.clone(), stream).await;
        let stream = stream.map_err(|why| ConnectError(why.to_string()))?;
        Ok(TokioIo::new(Box::new(stream)))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Io>>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, std::result::Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
