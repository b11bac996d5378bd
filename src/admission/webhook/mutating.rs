//! MutatingAdmissionWebhook: lets webhooks change an object, one after the other (apiserver
//! `admission/plugin/webhook/mutating`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::configuration::Hook;
use super::dispatch::{Dispatch, Failure, Parts, UNAVAILABLE, check_time, is_exempt, versioned};
use super::review::Response;
use super::source::WebhookSource;
use crate::admission::kinds::Unfit;
use crate::admission::matching::Matched;
use crate::admission::observation::{CallResult, webhook_called};
use crate::admission::{Attributes, Plugin};
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::json::{Document, text_of};
use crate::merge::patch;
use crate::meta::{Map, Object, Status, Value, go, json, status};

/// The prefixes of the audit annotations.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";

/// The kind of webhooks in metrics.
const KIND: &str = "admit";

/// The plugin.
pub struct MutatingAdmissionWebhook {
    pub source: Arc<WebhookSource>,
    pub parts: Parts,
}

/// The webhooks that have been asked about a request, and those that are asked once more (apiserver
/// `mutating/reinvocationcontext.go`).
#[derive(Debug, Default)]
pub struct WebhookReinvocation {
    /// The object as the webhooks left it, where one of them would be asked once more.
    output: Option<Object>,
    /// Those that were asked and would see later changes.
    invoked: HashSet<String>,
    /// Those that are asked once more.
    due: HashSet<String>,
}

impl WebhookReinvocation {
    fn object_changed(&mut self) {
        self.due.extend(self.invoked.drain());
    }
}

#[async_trait]
impl Plugin for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !self.source.is_empty() && !is_exempt(attributes.gvk)
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> status::Result<()> {
        let hooks = self.source.hooks();
        let dispatch = Dispatch::new(&self.parts, attributes);
        let (object, again) = (
            attributes.object.as_deref(),
            attributes.reinvocation.is_reinvoke,
        );
        let before = &mut attributes.reinvocation.webhooks;
        if again && !before.invoked.is_empty() && before.output.as_ref() != object {
            before.object_changed();
        }
        for (index, hook) in hooks.iter().enumerate() {
            self.ask(&dispatch, hook, index, attributes).await?;
        }
        let object = attributes.object.as_deref();
        let after = &mut attributes.reinvocation.webhooks;
        after.output = object.filter(|_| !after.invoked.is_empty()).cloned();
        Ok(())
    }
}

impl MutatingAdmissionWebhook {
    /// Asks one webhook, if it is about the request.
    async fn ask(
        &self,
        dispatch: &Dispatch<'_>,
        hook: &Hook,
        index: usize,
        attributes: &mut Attributes<'_>,
    ) -> status::Result<()> {
        let Some(matched) = dispatch.matches(hook, attributes).await? else {
            return Ok(());
        };
        let round = u8::from(attributes.reinvocation.is_reinvoke);
        let names = (&*matched.gvr, &*matched.gvk);
        let object = versioned(&*self.parts.kinds, attributes.object(), names).await?;
        let old = versioned(&*self.parts.kinds, attributes.old, names).await?;
        let shown = dispatch.shown(&matched, object.as_deref(), old.as_deref());
        let met = dispatch.meets_conditions(hook, attributes, &shown, KIND);
        if !met.await? {
            return Ok(());
        }
        // In the second round nobody is asked for the first time.
        if round == 1 && !attributes.reinvocation.webhooks.due.contains(&hook.uid) {
            return Ok(());
        }
        let start = Instant::now();
        let answer = dispatch.call(hook, attributes, &shown, true).await;
        let place = format!("round_{round}_index_{index}");
        let patched = match answer {
            Ok(response) => {
                self.patched(hook, &matched, response, attributes, shown.object)
                    .await
            }
            Err(why) => Err(why),
        };
        drop((object, old));
        let result = match &patched {
            Ok(_) => CallResult::Allowed,
            Err(why) => why.result(hook),
        };
        let labels = (hook.name.as_str(), KIND);
        let took = start.elapsed();
        webhook_called(labels, attributes.operation, result, took);
        attributes.notes.webhook_took(true, took);
        let (patched, failed) = match patched {
            Ok(patched) => (patched, None),
            Err(why) => (None, Some(why)),
        };
        let changed = patched.is_some_and(|(object, operations)| {
            annotate_patch(hook, &place, operations, attributes);
            replace(attributes, object)
        });
        let mutated = json!({
            "configuration": hook.configuration, "webhook": hook.name, "mutated": changed,
        });
        annotate(attributes, format!("{MUTATION}{place}"), &mutated);
        let reinvocation = &mut attributes.reinvocation;
        if changed {
            reinvocation.webhooks.object_changed();
            reinvocation.should_reinvoke = true;
        }
        if hook.reinvokes {
            reinvocation.webhooks.invoked.insert(hook.uid.clone());
        }
        match failed {
            None => Ok(()),
            Some(Failure::Rejected(status) | Failure::Internal(status)) => Err(status),
            Some(Failure::Call { why, .. }) if hook.fails => {
                tracing::warn!(
                    "failed calling webhook {}, failing closed: {why}",
                    hook.name
                );
                Err(Failure::of_call(hook, &why))
            }
            Some(Failure::Call { why, .. }) => {
                tracing::warn!("failed calling webhook {}, failing open: {why}", hook.name);
                let key = format!("failed-open.{MUTATION}{place}");
                attributes.notes.annotate(key, hook.name.clone());
                check_time(attributes)
            }
        }
    }

    /// Returns the object as the answer of a webhook changes it, in the form of
    /// [`Attributes::object`], and the operations of the patch; `None` if it leaves it alone.
    async fn patched(
        &self,
        hook: &Hook,
        matched: &Matched<'_>,
        response: Response,
        attributes: &Attributes<'_>,
        shown: Option<&Object>,
    ) -> Result<Option<(Object, Value)>, Failure> {
        if response.patch.is_empty() {
            return Ok(None);
        }
        let is_large = response.patch.len() > LARGE_BYTES;
        let read = run_blocking_if(is_large, || operations(&response.patch));
        let operations = read.map_err(|why| {
            let why = format!("received undecodable patch in webhook response: {why}");
            let code = UNAVAILABLE;
            Failure::Call { why, code }
        })?;
        if operations.is_empty() {
            return Ok(None);
        }
        let refused = |why: &dyn std::fmt::Display| Failure::Internal(Status::internal(why));
        let (Some(shown), Some(original)) = (shown, attributes.object()) else {
            let name = go::quote(&hook.name);
            return Err(refused(&format!(
                "admission webhook {name} attempted to modify the object, which is not supported for this operation"
            )));
        };
        if response.patch_type != "JSONPatch" {
            let why = format!("unsupported patch type {}", go::quote(&response.patch_type));
            let code = UNAVAILABLE;
            return Err(Failure::Call { why, code });
        }
        let told = operations.iter().cloned().map(Value::Object).collect();
        let mut document = Value::Object(shown.0.clone());
        run_blocking_if(is_large || shown.is_larger_than(LARGE_BYTES), || {
            patch::json::apply(&mut document, operations)
        })
        .map_err(|why| refused(&why))?;
        let Some(changed) = Object::from_value(document) else {
            return Err(refused(&"the patched object is no object"));
        };
        let (gvr, gvk) = (&matched.gvr, &matched.gvk);
        let completed = self.parts.kinds.completed(changed, gvr, gvk, original);
        match completed.await {
            Ok(object) => Ok(Some((object, told))),
            Err(Unfit::Unreadable(why) | Unfit::Unconvertible(why)) => Err(refused(&why)),
        }
    }
}

/// Puts a changed object in its place; returns false if it is as it was.
fn replace(attributes: &mut Attributes<'_>, object: Object) -> bool {
    let changed = attributes.object() != Some(&object);
    attributes.replace_object(object);
    changed
}

/// Reads the operations of a patch.
fn operations(patch: &[u8]) -> Result<Vec<Map>, String> {
    let cannot = |what: &Value, into: &str| {
        let what = go::json_type(what);
        Err(format!(
            "json: cannot unmarshal {what} into Go value of type jsonpatch.{into}"
        ))
    };
    let operation = |item| match item {
        Value::Object(operation) => Ok(operation),
        Value::Null => Ok(Map::new()),
        other => cannot(&other, "Operation").map(|()| Map::new()),
    };
    let value = Document::new(patch).and_then(Document::value);
    match value.map_err(|why| why.0)? {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.into_iter().map(operation).collect(),
        other => cannot(&other, "Patch").map(|()| Vec::new()),
    }
}

fn annotate_patch(hook: &Hook, place: &str, operations: Value, attributes: &Attributes<'_>) {
    let value = json!({
        "configuration": hook.configuration,
        "webhook": hook.name,
        "patch": operations,
        "patchType": "JSONPatch",
    });
    let key = format!("{PATCH}{place}");
    attributes.notes.annotate_object(key, text_of(&value));
}

/// Adds an annotation whose value is JSON as Go writes it.
fn annotate(attributes: &Attributes<'_>, key: String, value: &Value) {
    attributes.notes.annotate(key, text_of(value));
}
