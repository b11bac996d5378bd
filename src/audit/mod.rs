//! Auditing: what was asked for, by whom and with which outcome (apiserver `pkg/audit`,
//! `plugin/pkg/audit`).
//!
//! - [`Policy`]: which requests are audited, and how much of them is told.
//! - [`Audit`]: the event of one request, which grows while the request is handled.
//! - [`Backend`]: what becomes of events: a log, a webhook, or both.

mod backend;
mod buffered;
mod context;
mod event;
mod log;
pub mod metrics;
mod policy;
mod rotation;
mod truncate;
mod webhook;

pub use backend::{Backend, Blocking, Exporter, Mode, Union};
pub use buffered::{BatchSettings, Buffered};
pub use context::{Audit, Auditor, ObjectMeta, RequestFacts};
pub use log::{Format, LogBackend};
pub use metrics::record_rejected;
pub use policy::Policy;
pub use rotation::{LogFile, RotationSettings};
pub use truncate::{Truncate, TruncateSettings};
pub use webhook::WebhookBackend;
