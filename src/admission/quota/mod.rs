//! ResourceQuota: refuses objects that exceed the quotas of their namespace, and records usage in
//! the quotas (apiserver `admission/plugin/resourcequota`).

mod usage;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::resource_list::{self, ResourceList};
use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use usage::Evaluator;

/// The maximum number of attempts to update a quota that others update at the same time.
const RETRIES: usize = 4;

/// Never counted: what is not stored, and events.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("", "events"),
    ("events.k8s.io", "events"),
];

pub struct ResourceQuota {
    objects: Arc<dyn Objects>,
    /// One check at a time for each namespace with quotas, so that requests of this server do not
    /// disturb one another.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl ResourceQuota {
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self {
            objects,
            turns: Mutex::default(),
        }
    }

    async fn quotas(&self, namespace: &str) -> Result<Vec<Arc<Object>>> {
        self.objects.list(&quotas_resource(), namespace).await
    }

    fn namespace_lock(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        if let Some(namespace_lock) = turns.get(namespace).and_then(Weak::upgrade) {
            return namespace_lock;
        }
        turns.retain(|_, namespace_lock| namespace_lock.strong_count() > 0);
        let namespace_lock = Arc::default();
        turns.insert(namespace.to_owned(), Arc::downgrade(&namespace_lock));
        namespace_lock
    }

    /// Books what the request uses; the quotas that it could not book on because they changed
    /// meanwhile.
    async fn book(&self, updates: Vec<Object>) -> Result<Vec<String>> {
        let mut stale = Vec::new();
        for quota in updates {
            let name = quota.name().to_owned();
            match self.objects.update_status(&quotas_resource(), quota).await {
                Ok(()) => {}
                // One that is gone limits nothing.
                Err(Status { code: 404, .. }) => {}
                Err(Status { code: 409, .. }) => stale.push(name),
                Err(status) => return Err(status),
            }
        }
        Ok(stale)
    }
}

fn quotas_resource() -> Gvr {
    Gvr::new("", "v1", "resourcequotas")
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let gvr = attributes.gvr;
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && !attributes.namespace.is_empty()
            && !attributes.is_any("", "namespaces")
            && !IGNORED
                .iter()
                .any(|(group, resource)| gvr.resource == *resource && gvr.group == *group)
            && Evaluator::of(gvr).handles(attributes)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        if self.quotas(attributes.namespace).await?.is_empty() {
            return Ok(());
        }
        let namespace_lock = self.namespace_lock(attributes.namespace);
        let _turn = namespace_lock.lock().await;
        let mut quotas = self.quotas(attributes.namespace).await?;
        for _ in 0..RETRIES {
            let updates = check(attributes, &quotas)?;
            if updates.is_empty() || attributes.dry_run {
                return Ok(());
            }
            let stale = self.book(updates).await?;
            if stale.is_empty() {
                return Ok(());
            }
            quotas = self.quotas(attributes.namespace).await?;
            quotas.retain(|quota| stale.iter().any(|name| name == quota.name()));
        }
        Err(Status::conflict(
            &quotas_resource(),
            quotas.first().map_or("", |quota| quota.name()),
            "it changes too often",
        ))
    }
}

/// The amounts of a quota's status.
fn amounts(quota: &Object, which: &str) -> ResourceList {
    quota
        .get("status")
        .map(|status| resource_list::read(status, which))
        .unwrap_or_default()
}

/// The quotas that the request changes, with what is used after it.
///
/// # Errors 403 if a quota does not allow it, or has no status yet.
fn check(attributes: &Attributes<'_>, quotas: &[Arc<Object>]) -> Result<Vec<Object>> {
    let evaluator = Evaluator::of(attributes.gvr);
    let Some(object) = attributes.object() else {
        return Ok(Vec::new());
    };
    let mut concerned = Vec::new();
    for quota in quotas
        .iter()
        .filter(|quota| evaluator.matches(quota, object))
    {
        let (hard, used) = (amounts(quota, "/hard"), amounts(quota, "/used"));
        let limited: Vec<String> = hard
            .keys()
            .filter(|name| evaluator.matches_resource(name))
            .cloned()
            .collect();
        if let Some(why) = evaluator.constraints(&limited, object) {
            return Err(attributes.forbidden(&format!("failed quota: {}: {why}", quota.name())));
        }
        if limited.iter().any(|name| !used.contains_key(name)) {
            let why = format!(
                "status unknown for quota: {}, resources: {}",
                quota.name(),
                limited.join(",")
            );
            return Err(attributes.forbidden(&why));
        }
        concerned.push((quota, hard, used));
    }
    let usage = evaluator.usage(object);
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, amount)| amount.sign() < 0)
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(attributes.forbidden(&format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )));
    }
    let mut updates = Vec::new();
    for (quota, hard, used) in concerned {
        // An update costs what it adds, unless the quota was not about the object before.
        let old = attributes.old.filter(|old| evaluator.matches(quota, old));
        let delta = old.map_or_else(|| usage.clone(), |old| added(&usage, &evaluator.usage(old)));
        let requested: ResourceList = delta
            .into_iter()
            .filter(|(name, amount)| !amount.is_zero() && hard.contains_key(name))
            .collect();
        if !requested.is_empty() {
            let total = sum(&used, &requested);
            if attributes.subresource != "status" {
                within(attributes, quota.name(), &requested, (&used, &total), &hard)?;
            }
            updates.push(with_used(quota, &total));
        }
    }
    Ok(updates)
}

fn sum(used: &ResourceList, requested: &ResourceList) -> ResourceList {
    let mut total = used.clone();
    resource_list::add(&mut total, requested);
    total
}

/// Returns the increase of `usage` over `before`, never negative.
fn added(usage: &ResourceList, before: &ResourceList) -> ResourceList {
    let mut out = usage.clone();
    for (name, amount) in &mut out {
        if let Some(before) = before.get(name) {
            amount.sub(before);
            if amount.sign() < 0 {
                *amount = Default::default();
            }
        }
    }
    out
}

fn within(
    attributes: &Attributes<'_>,
    quota: &str,
    requested: &ResourceList,
    (used, total): (&ResourceList, &ResourceList),
    hard: &ResourceList,
) -> Result<()> {
    let over = |name: &&String| matches!((total.get(*name), hard.get(*name)), (Some(total), Some(hard)) if total > hard);
    let exceeded: Vec<&String> = requested.keys().filter(over).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let tell = |list: &ResourceList| {
        let parts = exceeded
            .iter()
            .filter_map(|name| list.get(*name).map(|amount| format!("{name}={amount}")));
        parts.collect::<Vec<_>>().join(",")
    };
    let why = format!(
        "exceeded quota: {quota}, requested: {}, used: {}, limited: {}",
        tell(requested),
        tell(used),
        tell(hard)
    );
    Err(attributes.forbidden(&why))
}

fn with_used(quota: &Object, used: &ResourceList) -> Object {
    let mut quota = quota.clone();
    let status: &mut crate::meta::Map = quota.section_mut("status");
    status.insert("used", resource_list::to_value(used));
    quota
}
