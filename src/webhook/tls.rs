//! TLS of the client: the trusted certificates, and Go's texts for certificates that are not.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::base::key_pair::{KeyPairError, certified};
use crate::telemetry::metrics::Counter;

/// The files with the certificates of the system, the first that exists counts (Go's
/// `crypto/x509/root_linux.go`).
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The folders with such certificates.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// A certificate chain and its key, both PEM.
#[derive(Clone)]
pub struct ClientCert {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

/// The servers that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those with a certificate that the system trusts.
    System,
    /// Those with a certificate of this bundle, PEM, or below one of it.
    Bundle(Vec<u8>),
    /// All: certificates are not verified (Go's `InsecureSkipVerify`).
    All,
}

/// Returns the TLS side of a client.
///
/// # Errors
/// Upstream's text: a bundle without certificates, or a client certificate that is none.
pub fn client_config(
    trust: &Trust,
    cert: Option<&ClientCert>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::System => Arc::new(Verifier::new(system_certificates(), algorithms)?),
        Trust::Bundle(bundle) => Arc::new(Verifier::new(certificates(bundle), algorithms)?),
        Trust::All => Arc::new(NoVerifier { algorithms }),
    };
    let keys = provider.key_provider;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match cert {
        None => builder.with_no_client_auth(),
        Some(cert) => {
            let chain = certificates(&cert.chain);
            let key = PrivateKeyDer::from_pem_slice(&cert.key);
            let key = key.map_err(|_| "tls: failed to find any PEM data in key input")?;
            if chain.is_empty() {
                return Err("tls: failed to find any PEM data in certificate input".to_owned());
            }
            let certified = certified(chain, key, keys).map_err(KeyPairError::into_text)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// The certificates among PEM blocks; what is none is passed over.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

/// The certificates that the system trusts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn system_certificates() -> Vec<CertificateDer<'static>> {
    let read = |path: &Path| std::fs::read(path).map(|pem| certificates(&pem));
    let file = std::env::var("SSL_CERT_FILE").unwrap_or_default();
    let files = match file.as_str() {
        "" => SYSTEM_FILES.to_vec(),
        file => vec![file],
    };
    let mut found = files
        .into_iter()
        .find_map(|file| read(Path::new(file)).ok())
        .unwrap_or_default();
    let folders = std::env::var("SSL_CERT_DIR").unwrap_or_default();
    let folders = match folders.as_str() {
        "" if found.is_empty() => SYSTEM_FOLDERS.to_vec(),
        folders => folders.split(':').filter(|name| !name.is_empty()).collect(),
    };
    for entry in folders
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten()
    {
        found.extend(read(&entry.path()).unwrap_or_default());
    }
    found
}

/// Takes any certificate; whoever presents it must hold its key all the same.
#[derive(Debug)]
struct NoVerifier {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies servers as Go does: a chain to a trusted certificate, or the trusted certificate
/// itself, which may be the one of an authority.
#[derive(Debug)]
struct Verifier {
    trusted: Vec<CertificateDer<'static>>,
    /// `None` where nothing is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(
        trusted: Vec<CertificateDer<'static>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, String> {
        if trusted.is_empty() {
            let why = "unable to load root certificates: unable to parse bytes as PEM block";
            return Err(why.to_owned());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self {
            trusted,
            chains: chains.build().ok(),
            algorithms,
        })
    }

    fn is_trusted_itself(&self, cert: &CertificateDer<'_>) -> bool {
        self.trusted
            .iter()
            .any(|known| known.as_ref() == cert.as_ref())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is_trusted_itself(cert) {
            let (_, parsed) =
                X509Certificate::from_der(cert).map_err(|_| CertificateError::BadEncoding)?;
            let (validity, now) = (parsed.validity(), now.as_secs() as i64);
            if now < validity.not_before.timestamp() {
                return Err(CertificateError::NotValidYet.into());
            }
            if now > validity.not_after.timestamp() {
                return Err(CertificateError::Expired.into());
            }
            rustls::client::verify_server_name(&ParsedCertificate::try_from(cert)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match &self.chains {
            Some(chains) => chains.verify_server_cert(cert, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The identifier of signatures with RSA and SHA-1, and what Go says of them.
const RSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05];
const INSECURE_SHA1: &str = "cannot verify signature: insecure algorithm SHA1-RSA";
const NO_ADDRESSES: &str = "because it doesn't contain any IP SANs";
const NO_NAMES: &str = "certificate is not valid for any names";

/// A fault of a certificate that was once allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deprecated {
    /// It has no alternative names.
    NoNames,
    /// It is signed with SHA-1.
    Sha1,
}

impl Deprecated {
    /// Finds it in the text of an error.
    fn find(text: &str) -> Option<Self> {
        if text.contains(NO_ADDRESSES) || text.contains(NO_NAMES) {
            Some(Self::NoNames)
        } else {
            text.contains(INSECURE_SHA1).then_some(Self::Sha1)
        }
    }

    /// Counts the text of an error that is about such a fault.
    pub fn count(text: &str, no_names: &'static Counter, sha1: &'static Counter) {
        match Self::find(text) {
            Some(Self::NoNames) => no_names.inc(&[]),
            Some(Self::Sha1) => sha1.inc(&[]),
            None => {}
        }
    }
}

/// The text of an error of TLS as Go has it, where Go has one.
pub fn error_text(error: &Error) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer, UnsupportedSignatureAlgorithmContext,
    };
    let why = match error {
        Error::InvalidCertificate(why) => why,
        Error::AlertReceived(alert) => return format!("remote error: tls: {}", words(alert)),
        Error::InvalidMessage(_) => {
            return "tls: first record does not look like a TLS handshake".to_owned();
        }
        other => return format!("tls: {other}"),
    };
    let why = match why {
        // The issuer has the name of a trusted one, and another key.
        UnknownIssuer | BadSignature => "certificate signed by unknown authority".to_owned(),
        Expired | NotValidYet | ExpiredContext { .. } | NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        NotValidForNameContext {
            expected,
            presented,
        } => wrong_name(expected, presented),
        // One that signed itself, which the verifier notices first.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "certificate signed by unknown authority".to_owned()
        }
        UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id,
            ..
        } if signature_algorithm_id.ends_with(RSA_SHA1) => INSECURE_SHA1.to_owned(),
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

fn wrong_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    // Names come as `DnsName("a")` and `IpAddress(1.2.3.4)`.
    let of = |kind: &str| -> Vec<&str> {
        let names = presented.iter().filter_map(|name| name.strip_prefix(kind));
        names
            .map(|name| name.trim_matches(['(', ')', '"']))
            .collect()
    };
    let expected_text = expected.to_str();
    let names = match expected {
        ServerName::IpAddress(_) => {
            let addresses = of("IpAddress");
            if addresses.is_empty() {
                return format!("cannot validate certificate for {expected_text} {NO_ADDRESSES}");
            }
            addresses
        }
        _ => of("DnsName"),
    };
    if names.is_empty() {
        return format!("{NO_NAMES}, but wanted to match {expected_text}");
    }
    format!(
        "certificate is valid for {}, not {expected_text}",
        names.join(", ")
    )
}

/// The name of an alert in words: `BadCertificate` is a bad certificate.
fn words(alert: &rustls::AlertDescription) -> String {
    let mut out = String::new();
    for letter in format!("{alert:?}").chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of X.509 version 1.
    const FIRST_VERSION: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBGTCBwAIUXu77owcFpISWYuELDo6f6shQrIcwCgYIKoZIzj0EAwIwDTELMAkG\n\
A1UEAwwCY2EwIBcNMjYxMTI0MTA1MzQ3WhgPMjEyNjEwMzExMDUzNDdaMBAxDjAM\n\
BgNVBAMMBWZpcnN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAELICrXJzlhMGV\n\
DWwRVnPRz1y7FyUYwiDlTs5c/zCDnETP2dRqc5p0C7tzcd7jgIAjLZB0Ci2Ov7U1\n\
Px5NkA6CjzAKBggqhkjOPQQDAgNIADBFAiBU4OozSlgw8Pje53RUHaygI2ldG6Xj\n\
uxtDABgjWFcOoAIhAMlU9PxvSKYev1MykFYJHC9rOBa3j+A+YyvndTvZQOct\n\
-----END CERTIFICATE-----\n";
    const KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgPtAruVduHX2o1DTp\n\
5HvywrhNtGtqLJWDHLwtPSjOpOKhRANCAAQsgKtcnOWEwZUNbBFWc9HPXLsXJRjC\n\
IOVOzlz/MIOcRM/Z1GpzmnQLu3Nx3uOAgCMtkHQKLY6/tTU/Hk2QDoKP\n\
-----END PRIVATE KEY-----\n";

    #[test]
    fn client_certificates_may_be_of_version_1() {
        let config = |cert: &str, key: &str| {
            let cert = ClientCert {
                chain: cert.into(),
                key: key.into(),
            };
            client_config(&Trust::All, Some(&cert), &[]).map(drop)
        };
        assert_eq!(config(FIRST_VERSION, KEY), Ok(()));
        let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        assert_eq!(
            config(FIRST_VERSION, &other),
            Err("tls: private key does not match public key".to_owned())
        );
    }
}
