//! kube-rs as the client: the verbs on typed and dynamic objects, and a watch, as a controller's
//! author sees them.

mod support;

use std::collections::BTreeMap;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
    WatchEvent, WatchParams,
};
use kube::discovery::Discovery;
use kube::{Api, Client, Error, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::{ADMIN, TestServer, USER};

fn parse<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of its kind")
}

fn config(name: &str, labels: &[(&str, &str)], value: &str) -> ConfigMap {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    parse(json!({"metadata": {"name": name, "labels": labels}, "data": {"key": value}}))
}

fn deployment(name: &str) -> Deployment {
    parse(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}},
        },
    }))
}

/// The Status of a failed request: its code and reason.
fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("a Status was expected, not {other:?}"),
    }
}

/// The type and name of the next event.
async fn next<K: ResourceExt>(
    events: &mut (impl Stream<Item = Result<WatchEvent<K>, Error>> + Unpin),
) -> (&'static str, String) {
    match events
        .next()
        .await
        .expect("the watch goes on")
        .expect("an event")
    {
        WatchEvent::Added(object) => ("ADDED", object.name_any()),
        WatchEvent::Modified(object) => ("MODIFIED", object.name_any()),
        WatchEvent::Deleted(object) => ("DELETED", object.name_any()),
        WatchEvent::Bookmark(_) => ("BOOKMARK", String::new()),
        WatchEvent::Error(status) => panic!("{status:?}"),
    }
}

#[tokio::test]
async fn the_life_of_a_config_map() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(ADMIN), "default");
    let post = PostParams::default();

    let made = api
        .create(&post, &config("a", &[], "1"))
        .await
        .expect("created");
    assert!(
        made.uid().is_some()
            && made.resource_version().is_some()
            && made.creation_timestamp().is_some()
    );
    assert_eq!(
        failure(api.create(&post, &config("a", &[], "1")).await),
        (409, "AlreadyExists".to_owned())
    );
    assert_eq!(api.get("a").await.expect("found"), made);

    let mut changed = made.clone();
    changed.data = Some(BTreeMap::from([("key".to_owned(), "2".to_owned())]));
    let changed = api.replace("a", &post, &changed).await.expect("replaced");
    assert_ne!(changed.resource_version(), made.resource_version());
    let stale = api
        .replace(
            "a",
            &post,
            &ConfigMap {
                data: None,
                ..made.clone()
            },
        )
        .await;
    assert_eq!(failure(stale), (409, "Conflict".to_owned()));

    let patch = Patch::Merge(json!({"data": {"key": null, "other": "3"}}));
    let patched = api
        .patch("a", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    assert_eq!(
        patched.data,
        Some(BTreeMap::from([("other".to_owned(), "3".to_owned())]))
    );
    let same = api
        .patch("a", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    assert_eq!(
        same.resource_version(),
        patched.resource_version(),
        "a patch that changes nothing writes nothing"
    );

    api.delete("a", &DeleteParams::default())
        .await
        .expect("deleted");
    assert_eq!(failure(api.get("a").await), (404, "NotFound".to_owned()));
}

#[tokio::test]
async fn lists_by_label_and_by_page() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(ADMIN), "default");
    for (name, tier) in [
        ("a", "front"),
        ("b", "back"),
        ("c", "front"),
        ("d", "back"),
        ("e", "front"),
    ] {
        api.create(&PostParams::default(), &config(name, &[("tier", tier)], ""))
            .await
            .expect("created");
    }
    let names = |items: Vec<ConfigMap>| items.iter().map(ResourceExt::name_any).collect::<Vec<_>>();

    let front = api
        .list(&ListParams::default().labels("tier=front"))
        .await
        .expect("listed");
    assert_eq!(names(front.items), ["a", "c", "e"]);
    let one = api
        .list(&ListParams::default().fields("metadata.name=b"))
        .await
        .expect("listed");
    assert_eq!(names(one.items), ["b"]);

    let (mut pages, mut params) = (Vec::new(), ListParams::default().labels("tier").limit(2));
    loop {
        let page = api.list(&params).await.expect("a page");
        let token = page
            .metadata
            .continue_
            .clone()
            .filter(|token| !token.is_empty());
        pages.push(names(page.items));
        let Some(token) = token else { break };
        params = params.continue_token(&token);
    }
    assert_eq!(pages, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
}

#[tokio::test]
async fn pages_tell_what_remains_of_the_state_they_began_with() {
    let server = TestServer::start().await;
    let client = server.client(ADMIN);
    let (api, everywhere) = (
        Api::<ConfigMap>::namespaced(client.clone(), "default"),
        Api::<ConfigMap>::all(client),
    );
    let post = PostParams::default();
    for name in ["a", "b", "c", "d", "e"] {
        api.create(&post, &config(name, &[], ""))
            .await
            .expect("created");
    }
    for (round, listed) in [&api, &everywhere].into_iter().enumerate() {
        let all = listed
            .list(&ListParams::default())
            .await
            .expect("listed")
            .items
            .len();
        let (mut seen, mut params) = (0, ListParams::default().limit(2));
        loop {
            let page = listed.list(&params).await.expect("a page");
            seen += page.items.len();
            assert_eq!(
                page.metadata.remaining_item_count,
                (seen < all).then_some((all - seen) as i64)
            );
            api.create(&post, &config(&format!("later-{round}-{seen}"), &[], ""))
                .await
                .expect("created");
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                break;
            };
            params = params.continue_token(&token);
        }
        assert_eq!(seen, all);
    }
}

#[tokio::test]
async fn rows_show_as_much_of_an_object_as_was_asked_for() {
    let server = TestServer::start().await;
    let client = server.client(ADMIN);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    api.create(
        &PostParams::default(),
        &config("a", &[("tier", "back")], "1"),
    )
    .await
    .expect("created");
    let path = "/api/v1/namespaces/default/configmaps";
    let get = async |path: String, accept: &str| -> Value {
        client
            .request(
                http::Request::get(path)
                    .header("Accept", accept)
                    .body(Vec::new())
                    .unwrap(),
            )
            .await
            .expect("answered")
    };
    let whole = get(format!("{path}/a"), "application/json").await;
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]});
    for (include, want) in [
        ("None", Value::Null),
        ("Metadata", partial),
        ("Object", whole),
    ] {
        for path in [path.to_owned(), format!("{path}/a")] {
            let table = get(
                format!("{path}?includeObject={include}"),
                "application/json;as=Table;v=v1;g=meta.k8s.io",
            )
            .await;
            assert_eq!(table["rows"][0]["object"], want, "{path} {include}");
        }
    }
}

/// Objects that are got often are rendered once, from their items in lists.
#[tokio::test]
async fn an_object_is_the_same_however_often_it_is_got() {
    let server = TestServer::start().await;
    let client = server.client(ADMIN);
    let scaler = json!({
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let scalers: Api<HorizontalPodAutoscaler> = Api::namespaced(client.clone(), "default");
    scalers
        .create(&PostParams::default(), &parse(scaler))
        .await
        .expect("created");
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    configs
        .create(
            &PostParams::default(),
            &config("a", &[("tier", "back")], "1"),
        )
        .await
        .expect("created");

    let get = async |path: String| {
        client
            .request_text(http::Request::get(path).body(Vec::new()).unwrap())
            .await
            .expect("got")
    };
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut change = configs.get("a").await.expect("got");
    change.data = Some([("key".to_owned(), "unseen".to_owned())].into());
    for (api_version, path) in [
        ("v1", "/api/v1/namespaces/default/configmaps"),
        (
            "autoscaling/v1",
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
        ),
        (
            "autoscaling/v2",
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        ),
    ] {
        let first = get(format!("{path}/a")).await;
        let object: Value = serde_json::from_str(&first).expect("JSON");
        assert_eq!(object["apiVersion"], api_version);
        for _ in 0..3 {
            assert_eq!(get(format!("{path}/a")).await, first);
            configs.replace("a", &dry, &change).await.expect("tried");
        }
        let list: Value = serde_json::from_str(&get(path.to_owned()).await).expect("JSON");
        let mut item = object.clone();
        item.as_object_mut()
            .expect("an object")
            .retain(|key, _| key != "kind" && key != "apiVersion");
        assert_eq!(list["items"][0], item, "without its kind");
        assert_eq!(get(format!("{path}/a")).await, first);
        let indented: Value =
            serde_json::from_str(&get(format!("{path}/a?pretty=true")).await).expect("JSON");
        assert_eq!(indented, object);
    }
    configs
        .replace("a", &PostParams::default(), &change)
        .await
        .expect("changed");
    for _ in 0..4 {
        assert_eq!(configs.get("a").await.expect("got").data, change.data);
    }
}

/// Annotations that a conversion adds belong to the object in that version: lists of metadata show
/// it, Tables do not.
#[tokio::test]
async fn tables_show_no_metadata_of_a_conversion() {
    let server = TestServer::start().await;
    let client = server.client(ADMIN);
    let scaler = json!({
        "metadata": {"name": "a"},
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}],
        },
    });
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &parse(scaler))
        .await
        .expect("created");
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    for (form, at, shown) in [
        ("PartialObjectMetadataList", "/items/0", true),
        ("Table", "/rows/0/object", false),
    ] {
        let accept = format!("application/json;as={form};v=v1;g=meta.k8s.io");
        let list: Value = client
            .request(
                http::Request::get(path)
                    .header("Accept", accept)
                    .body(Vec::new())
                    .unwrap(),
            )
            .await
            .expect("listed");
        assert_eq!(list["kind"], form);
        assert_eq!(
            list.pointer(&format!("{at}/metadata/annotations"))
                .is_some(),
            shown,
            "{list}"
        );
    }
}

#[tokio::test]
async fn a_watch_tells_every_change() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(ADMIN), "default");
    let from = api
        .list(&ListParams::default())
        .await
        .expect("listed")
        .metadata
        .resource_version
        .expect("a version");
    let mut events = api
        .watch(&WatchParams::default().labels("seen=yes"), &from)
        .await
        .expect("a watch")
        .boxed();

    let post = PostParams::default();
    api.create(&post, &config("unseen", &[], "1"))
        .await
        .expect("created");
    api.create(&post, &config("seen", &[("seen", "yes")], "1"))
        .await
        .expect("created");
    assert_eq!(next(&mut events).await, ("ADDED", "seen".to_owned()));
    let patch = Patch::Merge(json!({"data": {"key": "2"}}));
    api.patch("seen", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    assert_eq!(next(&mut events).await, ("MODIFIED", "seen".to_owned()));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": null}}}));
    api.patch("seen", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    assert_eq!(
        next(&mut events).await,
        ("DELETED", "seen".to_owned()),
        "it no longer matches"
    );
}

#[tokio::test]
async fn defaults_of_a_deployment_and_its_scale() {
    let server = TestServer::start().await;
    let api: Api<Deployment> = Api::namespaced(server.client(ADMIN), "default");
    let made = api
        .create(&PostParams::default(), &deployment("web"))
        .await
        .expect("created");
    let spec = made.spec.as_ref().expect("a spec");
    assert_eq!(
        (
            spec.replicas,
            spec.revision_history_limit,
            spec.progress_deadline_seconds
        ),
        (Some(1), Some(10), Some(600))
    );
    let pod = spec.template.spec.as_ref().expect("a pod");
    assert_eq!(
        pod.containers[0].image_pull_policy.as_deref(),
        Some("Always")
    );
    assert_eq!(pod.restart_policy.as_deref(), Some("Always"));
    assert_eq!(made.metadata.generation, Some(1));

    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scale = api
        .patch_scale("web", &PatchParams::default(), &scale)
        .await
        .expect("scaled");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(3));
    let strategic = Patch::Strategic(
        json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}}}),
    );
    let patched = api
        .patch("web", &PatchParams::default(), &strategic)
        .await
        .expect("patched");
    assert_eq!(patched.metadata.generation, Some(3));
    let status = Patch::Merge(json!({"status": {"replicas": 3}, "spec": {"replicas": 9}}));
    let patched = api
        .patch_status("web", &PatchParams::default(), &status)
        .await
        .expect("patched");
    assert_eq!(patched.status.and_then(|status| status.replicas), Some(3));
    assert_eq!(
        patched.spec.and_then(|spec| spec.replicas),
        Some(3),
        "status leaves the spec alone"
    );

    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    api.delete("web", &foreground).await.expect("accepted");
    let waiting = api.get("web").await.expect("still there");
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    assert!(waiting.metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn kinds_of_every_sort() {
    let server = TestServer::start().await;
    let client = server.client(ADMIN);
    let post = PostParams::default();

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made = namespaces
        .create(&post, &parse(json!({"metadata": {"name": "team"}})))
        .await
        .expect("created");
    assert_eq!(
        made.labels()
            .get("kubernetes.io/metadata.name")
            .map(String::as_str),
        Some("team")
    );

    let secrets: Api<Secret> = Api::namespaced(client.clone(), "team");
    let secret = secrets
        .create(
            &post,
            &parse(json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})),
        )
        .await
        .expect("created");
    assert_eq!(
        secret
            .data
            .and_then(|data| data.get("k").map(|bytes| bytes.0.clone())),
        Some(b"v".to_vec())
    );

    let services: Api<Service> = Api::namespaced(client.clone(), "team");
    let service = parse(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}));
    let spec = services
        .create(&post, &service)
        .await
        .expect("created")
        .spec
        .expect("a spec");
    assert!(
        spec.cluster_ip.is_some_and(|ip| ip.starts_with("10.96.")),
        "an address of the range"
    );

    let roles: Api<ClusterRole> = Api::all(client.clone());
    assert!(
        roles
            .get("cluster-admin")
            .await
            .expect("a bootstrap role")
            .rules
            .is_some()
    );

    // A controller of Kubernetes makes it; a pod needs one.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "team");
    accounts
        .create(&post, &parse(json!({"metadata": {"name": "default"}})))
        .await
        .expect("created");
    let pods: Api<Pod> = Api::namespaced(client, "team");
    let invalid = parse(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
    assert_eq!(
        failure(pods.create(&post, &invalid).await),
        (422, "Invalid".to_owned())
    );
    let missing = Api::<Secret>::namespaced(server.client(ADMIN), "nowhere");
    let secret = parse(json!({"metadata": {"name": "s"}}));
    assert_eq!(
        failure(missing.create(&post, &secret).await),
        (404, "NotFound".to_owned())
    );
}

/// Any writer of a pod that is marked as deleted without grace removes it, not only the client that
/// deletes it.
#[tokio::test]
async fn a_pod_is_deleted_while_its_kubelet_writes() {
    let server = TestServer::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(ADMIN), "default");
    accounts
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "default"}})),
        )
        .await
        .expect("an account");
    let pods: Api<Pod> = Api::namespaced(server.client(ADMIN), "default");
    let pod: Pod = parse(
        json!({"metadata": {"name": "web"}, "spec": {"nodeName": "node", "containers": [{"name": "web", "image": "nginx"}]}}),
    );
    for _ in 0..30 {
        pods.create(&PostParams::default(), &pod)
            .await
            .expect("a pod");
        let kubelet = async {
            for number in 0..4 {
                let status = Patch::Merge(json!({"status": {"message": number.to_string()}}));
                // It may be gone already.
                let _ = pods
                    .patch_status("web", &PatchParams::default(), &status)
                    .await;
            }
        };
        let at_once = DeleteParams::default().grace_period(0);
        let ((), deleted) = tokio::join!(kubelet, pods.delete("web", &at_once));
        deleted.expect("it was there, and is gone");
    }
}

#[tokio::test]
async fn discovery_leads_to_every_kind() {
    let server = TestServer::start().await;
    let client = server.client(ADMIN);
    let version = client.apiserver_version().await.expect("a version");
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "36")
    );
    let discovery = Discovery::new(client.clone())
        .run()
        .await
        .expect("discovery");
    for group in [
        "",
        "apps",
        "batch",
        "rbac.authorization.k8s.io",
        "coordination.k8s.io",
        "networking.k8s.io",
    ] {
        let group = discovery
            .get(group)
            .unwrap_or_else(|| panic!("group {group:?}"));
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation("list") {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                let listed = api.list(&ListParams::default()).await;
                listed.unwrap_or_else(|error| panic!("list {}: {error}", resource.plural));
            }
        }
    }
}

#[tokio::test]
async fn unauthorized_requests_are_refused_by_default() {
    let server = TestServer::start().await;
    let forbidden = |client: Client| async move {
        let api: Api<Secret> = Api::namespaced(client, "default");
        failure(api.list(&ListParams::default()).await)
    };
    assert_eq!(
        forbidden(server.client(USER)).await,
        (403, "Forbidden".to_owned())
    );
    assert_eq!(
        forbidden(server.client("wrong")).await,
        (401, "Unauthorized".to_owned())
    );
    server
        .client(USER)
        .apiserver_version()
        .await
        .expect("the version is public");
}
