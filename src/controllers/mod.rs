//! The controllers that are about the API alone, for clusters without a controller manager
//! (`pkg/controller`): `--controllers` turns them on.
//!
//! They follow objects through the informers of the server, and write through the handlers of
//! requests, by the service accounts that kube-controller-manager uses for the same controllers.

mod beside;
mod client;
mod garbage_collector;
mod monitors;
mod namespace;
mod namespaces;
mod resource_quota;
mod root_ca;
mod service_accounts;
mod token_secrets;

use std::sync::Arc;

use crate::auth::authn::service_account::Issuer;
use crate::base::latch::Latch;
use crate::base::supervise::catch_panic;
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::Informers;
use crate::endpoints::Api;
use crate::options::controllers::Controller;
use client::Failure;

/// The parts of a server that controllers use.
#[derive(Clone)]
pub struct ControllerDeps {
    pub api: Arc<Api>,
    pub informers: Informers,
    /// True if other servers may write to the same store.
    pub shared_store: bool,
    pub stopping: Latch,
    /// The certificates by which pods verify this server, in PEM.
    pub root_ca: Arc<str>,
    /// The signer of service account tokens; `None` where there is no key.
    pub issuer: Option<Arc<Issuer>>,
}

/// Starts these controllers in the background. One that cannot start is logged.
pub fn start(controllers: &[Controller], deps: &ControllerDeps) {
    if controllers.is_empty() {
        return;
    }
    tokio::spawn(beside::watch(deps.clone()));
    for &controller in controllers {
        let deps = deps.clone();
        tokio::spawn(async move {
            let started = async {
                match controller {
                    Controller::Namespace => namespace::start(&deps).await,
                    Controller::GarbageCollector => garbage_collector::start(&deps).await,
                    Controller::ServiceAccounts => service_accounts::start(&deps).await,
                    Controller::TokenSecrets => token_secrets::start(&deps).await,
                    Controller::RootCa => root_ca::start(&deps).await,
                    Controller::ResourceQuota => resource_quota::start(&deps).await,
                }
            };
            match started.await {
                Ok(()) => tracing::info!("controller {} has started", controller.name()),
                Err(why) => {
                    tracing::error!("controller {} cannot start: {why}", controller.name());
                }
            }
        });
    }
}

/// The reason why work is to be done again.
#[derive(Debug)]
enum Retry {
    /// It takes its time.
    Later(String),
    Failed(Failure),
}

impl From<Failure> for Retry {
    fn from(why: Failure) -> Self {
        Self::Failed(why)
    }
}

/// Works on the names of a queue, several at a time, until the server stops.
fn workers<W, F>(
    deps: &ControllerDeps,
    controller: &'static str,
    queue: &Arc<WorkQueue>,
    count: usize,
    work: W,
) where
    W: Fn(String) -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), Retry>> + Send + 'static,
{
    for _ in 0..count {
        let (queue, work, stopping) = (queue.clone(), work.clone(), deps.stopping.clone());
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    name = queue.take() => name,
                    () = stopping.wait() => return,
                };
                let outcome = catch_panic(controller, work(name.clone())).await;
                let failed = |why: String| Err(Retry::Failed(Failure::internal(why)));
                match outcome.unwrap_or_else(failed) {
                    Ok(()) => queue.forget(&name),
                    Err(Retry::Later(why)) => {
                        tracing::debug!("{controller}: {name}: {why}");
                        queue.retry(&name);
                    }
                    Err(Retry::Failed(why)) => {
                        if why.is_conflict() {
                            tracing::debug!("{controller}: {name}: {why}");
                        } else {
                            tracing::warn!("{controller}: {name}: {why}");
                        }
                        queue.retry(&name);
                    }
                }
                queue.done(&name);
            }
        });
    }
}
