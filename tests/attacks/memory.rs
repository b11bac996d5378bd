//! Requests share a bounded memory: what would exceed it waits, or is to come again.

use serde_json::json;

use super::support::{Store, TestServer, until};
use super::{JSON, ask, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const HEAPS: &str = "/apis/example.com/v1/namespaces/default/heaps?dryRun=All";
/// The requests that come at once, each of which takes some 75 MB when it is decoded.
const REQUESTS: usize = 24;
/// The most memory that the server may ever have had, in KiB: far less than they take together.
const PEAK_MEMORY: u64 = 900 * 1024;

/// Creates a resource whose objects may have any fields.
async fn define_heaps(server: &TestServer) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}});
    let names =
        json!({"plural": "heaps", "singular": "heap", "kind": "Heap", "listKind": "HeapList"});
    let definition = json!({"metadata": {"name": "heaps.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version], "names": names}});
    let made = ask("POST", DEFINITIONS).json(&definition);
    assert_eq!(made.status(server).await, 201);
    let served = async || ask("GET", HEAPS).status(server).await == 200;
    until("heaps are served", served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_wait_for_memory() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--memory-limit-bytes=1073741824",
        "--decoded-body-memory-bytes=134217728",
    ];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    define_heaps(&server).await;
    let lists = vec!["[]"; 500_000].join(",");
    let heap = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Heap","metadata":{{"name":"h"}},"spec":[{lists}]}}"#
    );
    let all = futures::future::join_all((0..REQUESTS).map(async |_| {
        let large = ask("POST", HEAPS).body(JSON, heap.clone());
        large.send(&server).await.status
    }));
    let small = async {
        let map = json!({"metadata": {"name": "m"}});
        let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
        // Nodes and administrators share a part of their own, so this one waits with them.
        ask("POST", path).json(&map).status(&server).await
    };
    let (all, small) = tokio::join!(all, small);
    assert!(all.iter().all(|code| matches!(code, 201 | 429)), "{all:?}");
    assert!(all.contains(&201), "{all:?}");
    assert!(matches!(small, 201 | 429), "{small}");
    let peak = server.memory_kib("VmHWM");
    assert!(peak < PEAK_MEMORY, "{peak} KiB");

    // Each of its two pools has room for the largest body there may be.
    let wanted = [
        "keelson_memory_budget_bytes{budget=\"decoded_bodies\"} 2.01326592e+08",
        "keelson_memory_budget_bytes{budget=\"request_bodies\"} 6.7108864e+07",
        "keelson_memory_budget_used_bytes{budget=\"decoded_bodies\"} 0",
        "keelson_memory_budget_used_bytes{budget=\"request_bodies\"} 0",
    ];
    // A request gives its memory back a moment after its answer.
    let begun = std::time::Instant::now();
    loop {
        let shown = server.metrics().await;
        let missing = wanted
            .iter()
            .find(|line| !shown.lines().any(|one| one == **line));
        match missing {
            None => return,
            Some(line) => assert!(begun.elapsed() < super::PATIENCE, "no {line}"),
        }
    }
}
