//! The controllers of `--controllers`, on servers in this process.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use keelson::Server;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// The time within which what must happen does.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of polling for an expected state.
const LOOK: Duration = Duration::from_millis(10);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server with some controllers, and its administrator.
struct Plane {
    client: Client,
    server: Server,
}

impl Plane {
    async fn start(controllers: &str) -> Self {
        let server = Server::builder()
            .flag("controllers", controllers)
            .flag("disable-admission-plugins", "ServiceAccount")
            .start()
            .await
            .unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Self {
            client: Client::try_from(config.unwrap()).unwrap(),
            server,
        }
    }

    /// The status code and the body of an answer.
    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", kind)
            .body(if body.is_null() {
                Vec::new()
            } else {
                body.to_string().into_bytes()
            })
            .unwrap();
        match self.client.request::<Value>(request).await {
            Ok(value) => (200, value),
            Err(kube::Error::Api(status)) => (status.code, json!({"message": status.message})),
            Err(why) => panic!("{method} {path}: {why}"),
        }
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let (code, made) = self.send("POST", path, "application/json", &object).await;
        assert_eq!(code, 200, "{path}: {made}");
        made
    }

    async fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, "", &Value::Null).await {
            (200, object) => Some(object),
            (404, _) => None,
            other => panic!("{path}: {other:?}"),
        }
    }

    async fn replace(&self, path: &str, object: &Value) {
        let (code, answer) = self.send("PUT", path, "application/json", object).await;
        assert_eq!(code, 200, "{path}: {answer}");
    }

    async fn patch(&self, path: &str, patch: Value) {
        let kind = "application/merge-patch+json";
        let (code, answer) = self.send("PATCH", path, kind, &patch).await;
        assert_eq!(code, 200, "{path}: {answer}");
    }

    async fn delete(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let (code, answer) = self
            .send("DELETE", path, "application/json", &options)
            .await;
        assert_eq!(code, 200, "{path}: {answer}");
    }

    /// Waits until an object is (or, for `None`, is not) as it should be.
    async fn until(&self, path: &str, fits: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let begun = Instant::now();
        loop {
            let now = self.get(path).await;
            if fits(now.as_ref()) {
                return now;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {now:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn until_gone(&self, path: &str) {
        self.until(path, |object| object.is_none()).await;
    }

    async fn config_map(&self, name: &str, owners: &[Value], extra: Value) -> Value {
        let mut metadata = json!({"name": name, "ownerReferences": owners});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().cloned().unwrap_or_default());
        self.create(CONFIG_MAPS, json!({"metadata": metadata}))
            .await
    }

    /// Waits until the garbage collector has seen everything that was written before.
    async fn settle(&self) {
        let nobody = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody",
        });
        self.config_map("settled", &[nobody], Value::Null).await;
        self.until_gone(&path("settled")).await;
    }
}

fn path(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

/// A reference to an owner.
fn owner(object: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    })
}

fn is_deleted(object: Option<&Value>) -> bool {
    object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
}

fn condition<'a>(namespace: &'a Value, name: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == name).unwrap()
}

/// Defines a custom resource, and waits until it is served.
async fn define(plane: &Plane, plural: &str, kind: &str, scope: &str) {
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    plane
        .create(
            definitions,
            json!({
                "metadata": {"name": format!("{plural}.example.com")},
                "spec": {
                    "group": "example.com", "scope": scope,
                    "names": {"plural": plural, "kind": kind}, "versions": [version],
                },
            }),
        )
        .await;
    let path = format!("/apis/example.com/v1/{plural}");
    plane.until(&path, |list| list.is_some()).await;
}

#[tokio::test]
async fn no_controller_runs_unless_the_flag_names_it() {
    let plane = Plane::start("").await;
    let nobody = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody",
    });
    plane.config_map("garbage", &[nobody], Value::Null).await;
    plane
        .create("/api/v1/namespaces", json!({"metadata": {"name": "empty"}}))
        .await;
    plane.delete("/api/v1/namespaces/empty", "Background").await;
    // Another server, which has as much to do, is done.
    let busy = Plane::start("*").await;
    busy.create("/api/v1/namespaces", json!({"metadata": {"name": "empty"}}))
        .await;
    busy.delete("/api/v1/namespaces/empty", "Background").await;
    busy.until_gone("/api/v1/namespaces/empty").await;
    busy.settle().await;
    plane.get("/api/v1/namespaces/empty").await.unwrap();
    plane.get(&path("garbage")).await.unwrap();
}

#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() {
    let plane = Plane::start("namespace").await;
    define(&plane, "crontabs", "CronTab", "Namespaced").await;
    let fill = async || {
        plane
            .create("/api/v1/namespaces", json!({"metadata": {"name": "full"}}))
            .await;
        for (path, kind, extra) in [
            ("/api/v1/namespaces/full/configmaps", "ConfigMap", json!({})),
            ("/api/v1/namespaces/full/secrets", "Secret", json!({})),
            (
                "/api/v1/namespaces/full/pods",
                "Pod",
                json!({"spec": {"containers": [{"name": "a", "image": "a"}]}}),
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/namespaces/full/roles",
                "Role",
                json!({}),
            ),
            (
                "/apis/example.com/v1/namespaces/full/crontabs",
                "CronTab",
                json!({"apiVersion": "example.com/v1"}),
            ),
        ] {
            for name in ["a", "b"] {
                let mut object = json!({"kind": kind, "metadata": {"name": name}});
                let fields = object.as_object_mut().unwrap();
                fields.extend(extra.as_object().cloned().unwrap());
                plane.create(path, object).await;
            }
        }
    };
    fill().await;
    plane.delete("/api/v1/namespaces/full", "Background").await;
    plane.until_gone("/api/v1/namespaces/full").await;
    // The next one of the name is empty.
    fill().await;
    plane.delete("/api/v1/namespaces/full", "Background").await;
    plane.until_gone("/api/v1/namespaces/full").await;
    // Others have lost nothing.
    plane.get("/api/v1/namespaces/default").await.unwrap();
}

#[tokio::test]
async fn a_namespace_waits_for_finalizers_and_says_so() {
    let plane = Plane::start("namespace").await;
    plane
        .create("/api/v1/namespaces", json!({"metadata": {"name": "held"}}))
        .await;
    let inside = "/api/v1/namespaces/held/configmaps";
    for (name, finalizers) in [("free", json!([])), ("kept", json!(["example.com/a"]))] {
        let metadata = json!({"name": name, "finalizers": finalizers});
        plane.create(inside, json!({"metadata": metadata})).await;
    }
    plane.delete("/api/v1/namespaces/held", "Background").await;
    let namespace = plane
        .until("/api/v1/namespaces/held", |object| {
            object.is_some_and(|object| object["status"]["conditions"].is_array())
        })
        .await
        .unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let remaining = condition(&namespace, "NamespaceContentRemaining");
    assert_eq!(
        remaining["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    let finalizers = condition(&namespace, "NamespaceFinalizersRemaining");
    assert_eq!(
        (
            &finalizers["status"],
            &finalizers["reason"],
            &finalizers["message"]
        ),
        (
            &json!("True"),
            &json!("SomeFinalizersRemain"),
            &json!(
                "Some content in the namespace has finalizers remaining: \
                 example.com/a in 1 resource instances"
            )
        )
    );
    assert_eq!(plane.get(&format!("{inside}/free")).await, None);
    plane
        .patch(
            &format!("{inside}/kept"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    plane.until_gone("/api/v1/namespaces/held").await;
}

#[tokio::test]
async fn pods_go_before_what_they_use() {
    let plane = Plane::start("namespace").await;
    plane
        .create(
            "/api/v1/namespaces",
            json!({"metadata": {"name": "ordered"}}),
        )
        .await;
    let root = "/api/v1/namespaces/ordered";
    let pod = json!({
        "metadata": {"name": "a", "finalizers": ["example.com/a"]},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    plane.create(&format!("{root}/pods"), pod).await;
    let secret = json!({"metadata": {"name": "used"}});
    plane.create(&format!("{root}/secrets"), secret).await;
    plane.delete(root, "Background").await;
    let pod = format!("{root}/pods/a");
    plane.until(&pod, is_deleted).await;
    // It looks again and again, and leaves the secret alone.
    let written = plane
        .until(root, |object| {
            object.is_some_and(|object| object["status"]["conditions"].is_array())
        })
        .await
        .unwrap();
    assert_eq!(written["status"]["phase"], "Terminating");
    plane.get(&format!("{root}/secrets/used")).await.unwrap();
    plane
        .patch(&pod, json!({"metadata": {"finalizers": null}}))
        .await;
    plane.until_gone(root).await;
}

#[tokio::test]
async fn a_namespace_stays_while_an_extension_server_does_not_answer() {
    let world = Plane::start("namespace").await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let dead = json!({
        "metadata": {"name": "v1.dead.example.com"},
        "spec": {
            "group": "dead.example.com", "version": "v1", "groupPriorityMinimum": 100,
            "versionPriority": 10, "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "none"},
        },
    });
    world.create(services, dead).await;
    let path = "/api/v1/namespaces/waits";
    world
        .create("/api/v1/namespaces", json!({"metadata": {"name": "waits"}}))
        .await;
    let map = json!({"metadata": {"name": "mine"}});
    world.create(&format!("{path}/configmaps"), map).await;
    world.delete(path, "Background").await;
    let told = |namespace: Option<&Value>| {
        let conditions = namespace.and_then(|found| found["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "NamespaceDeletionDiscoveryFailure"
                && condition["status"] == "True"
                && condition["reason"] == "DiscoveryFailed"
                && condition["message"]
                    == "Discovery failed for some groups, 1 failing: unable to retrieve the \
                        complete list of server APIs: dead.example.com/v1: stale GroupVersion \
                        discovery: dead.example.com/v1"
        })
    };
    world.until(path, told).await;
    // What is known has gone.
    world.until_gone(&format!("{path}/configmaps/mine")).await;
    world
        .delete(&format!("{services}/v1.dead.example.com"), "Background")
        .await;
    world.until_gone(path).await;
}

#[tokio::test]
async fn a_namespace_stays_for_finalizers_of_its_own() {
    let plane = Plane::start("namespace").await;
    let object = json!({
        "metadata": {"name": "mine"},
        "spec": {"finalizers": ["kubernetes", "example.com/a"]},
    });
    plane.create("/api/v1/namespaces", object).await;
    let path = "/api/v1/namespaces/mine";
    plane.delete(path, "Background").await;
    let mut left = plane
        .until(path, |object| {
            object.is_some_and(|object| object["spec"]["finalizers"] == json!(["example.com/a"]))
        })
        .await
        .unwrap();
    left["spec"]["finalizers"] = json!([]);
    plane.replace(&format!("{path}/finalize"), &left).await;
    plane.until_gone(path).await;
}

#[tokio::test]
async fn dependents_go_when_their_last_owner_has_gone() {
    let plane = Plane::start("garbagecollector").await;
    let root = plane.config_map("root", &[], Value::Null).await;
    let other = plane.config_map("other", &[], Value::Null).await;
    let child = plane
        .config_map("child", &[owner(&root, false)], Value::Null)
        .await;
    plane
        .config_map("grandchild", &[owner(&child, false)], Value::Null)
        .await;
    let both = [owner(&root, false), owner(&other, false)];
    plane.config_map("shared", &both, Value::Null).await;
    plane.delete(&path("root"), "Background").await;
    plane.until_gone(&path("child")).await;
    plane.until_gone(&path("grandchild")).await;
    // What has another owner stays, and forgets the one that is gone.
    let shared = plane
        .until(&path("shared"), |object| {
            object.is_some_and(|object| {
                object["metadata"]["ownerReferences"]
                    .as_array()
                    .unwrap()
                    .len()
                    == 1
            })
        })
        .await
        .unwrap();
    assert_eq!(
        shared["metadata"]["ownerReferences"][0]["uid"],
        other["metadata"]["uid"]
    );
    plane.delete(&path("other"), "Background").await;
    plane.until_gone(&path("shared")).await;
}

#[tokio::test]
async fn owners_that_are_not_there_are_as_good_as_gone() {
    let plane = Plane::start("garbagecollector").await;
    let real = plane.config_map("real", &[], Value::Null).await;
    let mut wrong_uid = owner(&real, false);
    wrong_uid["uid"] = json!("another");
    plane
        .config_map("stranger", &[wrong_uid], Value::Null)
        .await;
    plane.until_gone(&path("stranger")).await;
    // An owner in another namespace is none, by name or by UID.
    let elsewhere = plane
        .create(
            "/api/v1/namespaces/kube-public/configmaps",
            json!({"metadata": {"name": "elsewhere"}}),
        )
        .await;
    plane
        .config_map("across", &[owner(&elsewhere, false)], Value::Null)
        .await;
    plane.until_gone(&path("across")).await;
    // An owner whose kind nobody serves may be back some day.
    let mut unknown = owner(&real, false);
    unknown["apiVersion"] = json!("example.com/v1");
    plane.config_map("patient", &[unknown], Value::Null).await;
    plane.settle().await;
    plane.get(&path("patient")).await.unwrap();
    plane.get(&path("real")).await.unwrap();
}

#[tokio::test]
async fn owners_without_a_namespace_own_what_is_in_one_and_not_the_reverse() {
    let plane = Plane::start("garbagecollector").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = plane
        .create(roles, json!({"metadata": {"name": "owner"}}))
        .await;
    let mut role = role;
    role["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    role["kind"] = json!("ClusterRole");
    plane
        .config_map("owned", &[owner(&role, false)], Value::Null)
        .await;
    let map = plane.config_map("inside", &[], Value::Null).await;
    let metadata = json!({"name": "outside", "ownerReferences": [owner(&map, false)]});
    plane.create(roles, json!({"metadata": metadata})).await;
    plane.delete(&path("inside"), "Background").await;
    plane.delete(&format!("{roles}/owner"), "Background").await;
    plane.until_gone(&path("owned")).await;
    plane.settle().await;
    plane.get(&format!("{roles}/outside")).await.unwrap();
}

#[tokio::test]
async fn an_owner_in_the_foreground_waits_for_those_who_block_it() {
    let plane = Plane::start("garbagecollector").await;
    let root = plane.config_map("root", &[], Value::Null).await;
    let held = json!({"finalizers": ["example.com/a"]});
    plane
        .config_map("blocking", &[owner(&root, true)], held.clone())
        .await;
    plane.config_map("idle", &[owner(&root, false)], held).await;
    plane
        .config_map("quick", &[owner(&root, true)], Value::Null)
        .await;
    plane.delete(&path("root"), "Foreground").await;
    plane.until_gone(&path("quick")).await;
    plane.until(&path("blocking"), is_deleted).await;
    plane.until(&path("idle"), is_deleted).await;
    plane.settle().await;
    assert!(is_deleted(plane.get(&path("root")).await.as_ref()));
    let free = json!({"metadata": {"finalizers": null}});
    plane.patch(&path("blocking"), free.clone()).await;
    plane.until_gone(&path("root")).await;
    assert!(is_deleted(plane.get(&path("idle")).await.as_ref()));
    plane.patch(&path("idle"), free).await;
    plane.until_gone(&path("idle")).await;
}

#[tokio::test]
async fn orphans_stay_without_an_owner() {
    let plane = Plane::start("garbagecollector").await;
    define(&plane, "crontabs", "CronTab", "Namespaced").await;
    let root = plane.config_map("root", &[], Value::Null).await;
    let other = plane.config_map("other", &[], Value::Null).await;
    let both = [owner(&root, true), owner(&other, false)];
    plane.config_map("built-in", &both, Value::Null).await;
    let crontabs = "/apis/example.com/v1/namespaces/default/crontabs";
    plane
        .create(
            crontabs,
            json!({
                "apiVersion": "example.com/v1", "kind": "CronTab",
                "metadata": {"name": "custom", "ownerReferences": both},
            }),
        )
        .await;
    plane.settle().await;
    plane.delete(&path("root"), "Orphan").await;
    plane.until_gone(&path("root")).await;
    for path in [path("built-in"), format!("{crontabs}/custom")] {
        let orphan = plane.get(&path).await.unwrap();
        assert_eq!(
            orphan["metadata"]["ownerReferences"],
            json!([owner(&other, false)]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn circles_do_not_wait_for_themselves() {
    let plane = Plane::start("garbagecollector").await;
    for policy in ["Background", "Foreground"] {
        let first = plane.config_map("first", &[], Value::Null).await;
        let second = plane
            .config_map("second", &[owner(&first, true)], Value::Null)
            .await;
        let third = plane
            .config_map("third", &[owner(&second, true)], Value::Null)
            .await;
        plane
            .patch(
                &path("first"),
                json!({"metadata": {"ownerReferences": [owner(&third, true)]}}),
            )
            .await;
        plane.settle().await;
        plane.delete(&path("first"), policy).await;
        for name in ["first", "second", "third"] {
            plane.until_gone(&path(name)).await;
        }
    }
}

#[tokio::test]
async fn custom_objects_own_and_are_owned_as_soon_as_they_are_served() {
    let plane = Plane::start("garbagecollector").await;
    define(&plane, "owners", "Owner", "Cluster").await;
    define(&plane, "things", "Thing", "Namespaced").await;
    let root = plane
        .create(
            "/apis/example.com/v1/owners",
            json!({"apiVersion": "example.com/v1", "kind": "Owner", "metadata": {"name": "a"}}),
        )
        .await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = plane
        .create(
            things,
            json!({
                "apiVersion": "example.com/v1", "kind": "Thing",
                "metadata": {"name": "b", "ownerReferences": [owner(&root, true)]},
            }),
        )
        .await;
    plane
        .config_map("c", &[owner(&thing, true)], Value::Null)
        .await;
    plane.settle().await;
    plane
        .delete("/apis/example.com/v1/owners/a", "Foreground")
        .await;
    plane.until_gone("/apis/example.com/v1/owners/a").await;
    plane.until_gone(&format!("{things}/b")).await;
    plane.until_gone(&path("c")).await;
}

#[tokio::test]
async fn each_namespace_has_a_default_account_and_the_authority() {
    let plane = Plane::start("serviceaccount,root-ca").await;
    plane
        .create("/api/v1/namespaces", json!({"metadata": {"name": "new"}}))
        .await;
    for namespace in ["default", "kube-system", "new"] {
        let root = format!("/api/v1/namespaces/{namespace}");
        let account = format!("{root}/serviceaccounts/default");
        let made = plane
            .until(&account, |object| object.is_some())
            .await
            .unwrap();
        // A new one takes the place of one that is deleted.
        plane.delete(&account, "Background").await;
        plane
            .until(&account, |object| {
                object.is_some_and(|object| object["metadata"]["uid"] != made["metadata"]["uid"])
            })
            .await;
        let published = format!("{root}/configmaps/kube-root-ca.crt");
        let made = plane
            .until(&published, |object| object.is_some())
            .await
            .unwrap();
        let authority = plane.server.certificate_authority().unwrap();
        assert_eq!(made["data"], json!({"ca.crt": authority}));
        let description = &made["metadata"]["annotations"]["kubernetes.io/description"];
        assert!(
            description
                .as_str()
                .unwrap()
                .starts_with("Contains a CA bundle")
        );
        // It stays what it is.
        plane
            .patch(
                &published,
                json!({"data": {"ca.crt": "mine", "other": "x"}}),
            )
            .await;
        plane
            .until(&published, |object| {
                object.is_some_and(|object| object["data"] == made["data"])
            })
            .await;
        plane.delete(&published, "Background").await;
        plane.until(&published, |object| object.is_some()).await;
    }
}

#[tokio::test]
async fn secrets_get_the_token_of_their_account_and_go_with_it() {
    let plane = Plane::start("serviceaccount-token").await;
    let (accounts, secrets) = (
        "/api/v1/namespaces/default/serviceaccounts",
        "/api/v1/namespaces/default/secrets",
    );
    let account = plane
        .create(
            accounts,
            json!({"metadata": {"name": "bot"}, "secrets": [{"name": "token"}]}),
        )
        .await;
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": {
                "name": name,
                "annotations": {"kubernetes.io/service-account.name": account},
            },
            "type": "kubernetes.io/service-account-token",
        })
    };
    plane.create(secrets, secret("token", "bot")).await;
    let path = format!("{secrets}/token");
    let filled = plane
        .until(&path, |object| {
            object.is_some_and(|object| object["data"]["token"].is_string())
        })
        .await
        .unwrap();
    assert_eq!(
        filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        account["metadata"]["uid"]
    );
    let decoded = |key: &str| {
        let data = filled["data"][key].as_str().unwrap();
        String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap()
    };
    assert_eq!(decoded("namespace"), "default");
    assert_eq!(
        decoded("ca.crt"),
        plane.server.certificate_authority().unwrap()
    );
    // The server knows whose token it is.
    let review = json!({"spec": {"token": decoded("token")}});
    let review = plane
        .create("/apis/authentication.k8s.io/v1/tokenreviews", review)
        .await;
    assert_eq!(
        review["status"]["user"]["username"], "system:serviceaccount:default:bot",
        "{review}"
    );
    // One of nobody goes at once, that of another account with it.
    plane.create(secrets, secret("lost", "nobody")).await;
    plane.until_gone(&format!("{secrets}/lost")).await;
    plane.create(secrets, secret("second", "bot")).await;
    plane
        .until(&format!("{secrets}/second"), |object| {
            object.is_some_and(|object| object["data"]["token"].is_string())
        })
        .await;
    // What is deleted is no longer listed by the account.
    plane.delete(&path, "Background").await;
    plane
        .until(&format!("{accounts}/bot"), |object| {
            object.is_some_and(|object| object["secrets"].as_array().is_none_or(Vec::is_empty))
        })
        .await;
    plane.delete(&format!("{accounts}/bot"), "Background").await;
    plane.until_gone(&format!("{secrets}/second")).await;
}

#[tokio::test]
async fn quotas_count_what_there_is_when_it_goes() {
    let plane = Plane::start("resourcequota").await;
    define(&plane, "crontabs", "CronTab", "Namespaced").await;
    let root = "/api/v1/namespaces/default";
    plane.config_map("before", &[], Value::Null).await;
    let crontabs = "/apis/example.com/v1/namespaces/default/crontabs";
    let crontab = json!({
        "apiVersion": "example.com/v1", "kind": "CronTab", "metadata": {"name": "a"},
    });
    plane.create(crontabs, crontab).await;
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"containers": [{
                "name": "a", "image": "a", "resources": {"requests": {"cpu": "250m"}},
            }]},
        })
    };
    plane.create(&format!("{root}/pods"), pod("one")).await;
    let hard = json!({
        "configmaps": "10", "pods": "5", "requests.cpu": "2",
        "count/crontabs.example.com": "3", "services": "2",
    });
    plane
        .create(
            &format!("{root}/resourcequotas"),
            json!({"metadata": {"name": "limits"}, "spec": {"hard": hard}}),
        )
        .await;
    let quota = format!("{root}/resourcequotas/limits");
    let counts = |expected: Value| {
        move |object: Option<&Value>| {
            object.is_some_and(|object| object["status"]["used"] == expected)
        }
    };
    // What was there before the quota counts, the service of the server too.
    let first = json!({
        "configmaps": "1", "pods": "1", "requests.cpu": "250m",
        "count/crontabs.example.com": "1", "services": "1",
    });
    let counted = plane.until(&quota, counts(first)).await.unwrap();
    assert_eq!(counted["status"]["hard"], hard);
    plane.create(&format!("{root}/pods"), pod("two")).await;
    // A pod that has ended needs nothing more.
    let ended = json!({"status": {"phase": "Succeeded"}});
    plane.patch(&format!("{root}/pods/one/status"), ended).await;
    plane.delete(&path("before"), "Background").await;
    plane.delete(&format!("{crontabs}/a"), "Background").await;
    let last = json!({
        "configmaps": "0", "pods": "1", "requests.cpu": "250m",
        "count/crontabs.example.com": "0", "services": "1",
    });
    plane.until(&quota, counts(last)).await;
}

#[tokio::test]
async fn a_controller_manager_beside_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let server = support::TestServer::start_with(
        folder.path(),
        support::Store::Embedded,
        &["--controllers=namespace"],
    )
    .await;
    let client = server.client(support::ADMIN);
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z");
    let lease = json!({
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "somebody", "leaseDurationSeconds": 3600,
            "renewTime": now.to_string(),
        },
    });
    let request = http::Request::post("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
        .header("Content-Type", "application/json")
        .body(lease.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
    let begun = Instant::now();
    let warning = "kube-controller-manager somebody runs beside the controllers of this server";
    while !server.log().contains(warning) {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(LOOK).await;
    }
}
