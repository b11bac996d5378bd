//! Certificates and keys: read from the files that flags name, generated in the data directory
//! otherwise.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use jiff::Timestamp;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::aggregation::CLIENT_FLAGS;
use super::config::{CertFiles, Config};
pub use super::credential_files::{CertError, CertKeyPair, CredentialFile, FileContent};
use super::own_files::{OwnFiles, Phase};
use super::request_header::RequestHeader;
use crate::auth::MASTERS;
use crate::base::files::write_atomic;

/// The years for which self-made authorities and certificates are valid.
const CA_YEARS: i16 = 10;
const CERTIFICATE_YEARS: i16 = 1;
/// A self-made certificate with fewer days left is made anew.
const RENEWAL_DAYS: i64 = 90;
/// The same for an authority, which must outlive the certificates it signs. Its key stays, so that
/// clients that trust the old one trust what the new one signs.
const CA_RENEWAL_DAYS: i64 = 2 * 365;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The common names of self-made authorities.
const CA_NAME: &str = "keelson-ca";
const FRONT_PROXY_CA_NAME: &str = "keelson-front-proxy-ca";
/// The user in admin.kubeconfig.
const ADMIN_NAME: &str = "kubernetes-admin";
const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// The credentials of the server, and those that it verifies others' by.
#[derive(Debug)]
pub struct Identity {
    pub serving: CertKeyPair,
    /// The certificates that a client has to trust for it, in PEM.
    pub serving_ca: String,
    /// The authorities of client certificates.
    pub client_ca: FileContent,
    /// The front proxy, with its authorities.
    pub request_header: Option<(RequestHeader, FileContent)>,
    /// The certificate by which extension servers know this one.
    pub proxy_client: Option<CertKeyPair>,
    /// The static tokens.
    pub token_file: Option<FileContent>,
    /// The key that signs service account tokens; `None` if only public keys are known.
    pub signing_key: Option<FileContent>,
    /// The keys that verify service account tokens, each file possibly with several keys.
    pub public_keys: Vec<FileContent>,
    /// Present where the server made its own client authority.
    pub admin: Option<Admin>,
}

/// The credentials of the administrator.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// The path of the kubeconfig; `None` where it is not written to a file.
    pub path: Option<PathBuf>,
    /// PEM of what to trust, the client certificate and its key.
    pub ca: String,
    pub cert: String,
    pub key: String,
}

/// Not what it holds, which is a key.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        write!(f, "Admin({})", path.display())
    }
}

/// Returns the URL of a server that listens at `address`; unspecified addresses are reached by
/// loopback.
pub fn url(address: SocketAddr) -> String {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    format!("https://{host}:{}", address.port())
}

impl Admin {
    /// Returns the kubeconfig of a server that listens at `address`.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let encode = |pem: &str| BASE64_STANDARD.encode(pem);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: keelson\n  cluster:\n    server: {}\n    \
             certificate-authority-data: {}\nusers:\n- name: {ADMIN_NAME}\n  user:\n    client-certificate-data: {}\n    \
             client-key-data: {}\ncontexts:\n- name: keelson\n  context:\n    cluster: keelson\n    user: {ADMIN_NAME}\n\
             current-context: keelson\n",
            url(address),
            encode(&self.ca),
            encode(&self.cert),
            encode(&self.key),
        )
    }

    /// Writes the kubeconfig of a server that listens at `address`, if it has a path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, address: SocketAddr) -> Result<(), CertError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        write_atomic(path, self.kubeconfig(address).as_bytes(), true).map_err(|source| {
            CertError::File {
                file: CredentialFile::own(path),
                source,
            }
        })
    }
}

/// Reads what the flags name and makes the rest. Files are made once and read at the next start;
/// the data directory is not touched if everything is named.
///
/// # Errors
/// Files that cannot be read, written or understood.
#[cfg(test)]
pub fn prepare(config: &Config, advertise: IpAddr, now: Timestamp) -> Result<Identity, CertError> {
    let (identity, files) = make(config, advertise, now)?;
    files.write()?;
    Ok(identity)
}

/// Reads what the flags name and makes the rest, which is to be written before the server is used:
/// the next start reads it.
///
/// # Errors
/// Files that cannot be read or understood.
pub fn make(
    config: &Config,
    advertise: IpAddr,
    now: Timestamp,
) -> Result<(Identity, OwnFiles), CertError> {
    let mut files = OwnFiles::new(config.data_dir.as_deref());
    let pki = files.pki();
    let own_client_ca = config.authentication.client_ca.is_none();
    let (serving, serving_ca) = serving(config, &mut files, advertise, now)?;
    let client_ca = match &config.authentication.client_ca {
        Some(path) => CredentialFile::of_flag("client-ca-file", path).read()?,
        None => {
            Authority::load_or_make(&mut files, "ca", CA_NAME, now)?;
            files.read(&pki.join("ca.crt"))?
        }
    };
    let admin = if own_client_ca {
        Some(admin(&mut files, serving_ca.clone(), now)?)
    } else {
        None
    };
    let request_header = front_proxy(config, &mut files, own_client_ca, now)?;
    let proxy_client = proxy_client(config, &files, own_client_ca)?;
    let token_file = config.authentication.token_file.as_deref();
    let token_file = token_file
        .map(|path| CredentialFile::of_flag("token-auth-file", path).read())
        .transpose()?;
    let (signing_key, public_keys) = service_account_keys(config, &mut files)?;
    let identity = Identity {
        serving,
        serving_ca,
        client_ca,
        request_header,
        proxy_client,
        token_file,
        signing_key,
        public_keys,
        admin,
    };
    Ok((identity, files))
}

/// Makes those of the server's own certificates anew whose end is near, or that are gone; what the
/// flags name is left alone, and so is what is in memory, which is made for as long as its
/// authority. Returns what admin.kubeconfig should hold now, where it is this server's to write.
///
/// # Errors
/// Files that cannot be read or written.
pub fn renew(
    config: &Config,
    advertise: IpAddr,
    now: Timestamp,
) -> Result<Option<Admin>, CertError> {
    let mut files = OwnFiles::new(config.data_dir.as_deref());
    let own_client_ca = config.authentication.client_ca.is_none();
    if files.in_memory() || (config.serving.tls.is_some() && !own_client_ca) {
        return Ok(None);
    }
    let (_, serving_ca) = serving(config, &mut files, advertise, now)?;
    let admin = if own_client_ca {
        front_proxy(config, &mut files, own_client_ca, now)?;
        Some(admin(&mut files, serving_ca, now)?)
    } else {
        None
    };
    files.write()?;
    Ok(admin)
}

/// The serving certificate, and the PEM of what a client has to trust for it.
fn serving(
    config: &Config,
    own: &mut OwnFiles,
    advertise: IpAddr,
    now: Timestamp,
) -> Result<(CertKeyPair, String), CertError> {
    if let Some(files) = &config.serving.tls {
        let pair = CertKeyPair::read(files, Some(["tls-cert-file", "tls-private-key-file"]))?;
        let trusted = pair.cert.text()?.to_owned();
        return Ok((pair, trusted));
    }
    let folder = config.serving.cert_dir.clone().unwrap_or_else(|| own.pki());
    let files = CertFiles {
        cert: folder.join("apiserver.crt"),
        key: folder.join("apiserver.key"),
    };
    let exists = own.exists(&files.cert) && own.exists(&files.key);
    if exists && config.serving.cert_dir.is_some() {
        // Chosen by the user: used with any names.
        let pair = CertKeyPair::read(&files, Some(["cert-dir", "cert-dir"]))?;
        let trusted = pair.cert.text()?.to_owned();
        return Ok((pair, trusted));
    }
    let ca = Authority::load_or_make(own, "ca", CA_NAME, now)?;
    let names = serving_names(config, advertise);
    if !(exists && is_reusable(own, &files.cert, &names, now)) {
        let mut params = params("kube-apiserver", &[], years(own), now);
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        ca.issue(own, params, &files)?;
    }
    Ok((own.read_pair(&files)?, ca.cert_pem))
}

/// Returns the years for which certificates are valid. Those in memory are not renewed.
fn years(files: &OwnFiles) -> i16 {
    if files.in_memory() {
        CA_YEARS
    } else {
        CERTIFICATE_YEARS
    }
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
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

/// Reports whether a certificate has all these names and is valid for long enough.
fn is_reusable(files: &OwnFiles, path: &Path, names: &[String], now: Timestamp) -> bool {
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::FromDer;
    let read = files.read(path);
    let Some(der) = read
        .ok()
        .and_then(|content| CertificateDer::from_pem_slice(&content.bytes).ok())
    else {
        return false;
    };
    let Ok((_, certificate)) = x509_parser::certificate::X509Certificate::from_der(&der) else {
        return false;
    };
    let in_time = (certificate.validity().not_after.timestamp() - now.as_second()) / DAY_SECONDS
        > RENEWAL_DAYS;
    let Ok(Some(sans)) = certificate.subject_alternative_name() else {
        return names.is_empty() && in_time;
    };
    let has = |name: &String| {
        sans.value
            .general_names
            .iter()
            .any(|san| match (san, name.parse::<IpAddr>()) {
                (GeneralName::DNSName(dns), Err(_)) => dns == name,
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(ip))) => *bytes == ip.octets(),
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(ip))) => *bytes == ip.octets(),
                _ => false,
            })
    };
    in_time && names.iter().all(has)
}

fn admin(own: &mut OwnFiles, serving_ca: String, now: Timestamp) -> Result<Admin, CertError> {
    let files = client_pair(own, ["ca", CA_NAME], "admin", ADMIN_NAME, &[MASTERS], now)?;
    let pair = own.read_pair(&files)?;
    let (cert, key) = (pair.cert.text()?.to_owned(), pair.key.text()?.to_owned());
    Ok(Admin {
        path: own.kubeconfig(),
        ca: serving_ca,
        cert,
        key,
    })
}

type FrontProxy = Option<(RequestHeader, FileContent)>;

/// The front proxy of the flags; one of its own for a server that makes its own client authority.
fn front_proxy(
    config: &Config,
    files: &mut OwnFiles,
    own: bool,
    now: Timestamp,
) -> Result<FrontProxy, CertError> {
    let given = &config.authentication.request_header;
    if let Some(path) = &given.client_ca {
        return Ok(Some((
            given.clone(),
            CredentialFile::of_flag("requestheader-client-ca-file", path).read()?,
        )));
    }
    if !own {
        return Ok(None);
    }
    client_pair(
        files,
        ["front-proxy-ca", FRONT_PROXY_CA_NAME],
        "front-proxy-client",
        FRONT_PROXY_NAME,
        &[],
        now,
    )?;
    let ca = files.pki().join("front-proxy-ca.crt");
    let header = RequestHeader {
        client_ca: Some(ca.clone()),
        allowed_names: vec![FRONT_PROXY_NAME.to_owned()],
        username_headers: vec!["X-Remote-User".to_owned()],
        uid_headers: vec!["X-Remote-Uid".to_owned()],
        group_headers: vec!["X-Remote-Group".to_owned()],
        extra_prefixes: vec!["X-Remote-Extra-".to_owned()],
    };
    Ok(Some((header, files.read(&ca)?)))
}

/// The certificate of the flags; that of the front proxy of a server that has its own.
fn proxy_client(
    config: &Config,
    own: &OwnFiles,
    own_client_ca: bool,
) -> Result<Option<CertKeyPair>, CertError> {
    if let Some(files) = &config.aggregation.client {
        return CertKeyPair::read(files, Some(CLIENT_FLAGS)).map(Some);
    }
    let is_own = own_client_ca && config.authentication.request_header.client_ca.is_none();
    let pki = own.pki();
    let files = CertFiles {
        cert: pki.join("front-proxy-client.crt"),
        key: pki.join("front-proxy-client.key"),
    };
    is_own.then(|| own.read_pair(&files)).transpose()
}

/// The key that signs, if there is one, and those that verify.
type AccountKeys = (Option<FileContent>, Vec<FileContent>);

/// The signing key and the public keys of service account tokens.
fn service_account_keys(config: &Config, own: &mut OwnFiles) -> Result<AccountKeys, CertError> {
    let accounts = &config.service_accounts;
    if accounts.signing_endpoint.is_some() {
        return Ok((None, Vec::new()));
    }
    let read = |path: &PathBuf| CredentialFile::of_flag("service-account-key-file", path).read();
    let mut public = accounts
        .key_files
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    let signing = match (&accounts.signing_key, public.is_empty()) {
        (Some(path), _) => {
            Some(CredentialFile::of_flag("service-account-signing-key-file", path).read()?)
        }
        (None, false) => None,
        (None, true) => {
            let path = own.pki().join("sa.key");
            if !own.exists(&path) {
                let key = KeyPair::generate()?;
                let public = own.pki().join("sa.pub");
                own.keep(&path, key.serialize_pem().into(), Phase::AuthorityKey);
                own.keep(&public, key.public_key_pem().into(), Phase::Authority);
            }
            Some(own.read(&path)?)
        }
    };
    if let (true, Some(key)) = (public.is_empty(), &signing) {
        public.push(key.clone());
    }
    Ok((signing, public))
}

/// A client certificate by a self-made authority (its file and name), made if it is missing or old.
fn client_pair(
    own: &mut OwnFiles,
    [ca, ca_name]: [&str; 2],
    file: &str,
    name: &str,
    groups: &[&str],
    now: Timestamp,
) -> Result<CertFiles, CertError> {
    let pki = own.pki();
    let files = CertFiles {
        cert: pki.join(format!("{file}.crt")),
        key: pki.join(format!("{file}.key")),
    };
    let ca = Authority::load_or_make(own, ca, ca_name, now)?;
    if !(own.exists(&files.key) && is_reusable(own, &files.cert, &[], now)) {
        let mut params = params(name, groups, years(own), now);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        ca.issue(own, params, &files)?;
    }
    Ok(files)
}

/// A self-made certificate authority.
struct Authority {
    cert_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn load_or_make(
        own: &mut OwnFiles,
        file: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<Self, CertError> {
        let pki = own.pki();
        let files = CertFiles {
            cert: pki.join(format!("{file}.crt")),
            key: pki.join(format!("{file}.key")),
        };
        let mut params = params(name, &[], CA_YEARS, now);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::CrlSign,
        ];
        let key = if own.exists(&files.cert) && own.exists(&files.key) {
            let found = own.read_pair(&files)?;
            let key =
                KeyPair::from_pem(found.key.text()?).map_err(|why| found.key.file.error(why))?;
            if is_ours_and_ends(&found, name, now)? {
                tracing::info!(
                    "{} is made anew with the same key: its end is near",
                    files.cert.display()
                );
                let pem = params.self_signed(&key)?.pem();
                own.keep(&files.cert, pem.into(), Phase::Authority);
            }
            key
        } else {
            let key = KeyPair::generate()?;
            let pem = params.self_signed(&key)?.pem();
            own.keep(&files.key, key.serialize_pem().into(), Phase::AuthorityKey);
            own.keep(&files.cert, pem.into(), Phase::Authority);
            key
        };
        // Names and key identifier follow from `params` and the key, so the certificate need not be
        // parsed.
        Ok(Self {
            cert_pem: own.read(&files.cert)?.text()?.to_owned(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Makes a certificate with a key of its own; the certificate of this authority follows it in
    /// the file.
    fn issue(
        &self,
        own: &mut OwnFiles,
        params: CertificateParams,
        files: &CertFiles,
    ) -> Result<(), CertError> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        let chain = format!("{}{}", cert.pem(), self.cert_pem);
        own.keep(&files.key, key.serialize_pem().into(), Phase::Key);
        own.keep(&files.cert, chain.into(), Phase::Certificate);
        Ok(())
    }
}

/// Reports whether an authority has the name of a self-made one and is about to expire. One that
/// somebody else put there is left alone.
fn is_ours_and_ends(pair: &CertKeyPair, name: &str, now: Timestamp) -> Result<bool, CertError> {
    use x509_parser::prelude::FromDer;
    let chain = pair.parse()?.chain;
    let parsed = chain
        .first()
        .and_then(|der| x509_parser::certificate::X509Certificate::from_der(der).ok());
    let (_, certificate) =
        parsed.ok_or_else(|| pair.cert.file.error("the certificate is broken"))?;
    let ours = certificate
        .subject()
        .iter_common_name()
        .all(|common| common.as_str().is_ok_and(|common| common == name));
    let days_left = (certificate.validity().not_after.timestamp() - now.as_second()) / DAY_SECONDS;
    Ok(ours && days_left < CA_RENEWAL_DAYS)
}

/// The parameters that all self-made certificates share. They are valid from yesterday on, for
/// clocks that lag behind.
fn params(name: &str, groups: &[&str], years: i16, now: Timestamp) -> CertificateParams {
    let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    let mut params = CertificateParams::default();
    params.not_before = date(today.yesterday().unwrap_or(today));
    params.not_after = date(today.saturating_add(jiff::Span::new().years(years)));
    params.distinguished_name = rcgen::DistinguishedName::new();
    for group in groups {
        params
            .distinguished_name
            .push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.use_authority_key_identifier_extension = true;
    params
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
    fn generated_files_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&[format!("--data-dir={}", folder.path().display())]);
        let first = prepare(&config, LOOPBACK, Timestamp::now()).expect("made");
        let second = prepare(&config, LOOPBACK, Timestamp::now()).expect("kept");
        assert_eq!(first.serving.cert, second.serving.cert);
        assert_eq!(
            (&first.signing_key, &first.client_ca),
            (&second.signing_key, &second.client_ca)
        );
        let now = Timestamp::now();
        assert!(is_reusable(
            &OwnFiles::new(None),
            &folder.path().join("pki/apiserver.crt"),
            &[
                "kubernetes.default.svc".into(),
                "::1".into(),
                "10.0.0.1".into()
            ],
            now
        ));
        assert!(!is_reusable(
            &OwnFiles::new(None),
            &folder.path().join("pki/apiserver.crt"),
            &["example.com".into()],
            now
        ));

        let admin = second.admin.expect("an own authority");
        admin
            .write(SocketAddr::from(([0, 0, 0, 0], 6443)))
            .expect("written");
        let kubeconfig =
            fs::read_to_string(folder.path().join("admin.kubeconfig")).expect("readable");
        assert!(
            kubeconfig.contains("server: https://127.0.0.1:6443\n"),
            "{kubeconfig}"
        );

        // The admin's certificate is one of the client authority's.
        let bundle = crate::auth::authn::x509::CaBundle::from_pem(&second.client_ca.bytes)
            .expect("a bundle");
        let chain: Vec<_> = CertificateDer::pem_slice_iter(admin.cert.as_bytes())
            .collect::<Result<_, _>>()
            .expect("certificates");
        let user = bundle
            .verify(&chain, jiff::Timestamp::now())
            .expect("verified");
        assert_eq!(
            (user.common_name.as_str(), user.organizations),
            (ADMIN_NAME, vec![MASTERS.to_owned()])
        );
    }

    #[test]
    fn the_data_directory_is_left_alone_if_all_files_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("source");
        prepare(
            &config(&[format!("--data-dir={}", source.display())]),
            LOOPBACK,
            Timestamp::now(),
        )
        .expect("made");
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
        let identity = prepare(&config(&args), LOOPBACK, Timestamp::now()).expect("read");
        assert!(identity.admin.is_none() && identity.request_header.is_none());
        assert!(!unused.exists());
    }

    /// The certificates in a file.
    fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(path)
            .expect("a file")
            .collect::<Result<_, _>>()
            .expect("certificates")
    }

    #[test]
    fn expiring_certificates_are_renewed_and_authorities_keep_their_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&[format!("--data-dir={}", folder.path().display())]);
        let pki = folder.path().join("pki");
        let files =
            ["apiserver.crt", "admin.crt", "front-proxy-client.crt"].map(|name| pki.join(name));
        let start = Timestamp::now();
        let after = |days: i64| {
            start
                .checked_add(jiff::SignedDuration::from_secs(days * DAY_SECONDS))
                .expect("a time")
        };
        let first = prepare(&config, LOOPBACK, start).expect("made");
        let old = files.each_ref().map(|path| chain(path));

        // Nothing to do for nine months.
        let kept = renew(&config, LOOPBACK, after(365 - RENEWAL_DAYS - 5))
            .expect("looked at")
            .expect("an own authority");
        assert_eq!(Some(&kept), first.admin.as_ref());
        assert_eq!(files.each_ref().map(|path| chain(path)), old);

        let admin = renew(&config, LOOPBACK, after(300))
            .expect("renewed")
            .expect("an own authority");
        assert_ne!(Some(&admin), first.admin.as_ref());
        assert_eq!(
            (admin.ca.as_bytes(), &admin.path),
            (first.client_ca.bytes.as_slice(), &kept.path)
        );
        for (path, old) in files.iter().zip(&old) {
            let new = chain(path);
            assert_ne!(new.first(), old.first(), "{}", path.display());
            assert_eq!(
                new.last(),
                old.last(),
                "the authority of {}",
                path.display()
            );
        }
    }

    #[test]
    fn an_authority_that_is_about_to_end_keeps_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&[format!("--data-dir={}", folder.path().display())]);
        let start = Timestamp::now();
        let after = |days: i64| {
            start
                .checked_add(jiff::SignedDuration::from_secs(days * DAY_SECONDS))
                .expect("a time")
        };
        let ca = || fs::read(folder.path().join("pki/ca.crt")).expect("a file");
        let old = prepare(&config, LOOPBACK, start)
            .expect("made")
            .client_ca
            .bytes;
        let lasts = 10 * 365 - CA_RENEWAL_DAYS;
        let by_old = renew(&config, LOOPBACK, after(lasts - 30))
            .expect("renewed")
            .expect("an own authority");
        assert_eq!(ca(), old);
        renew(&config, LOOPBACK, after(lasts + 30)).expect("renewed");
        let new = ca();
        assert_ne!(new, old);
        let by_new = renew(&config, LOOPBACK, after(lasts + 330))
            .expect("renewed")
            .expect("an own authority");
        assert_ne!(by_new, by_old);
        // Whichever of the two somebody trusts, both certificates are good, alone and with the
        // authority that they were written with.
        for bundle in [&old, &new] {
            let bundle = crate::auth::authn::x509::CaBundle::from_pem(bundle).expect("a bundle");
            for (admin, day) in [(&by_old, lasts + 40), (&by_new, lasts + 340)] {
                let chain: Vec<_> = CertificateDer::pem_slice_iter(admin.cert.as_bytes())
                    .collect::<Result<_, _>>()
                    .expect("certificates");
                for shown in [&chain[..1], &chain] {
                    bundle
                        .verify(shown, after(day))
                        .unwrap_or_else(|why| panic!("on day {day}: {why}"));
                }
            }
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = prepare(
            &config(&[
                "--tls-cert-file=/no/a".into(),
                "--tls-private-key-file=/no/b".into(),
            ]),
            LOOPBACK,
            Timestamp::now(),
        );
        assert!(
            message
                .expect_err("missing")
                .to_string()
                .starts_with("--tls-cert-file=/no/a: ")
        );
    }
}
