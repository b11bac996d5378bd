//! The pages of metrics: what they have under kube-apiserver's names, what flags keep back, and the
//! forms that clients may ask for. `tests/vectors/metrics.tsv` lists the names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::overload::metric;
use super::support::http::Answer;
use super::support::webhook::{Reply, Webhook};
use super::support::{Store, TestServer, USER, until};
use super::{PATIENCE, ask, both, embedded, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = include_str!("../vectors/metrics.tsv");

/// A metric of kube-apiserver.
struct Known {
    name: &'static str,
    kind: &'static str,
    /// `always`, `etcd`, `used`, `hidden` or `absent`.
    when: &'static str,
}

fn table() -> Vec<Known> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let known = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let (name, kind, when) = (fields[0], fields[1], fields[2]);
        let reason = fields.get(3).copied().unwrap_or_default();
        assert_eq!(when == "absent", !reason.is_empty(), "{line}");
        Known { name, kind, when }
    });
    known.collect()
}

/// The types of the metrics of a page that have a series.
fn families(page: &str) -> BTreeMap<&str, &str> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split_once(' ')).collect()
}

async fn create(server: &TestServer, path: &str, object: Value) -> u16 {
    ask("POST", path).json(&object).status(server).await
}

/// Registers a webhook about ConfigMaps with that name.
async fn register(server: &TestServer, webhook: &Webhook, name: &str) {
    let configuration = json!({"metadata": {"name": name}, "webhooks": [{
        "name": format!("{name}.example.com"), "clientConfig": webhook.client_config(&format!("/{name}")),
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 30,
        "matchConditions": [{"name": "named", "expression": format!("object.metadata.name == '{name}'")}],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(create(server, path, configuration).await, 201);
}

/// Uses what servers are used for.
async fn work(server: &TestServer) {
    let webhook = Webhook::start(
        |seen| match seen.uri.split('?').next().unwrap_or_default() {
            "/slow" => Reply::Hang,
            _ => Reply::Json(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": seen.body["request"]["uid"].clone(), "allowed": true},
            })),
        },
    )
    .await;
    for name in ["asked", "slow"] {
        register(server, &webhook, name).await;
    }
    for name in ["plain", "asked"] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(create(server, MAPS, map).await, 201);
    }
    let slow = format!("{MAPS}?timeout=50ms");
    let map = json!({"metadata": {"name": "slow"}});
    assert!(create(server, &slow, map).await >= 500);
    for (path, status) in [
        ("/api/v1/componentstatuses", 200),
        (MAPS, 200),
        ("/api/v1/namespaces/default/configmaps/plain", 200),
        // It has no cache.
        ("/apis/coordination.k8s.io/v1/leases", 200),
        (
            "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            200,
        ),
        ("/apis/none/v1/things", 404),
        ("/livez", 200),
    ] {
        assert_eq!(
            ask("GET", path)
                .header("User-Agent", "kube-apiserver/v1")
                .status(server)
                .await,
            status,
            "{path}"
        );
    }
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    assert_eq!(
        create(server, "/api/v1/namespaces/default/services", service).await,
        201
    );
    let namespace = json!({"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    assert_eq!(create(server, "/api/v1/namespaces", namespace).await, 201);
    let account = json!({"metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/strict/serviceaccounts";
    assert_eq!(create(server, accounts, account).await, 201);
    let pod = json!({"metadata": {"name": "a"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "a", "image": "a"}]}});
    assert_eq!(
        create(server, "/api/v1/namespaces/strict/pods", pod).await,
        403
    );
    let (status, made) = ask("POST", &format!("{accounts}/robot/token"))
        .json(&json!({"spec": {"audiences": []}}))
        .answer(server)
        .await;
    assert_eq!(status, 201, "{made}");
    let token = made["status"]["token"].as_str().unwrap();
    for _ in 0..2 {
        assert_eq!(ask("GET", "/api").by(token).status(server).await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_found_under_upstreams_names() {
    let flags = [
        "--watch-cache-sizes=leases.coordination.k8s.io#0",
        "--etcd-count-metric-poll-period=10ms",
    ];
    let servers = AtomicUsize::new(0);
    both(&flags, async |server| {
        work(server).await;
        let expected: Vec<Known> = table();
        // The second server has etcd.
        let has_etcd = servers.fetch_add(1, Ordering::Relaxed) == 1;
        let is_due = |known: &Known| known.when == "always" || known.when == "etcd" && has_etcd;
        let begun = Instant::now();
        let found = loop {
            let found = server.metrics().await;
            let shown = families(&found);
            let missing: Vec<&str> = expected
                .iter()
                .filter(|known| is_due(known) && !shown.contains_key(known.name))
                .map(|known| known.name)
                .collect();
            if missing.is_empty() {
                break found;
            }
            assert!(begun.elapsed() < PATIENCE / 4, "not found: {missing:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let shown = families(&found);
        for known in &expected {
            let shown = shown.get(known.name);
            if let Some(kind) = shown {
                assert_eq!(*kind, known.kind, "{}", known.name);
            }
            let is_kept_back = matches!(known.when, "hidden" | "absent");
            assert!(shown.is_none() || !is_kept_back, "{} is there", known.name);
        }
        // Others are this server's own.
        let names: BTreeSet<&str> = expected.iter().map(|known| known.name).collect();
        let own = |name: &&&str| !names.contains(**name) && !name.starts_with("keelson_");
        let unknown: Vec<_> = shown.keys().filter(own).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    })
    .await;
    assert_eq!(servers.into_inner(), 2);
}

#[tokio::test]
async fn requests_are_told_apart_by_what_is_served_alone() {
    let (_folder, server) = embedded(&[]).await;
    for (method, path) in [
        ("BREW", MAPS),
        ("GET", "/api/v1/namespaces/default/secretnames"),
        ("GET", "/apis/secretgroup/v1/things"),
        ("GET", "/secretpath"),
        ("GET", "/api/v1/namespaces/default/configmaps/x/secretpart"),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps?dryRun=secretvalue",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/configmaps?fieldValidation=secretvalue",
        ),
        ("HEAD", MAPS),
    ] {
        ask(method, path).send(&server).await;
    }
    ask(
        "PATCH",
        "/api/v1/namespaces/default/configmaps/a?fieldManager=me",
    )
    .body(
        "application/apply-patch+yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    )
    .send(&server)
    .await;
    let found = server.metrics().await;
    let secrets: Vec<_> = found
        .lines()
        .filter(|line| line.contains("secret") && !line.contains("\"secrets\""))
        .collect();
    assert!(secrets.is_empty(), "{secrets:#?}");
    let total = |verb: &str, scope: &str, code: &str, dry_run: &str| {
        format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"\",resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} "
        )
    };
    for line in [
        total("APPLY", "resource", "201", ""),
        total("LIST", "namespace", "200", "invalid"),
        total("POST", "resource", "422", ""),
        "field_validation_request_duration_seconds_count{field_validation=\"invalid\"} 0\n"
            .to_owned(),
    ] {
        assert!(found.contains(&line), "{line}\nis not in\n{found}");
    }
    let verbs: BTreeSet<&str> = found
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter_map(|line| line.split("verb=\"").nth(1)?.split('"').next())
        .collect();
    let known = [
        "APPLY", "CONNECT", "DELETE", "GET", "LIST", "PATCH", "POST", "PUT", "WATCH", "other",
    ];
    assert!(verbs.iter().all(|verb| known.contains(verb)), "{verbs:?}");
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let value = answer.headers.get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

#[tokio::test]
async fn clients_get_the_form_that_they_ask_for() {
    let (_folder, server) = embedded(&[]).await;
    for (accept, media, end) in [
        (
            "",
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            "\n",
        ),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
            "\n# EOF\n",
        ),
        (
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text; version=0.0.1; charset=utf-8; escaping=underscores",
            "\n# EOF\n",
        ),
        (
            "\u{ff},;q=;version",
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            "\n",
        ),
    ] {
        for path in ["/metrics", "/metrics/slis"] {
            // Which the second page has results of.
            assert_eq!(ask("GET", "/readyz").status(&server).await, 200);
            let answer = ask("GET", path)
                .header("Accept", accept)
                .send(&server)
                .await;
            assert_eq!(
                (answer.status, header(&answer, "content-type")),
                (200, media),
                "{accept}"
            );
            assert!(
                header(&answer, "process-start-time-unix")
                    .parse::<u64>()
                    .is_ok()
            );
            let text = String::from_utf8(answer.body.to_vec()).unwrap();
            assert!(
                text.ends_with(end) && text.contains("# HELP "),
                "{accept}: {text}"
            );
        }
    }
    let answer = ask("GET", "/metrics")
        .header("Accept-Encoding", "gzip")
        .send(&server)
        .await;
    assert_eq!(header(&answer, "content-encoding"), "gzip");
    for path in ["/metrics", "/metrics/slis"] {
        assert_eq!(ask("GET", path).by(USER).status(&server).await, 403);
        assert_eq!(ask("GET", path).by("").status(&server).await, 403);
    }
}

#[tokio::test]
async fn metrics_are_emptied_where_the_server_may_be_profiled() {
    for (flag, text, is_emptied) in [
        ("--profiling=true", "metrics reset\n", true),
        ("--profiling=false", "# HELP ", false),
    ] {
        let (_folder, server) = embedded(&[flag]).await;
        let series = "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"namespace\"";
        assert_eq!(ask("GET", MAPS).status(&server).await, 200);
        assert!(server.metrics().await.contains(series));
        let answer = ask("DELETE", "/metrics").send(&server).await;
        assert!(answer.body.starts_with(text.as_bytes()), "{flag}");
        assert_eq!(
            server.metrics().await.contains(series),
            !is_emptied,
            "{flag}"
        );
        // What is counted from then on is there again.
        assert_eq!(ask("GET", MAPS).status(&server).await, 200);
        assert!(server.metrics().await.contains(series), "{flag}");
    }
}

#[tokio::test]
async fn the_flags_of_metrics_are_obeyed() {
    let flags = [
        "--disabled-metrics=apiserver_response_sizes,no_such_metric",
        "--allow-metric-labels=apiserver_request_total,verb=LIST",
        "--show-hidden-metrics-for-version=1.35",
    ];
    let (_folder, server) = embedded(&flags).await;
    assert_eq!(
        create(&server, MAPS, json!({"metadata": {"name": "a"}})).await,
        201
    );
    assert_eq!(ask("GET", MAPS).status(&server).await, 200);
    let found = server.metrics().await;
    assert!(!found.contains("apiserver_response_sizes"));
    for part in [
        "\ndisabled_metrics_total 2\n",
        "\nhidden_metrics_total 1\n",
        "resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"unexpected\",version=\"v1\"} 1\n",
        "resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1\n",
        "# HELP apiserver_request_slo_duration_seconds [ALPHA] (Deprecated since 1.27.0) Response latency",
        "# HELP apiserver_storage_objects [STABLE] (Deprecated since 1.34.0) [DEPRECATED, consider using apiserver_resource_objects instead] Number",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    let unexpected = "\ncardinality_enforcement_unexpected_categorizations_total 0\n";
    assert!(!found.contains(unexpected));
}

#[tokio::test]
async fn values_that_metrics_tell_apart_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("labels.yaml");
    std::fs::write(&file, "apiserver_request_total,verb: LIST\n").unwrap();
    let flag = format!("--allow-metric-labels-manifest={}", file.display());
    let server = start(folder.path(), Store::Embedded, &[&flag]).await;
    assert_eq!(
        create(&server, MAPS, json!({"metadata": {"name": "a"}})).await,
        201
    );
    let found = server.metrics().await;
    assert!(found.contains("resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"unexpected\",version=\"v1\"} 1\n"), "{found}");
}

#[tokio::test]
async fn certificates_and_compactions_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--etcd-compaction-interval=50ms"];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    until("compactions are counted", async || {
        metric(&server, "keelson_compactions_total ", &[]).await > 1.0
    })
    .await;
    let failures = metric(&server, "keelson_compaction_failures_total ", &[]).await;
    assert_eq!(failures, 0.0);
    // It has just made itself one for a year.
    let name = "keelson_serving_certificate_expiration_timestamp_seconds{certificate=\"default\"}";
    let end = Duration::from_secs_f64(metric(&server, name, &[]).await);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let days = (end - now).as_secs() / 86_400;
    assert!((360..=367).contains(&days), "{days}");
}
