//! TLS of the listener: certificates by server name, protocols, and client certificates, which are
//! verified per request.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::auth::authn::x509;
use crate::base::key_pair::{self, KeyPairError};
use crate::options::config::Serving;
use crate::options::credential_files::{CertError, CertKeyPair, FileContent, ServingCert};
use crate::telemetry::metrics::{Declared, Gauge};

/// The protocol names of ALPN.
pub const HTTP_2: &[u8] = b"h2";
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// TLS sessions that are remembered, so that a client may resume them.
pub const MAX_SESSIONS: usize = 1024;

/// The bytes that a record holds. TLS allows 16 KiB; with a little less, four records and what TLS
/// and TCP add to them are one segment as large as the kernel makes them, 64 KiB, and not one and a
/// rest.
pub const RECORD: usize = 16 * 1024 - 64;
/// The header of a record, which counts where its size is limited.
const RECORD_HEADER: usize = 5;

static EXPIRATION: Gauge = Gauge::new(
    "keelson_serving_certificate_expiration_timestamp_seconds",
    "[ALPHA] Time until which a certificate is valid that the server shows: the default one, or one for server names by its place among the flags.",
    &["certificate"],
);

pub static METRICS: &[&dyn Declared] = &[&EXPIRATION];

/// The suites of Go that are not offered: they authenticate with CBC, or lack forward secrecy.
const NOT_OFFERED: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// An error in the configuration of TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    Cert(#[from] CertError),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Config(String),
}

/// The TLS side of a server.
///
/// # Errors
/// Certificates that cannot be read or do not match their keys; unknown cipher suites or curves.
#[cfg(test)]
pub fn server_config(serving: &Serving, default: &CertKeyPair) -> Result<ServerConfig, TlsError> {
    Ok(set_up(serving, default)?.0)
}

/// The TLS side of a server, and its certificates, which may be replaced while it serves.
///
/// # Errors
/// Those of [`server_config`].
pub fn set_up(
    serving: &Serving,
    default: &CertKeyPair,
) -> Result<(ServerConfig, Arc<ServingCertificates>), TlsError> {
    let provider = Arc::new(provider(serving)?);
    let versions: &[&rustls::SupportedProtocolVersion] = if serving.tls13_only {
        &[&rustls::version::TLS13]
    } else {
        &[&rustls::version::TLS13, &rustls::version::TLS12]
    };
    let certificates = Arc::new(ServingCertificates::new(
        serving,
        default,
        provider.clone(),
    )?);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(DeferredClientVerifier))
        .with_cert_resolver(certificates.clone());
    config.alpn_protocols = if serving.http2 {
        vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()]
    } else {
        vec![HTTP_1_1.to_vec()]
    };
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(MAX_SESSIONS);
    config.send_tls13_tickets = 1;
    config.max_fragment_size = Some(RECORD + RECORD_HEADER);
    Ok((config, certificates))
}

/// The cryptography that the flags leave.
fn provider(serving: &Serving) -> Result<CryptoProvider, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    if !serving.cipher_suites.is_empty() {
        let known = |name: &str| {
            aws_lc_rs::ALL_CIPHER_SUITES
                .iter()
                .any(|suite| is_named(suite, name))
        };
        for name in serving.cipher_suites.iter().filter(|name| !known(name)) {
            if !NOT_OFFERED.contains(&name.as_str()) {
                return Err(TlsError::Config(format!(
                    "Cipher suite {name} not supported or doesn't exist"
                )));
            }
            tracing::warn!("--tls-cipher-suites: {name} is not offered, since it is not safe");
        }
        // The suites of TLS 1.3 cannot be chosen, in Go neither.
        provider.cipher_suites.retain(|suite| {
            suite.tls13().is_some()
                || serving
                    .cipher_suites
                    .iter()
                    .any(|name| is_named(suite, name))
        });
    }
    if !serving.curves.is_empty() {
        let group = |number: &u16| -> Result<&'static dyn SupportedKxGroup, TlsError> {
            let known = aws_lc_rs::ALL_KX_GROUPS
                .iter()
                .find(|group| u16::from(group.name()) == *number);
            known.copied().ok_or_else(|| {
                TlsError::Config(format!(
                    "--tls-curve-preferences: {number} is not supported"
                ))
            })
        };
        provider.kx_groups = serving.curves.iter().map(group).collect::<Result<_, _>>()?;
    }
    Ok(provider)
}

/// Reports whether a suite has a name; Go's name of the ChaCha suites lacks the hash.
fn is_named(suite: &SupportedCipherSuite, name: &str) -> bool {
    suite.suite().as_str().is_some_and(|own| {
        own == name
            || own
                .strip_suffix("_SHA256")
                .is_some_and(|short| short == name)
    })
}

/// A certificate with its key, which must match.
fn certified(
    pair: &CertKeyPair,
    provider: &CryptoProvider,
) -> Result<(ServingCert, Arc<CertifiedKey>), CertError> {
    let cert = pair.parse()?;
    let (chain, key) = (cert.chain.clone(), cert.key.clone_key());
    match key_pair::certified(chain, key, provider.key_provider) {
        Ok(certified) => Ok((cert, Arc::new(certified))),
        Err(KeyPairError::Certificate(why)) => Err(pair.cert.file.error(why)),
        Err(KeyPairError::Key(why)) => Err(pair.key.file.error(why)),
    }
}

/// Checks whether a certificate and its key can be used, and match.
///
/// # Errors
/// Which of the files is wrong, and why.
pub fn check_pair(pair: &CertKeyPair) -> Result<(), CertError> {
    certified(pair, &aws_lc_rs::default_provider()).map(drop)
}

/// The end of the time for which a certificate is valid, in seconds since 1970.
fn expiration(certificate: &CertificateDer<'_>) -> Option<i64> {
    use x509_parser::prelude::FromDer;
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// The DNS names in a certificate.
fn names_of(cert: &ServingCert) -> Vec<String> {
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::FromDer;
    let parsed = cert
        .chain
        .first()
        .and_then(|der| x509_parser::certificate::X509Certificate::from_der(der).ok());
    let Some((_, parsed)) = parsed else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = |name: &GeneralName<'_>| {
        if let GeneralName::DNSName(name) = name {
            Some((*name).to_owned())
        } else {
            None
        }
    };
    names.value.general_names.iter().filter_map(dns).collect()
}

/// A certificate for some names, and the files that it came from.
#[derive(Clone, Debug)]
struct NamedCertificate {
    pair: CertKeyPair,
    certified: Arc<CertifiedKey>,
    names: Vec<String>,
}

/// Serving certificates by lower-case server name, which may begin with `*.`.
#[derive(Debug)]
struct Certificates {
    default: NamedCertificate,
    sni: Vec<NamedCertificate>,
    names: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    fn new(default: NamedCertificate, sni: Vec<NamedCertificate>) -> Self {
        let mut names = HashMap::new();
        for one in &sni {
            for name in &one.names {
                // The first that claims a name keeps it, as in Go.
                names
                    .entry(name.to_ascii_lowercase())
                    .or_insert_with(|| one.certified.clone());
            }
        }
        Self {
            default,
            sni,
            names,
        }
    }

    /// Shows their ends in the metrics.
    fn record(&self) {
        let sni = self.sni.iter().enumerate();
        let sni = sni.map(|(place, named)| (format!("sni-{place}"), named));
        for (name, named) in std::iter::once(("default".to_owned(), &self.default)).chain(sni) {
            if let Some(at) = named.certified.cert.first().and_then(expiration) {
                EXPIRATION.set(&[&name], at);
            }
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        self.names.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.names.get(&format!("*.{parent}"))
        })
    }
}

/// The certificates that a server shows, which may be replaced while it serves.
#[derive(Debug)]
pub struct ServingCertificates {
    provider: Arc<CryptoProvider>,
    /// The names that the flags give each SNI certificate; none for those in the certificate.
    sni_names: Vec<Vec<String>>,
    current: ArcSwap<Certificates>,
}

impl ServingCertificates {
    fn new(
        serving: &Serving,
        default: &CertKeyPair,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let default = Self::named(default, &[], &provider)?;
        let mut sni = Vec::new();
        for one in &serving.sni {
            let pair = CertKeyPair::read(&one.files, Some(["tls-sni-cert-key"; 2]))?;
            sni.push(Self::named(&pair, &one.names, &provider)?);
        }
        let sni_names = serving.sni.iter().map(|one| one.names.clone()).collect();
        let certificates = Certificates::new(default, sni);
        certificates.record();
        Ok(Self {
            provider,
            sni_names,
            current: ArcSwap::from_pointee(certificates),
        })
    }

    fn named(
        pair: &CertKeyPair,
        names: &[String],
        provider: &CryptoProvider,
    ) -> Result<NamedCertificate, CertError> {
        let (cert, certified) = certified(pair, provider)?;
        let names = if names.is_empty() {
            names_of(&cert)
        } else {
            names.to_vec()
        };
        Ok(NamedCertificate {
            pair: pair.clone(),
            certified,
            names,
        })
    }

    /// The files that each certificate came from: the default one first, then those for server
    /// names.
    pub fn files(&self) -> Vec<Vec<FileContent>> {
        let current = self.current.load();
        std::iter::once(&current.default)
            .chain(&current.sni)
            .map(|named| named.pair.files())
            .collect()
    }

    /// Shows another certificate from the next handshake on, in place of that at an index of
    /// [`ServingCertificates::files`].
    ///
    /// # Errors
    /// The certificate cannot be used, or does not match its key.
    pub fn replace(&self, at: usize, pair: &CertKeyPair) -> Result<(), CertError> {
        let current = self.current.load();
        let (mut default, mut sni) = (current.default.clone(), current.sni.clone());
        let names = at
            .checked_sub(1)
            .and_then(|at| self.sni_names.get(at))
            .map_or(&[][..], Vec::as_slice);
        let named = Self::named(pair, names, &self.provider)?;
        match at.checked_sub(1) {
            None => default = named,
            Some(at) => {
                if let Some(place) = sni.get_mut(at) {
                    *place = named;
                }
            }
        }
        let certificates = Certificates::new(default, sni);
        certificates.record();
        self.current.store(Arc::new(certificates));
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        let named = if current.names.is_empty() {
            None
        } else {
            hello.server_name().and_then(|name| current.find(name))
        };
        Some(named.unwrap_or(&current.default.certified).clone())
    }
}

/// Asks for a client certificate and takes any, or none: who it names is authentication's question,
/// and a wrong one is answered with 401 rather than with a broken handshake (Go's
/// `tls.RequestClientCert`). What is checked is that the client has the key.
#[derive(Debug)]
struct DeferredClientVerifier;

impl DeferredClientVerifier {
    fn verify(
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = x509::public_key(cert).map_err(|_| {
            rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding)
        })?;
        let schemes = x509::algorithms()
            .mapping
            .iter()
            .filter(|(scheme, _)| *scheme == signed.scheme);
        let algorithms = schemes.flat_map(|(_, algorithms)| algorithms.iter().copied());
        if x509::verify_signature(&key, algorithms, message, signed.signature()) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::BadSignature,
            ))
        }
    }
}

impl ClientCertVerifier for DeferredClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Self::verify(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Self::verify(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        x509::algorithms().supported_schemes()
    }
}
