//! The flags of auditing, typed and checked (apiserver `server/options/audit.go`).

use std::path::PathBuf;
use std::time::Duration;

use super::flags::{FlagError, Flags};
use crate::audit::{BatchSettings, Format, Mode, RotationSettings, TruncateSettings};

/// The only version of events.
const VERSION: &str = "audit.k8s.io/v1";

/// The configuration of auditing.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditConfig {
    /// Nothing is audited without one.
    pub policy: Option<PathBuf>,
    pub log: Option<LogConfig>,
    pub webhook: Option<WebhookConfig>,
}

/// The configuration of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `-` for standard output.
    pub path: PathBuf,
    pub format: Format,
    pub rotation: RotationSettings,
    pub strategy: Strategy,
}

/// The configuration of the webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookConfig {
    /// A kubeconfig file.
    pub file: PathBuf,
    pub initial_backoff: Duration,
    pub strategy: Strategy,
}

/// The way that a backend gets its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    pub mode: Mode,
    pub batch: BatchSettings,
    /// `None` if events are never truncated.
    pub truncate: Option<TruncateSettings>,
}

impl AuditConfig {
    /// Reads the flags. Those of a backend that is not used may say anything.
    ///
    /// # Errors
    /// Upstream's text for the first that is wrong.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let path = |flag: &str| {
            Some(flags.text(flag))
                .filter(|text| !text.is_empty())
                .map(PathBuf::from)
        };
        let (log, file) = (path("audit-log-path"), path("audit-webhook-config-file"));
        Ok(Self {
            policy: path("audit-policy-file"),
            log: log.map(|path| log_config(flags, path)).transpose()?,
            webhook: file.map(|file| webhook_config(flags, file)).transpose()?,
        })
    }
}

fn log_config(flags: &Flags, path: PathBuf) -> Result<LogConfig, FlagError> {
    let strategy = strategy(flags, "log", false)?;
    check_version(flags.text("audit-log-version"))?;
    let format = match flags.text("audit-log-format") {
        "json" => Format::Json,
        "legacy" => Format::Legacy,
        other => {
            return Err(FlagError::new(format!(
                "invalid audit log format {other}, allowed formats are [\"legacy\" \"json\"]"
            )));
        }
    };
    let limit = |flag: &str| {
        let value = flags.int(flag);
        u64::try_from(value)
            .map_err(|_| FlagError::new(format!("--{flag} {value} can't be a negative number")))
    };
    let (days, backups) = (limit("audit-log-maxage")?, limit("audit-log-maxbackup")?);
    let megabytes = limit("audit-log-maxsize")?;
    Ok(LogConfig {
        path,
        format,
        rotation: RotationSettings {
            max_bytes: megabytes.saturating_mul(1 << 20),
            max_age_days: days,
            max_backups: usize::try_from(backups).unwrap_or(usize::MAX),
            compress: flags.switch("audit-log-compress"),
        },
        strategy,
    })
}

fn webhook_config(flags: &Flags, file: PathBuf) -> Result<WebhookConfig, FlagError> {
    let strategy = strategy(flags, "webhook", true)?;
    check_version(flags.text("audit-webhook-version"))?;
    Ok(WebhookConfig {
        file,
        initial_backoff: flags.duration("audit-webhook-initial-backoff"),
        strategy,
    })
}

fn check_version(version: &str) -> Result<(), FlagError> {
    if version == VERSION {
        return Ok(());
    }
    let why = "invalid group version, allowed versions are [\"audit.k8s.io/v1\"]";
    Err(FlagError::new(why))
}

/// Reads the flags about the events of one backend.
fn strategy(flags: &Flags, plugin: &str, concurrent: bool) -> Result<Strategy, FlagError> {
    let flag = |name: &str| format!("audit-{plugin}-{name}");
    let mode = flags.text(&flag("mode"));
    let known = Mode::of(mode).ok_or_else(|| {
        FlagError::new(format!(
            "invalid audit {plugin} mode {mode}, allowed modes are \"batch,blocking,blocking-strict\""
        ))
    })?;
    let positive = |name: &str, what: &str| {
        let value = flags.int(&flag(name));
        let fits = usize::try_from(value).ok().filter(|value| *value > 0);
        fits.ok_or_else(|| not_positive(plugin, what, &value.to_string()))
    };
    let batch = match known {
        Mode::Batch => BatchSettings {
            buffer_size: positive("batch-buffer-size", "buffer size")?,
            max_size: positive("batch-max-size", "max batch size")?,
            max_wait: flags.duration(&flag("batch-max-wait")),
            throttle: throttle(flags, plugin)?,
            concurrent,
        },
        // They are not looked at.
        Mode::Blocking | Mode::BlockingStrict => BatchSettings {
            buffer_size: 1,
            max_size: 1,
            max_wait: Duration::ZERO,
            throttle: None,
            concurrent,
        },
    };
    Ok(Strategy {
        mode: known,
        batch,
        truncate: truncate(flags, plugin)?,
    })
}

fn not_positive(plugin: &str, what: &str, value: &str) -> FlagError {
    FlagError::new(format!(
        "invalid audit batch {plugin} {what} {value}, must be a positive number"
    ))
}

fn throttle(flags: &Flags, plugin: &str) -> Result<Option<(f64, f64)>, FlagError> {
    if !flags.switch(&format!("audit-{plugin}-batch-throttle-enable")) {
        return Ok(None);
    }
    let qps = flags.text(&format!("audit-{plugin}-batch-throttle-qps"));
    let burst = flags.int(&format!("audit-{plugin}-batch-throttle-burst"));
    let rate: f64 = qps.parse().unwrap_or(0.0);
    if rate.is_nan() || rate <= 0.0 {
        return Err(not_positive(plugin, "throttle QPS", qps));
    }
    if burst <= 0 {
        return Err(not_positive(plugin, "throttle burst", &burst.to_string()));
    }
    Ok(Some((rate, burst as f64)))
}

fn truncate(flags: &Flags, plugin: &str) -> Result<Option<TruncateSettings>, FlagError> {
    let event = flags.int(&format!("audit-{plugin}-truncate-max-event-size"));
    let batch = flags.int(&format!("audit-{plugin}-truncate-max-batch-size"));
    if event <= 0 {
        return Err(FlagError::new(format!(
            "invalid audit truncate {plugin} max event size {event}, must be a positive number"
        )));
    }
    if batch < event {
        return Err(FlagError::new(format!(
            "invalid audit truncate {plugin} max batch size {batch}, must be greater than max event size ({event})"
        )));
    }
    let enabled = flags.switch(&format!("audit-{plugin}-truncate-enabled"));
    let bytes = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
    Ok(enabled.then(|| TruncateSettings {
        max_event_bytes: bytes(event),
        max_batch_bytes: bytes(batch),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::flags::{Command, parse};

    fn config(args: &[&str]) -> Result<AuditConfig, String> {
        let flags = match parse(args.iter().map(ToString::to_string)) {
            Ok(Command::Run(flags)) => flags,
            Ok(other) => panic!("{other:?}"),
            Err(why) => return Err(why.to_string()),
        };
        AuditConfig::from_flags(&flags).map_err(|why| why.to_string())
    }

    #[test]
    fn flags_say_where_events_go_and_how() {
        let none = config(&[]).expect("understood");
        assert!(none.policy.is_none() && none.log.is_none() && none.webhook.is_none());
        let given = config(&[
            "--audit-policy-file=/p",
            "--audit-log-path=-",
            "--audit-log-format=legacy",
            "--audit-log-version=audit.k8s.io/v1",
            "--audit-log-maxage=1",
            "--audit-log-maxbackup=2",
            "--audit-log-maxsize=3",
            "--audit-log-compress=true",
            "--audit-log-mode=batch",
            "--audit-log-batch-buffer-size=4",
            "--audit-log-batch-max-size=5",
            "--audit-log-batch-max-wait=6s",
            "--audit-log-batch-throttle-enable=true",
            "--audit-log-batch-throttle-qps=0.5",
            "--audit-log-batch-throttle-burst=7",
            "--audit-log-truncate-enabled=true",
            "--audit-log-truncate-max-event-size=8",
            "--audit-log-truncate-max-batch-size=9",
            "--audit-webhook-config-file=/w",
            "--audit-webhook-version=audit.k8s.io/v1",
            "--audit-webhook-initial-backoff=10s",
            "--audit-webhook-mode=batch",
            "--audit-webhook-batch-buffer-size=11",
            "--audit-webhook-batch-max-size=12",
            "--audit-webhook-batch-max-wait=13s",
            "--audit-webhook-batch-throttle-enable=true",
            "--audit-webhook-batch-throttle-qps=14",
            "--audit-webhook-batch-throttle-burst=15",
            "--audit-webhook-truncate-enabled=true",
            "--audit-webhook-truncate-max-event-size=16",
            "--audit-webhook-truncate-max-batch-size=17",
        ])
        .expect("understood");
        let (log, webhook) = (given.log.expect("a log"), given.webhook.expect("a webhook"));
        assert_eq!(log.format, Format::Legacy);
        let rotation = RotationSettings {
            max_bytes: 3 << 20,
            max_age_days: 1,
            max_backups: 2,
            compress: true,
        };
        assert_eq!(log.rotation, rotation);
        let batch = |buffer_size, max_size, seconds, throttle, concurrent| BatchSettings {
            buffer_size,
            max_size,
            max_wait: Duration::from_secs(seconds),
            throttle: Some(throttle),
            concurrent,
        };
        assert_eq!(log.strategy.batch, batch(4, 5, 6, (0.5, 7.0), false));
        assert_eq!(
            webhook.strategy.batch,
            batch(11, 12, 13, (14.0, 15.0), true)
        );
        assert_eq!(webhook.initial_backoff, Duration::from_secs(10));
        let truncate = |max_event_bytes, max_batch_bytes| {
            Some(TruncateSettings {
                max_event_bytes,
                max_batch_bytes,
            })
        };
        assert_eq!(log.strategy.truncate, truncate(8, 9));
        assert_eq!(webhook.strategy.truncate, truncate(16, 17));
    }

    #[test]
    fn wrong_flags_are_refused_with_upstream_s_texts() {
        for (flag, why) in [
            (
                "--audit-log-mode=x",
                "invalid audit log mode x, allowed modes are \"batch,blocking,blocking-strict\"",
            ),
            (
                "--audit-log-format=x",
                "invalid audit log format x, allowed formats are [\"legacy\" \"json\"]",
            ),
            (
                "--audit-log-version=audit.k8s.io/v1beta1",
                "invalid group version, allowed versions are [\"audit.k8s.io/v1\"]",
            ),
            (
                "--audit-log-maxage=-1",
                "--audit-log-maxage -1 can't be a negative number",
            ),
            (
                "--audit-log-maxbackup=-1",
                "--audit-log-maxbackup -1 can't be a negative number",
            ),
            (
                "--audit-log-maxsize=-1",
                "--audit-log-maxsize -1 can't be a negative number",
            ),
            (
                "--audit-log-truncate-max-event-size=0",
                "invalid audit truncate log max event size 0, must be a positive number",
            ),
            (
                "--audit-log-truncate-max-batch-size=5",
                "invalid audit truncate log max batch size 5, must be greater than max event size (102400)",
            ),
            (
                "--audit-webhook-batch-buffer-size=0",
                "invalid audit batch webhook buffer size 0, must be a positive number",
            ),
            (
                "--audit-webhook-batch-max-size=0",
                "invalid audit batch webhook max batch size 0, must be a positive number",
            ),
            (
                "--audit-webhook-batch-throttle-qps=0",
                "invalid audit batch webhook throttle QPS 0, must be a positive number",
            ),
            (
                "--audit-webhook-batch-throttle-burst=0",
                "invalid audit batch webhook throttle burst 0, must be a positive number",
            ),
        ] {
            let backends = ["--audit-log-path=/l", "--audit-webhook-config-file=/w"];
            let found = config(&[&backends[..], &[flag]].concat());
            assert_eq!(found.expect_err("refused"), why, "{flag}");
        }
        assert!(config(&["--audit-log-mode=x"]).is_ok(), "there is no log");
    }
}
