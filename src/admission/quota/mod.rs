//! ResourceQuota: refuses objects that exceed the quotas of their namespace, and records usage in
//! the quotas (apiserver `admission/plugin/resourcequota`).

mod check;
mod configuration;
mod device_claims;
mod pods;
pub mod recount;
mod services;
mod usage;
mod volume_claims;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Attributes, Objects, Operation, Plugin};
use crate::base::clock::Clock;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use check::check;
pub use configuration::Configuration;
use usage::{Evaluator, Usage};

/// The time that a request waits for those before it in its namespace.
const MAX_WAIT: Duration = Duration::from_secs(10);

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
    configuration: Configuration,
    clock: Clock,
}

impl ResourceQuota {
    pub fn new(objects: Arc<dyn Objects>, configuration: Configuration) -> Self {
        Self {
            objects,
            turns: Mutex::default(),
            configuration,
            clock: Clock::system(),
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
    ///
    /// # Errors
    /// They cannot be written.
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
        let limited = &self.configuration.limited;
        if limited.is_empty() && self.quotas(attributes.namespace).await?.is_empty() {
            return Ok(());
        }
        let Some(object) = attributes.object() else {
            return Ok(());
        };
        let namespace_lock = self.namespace_lock(attributes.namespace);
        let _turn = timeout(MAX_WAIT, namespace_lock.lock())
            .await
            .map_err(|_| Status::internal("resource quota evaluation timed out"))?;
        let mut quotas = self.quotas(attributes.namespace).await?;
        for _ in 0..RETRIES {
            let now = self.clock.now().as_second();
            let usage = Usage::read(attributes, object, &*self.objects, now).await?;
            let updates = check(attributes, &usage, &quotas, limited)?;
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
        let name = quotas.first().map_or("", |quota| quota.name());
        Err(Status::modified(&quotas_resource(), name))
    }
}
