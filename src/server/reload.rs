//! Reloads certificates, keys and tokens while the server runs: files that change are read again,
//! and the server's own certificates are renewed in time.
//!
//! The content of the files is compared, not their times: that also finds the change of a
//! Kubernetes volume, whose link is turned to another folder. New content is applied once two looks
//! have found it the same, so that no file is read half written. Content that cannot be used is
//! logged and tried again at the next look, and what was read before stays in use (apiserver
//! `server/dynamiccertificates`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{self, Digest};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::authentication::Authentication;
use super::run::ServerDeps;
use super::shutdown::Shutdown;
use super::tls::{self, ServingCertificates};
use crate::aggregator::Aggregator;
use crate::auth::authn::x509::CaBundle;
use crate::base::blocking::run_blocking;
use crate::base::clock::Clock;
use crate::base::supervise::catch_panic_sync;
use crate::controlplane::endpoint_reconciler::Authorities;
use crate::options::certificates::{self, Admin};
use crate::options::config::{Config, StorageConfig};
use crate::options::credential_files::{CertError, CertKeyPair, CredentialFile, FileContent};
use crate::storage::etcd3::Etcd3;

/// The interval at which the files are checked.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// The delay before changed files are checked again.
pub const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the expiry of the server's own certificates is checked.
const RENEWAL_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// Applies the content of some files, or returns the reason that it cannot.
type Apply = Box<dyn Fn(&[FileContent]) -> Result<(), String> + Send + Sync>;

/// Files that are read together, and the action when they change.
pub struct WatchedFiles {
    files: Vec<CredentialFile>,
    /// A hash of the content in use.
    applied: Vec<u8>,
    /// A hash of the content of the last look, if it was not the one in use.
    found: Option<Vec<u8>>,
    /// The last error that was logged.
    complaint: String,
    apply: Apply,
    /// Told of each error that is logged.
    on_failure: Box<dyn Fn() + Send + Sync>,
}

impl WatchedFiles {
    /// Watches files whose content `read` is in use.
    pub fn new<E: ToString>(
        read: &[FileContent],
        apply: impl Fn(&[FileContent]) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            files: read.iter().map(|content| content.file.clone()).collect(),
            applied: hash(read),
            found: None,
            complaint: String::new(),
            apply: Box::new(move |contents| apply(contents).map_err(|why| why.to_string())),
            on_failure: Box::new(|| ()),
        }
    }

    /// Calls `count` with each error that is logged.
    pub fn on_failure(self, count: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            on_failure: Box::new(count),
            ..self
        }
    }

    /// Applies what the files hold if it is not in use, and was there at the last look, too.
    /// Returns true if it was not, so that the file is checked again.
    fn check(&mut self) -> bool {
        if self.files.iter().any(CredentialFile::is_read_once) {
            return false;
        }
        let contents = match self.read() {
            Ok(contents) => contents,
            Err(why) => {
                self.found = None;
                self.log_failure(why);
                return false;
            }
        };
        let now = hash(&contents);
        if now == self.applied {
            self.found = None;
            self.complaint.clear();
            return false;
        }
        if self.found.as_ref() != Some(&now) {
            self.found = Some(now);
            return true;
        }
        match (self.apply)(&contents) {
            Ok(()) => {
                tracing::info!("{}: read again, for it has changed", self.names());
                self.applied = now;
                self.found = None;
                self.complaint.clear();
            }
            // Another file may be what it is refused for, so it is tried again.
            Err(why) => self.log_failure(why),
        }
        false
    }

    /// Reads all files. An empty one is about to be written, or a mistake.
    fn read(&self) -> Result<Vec<FileContent>, String> {
        let read = |file: &CredentialFile| match file.read() {
            Ok(found) if found.bytes.trim_ascii().is_empty() => {
                Err(file.error("the file is empty").to_string())
            }
            outcome => outcome.map_err(|why| why.to_string()),
        };
        self.files.iter().map(read).collect()
    }

    /// Logs an error, unless it is that of the last look.
    fn log_failure(&mut self, why: String) {
        if why != self.complaint {
            (self.on_failure)();
            // Most errors name their file.
            let named = |file: &CredentialFile| why.starts_with(&file.to_string());
            if self.files.iter().any(named) {
                tracing::error!("{why}; what was read before stays in use");
            } else {
                let names = self.names();
                tracing::error!("{names}: {why}; what was read before stays in use");
            }
        }
        self.complaint = why;
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.files.iter().map(CredentialFile::to_string).collect();
        names.join(" ")
    }
}

/// Returns a hash of the content of some files, so that keys are not kept in memory.
fn hash(contents: &[FileContent]) -> Vec<u8> {
    let each =
        |content: &FileContent| -> Digest { digest::digest(&digest::SHA256, &content.bytes) };
    contents
        .iter()
        .flat_map(|content| each(content).as_ref().to_vec())
        .collect()
}

/// Watches the files and applies their changes.
pub struct Reloader {
    sources: Vec<WatchedFiles>,
    config: Arc<Config>,
    /// The address that the rest of the cluster reaches the server at.
    advertise: SocketAddr,
    /// The address that it listens on.
    address: SocketAddr,
    /// The content of admin.kubeconfig.
    admin: Option<Admin>,
    renewed: Timestamp,
    clock: Clock,
}

impl Reloader {
    /// Looks after the files that a server began with.
    pub fn new(
        deps: &ServerDeps,
        address: SocketAddr,
        serving: &Arc<ServingCertificates>,
        authentication: &Authentication,
        trusted: &watch::Sender<Authorities>,
        clock: Clock,
    ) -> Self {
        let identity = &deps.identity;
        let mut sources = Vec::new();
        for (at, files) in serving.files().into_iter().enumerate() {
            let serving = serving.clone();
            sources.push(WatchedFiles::new(
                &files,
                move |files| match CertKeyPair::from_contents(files) {
                    Some(pair) => serving.replace(at, &pair).map_err(|why| why.to_string()),
                    None => Ok(()),
                },
            ));
        }
        let text = |ca: &FileContent| String::from_utf8_lossy(&ca.bytes).into_owned();
        let (shared, published) = (authentication.clone(), trusted.clone());
        sources.push(single(&identity.client_ca, move |ca| {
            shared.replace_client_ca(ca)?;
            published.send_modify(|all| all.clients = text(ca));
            Ok::<_, super::authentication::SetupError>(())
        }));
        if let Some((_, ca)) = &identity.request_header {
            let (shared, published) = (authentication.clone(), trusted.clone());
            sources.push(single(ca, move |ca| {
                shared.replace_front_proxy_ca(ca)?;
                published.send_modify(|all| all.front_proxy = text(ca));
                Ok::<_, super::authentication::SetupError>(())
            }));
        }
        if let Some(file) = &identity.token_file {
            let shared = authentication.clone();
            sources.push(single(file, move |file| shared.replace_static_tokens(file)));
        }
        let shared = authentication.clone();
        sources.push(WatchedFiles::new(&identity.public_keys, move |files| {
            shared.replace_account_keys(files)
        }));
        if let Some(file) = &identity.signing_key {
            let shared = authentication.clone();
            sources.push(single(file, move |file| shared.replace_signing_key(file)));
        }
        let renewed = clock.now();
        Self {
            sources,
            config: deps.config.clone(),
            advertise: deps.advertise,
            address,
            admin: identity.admin.clone(),
            renewed,
            clock,
        }
    }

    /// Looks after other files, too.
    pub fn add(&mut self, source: WatchedFiles) {
        self.sources.push(source);
    }

    /// Renews the server's own certificates where it is time, then looks at every file. Returns
    /// whether a second look is due.
    pub fn check(&mut self) -> bool {
        let now = self.clock.now();
        if now.duration_since(self.renewed) >= RENEWAL_INTERVAL {
            self.renewed = now;
            self.renew(now);
        }
        self.sources
            .iter_mut()
            .fold(false, |due, source| source.check() | due)
    }

    fn renew(&mut self, now: Timestamp) {
        let written = certificates::renew(&self.config, self.advertise.ip(), now).and_then(
            |admin| match admin {
                Some(admin) if Some(&admin) != self.admin.as_ref() => {
                    admin.write(self.address)?;
                    Ok(Some(admin))
                }
                admin => Ok(admin),
            },
        );
        match written {
            Ok(admin) => self.admin = admin,
            Err(why) => tracing::error!("renewing the server's own certificates: {why}"),
        }
    }

    /// Looks every [`INTERVAL`], and at once when the process gets SIGHUP, until the server drains.
    pub async fn run(mut self, mut hangup: SighupListener, shutdown: Shutdown) {
        let mut wait = INTERVAL;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = hangup.received() => tracing::info!("SIGHUP: looking at certificates, keys and tokens"),
                () = shutdown.drained() => return,
            }
            let what = "reading certificates, keys and tokens again";
            // A panic has been logged, and the next look begins anew.
            let due = run_blocking(|| catch_panic_sync(what, || self.check())).unwrap_or(false);
            wait = if due { SETTLE_INTERVAL } else { INTERVAL };
        }
    }
}

/// A source of one file.
fn single<E: ToString>(
    read: &FileContent,
    apply: impl Fn(&FileContent) -> Result<(), E> + Send + Sync + 'static,
) -> WatchedFiles {
    WatchedFiles::new(std::slice::from_ref(read), move |contents| {
        contents.first().map_or(Ok(()), &apply)
    })
}

/// The files of the etcd clients; none if no etcd is reached over TLS.
///
/// # Errors
/// Files that cannot be read or used.
pub fn etcd_files(given: &StorageConfig) -> Result<Vec<FileContent>, CertError> {
    let overrides = given.etcd_overrides.iter().flat_map(|one| &one.servers);
    if !given
        .etcd_servers
        .iter()
        .chain(overrides)
        .any(|url| url.starts_with("https://"))
    {
        return Ok(Vec::new());
    }
    let ca = given
        .etcd_ca
        .as_ref()
        .map(|path| CredentialFile::of_flag("etcd-cafile", path).read())
        .transpose()?;
    let pair = given
        .etcd_client
        .as_ref()
        .map(|files| CertKeyPair::read(files, Some(["etcd-certfile", "etcd-keyfile"])))
        .transpose()?;
    let contents: Vec<FileContent> = ca
        .into_iter()
        .chain(pair.into_iter().flat_map(|pair| pair.files()))
        .collect();
    check_etcd_files(&contents)?;
    Ok(contents)
}

/// Checks that an authority, a certificate with its key, or all three can be used.
fn check_etcd_files(contents: &[FileContent]) -> Result<(), CertError> {
    let (ca, pair) = if contents.len() == 2 {
        (&[][..], contents)
    } else {
        contents.split_at(contents.len().min(1))
    };
    if let Some(ca) = ca.first() {
        CaBundle::from_pem(&ca.bytes).map_err(|why| ca.file.error(why))?;
    }
    CertKeyPair::from_contents(pair).map_or(Ok(()), |pair| tls::check_pair(&pair))
}

/// Returns the files of the certificate by which extension servers know this one; `None` if it has
/// none.
pub fn proxy_client_files(
    pair: Option<&CertKeyPair>,
    aggregator: &Arc<Aggregator>,
) -> Option<WatchedFiles> {
    let aggregator = aggregator.clone();
    Some(WatchedFiles::new(&pair?.files(), move |files| {
        if let Some(pair) = CertKeyPair::from_contents(files) {
            tls::check_pair(&pair).map_err(|why| why.to_string())?;
            aggregator.replace_cert(pair.into());
        }
        Ok::<_, String>(())
    }))
}

/// Returns the files of the clients of etcd, which reconnect when they change.
pub fn etcd_watched_files(files: &[FileContent], etcds: Vec<Arc<Etcd3>>) -> WatchedFiles {
    WatchedFiles::new(files, move |files| {
        check_etcd_files(files).map_err(|why| why.to_string())?;
        for etcd in &etcds {
            // Nothing waits in there: connections come up when they are needed.
            Handle::current()
                .block_on(etcd.reconnect())
                .map_err(|why| why.to_string())?;
        }
        Ok::<_, String>(())
    })
}

/// Listens for SIGHUP, which from then on no longer ends the process.
pub struct SighupListener {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl SighupListener {
    /// Listens from now on.
    pub fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Self {
                signal: signal(SignalKind::hangup()).ok(),
            }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Hears nothing: what the signal does is the process's own affair.
    pub fn deaf() -> Self {
        Self {
            #[cfg(unix)]
            signal: None,
        }
    }

    /// Waits for the next one.
    pub async fn received(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use std::fs;
    use std::path::Path;

    use async_trait::async_trait;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    use super::super::authentication;
    use super::*;
    use crate::auth::ObjectSource;
    use crate::auth::authn::jwt::Ref;
    use crate::auth::authn::service_account::TokenSpec;
    use crate::auth::authn::{Authenticator, Credentials, Peer};
    use crate::meta::{Gvr, Object, json};
    use crate::options::flags::{Command, parse};
    use crate::storage::embedded::Embedded;

    /// Returns one service account for every name.
    struct Accounts;

    #[async_trait]
    impl ObjectSource for Accounts {
        async fn get(&self, _: &Gvr, namespace: &str, name: &str) -> Option<Object> {
            Object::from_value(
                json!({"metadata": {"namespace": namespace, "name": name, "uid": "u"}}),
            )
        }
    }

    /// The parts of a server that reloading needs.
    struct World {
        folder: tempfile::TempDir,
        clock: Clock,
        serving: Arc<ServingCertificates>,
        authentication: Authentication,
        trusted: watch::Sender<Authorities>,
        reloader: Reloader,
    }

    fn world(flags: impl Fn(&Path) -> Vec<String>) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let args = flags(folder.path())
            .into_iter()
            .chain([format!("--data-dir={}", data.display())]);
        let Ok(Command::Run(flags)) = parse(args) else {
            panic!("flags")
        };
        let config = Arc::new(Config::from_flags(&flags).expect("a configuration"));
        let (clock, advertise) = (
            Clock::manual(Timestamp::now()),
            SocketAddr::from(([10, 0, 0, 1], 6443)),
        );
        let deps = ServerDeps {
            identity: Arc::new(
                certificates::prepare(&config, advertise.ip(), clock.now()).expect("an identity"),
            ),
            config: config.clone(),
            advertise,
            storage: Arc::new(Embedded::open(&data).expect("a store")),
            reflector: None,
            storage_overrides: Default::default(),
            health: Arc::default(),
            tracer: Default::default(),
            auditor: None,
            shutdown: Shutdown::new(),
            egress: Default::default(),
        };
        let (_, serving) = tls::set_up(&config.serving, &deps.identity.serving).expect("TLS");
        let authentication =
            authentication::build(&deps, Arc::new(Accounts), &clock, "server", None);
        let (authentication, _) = authentication.expect("authentication");
        let trusted = watch::Sender::new(Authorities::default());
        let reloader = Reloader::new(
            &deps,
            advertise,
            &serving,
            &authentication,
            &trusted,
            clock.clone(),
        );
        World {
            folder,
            clock,
            serving,
            authentication,
            trusted,
            reloader,
        }
    }

    impl World {
        fn path(&self, name: &str) -> std::path::PathBuf {
            self.folder.path().join(name)
        }

        /// The user of a connection, if it is let in.
        async fn user(&self, peer: &Peer) -> Option<String> {
            let headers = http::HeaderMap::new();
            let found = self
                .authentication
                .chain
                .authenticate(&Credentials {
                    path: "/",
                    headers: &headers,
                    peer,
                })
                .await;
            found.ok().flatten().map(|known| known.user.name.clone())
        }

        /// Looks at the files as often as it takes until what they hold is in use.
        fn reload(&mut self) {
            if self.reloader.check() {
                assert!(!self.reloader.check(), "nothing has changed meanwhile");
            }
        }

        async fn knows(&self, token: &str) -> bool {
            self.authentication.chain.review(token, &[]).await.is_ok()
        }

        fn token(&self) -> String {
            let spec = TokenSpec {
                namespace: "ns",
                account: Ref {
                    name: "bob".to_owned(),
                    uid: "u".to_owned(),
                },
                expiration_seconds: 3600,
                ..TokenSpec::default()
            };
            self.authentication
                .issuer
                .as_ref()
                .expect("an issuer")
                .issue(&spec)
                .now_or_never()
                .expect("no plugin")
                .expect("a token")
                .token
        }
    }

    /// Writes an authority; returns a connection of a client that it knows.
    fn authority(path: &Path, user: &str) -> Peer {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        fs::write(path, ca.self_signed(&key).expect("a certificate").pem()).expect("written");
        let mut leaf = CertificateParams::default();
        leaf.distinguished_name = rcgen::DistinguishedName::new();
        leaf.distinguished_name.push(DnType::CommonName, user);
        let leaf = leaf
            .signed_by(&KeyPair::generate().expect("a key"), &Issuer::new(ca, key))
            .expect("a certificate");
        Peer::new(vec![leaf.der().clone()])
    }

    /// Writes a serving certificate and its key.
    fn pair(cert: &Path, key: &Path) {
        let made = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["example.com".to_owned()]).expect("names");
        fs::write(
            cert,
            params.self_signed(&made).expect("a certificate").pem(),
        )
        .expect("written");
        fs::write(key, made.serialize_pem()).expect("written");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn authorities_follow_the_link_of_a_volume_and_a_bad_file_changes_nothing() {
        use std::os::unix::fs::symlink;
        let mut world = world(|folder| {
            // As the kubelet lays out a volume: the file leads through a link that is turned.
            for version in ["one", "two"] {
                fs::create_dir(folder.join(version)).expect("a folder");
            }
            symlink("one", folder.join("..data")).expect("a link");
            symlink("..data/ca.crt", folder.join("ca.crt")).expect("a link");
            authority(&folder.join("one/ca.crt"), "unused");
            vec![
                format!("--client-ca-file={}", folder.join("ca.crt").display()),
                "--anonymous-auth=false".to_owned(),
            ]
        });
        let alice = authority(&world.path("ca.crt"), "alice");
        assert_eq!(world.user(&alice).await, None);
        world.reload();
        // What was refused on a connection is looked at again, too.
        assert_eq!(world.user(&alice).await.as_deref(), Some("alice"));

        let bob = authority(&world.path("two/ca.crt"), "bob");
        assert_eq!(world.user(&bob).await, None);
        symlink("two", world.path("..turned")).expect("a link");
        fs::rename(world.path("..turned"), world.path("..data")).expect("turned");
        world.reload();
        assert_eq!(
            (world.user(&alice).await, world.user(&bob).await.as_deref()),
            (None, Some("bob"))
        );
        let told = fs::read_to_string(world.path("ca.crt")).expect("a file");
        assert_eq!(world.trusted.borrow().clients, told);

        for broken in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            fs::write(world.path("ca.crt"), broken).expect("written");
            world.reload();
            assert_eq!(world.user(&bob).await.as_deref(), Some("bob"));
        }
        fs::remove_file(world.path("two/ca.crt")).expect("removed");
        world.reload();
        assert_eq!(world.user(&bob).await.as_deref(), Some("bob"));
        assert_eq!(world.trusted.borrow().clients, told);
    }

    #[tokio::test]
    async fn an_authority_of_clients_does_not_become_that_of_any_front_proxy() {
        let mut world = world(|folder| {
            authority(&folder.join("ca.crt"), "unused");
            authority(&folder.join("proxy.crt"), "unused");
            let flag = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
            vec![
                flag("client-ca-file", "ca.crt"),
                flag("requestheader-client-ca-file", "proxy.crt"),
                "--anonymous-auth=false".to_owned(),
            ]
        });
        let alice = authority(&world.path("ca.crt"), "alice");
        fs::copy(world.path("ca.crt"), world.path("proxy.crt")).expect("copied");
        world.reload();
        // She is a client, and cannot name others.
        assert_eq!(world.user(&alice).await.as_deref(), Some("alice"));
        let mut headers = http::HeaderMap::new();
        headers.insert("x-remote-user", http::HeaderValue::from_static("root"));
        let found = world
            .authentication
            .chain
            .authenticate(&Credentials {
                path: "/",
                headers: &headers,
                peer: &alice,
            })
            .await;
        assert_eq!(found.expect("let in").expect("a user").user.name, "alice");
        assert_eq!(world.trusted.borrow().front_proxy, "");

        // It is taken as soon as the clients' authority, which spoke against it, is another.
        let bob = authority(&world.path("ca.crt"), "bob");
        world.reload();
        world.reload();
        assert_eq!(
            (world.user(&alice).await, world.user(&bob).await.as_deref()),
            (None, Some("bob"))
        );
        let proxy = fs::read_to_string(world.path("proxy.crt")).expect("a file");
        assert_eq!(world.trusted.borrow().front_proxy, proxy);
    }

    #[tokio::test]
    async fn tokens_are_revoked_and_granted() {
        let mut world = world(|folder| {
            fs::write(folder.join("tokens.csv"), "one,alice,u1\n").expect("written");
            vec![format!(
                "--token-auth-file={}",
                folder.join("tokens.csv").display()
            )]
        });
        assert!(world.knows("one").await && !world.knows("two").await);
        fs::write(world.path("tokens.csv"), "two,alice,u1\n").expect("written");
        assert!(world.knows("one").await);
        world.reload();
        assert!(!world.knows("one").await && world.knows("two").await);
        for broken in ["three\n", "", "\n"] {
            fs::write(world.path("tokens.csv"), broken).expect("written");
            world.reload();
            assert!(world.knows("two").await, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn a_token_file_that_is_being_written_is_not_read() {
        let mut world = world(|folder| {
            fs::write(folder.join("tokens.csv"), "one,alice,u1\ntwo,bob,u2\n").expect("written");
            let path = folder.join("tokens.csv");
            vec![format!("--token-auth-file={}", path.display())]
        });
        // Its first line is there, as a file of its own would be.
        fs::write(world.path("tokens.csv"), "one,alice,u1\n").expect("written");
        assert!(world.reloader.check());
        assert!(world.knows("two").await, "bob is not revoked");
        let whole = "one,alice,u1\ntwo,bob,u2\nthree,eve,u3\n";
        fs::write(world.path("tokens.csv"), whole).expect("written");
        assert!(world.reloader.check());
        assert!(world.knows("two").await && !world.knows("three").await);
        assert!(!world.reloader.check());
        assert!(world.knows("two").await && world.knows("three").await);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_pipe_is_read_once() {
        let mut world = world(|folder| {
            let (pipe, text) = (folder.join("tokens.pipe"), "one,alice,u1\n");
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.is_ok_and(|status| status.success()), "mkfifo");
            let writer = pipe.clone();
            std::thread::spawn(move || fs::write(writer, text));
            vec![format!("--token-auth-file={}", pipe.display())]
        });
        assert!(world.knows("one").await);
        // Nobody writes any more: reading would wait for ever.
        world.reload();
        assert!(world.knows("one").await);
    }

    #[tokio::test]
    async fn keys_of_service_accounts_are_rotated() {
        let key = || KeyPair::generate().expect("a key").serialize_pem();
        let mut world = world(|folder| {
            fs::write(folder.join("sa.key"), key()).expect("written");
            fs::copy(folder.join("sa.key"), folder.join("sa.pub")).expect("copied");
            let flag = |name: &str, file: &str| {
                format!("--service-account-{name}={}", folder.join(file).display())
            };
            vec![
                flag("key-file", "sa.pub"),
                flag("signing-key-file", "sa.key"),
                "--service-account-issuer=https://example.com".to_owned(),
            ]
        });
        let documents = |world: &World| {
            world
                .authentication
                .discovery
                .load_full()
                .expect("documents")
                .keys
                .clone()
        };
        let (old, shown) = (world.token(), documents(&world));
        assert!(world.knows(&old).await);

        // First both are accepted, then the new one signs, then the old one goes.
        let (new, both) = (
            key(),
            fs::read_to_string(world.path("sa.pub")).expect("a file"),
        );
        fs::write(world.path("sa.pub"), format!("{new}{both}")).expect("written");
        world.reload();
        assert!(world.knows(&old).await);
        assert_ne!(documents(&world), shown);
        fs::write(world.path("sa.key"), &new).expect("written");
        world.reload();
        let fresh = world.token();
        assert!(world.knows(&old).await && world.knows(&fresh).await);
        fs::write(world.path("sa.pub"), &new).expect("written");
        world.reload();
        assert!(!world.knows(&old).await && world.knows(&fresh).await);
        fs::write(world.path("sa.pub"), "no key").expect("written");
        fs::write(world.path("sa.key"), "no key").expect("written");
        world.reload();
        assert!(world.knows(&fresh).await && world.knows(&world.token()).await);
    }

    #[test]
    fn a_serving_certificate_changes_together_with_its_key() {
        let mut world = world(|folder| {
            for name in ["default", "named"] {
                pair(
                    &folder.join(format!("{name}.crt")),
                    &folder.join(format!("{name}.key")),
                );
            }
            let path = |name: &str| folder.join(name).display().to_string();
            vec![
                format!("--tls-cert-file={}", path("default.crt")),
                format!("--tls-private-key-file={}", path("default.key")),
                format!(
                    "--tls-sni-cert-key={},{}:example.org",
                    path("named.crt"),
                    path("named.key")
                ),
            ]
        });
        let shown = |world: &World| world.serving.files();
        for (at, name) in ["default", "named"].into_iter().enumerate() {
            let before = shown(&world);
            let (cert, key) = (
                world.path(&format!("{name}.crt")),
                world.path(&format!("{name}.key")),
            );
            pair(&world.path("new.crt"), &world.path("new.key"));
            fs::copy(world.path("new.crt"), &cert).expect("copied");
            world.reload();
            assert_eq!(shown(&world), before, "the certificate without its key");
            fs::copy(world.path("new.key"), &key).expect("copied");
            world.reload();
            let after = shown(&world);
            assert_eq!(after[at][0].bytes, fs::read(&cert).expect("a file"));
            assert_eq!((after.len(), &after[1 - at]), (2, &before[1 - at]));
        }
    }

    #[test]
    fn the_servers_own_certificates_are_renewed_while_it_runs() {
        let mut world = world(|_| Vec::new());
        let (before, kubeconfig) = (world.serving.files(), world.path("data/admin.kubeconfig"));
        world.reload();
        assert!(!kubeconfig.exists());
        world.clock.advance(Duration::from_secs(300 * 24 * 60 * 60));
        world.reload();
        let after = world.serving.files();
        assert_ne!(after, before);
        let der = CertificateDer::from_pem_slice(&after[0][0].bytes).expect("a certificate");
        use x509_parser::prelude::FromDer;
        let (_, parsed) =
            x509_parser::certificate::X509Certificate::from_der(&der).expect("a certificate");
        assert!(
            parsed.validity().not_after.timestamp()
                > world.clock.now().as_second() + 300 * 24 * 60 * 60
        );
        let written = fs::read_to_string(&kubeconfig).expect("written anew");
        assert!(
            written.contains("server: https://10.0.0.1:6443\n"),
            "{written}"
        );
        fs::remove_file(&kubeconfig).expect("removed");
        world.clock.advance(Duration::from_secs(24 * 60 * 60));
        world.reload();
        assert!(!kubeconfig.exists(), "nothing was renewed");
    }
}
