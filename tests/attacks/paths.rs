//! Paths that imitate others.

use serde_json::{Value, json};

use crate::support::TestServer;
use crate::{Ask, ask, both, embedded};

const MERGE: &str = "application/merge-patch+json";
/// A user who may do anything in one namespace and nothing elsewhere.
const TENANT: &str = "tenant";

/// A request by the tenant.
fn tenant<'a>(method: &'a str, path: &'a str) -> Ask<'a> {
    ask(method, path).header("Impersonate-User", TENANT)
}

/// Creates an object, which must work.
pub async fn create(server: &TestServer, path: &str, object: &Value) -> Value {
    let (status, answer) = ask("POST", path).json(object).answer(server).await;
    assert_eq!(status, 201, "{path}: {answer}");
    answer
}

async fn namespace(server: &TestServer, name: &str) {
    create(
        server,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": name}}),
    )
    .await;
}

/// Gives a user a ClusterRole in a namespace.
async fn bind(server: &TestServer, namespace: &str, role: &str, user: &str) {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user});
    let role_ref =
        json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role});
    create(server, &path, &json!({"metadata": {"name": format!("{role}-{user}")}, "subjects": [subject], "roleRef": role_ref})).await;
}

/// Waits until the tenant is known to own its namespace.
async fn owned(server: &TestServer) {
    for _ in 0..1000 {
        if tenant("GET", "/api/v1/namespaces/own/configmaps")
            .status(server)
            .await
            == 200
        {
            return;
        }
    }
    panic!("the binding of the tenant does not come into force");
}

async fn define(server: &TestServer, plural: &str, kind: &str, scope: &str) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
    let spec =
        json!({"group": "example.com", "scope": scope, "names": names, "versions": [version]});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(
        server,
        path,
        &json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": spec}),
    )
    .await;
    let list = format!("/apis/example.com/v1/{plural}");
    for _ in 0..1000 {
        if ask("GET", &list).status(server).await == 200 {
            return;
        }
    }
    panic!("{plural} are not served");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_not_inside_a_namespace() {
    both(&[], async |server| {
        for (method, path) in [
            ("GET", "/api/v1/namespaces/default/namespaces"),
            (
                "GET",
                "/api/v1/namespaces/default/namespaces?watch=1&timeoutSeconds=1",
            ),
            ("GET", "/api/v1/namespaces/default/namespaces/kube-system"),
            ("GET", "/api/v1/namespaces/default/namespaces/default"),
            (
                "DELETE",
                "/api/v1/namespaces/default/namespaces/kube-node-lease",
            ),
            ("GET", "/api/v1/watch/namespaces/default/namespaces"),
            (
                "GET",
                "/api/v1/watch/namespaces/default/namespaces/kube-system?timeoutSeconds=1",
            ),
        ] {
            assert_eq!(
                ask(method, path).status(server).await,
                404,
                "{method} {path}"
            );
        }
        assert_eq!(
            ask("GET", "/api/v1/namespaces/default")
                .status(server)
                .await,
            200
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_in_a_namespace_are_none_over_namespaces() {
    both(&[], async |server| {
        namespace(server, "own").await;
        namespace(server, "other").await;
        for role in ["system:aggregate-to-view", "system:aggregate-to-edit", "system:aggregate-to-admin", "cluster-admin"] {
            bind(server, "own", role, TENANT).await;
        }
        owned(server).await;
        let prefixes = ["/api/v1/namespaces/own/namespaces", "/api/v1/watch/namespaces/own/namespaces"];
        let suffixes =
            ["", "/", "/own", "/other", "/other/", "/other/status", "/other/finalize", "/own/status", "/other/x/y", "/.", "/..", "/%2e%2e"];
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"taken": "yes"}}});
        for path in prefixes.iter().flat_map(|prefix| suffixes.iter().map(move |suffix| format!("{prefix}{suffix}"))) {
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
                let media = if method == "PATCH" { MERGE } else { crate::JSON };
                let request = tenant(method, &format!("{path}?timeoutSeconds=1")).body(media, body.to_string()).status(server).await;
                // Where rights in the namespace do not matter authorization refuses first.
                assert!(matches!(request, 403..=405), "{method} {path}: {request}");
            }
        }
        // Nodes and roles of the cluster neither.
        for path in ["/api/v1/namespaces/own/nodes", "/apis/rbac.authorization.k8s.io/v1/namespaces/own/clusterroles/cluster-admin"] {
            assert_eq!(tenant("GET", path).status(server).await, 404, "{path}");
        }
        // The tenant's own namespace is its own.
        assert_eq!(tenant("GET", "/api/v1/namespaces/own").status(server).await, 200);
        assert_eq!(tenant("GET", "/api/v1/namespaces/other").status(server).await, 403);
        assert_eq!(tenant("GET", "/api/v1/namespaces").status(server).await, 403);
        let (_, other) = ask("GET", "/api/v1/namespaces/other").answer(server).await;
        assert_eq!((&other["metadata"]["labels"]["taken"], &other["metadata"]["deletionTimestamp"]), (&Value::Null, &Value::Null));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_of_the_cluster_are_not_inside_a_namespace() {
    both(&[], async |server| {
        namespace(server, "own").await;
        bind(server, "own", "cluster-admin", TENANT).await;
        owned(server).await;
        define(server, "things", "Thing", "Cluster").await;
        define(server, "namespaces", "Space", "Cluster").await;
        define(server, "parts", "Part", "Namespaced").await;
        let group = "/apis/example.com/v1";
        let of = |kind: &str, name: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}});
        create(server, &format!("{group}/things"), &of("Thing", "own")).await;
        create(server, &format!("{group}/namespaces"), &of("Space", "own")).await;
        create(server, &format!("{group}/namespaces/own/parts"), &of("Part", "own")).await;
        for path in [
            "/namespaces/own/things",
            "/namespaces/own/things/own",
            "/namespaces/own/things/own/status",
            "/watch/namespaces/own/things",
            // A kind of the cluster that is called as namespaces are: its objects are not
            // namespaces.
            "/namespaces/own",
            "/namespaces/own/status",
            "/namespaces/own/namespaces/own",
            "/watch/namespaces/own",
            "/parts/own",
        ] {
            for method in ["GET", "PUT", "PATCH", "DELETE"] {
                let media = if method == "PATCH" { MERGE } else { crate::JSON };
                let path = format!("{group}{path}?timeoutSeconds=1");
                let status = ask(method, &path).body(media, "{}").status(server).await;
                assert_eq!(status, 404, "{method} {path}");
                let status = tenant(method, &path).body(media, "{}").status(server).await;
                assert!(matches!(status, 403 | 404), "{method} {path}: {status}");
            }
        }
        assert_eq!(ask("GET", &format!("{group}/things/own")).status(server).await, 200);
        assert_eq!(tenant("GET", &format!("{group}/namespaces/own/parts/own")).status(server).await, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_read_once() {
    both(&[], async |server| {
        namespace(server, "own").await;
        namespace(server, "other").await;
        for role in ["system:aggregate-to-view", "system:aggregate-to-edit"] {
            bind(server, "own", role, TENANT).await;
        }
        owned(server).await;
        create(
            server,
            "/api/v1/namespaces/other/secrets",
            &json!({"metadata": {"name": "s"}}),
        )
        .await;
        for path in [
            "/api/v1/namespaces/own/../other/secrets/s",
            "/api/v1/namespaces/own/..%2fother/secrets/s",
            "/api/v1/namespaces/own%2f..%2fother/secrets/s",
            "/api/v1/namespaces/own/secrets/..%2f..%2fother%2fs",
            "/api/v1/namespaces/own/secrets/%2e%2e/%2e%2e/other/secrets/s",
            "/api/v1/namespaces/own//../other/secrets/s",
            "/api/v1/namespaces//other/secrets/s",
            "/api/v1//namespaces/other/secrets/s",
            "//api/v1/namespaces/other/secrets/s",
            "/api/v1/./namespaces/other/secrets/s",
            "/API/v1/namespaces/other/secrets/s",
            "/api/V1/namespaces/other/secrets/s",
            "/api/v1/Namespaces/other/secrets/s",
            "/api/v1/namespaces/Other/secrets/s",
            "/api/v1/namespaces/other/Secrets/s",
            "/api/v1/namespaces/own/secrets/s?namespace=other",
            "/api/v1/namespaces/own/secrets?fieldSelector=metadata.namespace%3Dother",
            "/api/v1/namespaces/other/secrets/s/",
            "/api/v1/namespaces/other/secrets/s%00",
            "/api/v1/namespaces/other/secrets/s%2f",
            "/api/v1/watch/namespaces/other/secrets/s",
            "/api/v1/proxy/namespaces/own/secrets/s",
        ] {
            let (status, answer) = tenant("GET", path).answer(server).await;
            let empty = status == 200 && answer["items"] == json!([]);
            assert!(
                matches!(status, 400 | 403 | 404 | 405) || empty,
                "{path}: {status} {answer}"
            );
        }
        // Slashes at the end mean nothing.
        assert_eq!(
            ask("GET", "/api/v1/namespaces/other/secrets/s/")
                .status(server)
                .await,
            200
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn continue_tokens_stay_in_their_namespace() {
    use base64::Engine;
    both(&[], async |server| {
        namespace(server, "own").await;
        namespace(server, "zother").await;
        for role in ["system:aggregate-to-view", "system:aggregate-to-edit"] {
            bind(server, "own", role, TENANT).await;
        }
        owned(server).await;
        create(
            server,
            "/api/v1/namespaces/zother/secrets",
            &json!({"metadata": {"name": "s"}}),
        )
        .await;
        let (_, list) = ask("GET", "/api/v1/namespaces").answer(server).await;
        let revision: i64 = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        for start in [
            "../zother/s",
            "/../zother/s",
            "a\u{0}/../../zother/",
            "\u{0}",
            "zz",
        ] {
            for (revision, ahead) in [
                (revision, 1),
                (revision, i64::MIN),
                (revision, i64::MAX),
                (-1, 0),
                (i64::MIN, 0),
                (i64::MAX, 0),
                (1, 0),
            ] {
                let token =
                    json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start, "ahead": ahead});
                let token = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(token.to_string());
                for limit in ["", "&limit=1", "&limit=9223372036854775807"] {
                    let path = format!("/api/v1/namespaces/own/secrets?continue={token}{limit}");
                    let (status, answer) = tenant("GET", &path).answer(server).await;
                    assert!(
                        status < 500 || status == 504,
                        "{start:?} {revision} {ahead}{limit}: {status} {answer}"
                    );
                    assert!(!answer["items"].to_string().contains("zother"), "{answer}");
                    let path = format!("/api/v1/configmaps?continue={token}{limit}");
                    let status = ask("GET", &path).status(server).await;
                    assert!(
                        status < 500 || status == 504,
                        "{start:?} {revision} {ahead}{limit}: {status}"
                    );
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deprecated_verbs_in_paths_are_for_watches() {
    both(&[], async |server| {
        create(
            server,
            "/api/v1/namespaces/default/configmaps",
            &json!({"metadata": {"name": "a"}}),
        )
        .await;
        for path in [
            "/api/v1/watch/configmaps",
            "/api/v1/watch/namespaces/default/configmaps/a",
            "/api/v1/watch/namespaces/default",
        ] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "HEAD"] {
                assert_eq!(
                    ask(method, path).status(server).await,
                    405,
                    "{method} {path}"
                );
            }
        }
        for path in [
            "/api/v1/watch/namespaces/default/status",
            "/api/v1/watch/namespaces/default/finalize",
            "/api/v1/watch/namespaces/default/pods/p/log",
            "/api/v1/watch/namespaces/default/pods/p/status",
            "/api/v1/watch/configmaps/a",
            "/api/v1/watch/componentstatuses",
            "/api/v1/proxy/namespaces/default/pods/p",
            "/api/v1/proxy/nodes/n",
        ] {
            assert_eq!(
                ask("GET", &format!("{path}?timeoutSeconds=1"))
                    .status(server)
                    .await,
                404,
                "{path}"
            );
        }
        let watch = ask(
            "GET",
            "/api/v1/watch/namespaces/default/configmaps/a?timeoutSeconds=1",
        )
        .send(server)
        .await;
        assert_eq!(watch.status, 200);
        for path in [
            "/api/v1/configmaps",
            "/api/v1/namespaces/default/configmaps/a",
            "/api/v1/namespaces/default",
            "/api/v1/namespaces/default/pods/p/log",
        ] {
            assert_eq!(ask("HEAD", path).status(server).await, 405, "HEAD {path}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_of_deprecated_watches_give_a_kubelet_nothing() {
    both(&[], async |server| {
        let own = "fieldSelector=spec.nodeName%3Dn&timeoutSeconds=1";
        for (path, want) in [
            (format!("/api/v1/pods?watch=1&{own}"), 200),
            (format!("/api/v1/watch/pods?{own}"), 403),
            (
                format!("/api/v1/watch/namespaces/default/pods/p?{own}"),
                403,
            ),
        ] {
            let kubelet = ask("GET", &path)
                .header("Impersonate-User", "system:node:n")
                .header("Impersonate-Group", "system:nodes");
            assert_eq!(kubelet.status(server).await, want, "{path}");
        }
    })
    .await;
}

/// Bodies in another version of a kind are told so; of what nobody knows, something else is said.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_in_another_version_are_told_so() {
    let (_folder, server) = embedded(&[]).await;
    let another = |given: &str, expected: &str| {
        format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )
    };
    let unknown = "Deployment in version \"v7\" cannot be handled as a Deployment: no kind \"Deployment\" is registered for version \"apps/v7\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    for (path, given, kind, want) in [
        (
            definitions,
            "apiextensions.k8s.io/v1beta1",
            "CustomResourceDefinition",
            another("apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v1"),
        ),
        (
            deployments,
            "extensions/v1beta1",
            "Deployment",
            another("extensions/v1beta1", "apps/v1"),
        ),
        (deployments, "apps/v7", "Deployment", unknown.to_owned()),
        (
            autoscalers,
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            another("autoscaling/v1", "autoscaling/v2"),
        ),
        (
            "/api/v1/namespaces/default/events",
            "events.k8s.io/v1",
            "Event",
            another("events.k8s.io/v1", "v1"),
        ),
    ] {
        let body = json!({"apiVersion": given, "kind": kind, "metadata": {"name": "x"}});
        let (status, answer) = ask("POST", path).json(&body).answer(&server).await;
        assert_eq!((status, answer["message"].as_str()), (400, Some(&*want)));
    }
}
