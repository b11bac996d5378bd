//! Encryption at rest: the configuration that the server starts with, its health checks, and the
//! changes of its file (apiserver `server/options/etcd.go`,
//! `server/options/encryptionconfig/controller`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::reload::{INTERVAL, SETTLE_INTERVAL, SighupListener};
use super::shutdown::Shutdown;
use crate::base::clock::Clock;
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::controlplane::bootstrap;
use crate::options::config::EncryptionFile;
use crate::storage::encryption::{
    self, Configuration, Settings, Transformers, read_file, record_configuration, record_reload,
};
use crate::telemetry::health::{Health, Scope};

/// The health check of all plugins.
const CHECK: &str = "kms-providers";
/// The endpoints of the check: a process is not to be restarted for the failure of a plugin.
const SCOPE: Scope = Scope {
    live: false,
    ready: true,
    health: true,
};
/// The time for which the outcome of a check is reused.
const FRESH: Duration = Duration::from_secs(1);
/// The time that the plugins of a changed configuration have to become healthy, and the pause
/// between two looks.
const HEALTHY_WITHIN: Duration = Duration::from_secs(10);
const HEALTH_PAUSE: Duration = Duration::from_millis(100);

/// Adds the check of all plugins, or one for each where there are such of version 1 and nothing
/// changes.
fn add_checks(transformers: &Arc<Transformers>, reload: bool, health: &Health) {
    let (configuration, checks) = (transformers.current(), transformers.clone());
    let count = configuration.plugin_count();
    if !reload && configuration.has_old_plugins() {
        for at in 0..count {
            let checks = checks.clone();
            health.add_shared(format!("kms-provider-{at}"), SCOPE, FRESH, move || {
                let current = checks.current();
                async move { current.check_plugin(at).await }
            });
        }
    } else if reload || count > 0 {
        health.add_shared(CHECK, SCOPE, FRESH, move || {
            let current = checks.current();
            async move { current.check().await }
        });
    }
}

/// The encryption of a server.
pub struct Encryption {
    path: PathBuf,
    settings: Settings,
    transformers: Arc<Transformers>,
}

impl Encryption {
    /// Reads the configuration, adds its health check, and follows its changes if the flag says
    /// so.
    ///
    /// # Errors
    /// The configuration is wrong: says where.
    pub async fn start(
        file: &EncryptionFile,
        kms_v1: bool,
        hostname: &str,
        health: &Health,
        shutdown: &Shutdown,
    ) -> Result<Arc<Transformers>, String> {
        let settings = Settings {
            reload: file.reload,
            kms_v1,
            server_hash: encryption::hash(&bootstrap::identity(hostname)),
            clock: Clock::system(),
        };
        let configuration = Configuration::load(&file.path, &settings).await?;
        record_configuration(&settings.server_hash, &configuration.hash, None);
        let transformers = Transformers::new(configuration);
        add_checks(&transformers, file.reload, health);
        if file.reload {
            let encryption = Self {
                path: file.path.clone(),
                settings,
                transformers: transformers.clone(),
            };
            tokio::spawn(encryption.follow(SighupListener::listen(), shutdown.clone()));
        }
        Ok(transformers)
    }

    /// Looks at the file again and again, and at once when the process gets SIGHUP.
    async fn follow(self, mut hangup: SighupListener, shutdown: Shutdown) {
        let reloading = FailureTracker::new(format!(
            "reading the encryption configuration {} again (the one before stays in use)",
            self.path.display()
        ));
        loop {
            tokio::select! {
                () = sleep(INTERVAL) => {}
                () = hangup.received() => {}
                () = shutdown.drained() => return,
            }
            let reload = catch_panic("reading the encryption configuration", self.reload());
            let succeeded = match reload.await.flatten() {
                Ok(false) => continue,
                Ok(true) => {
                    tracing::info!("{}: read again, for it has changed", self.path.display());
                    reloading.record_success();
                    true
                }
                Err(why) => {
                    reloading.record_failure(&why);
                    false
                }
            };
            let now = self.settings.clock.now().as_second();
            record_reload(&self.settings.server_hash, succeeded, now);
        }
    }

    /// Brings the file into force if it has changed and is right. Reports whether it did.
    async fn reload(&self) -> Result<bool, String> {
        let before = self.transformers.current().hash.clone();
        let (_, mut hash) = read_file(&self.path)?;
        if hash == before {
            return Ok(false);
        }
        // A file that is being written is waited for.
        loop {
            sleep(SETTLE_INTERVAL).await;
            let (_, now) = read_file(&self.path)?;
            if now == hash {
                break;
            }
            hash = now;
        }
        let configuration = Configuration::load(&self.path, &self.settings).await?;
        if configuration.hash == before {
            return Ok(false);
        }
        let end = Instant::now() + HEALTHY_WITHIN;
        while let Err(why) = configuration.check().await {
            if Instant::now() > end {
                return Err(format!("health check for new transformers failed: {why}"));
            }
            sleep(HEALTH_PAUSE).await;
        }
        let server = &self.settings.server_hash;
        record_configuration(server, &configuration.hash, Some(&before));
        self.transformers.replace(configuration);
        Ok(true)
    }
}
