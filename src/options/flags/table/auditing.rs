//! Flags of the section "Auditing".

use super::{Flag, ignored, refused};
use crate::options::flags::Kind::{Duration, Int, Number, Switch, Text};

const NO_AUDIT: &str = "auditing is not implemented";
const NO_AUDIT_TUNING: &str = "it tunes auditing, which is not configured";

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    ignored(Int, "audit-log-batch-buffer-size", "10000", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-batch-max-size", "1", NO_AUDIT_TUNING),
    ignored(Duration, "audit-log-batch-max-wait", "0s", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-batch-throttle-burst", "0", NO_AUDIT_TUNING),
    ignored(Switch, "audit-log-batch-throttle-enable", "false", NO_AUDIT_TUNING),
    ignored(Number, "audit-log-batch-throttle-qps", "0", NO_AUDIT_TUNING),
    ignored(Switch, "audit-log-compress", "false", NO_AUDIT_TUNING),
    ignored(Text, "audit-log-format", "json", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-maxage", "366", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-maxbackup", "100", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-maxsize", "100", NO_AUDIT_TUNING),
    ignored(Text, "audit-log-mode", "blocking", NO_AUDIT_TUNING),
    refused(Text, "audit-log-path", "", NO_AUDIT),
    ignored(Switch, "audit-log-truncate-enabled", "false", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-truncate-max-batch-size", "10485760", NO_AUDIT_TUNING),
    ignored(Int, "audit-log-truncate-max-event-size", "102400", NO_AUDIT_TUNING),
    ignored(Text, "audit-log-version", "audit.k8s.io/v1", NO_AUDIT_TUNING),
    refused(Text, "audit-policy-file", "", NO_AUDIT),
    ignored(Int, "audit-webhook-batch-buffer-size", "10000", NO_AUDIT_TUNING),
    ignored(Int, "audit-webhook-batch-max-size", "400", NO_AUDIT_TUNING),
    ignored(Duration, "audit-webhook-batch-max-wait", "30s", NO_AUDIT_TUNING),
    ignored(Int, "audit-webhook-batch-throttle-burst", "15", NO_AUDIT_TUNING),
    ignored(Switch, "audit-webhook-batch-throttle-enable", "true", NO_AUDIT_TUNING),
    ignored(Number, "audit-webhook-batch-throttle-qps", "10", NO_AUDIT_TUNING),
    refused(Text, "audit-webhook-config-file", "", NO_AUDIT),
    ignored(Duration, "audit-webhook-initial-backoff", "10s", NO_AUDIT_TUNING),
    ignored(Text, "audit-webhook-mode", "batch", NO_AUDIT_TUNING),
    ignored(Switch, "audit-webhook-truncate-enabled", "false", NO_AUDIT_TUNING),
    ignored(Int, "audit-webhook-truncate-max-batch-size", "10485760", NO_AUDIT_TUNING),
    ignored(Int, "audit-webhook-truncate-max-event-size", "102400", NO_AUDIT_TUNING),
    ignored(Text, "audit-webhook-version", "audit.k8s.io/v1", NO_AUDIT_TUNING),
];
