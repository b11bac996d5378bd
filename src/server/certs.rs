//! Certificates and keys: read from the files that the flags name, made in the data directory where they name none.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::config::{CertFiles, Config, RequestHeader};
use crate::auth::MASTERS;

/// How many years self-made authorities and certificates last.
const CA_YEARS: i16 = 10;
const CERTIFICATE_YEARS: i16 = 1;
/// A self-made certificate with fewer days left is made anew at start.
const RENEWAL_DAYS: i64 = 90;

/// The common names of self-made authorities.
const CA_NAME: &str = "keelson-ca";
const FRONT_PROXY_CA_NAME: &str = "keelson-front-proxy-ca";
/// The user in admin.kubeconfig.
const ADMIN_NAME: &str = "kubernetes-admin";
const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// Why certificates or keys could not be had.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {why}")]
    Pem { path: PathBuf, why: String },
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// A certificate chain with its key, ready for TLS.
#[derive(Debug)]
pub struct ServingCert {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Clone for ServingCert {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// Everything that the server proves its own and others' identity with.
#[derive(Debug)]
pub struct Identity {
    pub serving: ServingCert,
    /// PEM of the authorities of client certificates.
    pub client_ca: Vec<u8>,
    /// The front proxy, with the PEM of its authorities.
    pub request_header: Option<(RequestHeader, Vec<u8>)>,
    /// PEM of the key that signs service account tokens; `None` if only public keys are known.
    pub signing_key: Option<Vec<u8>>,
    /// PEM of the keys that verify service account tokens, each possibly with several keys.
    pub public_keys: Vec<Vec<u8>>,
    /// The certificate to show to aggregated API servers.
    pub proxy_client: Option<ServingCert>,
    /// Present where the server made its own client authority.
    pub admin: Option<Admin>,
}

/// What admin.kubeconfig holds.
#[derive(Debug)]
pub struct Admin {
    /// Where to write it.
    pub path: PathBuf,
    /// PEM of what to trust, the client certificate and its key.
    ca: String,
    cert: String,
    key: String,
}

impl Admin {
    /// Writes the kubeconfig of a server that listens at `address`; unspecified addresses are reached by loopback.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, address: SocketAddr) -> Result<(), CertError> {
        let host = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        let encode = |pem: &str| BASE64_STANDARD.encode(pem);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: keelson\n  cluster:\n    server: https://{host}:{}\n    \
             certificate-authority-data: {}\nusers:\n- name: {ADMIN_NAME}\n  user:\n    client-certificate-data: {}\n    \
             client-key-data: {}\ncontexts:\n- name: keelson\n  context:\n    cluster: keelson\n    user: {ADMIN_NAME}\n\
             current-context: keelson\n",
            address.port(),
            encode(&self.ca),
            encode(&self.cert),
            encode(&self.key),
        );
        write(&self.path, text.as_bytes(), true)
    }
}

/// Reads what the flags name and makes the rest. Files are made once and read at the next start; the data directory is
/// not touched if everything is named.
///
/// # Errors
/// Files that cannot be read, written or understood.
pub fn prepare(config: &Config, advertise: IpAddr) -> Result<Identity, CertError> {
    let pki = config.data_dir.join("pki");
    let own_client_ca = config.authentication.client_ca.is_none();
    let (serving, serving_ca) = serving(config, &pki, advertise)?;
    let client_ca = match &config.authentication.client_ca {
        Some(path) => read(path)?,
        None => Authority::load_or_make(&pki, "ca", CA_NAME)?.cert_pem.into_bytes(),
    };
    let admin = if own_client_ca { Some(admin(&config.data_dir, &pki, serving_ca)?) } else { None };
    let (request_header, proxy_client) = front_proxy(config, &pki, own_client_ca)?;
    let (signing_key, public_keys) = service_account_keys(config, &pki)?;
    Ok(Identity { serving, client_ca, request_header, signing_key, public_keys, proxy_client, admin })
}

/// The serving certificate, and the PEM of what a client has to trust for it.
fn serving(config: &Config, pki: &Path, advertise: IpAddr) -> Result<(ServingCert, String), CertError> {
    if let Some(files) = &config.serving.tls {
        return Ok((load(files)?, text(&files.cert)?));
    }
    let folder = config.serving.cert_dir.as_deref().unwrap_or(pki);
    let files = CertFiles { cert: folder.join("apiserver.crt"), key: folder.join("apiserver.key") };
    let exists = files.cert.exists() && files.key.exists();
    if exists && config.serving.cert_dir.is_some() {
        // Someone else's choice: taken as it is, whatever names it has.
        return Ok((load(&files)?, text(&files.cert)?));
    }
    let ca = Authority::load_or_make(pki, "ca", CA_NAME)?;
    let names = serving_names(config, advertise);
    if !(exists && still_good(&files.cert, &names)) {
        let mut params = params("kube-apiserver", &[], CERTIFICATE_YEARS);
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        ca.issue(params, &files)?;
    }
    Ok((load(&files)?, ca.cert_pem))
}

/// The names that clients inside and outside of the cluster use.
fn serving_names(config: &Config, advertise: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
    ]
    .map(str::to_owned)
    .into();
    names.push(config.services.kubernetes_ip().to_string());
    names.push(advertise.to_string());
    if !config.serving.bind_address.is_unspecified() {
        names.push(config.serving.bind_address.to_string());
    }
    names.extend([hostname(), config.serving.external_hostname.clone()]);
    names.retain(|name| !name.is_empty() && name.is_ascii());
    names.sort();
    names.dedup();
    names
}

fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// Whether a certificate has all these names and some time left.
fn still_good(path: &Path, names: &[String]) -> bool {
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::FromDer;
    let Ok(der) = CertificateDer::from_pem_file(path) else { return false };
    let Ok((_, certificate)) = x509_parser::certificate::X509Certificate::from_der(&der) else { return false };
    let days_left = (certificate.validity().not_after.timestamp() - jiff::Timestamp::now().as_second()) / 86_400;
    let Ok(Some(sans)) = certificate.subject_alternative_name() else { return names.is_empty() && days_left > RENEWAL_DAYS };
    let has = |name: &String| {
        sans.value.general_names.iter().any(|san| match (san, name.parse::<IpAddr>()) {
            (GeneralName::DNSName(dns), Err(_)) => dns == name,
            (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(ip))) => *bytes == ip.octets(),
            (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(ip))) => *bytes == ip.octets(),
            _ => false,
        })
    };
    days_left > RENEWAL_DAYS && names.iter().all(has)
}

fn admin(data_dir: &Path, pki: &Path, serving_ca: String) -> Result<Admin, CertError> {
    let files = client_pair(pki, "ca", CA_NAME, "admin", ADMIN_NAME, &[MASTERS])?;
    Ok(Admin { path: data_dir.join("admin.kubeconfig"), ca: serving_ca, cert: text(&files.cert)?, key: text(&files.key)? })
}

type FrontProxy = (Option<(RequestHeader, Vec<u8>)>, Option<ServingCert>);

/// The front proxy of the flags; one of its own for a server that makes its own client authority.
fn front_proxy(config: &Config, pki: &Path, own: bool) -> Result<FrontProxy, CertError> {
    let given = &config.authentication.request_header;
    if let Some(path) = &given.client_ca {
        return Ok((Some((given.clone(), read(path)?)), None));
    }
    if !own {
        return Ok((None, None));
    }
    let files = client_pair(pki, "front-proxy-ca", FRONT_PROXY_CA_NAME, "front-proxy-client", FRONT_PROXY_NAME, &[])?;
    let ca = pki.join("front-proxy-ca.crt");
    let header = RequestHeader {
        client_ca: Some(ca.clone()),
        allowed_names: vec![FRONT_PROXY_NAME.to_owned()],
        username_headers: vec!["X-Remote-User".to_owned()],
        uid_headers: vec!["X-Remote-Uid".to_owned()],
        group_headers: vec!["X-Remote-Group".to_owned()],
        extra_prefixes: vec!["X-Remote-Extra-".to_owned()],
    };
    Ok((Some((header, read(&ca)?)), Some(load(&files)?)))
}

/// The PEM of the key that signs, if there is one, and of those that verify.
type AccountKeys = (Option<Vec<u8>>, Vec<Vec<u8>>);

/// The signing key and the public keys of service account tokens.
fn service_account_keys(config: &Config, pki: &Path) -> Result<AccountKeys, CertError> {
    let accounts = &config.service_accounts;
    let mut public = accounts.key_files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let signing = match (&accounts.signing_key, public.is_empty()) {
        (Some(path), _) => Some(read(path)?),
        (None, false) => None,
        (None, true) => {
            let path = pki.join("sa.key");
            if !path.exists() {
                let key = KeyPair::generate()?;
                write(&path, key.serialize_pem().as_bytes(), true)?;
                write(&pki.join("sa.pub"), key.public_key_pem().as_bytes(), false)?;
            }
            Some(read(&path)?)
        }
    };
    if let (true, Some(key)) = (public.is_empty(), &signing) {
        public.push(key.clone());
    }
    Ok((signing, public))
}

/// A client certificate by a self-made authority, made if it is missing or old.
fn client_pair(pki: &Path, ca: &str, ca_name: &str, file: &str, name: &str, groups: &[&str]) -> Result<CertFiles, CertError> {
    let files = CertFiles { cert: pki.join(format!("{file}.crt")), key: pki.join(format!("{file}.key")) };
    let ca = Authority::load_or_make(pki, ca, ca_name)?;
    if !(files.key.exists() && still_good(&files.cert, &[])) {
        let mut params = params(name, groups, CERTIFICATE_YEARS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        ca.issue(params, &files)?;
    }
    Ok(files)
}

/// A self-made certificate authority.
struct Authority {
    cert_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn load_or_make(folder: &Path, file: &str, name: &str) -> Result<Self, CertError> {
        let files = CertFiles { cert: folder.join(format!("{file}.crt")), key: folder.join(format!("{file}.key")) };
        let mut params = params(name, &[], CA_YEARS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        let key = if files.cert.exists() && files.key.exists() {
            KeyPair::from_pem(&text(&files.key)?)?
        } else {
            let key = KeyPair::generate()?;
            write(&files.key, key.serialize_pem().as_bytes(), true)?;
            write(&files.cert, params.self_signed(&key)?.pem().as_bytes(), false)?;
            key
        };
        // Names and key identifier follow from `params` and the key, so the certificate need not be parsed.
        Ok(Self { cert_pem: text(&files.cert)?, issuer: Issuer::new(params, key) })
    }

    /// Makes a certificate with a key of its own; the certificate of this authority follows it in the file.
    fn issue(&self, params: CertificateParams, files: &CertFiles) -> Result<(), CertError> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        write(&files.key, key.serialize_pem().as_bytes(), true)?;
        write(&files.cert, format!("{}{}", cert.pem(), self.cert_pem).as_bytes(), false)
    }
}

/// The parameters that all self-made certificates share. They are valid from yesterday on, for clocks that lag behind.
fn params(name: &str, groups: &[&str], years: i16) -> CertificateParams {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let date = |date: jiff::civil::Date| rcgen::date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8);
    let mut params = CertificateParams::default();
    params.not_before = date(today.yesterday().unwrap_or(today));
    params.not_after = date(today.saturating_add(jiff::Span::new().years(years)));
    params.distinguished_name = rcgen::DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    params
}

/// Loads a chain and its key.
///
/// # Errors
/// Files that cannot be read, or hold no certificate or key.
pub fn load(files: &CertFiles) -> Result<ServingCert, CertError> {
    let pem = |path: &Path, why: String| CertError::Pem { path: path.to_owned(), why };
    let certificates = CertificateDer::pem_slice_iter(&read(&files.cert)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| pem(&files.cert, why.to_string()))?;
    if certificates.is_empty() {
        return Err(pem(&files.cert, "no certificate found".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|why| pem(&files.key, why.to_string()))?;
    Ok(ServingCert { chain: certificates, key })
}

fn read(path: &Path) -> Result<Vec<u8>, CertError> {
    fs::read(path).map_err(|source| CertError::File { path: path.to_owned(), source })
}

fn text(path: &Path) -> Result<String, CertError> {
    fs::read_to_string(path).map_err(|source| CertError::File { path: path.to_owned(), source })
}

/// Writes a file whole or not at all, readable by its owner alone if it is secret.
fn write(path: &Path, content: &[u8], secret: bool) -> Result<(), CertError> {
    let attempt = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let fresh = path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, if secret { 0o600 } else { 0o644 });
        let mut file = options.open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    attempt().map_err(|source| CertError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn config(args: &[String]) -> Config {
        match parse(args.iter().cloned()) {
            Ok(Command::Run(flags)) => Config::from_flags(&flags).expect("a configuration"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_is_made_once_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&[format!("--data-dir={}", folder.path().display())]);
        let first = prepare(&config, LOOPBACK).expect("made");
        let second = prepare(&config, LOOPBACK).expect("kept");
        assert_eq!(first.serving.chain, second.serving.chain);
        assert_eq!((&first.signing_key, &first.client_ca), (&second.signing_key, &second.client_ca));
        assert!(still_good(&folder.path().join("pki/apiserver.crt"), &["kubernetes.default.svc".into(), "::1".into(), "10.0.0.1".into()]));
        assert!(!still_good(&folder.path().join("pki/apiserver.crt"), &["example.com".into()]));

        let admin = second.admin.expect("an own authority");
        admin.write(SocketAddr::from(([0, 0, 0, 0], 6443))).expect("written");
        let kubeconfig = fs::read_to_string(folder.path().join("admin.kubeconfig")).expect("readable");
        assert!(kubeconfig.contains("server: https://127.0.0.1:6443\n"), "{kubeconfig}");

        // The admin's certificate is one of the client authority's.
        let bundle = crate::auth::authn::x509::CaBundle::from_pem(&second.client_ca).expect("a bundle");
        let chain: Vec<_> = CertificateDer::pem_slice_iter(admin.cert.as_bytes()).collect::<Result<_, _>>().expect("certificates");
        let user = bundle.verify(&chain, jiff::Timestamp::now()).expect("verified");
        assert_eq!((user.common_name.as_str(), user.organizations), (ADMIN_NAME, vec![MASTERS.to_owned()]));
    }

    #[test]
    fn the_data_directory_is_left_alone_if_all_files_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("source");
        prepare(&config(&[format!("--data-dir={}", source.display())]), LOOPBACK).expect("made");
        let pki = source.join("pki");
        let flag = |name: &str, file: &str| format!("--{name}={}", pki.join(file).display());
        let unused = folder.path().join("unused");
        let args = [
            format!("--data-dir={}", unused.display()),
            flag("tls-cert-file", "apiserver.crt"),
            flag("tls-private-key-file", "apiserver.key"),
            flag("client-ca-file", "ca.crt"),
            flag("service-account-key-file", "sa.pub"),
            flag("service-account-signing-key-file", "sa.key"),
        ];
        let identity = prepare(&config(&args), LOOPBACK).expect("read");
        assert!(identity.admin.is_none() && identity.request_header.is_none());
        assert!(!unused.exists());
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = prepare(&config(&["--tls-cert-file=/no/a".into(), "--tls-private-key-file=/no/b".into()]), LOOPBACK);
        assert!(message.expect_err("missing").to_string().starts_with("/no/a: "));
    }
}
