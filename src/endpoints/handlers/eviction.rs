//! Evictions: delete pods as far as their disruption budgets allow (core/pod/storage
//! `EvictionREST`).

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;

use crate::builtin::core::pod::set_condition;
use crate::meta::options::{DeleteOptions, Write, WriteOptions};
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::{Cause, Result};
use crate::meta::{FieldError, Gvk, Gvr, Object, Path, Status, Value, json, str_at, time};
use crate::registry::store::{AdmitAll, Store, Target, Updater, WriteContext};
use crate::registry::strategy::Subresource;

use super::RequestContext;
use super::subresources::{created, decode};
use crate::endpoints::body::Body;

/// The maximum number of pods that a budget remembers as about to go.
const MAX_DISRUPTED_PODS: usize = 2000;
/// The number of times that a delete is tried again because the pod changed meanwhile.
const CONFLICT_RETRIES: usize = 20;
/// The time after which to try again where the budget is not up to date, in seconds.
const RETRY_AFTER: u32 = 10;
/// The field manager that takes what budgets allow.
const MANAGER: &str = "kube-apiserver";
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// Deletes a pod if the disruption budgets allow it.
///
/// # Errors
/// 404, 429 if a budget does not allow it, and the errors of a delete.
pub async fn handle(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    let mut eviction = decode(ctx, &body, &options)?;
    let name = ctx.request.info.url_name();
    let gvk = Gvk::new("policy", "v1", "Eviction");
    ctx.admit_unstored(&gvk, &mut eviction, &options).await?;
    if eviction.name() != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    ctx.validate_unstored(&gvk, &mut eviction, &options).await?;
    let mut deletion = deletion(&eviction, &gvk)?;
    deletion.dry_run |= options.dry_run;
    let evicting = Evicting {
        ctx,
        write: ctx.write_context(deletion.dry_run),
        name,
        deletion,
    };
    evicting.run().await?;
    Ok(ctx.answer_status(&created()))
}

/// The options with which the eviction deletes the pod.
fn deletion(eviction: &Object, gvk: &Gvk) -> Result<DeleteOptions> {
    let Some(object) = eviction
        .at("/deleteOptions")
        .cloned()
        .and_then(Object::from_value)
    else {
        return Ok(DeleteOptions::default());
    };
    if object.at("/ignoreStoreReadErrorWithClusterBreakingPotential") == Some(&Value::Bool(true)) {
        let path =
            Path::new("deleteOptions").child("ignoreStoreReadErrorWithClusterBreakingPotential");
        let error = FieldError::invalid(
            &path,
            true,
            "can not be set for pod eviction, try after removing the option",
        );
        return Err(Status::invalid(gvk, eviction.name(), [error].into()));
    }
    DeleteOptions::from_object(&object)
}

/// One eviction under way.
struct Evicting<'a> {
    ctx: &'a RequestContext<'a>,
    write: WriteContext<'a>,
    name: &'a str,
    deletion: DeleteOptions,
}

impl Evicting<'_> {
    async fn run(&self) -> Result<()> {
        let mut pod = self.pod().await?;
        for _ in 0..CONFLICT_RETRIES {
            if !is_free(&pod) {
                return self.within_budget(&pod).await;
            }
            // A pending pod that becomes ready meanwhile has a budget to keep.
            let pinned =
                pod.str_at("/status/phase") == "Pending" && pod.deletion_timestamp().is_none();
            match self.delete(pinned.then_some(&pod)).await {
                Err(status)
                    if status.reason == "Conflict" && self.deletion.resource_version.is_none() =>
                {
                    pod = self.pod().await?
                }
                done => return done,
            }
        }
        Err(Status::modified(&self.ctx.store.resource.gvr, self.name))
    }

    async fn pod(&self) -> Result<Object> {
        let store = &self.ctx.store;
        store
            .cached_get(self.ctx.namespace(), self.name)
            .await?
            .ok_or_else(|| Status::not_found(&store.resource.gvr, self.name))
    }

    /// Deletes a pod that runs, if the one budget that counts it lets it go.
    async fn within_budget(&self, pod: &Object) -> Result<()> {
        let gvr = Gvr::new("policy", "v1", "poddisruptionbudgets");
        let budgets = self
            .ctx
            .api
            .registry
            .get(&gvr)
            .ok_or_else(Status::no_such_path)?;
        let found = matching(&budgets, pod).await?;
        let budget = match found.as_slice() {
            [] => return self.delete(None).await,
            [budget] => budget,
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::failure(500, "", why));
            }
        };
        if !is_ready(pod) && spares_unready(budget) {
            // It must still be what it was when that was decided.
            return match self.delete(Some(pod)).await {
                Err(status)
                    if status.reason == "Conflict" && self.deletion.resource_version.is_none() =>
                {
                    Err(busy(budget.name()))
                }
                done => done,
            };
        }
        let take = BudgetUpdater {
            pod: self.name,
            store: &budgets,
            now: time::format(self.ctx.api.clock.now().as_second()),
        };
        let target = Target {
            name: budget.name(),
            sub: Subresource::Status,
            force_create: false,
        };
        budgets
            .update(&self.write, target, &take, &AdmitAll)
            .await?;
        self.delete(None).await
    }

    /// Sets the condition for the disruption in the pod's status, and deletes it. With a `pinned`
    /// pod only if it is still in that state.
    async fn delete(&self, pinned: Option<&Object>) -> Result<()> {
        let mut options = self.deletion.clone();
        if let (None, Some(pod)) = (&options.resource_version, pinned) {
            options.resource_version = Some(pod.resource_version().to_owned());
        }
        let store = &self.ctx.store;
        if !options.dry_run {
            let mark = DisruptionMarker {
                store,
                options: &options,
                now: time::format(self.ctx.api.clock.now().as_second()),
            };
            let target = Target {
                name: self.name,
                sub: Subresource::Status,
                force_create: false,
            };
            let marked = store.update(&self.write, target, &mark, &AdmitAll).await?;
            if options.resource_version.is_some() {
                options.resource_version =
                    Some(marked.written.object.resource_version().to_owned());
            }
        }
        store
            .delete(&self.write, self.name, &options, &AdmitAll)
            .await
            .map(drop)
    }
}

/// Reports whether the pod's end disrupts nothing that a budget protects.
fn is_free(pod: &Object) -> bool {
    matches!(
        pod.str_at("/status/phase"),
        "Succeeded" | "Failed" | "Pending"
    ) || pod.deletion_timestamp().is_some()
}

fn is_ready(pod: &Object) -> bool {
    let ready = |one: &Value| str_at(one, "/type") == "Ready" && str_at(one, "/status") == "True";
    pod.array_at("/status/conditions").iter().any(ready)
}

/// Reports whether a pod that is not ready may go without being counted.
fn spares_unready(budget: &Object) -> bool {
    let desired = number(budget, "/status/desiredHealthy");
    budget.str_at("/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (number(budget, "/status/currentHealthy") >= desired && desired > 0)
}

fn number(object: &Object, path: &str) -> i64 {
    object.i64_at(path).unwrap_or(0)
}

/// The budgets of the pod's namespace that select it; one without a selector selects nothing.
async fn matching(budgets: &Store, pod: &Object) -> Result<Vec<Object>> {
    let selects = |budget: &Object| {
        let selector = budget
            .at("/spec/selector")
            .filter(|selector| !selector.is_null());
        selector.is_some_and(|one| {
            LabelSelector::from_object(Some(one))
                .is_ok_and(|selector| selector.matches(pod.labels()))
        })
    };
    Ok(budgets
        .cached_list(pod.namespace())
        .await?
        .into_iter()
        .filter(selects)
        .collect())
}

/// 429 because the budget is not up to date.
fn busy(budget: &str) -> Status {
    too_many(
        RETRY_AFTER,
        format!("The disruption budget {budget} is still being processed by the server."),
    )
}

fn too_many(retry_after: u32, why: String) -> Status {
    let mut status = Status::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after,
    );
    status.details_mut().causes.push(Cause {
        reason: "DisruptionBudget".to_owned(),
        message: why,
        field: String::new(),
    });
    status
}

/// Takes one disruption from a budget, and has it remember the pod.
struct BudgetUpdater<'a> {
    pod: &'a str,
    store: &'a Store,
    now: String,
}

#[async_trait]
impl Updater for BudgetUpdater<'_> {
    fn uid(&self) -> Option<&str> {
        None
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let live = live.ok_or_else(Status::no_such_path)?;
        let mut budget = take(live, self.pod, &self.now)?;
        self.store
            .field_manager(Subresource::Status, MANAGER)
            .update(Some(live), &mut budget);
        Ok(budget)
    }
}

/// The budget with one disruption less, if it has one to give.
fn take(live: &Object, pod: &str, now: &str) -> Result<Object> {
    let forbidden = |why| {
        Err(Status::forbidden(
            &Gvr::new("policy", "v1", "poddisruptionbudget"),
            live.name(),
            why,
        ))
    };
    let observed = number(live, "/status/observedGeneration");
    let allowed = number(live, "/status/disruptionsAllowed");
    let remembered = live
        .at("/status/disruptedPods")
        .and_then(Value::as_object)
        .map_or(0, |pods| pods.len());
    if observed < live.generation() {
        return Err(busy(live.name()));
    }
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if remembered > MAX_DISRUPTED_PODS {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        return Err(too_many(0, exhausted(live)));
    }
    let mut budget = live.clone();
    let status = budget.section_mut("status");
    status.insert("disruptionsAllowed", (allowed - 1).into());
    if allowed == 1 {
        let condition = json!({
            "type": DISRUPTION_ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": observed, "lastTransitionTime": now,
        });
        set_condition(status, condition);
    }
    let pods = status.entry("disruptedPods").or_insert_with(|| json!({}));
    if let Value::Object(pods) = pods {
        pods.insert(pod.to_owned(), now.into());
    }
    Ok(budget)
}

/// Returns the reason a budget allows no disruption.
fn exhausted(budget: &Object) -> String {
    let name = budget.name();
    let (current, desired) = (
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    let condition = budget
        .array_at("/status/conditions")
        .iter()
        .find(|one| str_at(one, "/type") == DISRUPTION_ALLOWED);
    let told = condition
        .filter(|one| str_at(one, "/status") == "False" && !str_at(one, "/message").is_empty());
    match told.map(|one| (str_at(one, "/reason"), str_at(one, "/message"))) {
        Some(("SyncFailed", why)) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
            )
        }
        _ if current <= desired => format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        ),
        Some((reason, why)) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {why}"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Sets the condition of a pod that it is evicted (DisruptionTarget).
struct DisruptionMarker<'a> {
    store: &'a Store,
    options: &'a DeleteOptions,
    now: String,
}

#[async_trait]
impl Updater for DisruptionMarker<'_> {
    fn uid(&self) -> Option<&str> {
        None
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let live = live.ok_or_else(Status::no_such_path)?;
        self.store.check_preconditions(self.options, live)?;
        let mut pod = live.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            "lastProbeTime": null, "lastTransitionTime": self.now,
        });
        set_condition(pod.section_mut("status"), condition);
        Ok(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn budget(status: Value) -> Object {
        let object =
            json!({"metadata": {"name": "few", "generation": 2}, "spec": {}, "status": status});
        Object::from_value(object).expect("an object")
    }

    fn refusal(status: Value) -> (u16, String) {
        let status = take(&budget(status), "web-0", NOW).expect_err("refused");
        let cause = status
            .details
            .as_ref()
            .and_then(|details| details.causes.first());
        (
            status.code,
            cause.map_or_else(|| status.message.clone(), |cause| cause.message.clone()),
        )
    }

    #[test]
    fn eviction_takes_what_the_budget_has() {
        let given = take(
            &budget(json!({"observedGeneration": 2, "disruptionsAllowed": 2})),
            "web-0",
            NOW,
        )
        .expect("given");
        assert_eq!(
            given.at("/status"),
            Some(
                &json!({"observedGeneration": 2, "disruptionsAllowed": 1, "disruptedPods": {"web-0": NOW}})
            )
        );
        let last = take(&given, "web-1", NOW).expect("given");
        assert_eq!(last.i64_at("/status/disruptionsAllowed"), Some(0));
        assert_eq!(
            last.str_at("/status/conditions/0/reason"),
            "InsufficientPods"
        );
        assert_eq!(
            last.at("/status/disruptedPods"),
            Some(&json!({"web-0": NOW, "web-1": NOW}))
        );
        assert_eq!(take(&last, "web-2", NOW).expect_err("refused").code, 429);
    }

    #[test]
    fn eviction_refusal_gives_the_budgets_reason() {
        let told = |reason: &str| json!([{"type": DISRUPTION_ALLOWED, "status": "False", "reason": reason, "message": "why"}]);
        for (status, code, why) in [
            (
                json!({"observedGeneration": 1, "disruptionsAllowed": 1}),
                429,
                "The disruption budget few is still being processed by the server.",
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
                403,
                "poddisruptionbudget.policy \"few\" is forbidden: pdb disruptions allowed is negative",
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 2}),
                429,
                "The disruption budget few needs 2 healthy pods and has 1 currently",
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 2, "desiredHealthy": 1}),
                429,
                "The disruption budget few does not allow evicting pods currently",
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 2, "desiredHealthy": 1, "conditions": told("InsufficientPods")}),
                429,
                "The disruption budget few does not allow evicting pods currently (InsufficientPods): why",
            ),
            (
                json!({"observedGeneration": 2, "conditions": told("SyncFailed")}),
                429,
                "The disruption budget few does not allow evicting pods currently because it failed sync: why",
            ),
        ] {
            assert_eq!(refusal(status), (code, why.to_owned()));
        }
    }
}
