//! Flags that say how etcd is used: each test starts servers that differ in one.

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use serde_json::json;

use super::support::etcd::Etcd;
use super::support::{Store, TestServer};
use super::{ask, start};

/// The pause between two looks at what is about to happen.
const LOOK: Duration = Duration::from_millis(20);

async fn on_etcd(flags: &[&str]) -> (Etcd, tempfile::TempDir, TestServer) {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Etcd(&etcd.endpoint()), flags).await;
    (etcd, folder, server)
}

/// While etcd is silent the check with the short limit fails, again and again, and the one with
/// the long limit waits.
#[tokio::test]
async fn each_health_check_has_the_limit_of_its_flag() {
    let short = Duration::from_millis(100);
    for (flags, fails, waits) in [
        (
            [
                "--etcd-healthcheck-timeout=1h",
                "--etcd-readycheck-timeout=100ms",
            ],
            "/readyz/etcd-readiness",
            "/livez/etcd",
        ),
        (
            [
                "--etcd-healthcheck-timeout=100ms",
                "--etcd-readycheck-timeout=1h",
            ],
            "/livez/etcd",
            "/readyz/etcd-readiness",
        ),
    ] {
        let (etcd, _folder, server) = on_etcd(&flags).await;
        // What was found before is no longer told.
        while ask("GET", fails).status(&server).await == 200 {
            etcd.pause();
            tokio::time::sleep(LOOK).await;
        }
        let mut waiting = Box::pin(ask("GET", waits).status(&server));
        for _ in 0..30 {
            let failed = tokio::select! {
                status = &mut waiting => panic!("{waits} said {status}"),
                failed = ask("GET", fails).status(&server) => failed,
            };
            assert_eq!(failed, 500, "{fails}");
            tokio::time::sleep(short).await;
        }
        etcd.resume();
        assert_eq!(waiting.await, 200, "{waits}");
    }
}

#[tokio::test]
async fn leases_are_shared_for_as_long_as_the_flag_says() {
    for (flag, shared) in [
        ("--lease-reuse-duration-seconds=60", true),
        ("--lease-reuse-duration-seconds=0", false),
    ] {
        let (etcd, _folder, server) = on_etcd(&[flag]).await;
        for name in ["a", "b"] {
            let event =
                json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
            let made = ask("POST", "/api/v1/namespaces/default/events").json(&event);
            assert_eq!(made.status(&server).await, 201);
        }
        let mut client = Client::connect([etcd.endpoint()], None).await.unwrap();
        let all = GetOptions::new().with_prefix();
        let found = client
            .get("/registry/events/default/", Some(all))
            .await
            .unwrap();
        let leases: Vec<i64> = found.kvs().iter().map(|kv| kv.lease()).collect();
        assert_eq!(leases.len(), 2);
        assert!(leases.iter().all(|lease| *lease != 0), "{leases:?}");
        assert_eq!(leases[0] == leases[1], shared, "{flag}: {leases:?}");
    }
}
