//! Admission webhooks: what clients register as MutatingWebhookConfiguration and
//! ValidatingWebhookConfiguration (apiserver `admission/plugin/webhook`).

mod configuration;
mod dispatch;
mod mutating;
mod review;
mod source;
#[cfg(test)]
mod tests;
mod validating;

use std::sync::Arc;

pub use dispatch::Parts;
pub use mutating::{MutatingAdmissionWebhook, WebhookReinvocation};
pub use source::WebhookSource;
pub use validating::ValidatingAdmissionWebhook;

use super::observed::Observer;

/// The webhooks of a server.
#[derive(Clone, Default)]
pub struct Webhooks {
    pub mutating: Arc<WebhookSource>,
    pub validating: Arc<WebhookSource>,
}

impl Webhooks {
    /// The resources that the webhooks are registered by, and who is to know of their objects.
    pub fn observers(&self) -> Vec<(&'static str, Arc<dyn Observer>)> {
        vec![
            ("mutatingwebhookconfigurations", self.mutating.clone()),
            ("validatingwebhookconfigurations", self.validating.clone()),
        ]
    }
}
