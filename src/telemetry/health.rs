//! Health checks behind `/livez`, `/readyz` and `/healthz` (apiserver `server/healthz`).

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::metrics::{Counter, Declared, Gauge};

static RESULT: Gauge = Gauge::new(
    "kubernetes_healthcheck",
    "[STABLE] This metric records the result of a single healthcheck.",
    &["name", "type"],
);
static RESULTS: Counter = Counter::new(
    "kubernetes_healthchecks_total",
    "[STABLE] This metric records the results of all healthcheck.",
    &["name", "status", "type"],
);

pub static METRICS: &[&dyn Declared] = &[&RESULT, &RESULTS];

/// The outcome of a check: fine, or the reason why not, which only the server's own log and the
/// check's own path show.
pub type CheckResult = Result<(), String>;

/// A check that runs, or has ended: what it found, and when it ended.
type Running = Shared<BoxFuture<'static, (CheckResult, Instant)>>;

type Run = Arc<dyn Fn() -> BoxFuture<'static, CheckResult> + Send + Sync>;

/// The endpoints that a check counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `/livez`: whether the process should be restarted.
    pub live: bool,
    /// `/readyz`: whether it should get requests.
    pub ready: bool,
    /// `/healthz`, the old form of both.
    pub health: bool,
}

impl Scope {
    pub const ALL: Scope = Scope {
        live: true,
        ready: true,
        health: true,
    };
    pub const LIVE: Scope = Scope {
        live: true,
        ready: false,
        health: true,
    };
    pub const READY: Scope = Scope {
        live: false,
        ready: true,
        health: false,
    };

    fn covers(self, endpoint: &str) -> bool {
        match endpoint {
            "livez" => self.live,
            "readyz" => self.ready,
            "healthz" => self.health,
            _ => false,
        }
    }
}

#[derive(Clone)]
struct Check {
    name: String,
    scope: Scope,
    run: Run,
}

/// The checks of a server.
#[derive(Default)]
pub struct Health(RwLock<Vec<Check>>);

/// An answer, as plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthResponse {
    /// 200 or 500.
    pub status: u16,
    pub body: String,
}

impl HealthResponse {
    fn failed(body: String) -> Self {
        Self { status: 500, body }
    }

    fn ok(body: String) -> Self {
        Self { status: 200, body }
    }
}

impl Health {
    /// Adds a check; one of the same name is replaced. They are listed in the order in which they
    /// came.
    pub fn add<F, R>(&self, name: impl Into<String>, scope: Scope, run: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = CheckResult> + Send + 'static,
    {
        let name = name.into();
        let check = Check {
            name: name.clone(),
            scope,
            run: Arc::new(move || Box::pin(run())),
        };
        let mut checks = self.0.write();
        match checks.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = check,
            None => checks.push(check),
        }
    }

    /// [`Health::add`] for an expensive check: requests while it runs, or within that time after
    /// it, share its result. It runs to its end even if its client disconnects, so there is one at
    /// a time, and at most so many as that time allows.
    pub fn add_shared<F, R>(&self, name: impl Into<String>, scope: Scope, fresh: Duration, run: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = CheckResult> + Send + 'static,
    {
        let latest: Mutex<Option<Running>> = Mutex::new(None);
        self.add(name, scope, move || {
            let mut latest = latest.lock();
            let known = latest
                .as_ref()
                .filter(|running| running.peek().is_none_or(|(_, at)| at.elapsed() < fresh))
                .cloned();
            let running = known.unwrap_or_else(|| {
                let check = tokio::spawn(run());
                let running = async move {
                    let outcome = check.await.unwrap_or_else(|why| Err(why.to_string()));
                    (outcome, Instant::now())
                };
                running.boxed().shared()
            });
            latest.insert(running).clone().map(|(outcome, _)| outcome)
        });
    }

    /// Answers a path such as `/readyz` or `/livez/etcd`; `None` for a path that is no health
    /// check's.
    pub async fn answer(&self, path: &str, query: &str) -> Option<HealthResponse> {
        let path = path.strip_prefix('/')?;
        let (endpoint, one) = match path.split_once('/') {
            Some((endpoint, check)) => (endpoint, Some(check)),
            None => (path, None),
        };
        if !matches!(endpoint, "livez" | "readyz" | "healthz") {
            return None;
        }
        let checks: Vec<Check> = self
            .0
            .read()
            .iter()
            .filter(|check| check.scope.covers(endpoint))
            .cloned()
            .collect();
        let Some(one) = one else {
            return Some(all(endpoint, &checks, query).await);
        };
        let check = checks.iter().find(|check| check.name == one)?;
        Some(match (check.run)().await {
            Ok(()) => HealthResponse::ok("ok".to_owned()),
            Err(why) => HealthResponse::failed(format!("internal server error: {why}\n")),
        })
    }

    /// Returns the path of each endpoint and of each of its checks.
    pub fn paths(&self) -> Vec<String> {
        let (mut paths, checks) = (Vec::new(), self.0.read());
        for endpoint in ["healthz", "livez", "readyz"] {
            paths.push(format!("/{endpoint}"));
            let checks = checks.iter().filter(|check| check.scope.covers(endpoint));
            paths.extend(checks.map(|check| format!("/{endpoint}/{}", check.name)));
        }
        paths
    }

    /// Reports whether all checks of an endpoint (`livez`, `readyz`, `healthz`) pass.
    #[cfg(test)]
    pub async fn passes(&self, endpoint: &str) -> bool {
        self.answer(&format!("/{endpoint}"), "")
            .await
            .is_some_and(|answer| answer.status == 200)
    }
}

async fn all(endpoint: &str, checks: &[Check], query: &str) -> HealthResponse {
    let parameters: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let excluded: Vec<&str> = parameters
        .iter()
        .filter(|(key, _)| key == "exclude")
        .map(|(_, value)| value.as_str())
        .collect();
    let mut lines = String::new();
    let mut failures = Vec::new();
    for check in checks {
        let name = &check.name;
        // Writing to a String cannot fail.
        let _ = if excluded.contains(&name.as_str()) {
            writeln!(lines, "[+]{name} excluded: ok")
        } else {
            let outcome = (check.run)().await;
            let (status, value) = match &outcome {
                Ok(()) => ("success", 1),
                Err(_) => ("error", 0),
            };
            RESULT.set(&[name, endpoint], value);
            RESULTS.inc(&[name, status, endpoint]);
            match outcome {
                Ok(()) => writeln!(lines, "[+]{name} ok"),
                Err(why) => {
                    failures.push(format!("{name}: {why}"));
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            }
        };
    }
    let mut unknown: Vec<String> = excluded
        .iter()
        .filter(|name| checks.iter().all(|check| check.name != **name))
        .map(|name| format!("{name:?}"))
        .collect();
    unknown.sort();
    unknown.dedup();
    if !unknown.is_empty() {
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {}",
            unknown.join(",")
        );
    }
    if !failures.is_empty() {
        tracing::debug!("{endpoint} check failed: {}", failures.join("; "));
        return HealthResponse::failed(format!("{lines}{endpoint} check failed\n"));
    }
    if parameters.iter().any(|(key, _)| key == "verbose") {
        return HealthResponse::ok(format!("{lines}{endpoint} check passed\n"));
    }
    HealthResponse::ok("ok".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn health() -> Health {
        let health = Health::default();
        health.add("ping", Scope::ALL, || async { Ok(()) });
        health.add("etcd", Scope::ALL, || async { Err("gone".to_owned()) });
        health.add("shutdown", Scope::READY, || async { Ok(()) });
        health
    }

    #[tokio::test]
    async fn answers_are_upstreams() {
        let health = health();
        for (path, query, status, body) in [
            (
                "/readyz",
                "",
                500,
                "[+]ping ok\n[-]etcd failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n",
            ),
            ("/livez", "exclude=etcd", 200, "ok"),
            (
                "/livez",
                "verbose&exclude=etcd",
                200,
                "[+]ping ok\n[+]etcd excluded: ok\nlivez check passed\n",
            ),
            (
                "/livez",
                "verbose&exclude=etcd&exclude=nope",
                200,
                "[+]ping ok\n[+]etcd excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"nope\"\nlivez check passed\n",
            ),
            ("/healthz/ping", "", 200, "ok"),
            ("/healthz/etcd", "", 500, "internal server error: gone\n"),
        ] {
            assert_eq!(
                health.answer(path, query).await,
                Some(HealthResponse {
                    status,
                    body: body.to_owned()
                }),
                "{path}?{query}"
            );
        }
        assert_eq!(
            health.answer("/livez/shutdown", "").await,
            None,
            "it counts for readyz only"
        );
        assert_eq!(health.answer("/livezy", "").await, None);
    }

    #[tokio::test]
    async fn a_check_can_be_replaced() {
        let health = health();
        health.add("etcd", Scope::ALL, || async { Ok(()) });
        assert!(health.passes("readyz").await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_check_runs_once_for_all_who_ask() {
        let (health, runs) = (Arc::new(Health::default()), Arc::new(AtomicUsize::new(0)));
        let counted = runs.clone();
        health.add_shared("etcd", Scope::ALL, Duration::from_secs(1), move || {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                if run == 0 {
                    Err("gone".to_owned())
                } else {
                    Ok(())
                }
            }
        });
        // Who does not wait for the answer leaves it to others.
        let hasty = tokio::time::timeout(Duration::from_secs(1), health.passes("livez")).await;
        assert!(hasty.is_err());
        let asked = (0..100).map(|_| health.passes("livez"));
        assert_eq!(futures::future::join_all(asked).await, vec![false; 100]);
        assert!(
            !health.passes("readyz").await,
            "what it found holds for a while"
        );
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(health.passes("readyz").await);
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
