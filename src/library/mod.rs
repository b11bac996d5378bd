//! Servers inside another program: the library's interface.

mod builder;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub use builder::Builder;

use crate::options::certificates::{self, Admin};
use crate::options::config::{Config, Shutdown as Leaving};
use crate::server::reload::SighupListener;
use crate::server::run::{self, RunError};
use crate::server::shutdown::Shutdown;

/// The time that a server has to become ready once it listens; it takes milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which a server that starts is asked whether it is ready.
const READY_INTERVAL: Duration = Duration::from_millis(1);
/// The time that blocking work has left when everything else has ended.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a server did not start, or ended badly.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl From<RunError> for Error {
    fn from(why: RunError) -> Self {
        Self(why.to_string())
    }
}

/// A Kubernetes API server that runs inside this program, on threads of its own.
///
/// Each server has its own port, store, certificates, feature gates and watch caches, so that any
/// number of them run side by side. These few things belong to the process and are shared:
///
/// - `/metrics`: counters are the sums of all servers, gauges show what a server set last;
/// - the log: servers write `tracing` events to the subscriber of the program. Release builds of
///   this crate compile `tracing` with the levels up to `DEBUG`;
/// - panics, signals and the limit on open files, which are all left as the program has them;
/// - caches of what is the same for all: the schema of the built-in types, and compiled patterns.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = keelson::Server::builder().start().await?;
/// println!("{} trusts\n{}", server.url(), server.kubeconfig().unwrap_or_default());
/// server.stop().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
///
/// A server that is dropped ends as well, but nobody waits for it: requests are cut off, and its
/// folder can be used again a moment later.
pub struct Server {
    running: Running,
    address: SocketAddr,
    admin: Option<Admin>,
}

/// The threads of a server.
struct Running {
    /// `None` once they have been ended.
    runtime: Option<Runtime>,
    shutdown: Shutdown,
    leaving: Leaving,
    request_timeout: Duration,
    serving: Option<JoinHandle<Result<(), RunError>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The facts about a server once it is ready.
struct Ready {
    address: SocketAddr,
    admin: Option<Admin>,
}

impl Server {
    /// Returns a builder of a server in memory, on any free port of the loopback interface.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a server and waits until it is ready.
    async fn start(config: Config) -> Result<Self, Error> {
        let runtime = run::runtime(config.worker_threads).map_err(RunError::from)?;
        let (shutdown, leaving) = (Shutdown::new(), config.shutdown.clone());
        let request_timeout = config.requests.timeout;
        let (tell, ready) = oneshot::channel();
        let serving = runtime.spawn(serve(config, shutdown.clone(), tell));
        let mut running = Running {
            runtime: Some(runtime),
            shutdown,
            leaving,
            request_timeout,
            serving: Some(serving),
        };
        match ready.await {
            Ok(Ready { address, admin }) => Ok(Self {
                running,
                address,
                admin,
            }),
            // It has ended before it was ready.
            Err(_) => {
                running.end().await?;
                Err(Error("the server ended before it was ready".to_owned()))
            }
        }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL that a client on this machine reaches it at.
    pub fn url(&self) -> String {
        certificates::url(self.address)
    }

    /// Returns a kubeconfig of an administrator (group `system:masters`), with certificates and key
    /// in it; `None` if a client authority was given, whose key only its owner has.
    pub fn kubeconfig(&self) -> Option<String> {
        let admin = self.admin.as_ref()?;
        Some(admin.kubeconfig(self.address))
    }

    /// Returns the certificates to trust, in PEM; `None` where [`Server::kubeconfig`] is.
    pub fn certificate_authority(&self) -> Option<&str> {
        Some(&self.admin.as_ref()?.ca)
    }

    /// Returns the certificate of an administrator and its key, in PEM; `None` where
    /// [`Server::kubeconfig`] is.
    pub fn client_certificate(&self) -> Option<(&str, &str)> {
        let admin = self.admin.as_ref()?;
        Some((&admin.cert, &admin.key))
    }

    /// Returns the configuration of a kube-rs client, an administrator.
    ///
    /// # Errors
    /// A client authority was given, whose key only its owner has.
    #[cfg(feature = "kube")]
    pub async fn kube_config(&self) -> Result<kube::Config, Error> {
        let text = self
            .kubeconfig()
            .ok_or_else(|| Error("there is no administrator's certificate".to_owned()))?;
        let failed = |why: kube::config::KubeconfigError| Error(why.to_string());
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).map_err(failed)?;
        kube::Config::from_custom_kubeconfig(
            kubeconfig,
            &kube::config::KubeConfigOptions::default(),
        )
        .await
        .map_err(failed)
    }

    /// Stops it in an orderly way: requests that run are answered, watches end, and when this
    /// returns nothing of it is left and its folder is free.
    ///
    /// # Errors
    /// It had ended before, for the reason that is returned.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.running.end().await
    }
}

impl Running {
    async fn end(&mut self) -> Result<(), Error> {
        let Some(runtime) = self.runtime.take() else {
            return Ok(());
        };
        let (shutdown, leaving) = (self.shutdown.clone(), self.leaving.clone());
        let request_timeout = self.request_timeout;
        runtime.spawn(async move { shutdown.leave(&leaving, request_timeout).await });
        let outcome = match self.serving.take() {
            Some(serving) => serving.await,
            None => Ok(Ok(())),
        };
        // Waiting for threads is nothing for the threads of a runtime.
        let (tell, ended) = oneshot::channel();
        let last = move || {
            runtime.shutdown_timeout(LAST_TIMEOUT);
            // Nobody waits where the program ends, too.
            let _ = tell.send(());
        };
        thread::Builder::new()
            .name("keelson-stop".to_owned())
            .spawn(last)
            .map_err(RunError::from)?;
        let _ = ended.await;
        outcome
            .map_err(|why| Error(why.to_string()))?
            .map_err(Error::from)
    }
}

/// Runs a server until it is shut down, and tells when it is ready.
async fn serve(
    config: Config,
    shutdown: Shutdown,
    tell: oneshot::Sender<Ready>,
) -> Result<(), RunError> {
    let prepared = tokio::select! {
        prepared = run::prepare(config, &shutdown, SighupListener::deaf()) => prepared?,
        () = shutdown.stopped() => return Ok(()),
    };
    let ready = Ready {
        address: prepared.address,
        admin: prepared.admin.clone(),
    };
    let (health, registry) = (
        prepared.chain.health.clone(),
        prepared.chain.api.registry.clone(),
    );
    let (serving, begun) = (prepared.serve(shutdown.clone()), Instant::now());
    tokio::pin!(serving);
    loop {
        let answer = health.answer("/readyz", "").await;
        let failures = answer.filter(|answer| answer.status != 200);
        let Some(failures) = failures else { break };
        if begun.elapsed() > READY_TIMEOUT {
            shutdown.close();
            serving.await;
            return Err(RunError::NotReady(failures.body));
        }
        tokio::select! {
            () = &mut serving => return Ok(()),
            () = tokio::time::sleep(READY_INTERVAL) => {}
        }
    }
    // Where nobody listens, the server has been dropped and ends.
    let _ = tell.send(ready);
    serving.await;
    registry.close();
    Ok(())
}
