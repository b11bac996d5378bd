//! ValidatingAdmissionWebhook: asks webhooks, all at once, whether they let a request through
//! (apiserver `admission/plugin/webhook/validating`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures::future::join_all;

use super::configuration::Hook;
use super::dispatch::{Dispatch, Failure, Parts, check_time, is_exempt, versioned};
use super::source::WebhookSource;
use crate::admission::matching::Matched;
use crate::admission::observation::{CallResult, webhook_called};
use crate::admission::{Attributes, Plugin};
use crate::meta::{Object, Status, status};

/// The prefix of the audit annotations.
const ANNOTATION: &str = "validating.webhook.admission.k8s.io/";

/// The kind of webhooks in metrics.
const KIND: &str = "validating";

/// The plugin.
pub struct ValidatingAdmissionWebhook {
    pub source: Arc<WebhookSource>,
    pub parts: Parts,
}

#[async_trait]
impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !self.source.is_empty() && !is_exempt(attributes.gvk)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> status::Result<()> {
        let hooks = self.source.hooks();
        let dispatch = Dispatch::new(&self.parts, attributes);
        let mut views = Views::default();
        let mut asked: Vec<(&Hook, usize)> = Vec::new();
        for hook in hooks.iter() {
            let Some(matched) = dispatch.matches(hook, attributes).await? else {
                continue;
            };
            let view = views.of(&self.parts, attributes, matched).await?;
            let (matched, object, old) = &views.0[view];
            let shown = dispatch.shown(matched, object.as_deref(), old.as_deref());
            let met = dispatch.meets_conditions(hook, attributes, &shown, KIND);
            if met.await? {
                asked.push((hook, view));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        check_time(attributes)?;
        let calls = asked.iter().enumerate().map(|(index, (hook, view))| {
            let (matched, object, old) = &views.0[*view];
            let shown = dispatch.shown(matched, object.as_deref(), old.as_deref());
            let dispatch = &dispatch;
            async move {
                let start = Instant::now();
                let answer = dispatch.call(hook, attributes, &shown, false).await;
                let result = match &answer {
                    Ok(_) => CallResult::Allowed,
                    Err(why) => why.result(hook),
                };
                let labels = (hook.name.as_str(), KIND);
                let took = start.elapsed();
                webhook_called(labels, attributes.operation, result, took);
                attributes.notes.webhook_took(false, took);
                answer
                    .map(drop)
                    .or_else(|why| judge(hook, index, why, attributes))
            }
        });
        // All are heard, whatever the first of them says.
        join_all(calls).await.into_iter().collect()
    }
}

/// The consequence of a call that does not let the request through.
fn judge(
    hook: &Hook,
    index: usize,
    why: Failure,
    attributes: &Attributes<'_>,
) -> Result<(), Status> {
    match why {
        Failure::Rejected(status) | Failure::Internal(status) => Err(status),
        Failure::Call { why, .. } if hook.fails => {
            tracing::warn!(
                "failed calling webhook {}, failing closed: {why}",
                hook.name
            );
            Err(Failure::of_call(hook, &why))
        }
        Failure::Call { why, .. } => {
            tracing::warn!("failed calling webhook {}, failing open: {why}", hook.name);
            let key = format!("failed-open.{ANNOTATION}round_0_index_{index}");
            attributes.notes.annotate(key, hook.name.clone());
            Ok(())
        }
    }
}

type View<'a> = (
    Matched<'static>,
    Option<Cow<'a, Object>>,
    Option<Cow<'a, Object>>,
);

/// The objects of a request in the kinds in which webhooks are asked about them, each made once.
#[derive(Default)]
struct Views<'a>(Vec<View<'a>>);

impl<'a> Views<'a> {
    async fn of(
        &mut self,
        parts: &Parts,
        attributes: &'a Attributes<'_>,
        matched: Matched<'static>,
    ) -> status::Result<usize> {
        if let Some(known) = self.0.iter().position(|(known, ..)| *known == matched) {
            return Ok(known);
        }
        let names = (&*matched.gvr, &*matched.gvk);
        let object = versioned(&*parts.kinds, attributes.object(), names).await?;
        let old = versioned(&*parts.kinds, attributes.old, names).await?;
        self.0.push((matched, object, old));
        Ok(self.0.len() - 1)
    }
}
