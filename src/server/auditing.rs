//! The auditing of a server: its policy and backends (apiserver `server/options/audit.go`).

use std::sync::Arc;
use std::time::Duration;

use crate::audit::{
    Auditor, Backend, Blocking, Buffered, Exporter, LogBackend, LogFile, Mode, Policy, Truncate,
    Union, WebhookBackend,
};
use crate::base::clock::Clock;
use crate::base::dial::{Egress, Network};
use crate::options::audit::{AuditConfig, LogConfig, Strategy, WebhookConfig};
use crate::webhook::{Remote, RetryDelays};

/// The time that the webhook has for each answer (apiserver `util/webhook`).
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the auditing of a server; `None` if nothing is to be audited, or nowhere. Must be called
/// in a runtime.
///
/// # Errors
/// The policy or the file of the webhook is wrong, or the log cannot be written.
pub fn start(
    config: &AuditConfig,
    egress: &Egress,
    clock: &Clock,
) -> Result<Option<Arc<Auditor>>, String> {
    let policy = config.policy.as_deref().map(Policy::load).transpose();
    let policy = policy.map_err(|why| format!("loading audit policy file: {why}"))?;
    let mut backends = Vec::new();
    if let Some(log) = &config.log {
        let exporter = open_log(log, clock)?;
        backends.push(backend(exporter, &log.strategy));
    }
    if let Some(webhook) = config.webhook.as_ref().filter(|_| policy.is_some()) {
        let exporter = open_webhook(webhook, egress)?;
        backends.push(backend(exporter, &webhook.strategy));
    }
    let Some(policy) = policy else {
        if config.log.is_some() || config.webhook.is_some() {
            tracing::info!("No audit policy file provided, no events will be recorded");
        }
        return Ok(None);
    };
    Ok(Union::of(backends).map(|backend| Auditor::new(policy, backend, clock.clone())))
}

fn open_log(config: &LogConfig, clock: &Clock) -> Result<LogBackend, String> {
    let file = (config.path.as_os_str() != "-")
        .then(|| LogFile::open(&config.path, config.rotation, clock.clone()))
        .transpose()
        .map_err(|why| format!("ensureLogFile: open {}: {why}", config.path.display()))?;
    Ok(LogBackend::new(file, config.format))
}

fn open_webhook(config: &WebhookConfig, egress: &Egress) -> Result<WebhookBackend, String> {
    let remote = Remote::read(&config.file, WEBHOOK_TIMEOUT)
        .map_err(|why| format!("initializing audit webhook: {why}"))?
        .with_dialer(egress.dialer(Network::ControlPlane));
    let delays = RetryDelays::starting_at(config.initial_backoff);
    Ok(WebhookBackend::new(remote, delays))
}

/// Returns the backend around an exporter.
fn backend(exporter: impl Exporter + 'static, strategy: &Strategy) -> Box<dyn Backend> {
    let backend: Box<dyn Backend> = match strategy.mode {
        Mode::Batch => Box::new(Buffered::start(exporter, strategy.batch.clone())),
        Mode::Blocking => Box::new(Blocking::new(exporter, false)),
        Mode::BlockingStrict => Box::new(Blocking::new(exporter, true)),
    };
    match strategy.truncate {
        Some(settings) => Box::new(Truncate::new(backend, settings)),
        None => backend,
    }
}
