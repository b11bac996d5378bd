//! Health checks over HTTP, and the checks that every server has.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use super::config::Config;
use super::shutdown::Shutdown;
use crate::cacher::Feed;
use crate::endpoints::body::{Body, full};
use crate::storage::Storage;
use crate::telemetry::health::{Answer, Health, Scope};

/// A health answer as upstream's handlers write it.
pub fn response(answer: Answer) -> Response<Body> {
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds the checks that depend on nothing but the process.
pub fn add_basics(health: &Health) {
    health.add("ping", Scope::ALL, || async { Ok(()) });
    health.add("log", Scope::ALL, || async { Ok(()) });
}

/// Adds `etcd` in every scope and `etcd-readiness` for `/readyz`, as upstream names them, whatever the store is.
pub fn add_storage(health: &Health, config: &Config, storage: &Arc<dyn Storage>) {
    let check = |limit: Duration| {
        let storage = storage.clone();
        move || {
            let storage = storage.clone();
            async move {
                match tokio::time::timeout(limit, storage.healthy()).await {
                    Ok(outcome) => outcome.map_err(|why| why.to_string()),
                    Err(_) => Err("the store did not answer in time".to_owned()),
                }
            }
        }
    };
    health.add("etcd", Scope::ALL, check(config.storage.health_timeout));
    health.add("etcd-readiness", Scope::READY, check(config.storage.ready_timeout));
}

/// Adds the watch caches to `/readyz`: it names those that cannot answer yet, and why.
pub fn add_caches(health: &Health, feed: Option<&Arc<Feed>>) {
    if let Some(feed) = feed.cloned() {
        health.add("watch-cache", Scope::READY, move || std::future::ready(feed.ready()));
    }
}

/// Adds `shutdown`, which fails `/readyz` when the server is about to end.
pub fn add_shutdown(health: &Health, shutdown: &Shutdown) {
    let shutdown = shutdown.clone();
    health.add("shutdown", Scope::READY, move || {
        let stopping = shutdown.is_stopping();
        async move { if stopping { Err("process is shutting down".to_owned()) } else { Ok(()) } }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_stops_is_live_but_not_ready() {
        let (health, shutdown) = (Health::default(), Shutdown::new());
        add_basics(&health);
        add_shutdown(&health, &shutdown);
        assert!(health.passes("readyz").await && health.passes("livez").await);
        shutdown.stop();
        assert!(!health.passes("readyz").await && health.passes("livez").await);
    }
}
