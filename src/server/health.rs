//! Health checks over HTTP, and the checks that every server has.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use super::shutdown::Shutdown;
use super::storage_overrides::{Backend, StorageOverrides};
use crate::aggregator::Aggregator;
use crate::controlplane::informer::Informers;
use crate::endpoints::body::{Body, full};
use crate::options::config::Config;
use crate::storage::StorageError;
use crate::telemetry::health::{Health, HealthResponse, Scope};

/// The time for which the outcome of a check of the store is reused: any client may request it, as
/// often as they like.
const FRESH: Duration = Duration::from_secs(1);

/// A health answer as upstream's handlers write it.
pub fn response(answer: HealthResponse) -> Response<Body> {
    let mut response = Response::new(full(answer.body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds the checks that depend on nothing but the process.
pub fn add_basics(health: &Health) {
    health.add("ping", Scope::ALL, || async { Ok(()) });
    health.add("log", Scope::ALL, || async { Ok(()) });
    // The server asks itself within the process: there is no certificate that could expire.
    let loopback = "loopback-serving-certificate";
    health.add(loopback, Scope::LIVE, || async { Ok(()) });
}

/// Adds `etcd` in every scope and `etcd-readiness` for `/readyz`, as upstream names them, whatever
/// the store is; and the watch caches over it to `/readyz`: the check names those that cannot
/// answer yet, and why. A store that has no room for writes is not ready, nor is an embedded one
/// that has lost acknowledged changes (`storage-integrity`).
pub fn add_storage(health: &Health, config: &Config, backend: &Backend) {
    add_backend(health, config, backend, |check| check.to_owned());
    if config.storage.etcd_servers.is_empty() {
        let storage = backend.storage.clone();
        health.add("storage-integrity", Scope::READY, move || {
            std::future::ready(storage.check_integrity().map_err(|why| why.to_string()))
        });
    }
}

/// [`add_storage`] for the stores of single resources, by their numbers.
pub fn add_overrides(health: &Health, config: &Config, storage_overrides: &StorageOverrides) {
    for (number, backend) in storage_overrides.backends().iter().enumerate() {
        add_backend(health, config, backend, |check| match check {
            "etcd" => format!("etcd-override-{number}"),
            "etcd-readiness" => format!("etcd-override-readiness-{number}"),
            other => format!("{other}-override-{number}"),
        });
    }
}

fn add_backend(health: &Health, config: &Config, backend: &Backend, name: impl Fn(&str) -> String) {
    let check = |limit: Duration, must_have_room: bool| {
        let storage = backend.storage.clone();
        move || {
            let storage = storage.clone();
            async move {
                match tokio::time::timeout(limit, storage.check_health()).await {
                    // A process that begins anew has no more room than this one, and reads go on.
                    Ok(Err(StorageError::NoSpace(_))) if !must_have_room => Ok(()),
                    Ok(outcome) => outcome.map_err(|why| why.to_string()),
                    Err(_) => Err("the store did not answer in time".to_owned()),
                }
            }
        }
    };
    health.add_shared(
        name("etcd"),
        Scope::ALL,
        FRESH,
        check(config.storage.health_timeout, false),
    );
    health.add_shared(
        name("etcd-readiness"),
        Scope::READY,
        FRESH,
        check(config.storage.ready_timeout, true),
    );
    if let Some(reflector) = backend.reflector.clone() {
        health.add(name("watch-cache"), Scope::READY, move || {
            std::future::ready(reflector.ready())
        });
    }
}

/// Adds `informer-sync` to `/readyz`, as upstream names it: what authorization and custom resources
/// follow is known as it is now.
pub fn add_informers(health: &Health, informers: &Informers) {
    let informers = informers.clone();
    health.add("informer-sync", Scope::READY, move || {
        std::future::ready(informers.has_synced())
    });
}

/// Adds the checks of the aggregator, as upstream names them. Most of what they are about is there
/// when [`Aggregator::start`] has returned; the rest is that every extension server has been asked
/// for its resources once, and that the APIServices of what this server serves are available.
pub fn add_aggregator(health: &Health, aggregator: &Arc<Aggregator>, has_certificate: bool) {
    let started = |name: &str| {
        let name = format!("poststarthook/{name}");
        health.add(name, Scope::ALL, || std::future::ready(Ok(())));
    };
    if has_certificate {
        started("aggregator-reload-proxy-client-cert");
    }
    started("start-kube-aggregator-informers");
    started("apiservice-status-local-available-controller");
    started("apiservice-status-remote-available-controller");
    started("apiservice-registration-controller");
    started("apiservice-wait-for-first-sync");
    let discovery = aggregator.clone();
    health.add(
        "poststarthook/apiservice-discovery-controller",
        Scope::ALL,
        move || std::future::ready(discovery.has_asked_all()),
    );
    started("kube-apiserver-autoregistration");
    let autoregister = aggregator.clone();
    health.add("autoregister-completion", Scope::ALL, move || {
        std::future::ready(autoregister.is_complete())
    });
    started("apiservice-openapi-controller");
    started("apiservice-openapiv3-controller");
}

/// The hooks of priority and fairness, and that of the filter in its place.
const FAIRNESS: [&str; 2] = [
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
];
/// The hook that tells other servers where this one is.
const PEERS: &str = "peer-endpoint-reconciler-controller";
const MAX_IN_FLIGHT: &str = "max-in-flight-filter";

/// The post-start hooks of upstream whose work this server has done before it serves, in upstream's
/// order. Those of parts that this server does not have are left out.
const POST_START_HOOKS: &[&str] = &[
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    FAIRNESS[0],
    FAIRNESS[1],
    MAX_IN_FLIGHT,
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    PEERS,
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
];

/// Adds a check for each post-start hook, for those who ask for one by its name. To be called when
/// all of it has been done: a server only serves after that, so that the checks pass as soon as
/// somebody can see them, and what may fail later has checks of its own.
pub fn add_post_start_hooks(health: &Health, has_fairness: bool, has_peers: bool) {
    let is_there = |hook: &&&str| match **hook {
        MAX_IN_FLIGHT => !has_fairness,
        PEERS => has_peers,
        hook => has_fairness || !FAIRNESS.contains(&hook),
    };
    for hook in POST_START_HOOKS.iter().filter(is_there) {
        health.add(format!("poststarthook/{hook}"), Scope::ALL, || async {
            Ok(())
        });
    }
}

/// Adds `shutdown`, which fails `/readyz` when the server is about to end.
pub fn add_shutdown(health: &Health, shutdown: &Shutdown) {
    let shutdown = shutdown.clone();
    health.add("shutdown", Scope::READY, move || {
        let stopping = shutdown.is_stopping();
        async move {
            if stopping {
                Err("process is shutting down".to_owned())
            } else {
                Ok(())
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stopping_server_is_live_but_not_ready() {
        let (health, shutdown) = (Health::default(), Shutdown::new());
        add_basics(&health);
        add_shutdown(&health, &shutdown);
        assert!(health.passes("readyz").await && health.passes("livez").await);
        shutdown.stop();
        assert!(!health.passes("readyz").await && health.passes("livez").await);
    }

    #[tokio::test]
    async fn post_start_hooks_are_checks_by_name() {
        let health = Health::default();
        add_post_start_hooks(&health, true, true);
        let path = "/readyz/poststarthook/max-in-flight-filter";
        assert_eq!(health.answer(path, "").await, None);
        for endpoint in ["livez", "readyz", "healthz"] {
            let path = format!("/{endpoint}/poststarthook/rbac/bootstrap-roles");
            let answer = health.answer(&path, "").await;
            assert_eq!(answer.map(|answer| answer.body).as_deref(), Some("ok"));
        }
    }
}
