//! Plugins that are off by default and restrict what users may do.

use super::*;
use crate::admission::kinds::{KindResource, KindType, Kinds, Unfit};
use crate::auth::authz::{self, Decision};
use std::borrow::Cow;

/// A namespace with annotations.
fn annotated(name: &str, annotations: Value) -> (&'static str, Value) {
    let metadata = json!({"name": name, "annotations": annotations});
    (
        "namespaces",
        json!({"metadata": metadata, "status": {"phase": "Active"}}),
    )
}

/// The settings of a plugin as its configuration says.
fn configured(plugin: &str, configuration: Value) -> Settings {
    let mut settings = Settings::default();
    settings
        .plugins
        .read(plugin, &configuration)
        .expect("a configuration");
    settings
}

#[tokio::test]
async fn pods_get_the_node_selector_of_their_namespace() {
    const SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
    let objects = memory(vec![
        annotated("a", json!({SELECTOR: "zone = b, disk=ssd"})),
        annotated("b", json!({SELECTOR: "zone"})),
        annotated("c", json!({SELECTOR: "zone=a b"})),
        annotated("d", json!({SELECTOR: "/=b"})),
        namespace("none", "Active"),
    ]);
    let settings = configured(
        "PodNodeSelector",
        json!({"podNodeSelectorPluginConfig": {
            "clusterDefaultNodeSelector": "env=test", "a": "zone=b,disk=ssd,more=x",
        }, "imagePolicy": {}}),
    );
    let conflict = r#"pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector"#;
    let listed = r#"pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist"#;
    let merged = json!({"disk": "ssd", "more": "x", "zone": "b"});
    for (namespace, selector, want) in [
        ("a", json!({"more": "x"}), Ok(merged)),
        ("a", json!({"zone": "c"}), Err(conflict)),
        ("a", json!({"other": "c"}), Err(listed)),
        ("b", json!({}), Err("invalid selector: [zone]")),
        (
            "c",
            json!({}),
            Err(
                "[zone]: Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
        ),
        (
            "none",
            json!({"other": "c"}),
            Ok(json!({"env": "test", "other": "c"})),
        ),
    ] {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "sa", "nodeSelector": selector, "containers": [],
        }});
        let request = Request {
            also: "PodNodeSelector",
            settings: settings.clone(),
            ..Request::create("", "pods", namespace, pod)
        };
        let account = (
            "serviceaccounts",
            json!({"metadata": {"name": "sa", "namespace": namespace}, "automountServiceAccountToken": false}),
        );
        let got = request.run(&with(&objects, account).await).await;
        let got = got.map(|pod| pod["spec"]["nodeSelector"].clone());
        assert_eq!(got, want.map_err(str::to_owned), "{namespace} {selector}");
    }
}

/// The objects and one more.
async fn with(objects: &Arc<dyn Objects>, (resource, value): (&str, Value)) -> Arc<dyn Objects> {
    let gvr = Gvr::new("", "v1", resource);
    objects
        .update_status(&gvr, object(value))
        .await
        .expect("written");
    objects.clone()
}

#[tokio::test]
async fn pods_get_and_may_have_the_tolerations_of_their_namespace() {
    const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
    const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
    let all = r#"[{"operator": "Exists"}]"#;
    let objects = memory(vec![
        annotated(
            "a",
            json!({DEFAULTS: r#"[{"key": "k", "operator": "Exists"}]"#}),
        ),
        annotated(
            "b",
            json!({WHITELIST: r#"[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]"#}),
        ),
        annotated("c", json!({WHITELIST: all, DEFAULTS: ""})),
        annotated("d", json!({WHITELIST: "x"})),
        namespace("none", "Active"),
    ]);
    let settings = configured(
        "PodTolerationRestriction",
        json!({
            "kind": "Configuration", "apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1",
            "default": [{"key": "cluster", "operator": "Exists"}],
            "whitelist": [{"operator": "Exists", "effect": "NoExecute"}, {"key": "cluster", "operator": "Exists"}],
        }),
    );
    let conflict = |scope: &str| {
        Err(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        ))
    };
    let pod = |requests: Value, tolerations: Value| {
        json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "sa", "tolerations": tolerations,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        }})
    };
    let ours = json!([{"key": "own", "operator": "Exists"}]);
    let keys = |keys: &[&str]| Ok(keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
    let (ready, reachable) = (
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    );
    let burst = pod(json!({"cpu": "1"}), ours.clone());
    for (namespace, pod, want) in [
        ("a", pod(json!({}), ours.clone()), conflict("cluster")),
        ("b", pod(json!({}), json!([])), conflict("namespace")),
        (
            "c",
            pod(json!({}), ours.clone()),
            keys(&["own", ready, reachable]),
        ),
        (
            "c",
            burst,
            keys(&[
                "own",
                ready,
                reachable,
                "node.kubernetes.io/memory-pressure",
            ]),
        ),
        (
            "d",
            pod(json!({}), ours),
            Err("invalid character 'x' looking for beginning of value".to_owned()),
        ),
        (
            "none",
            pod(json!({}), json!([])),
            keys(&[ready, reachable, "cluster"]),
        ),
    ] {
        let account = (
            "serviceaccounts",
            json!({"metadata": {"name": "sa", "namespace": namespace}, "automountServiceAccountToken": false}),
        );
        let request = Request {
            also: "PodTolerationRestriction",
            settings: settings.clone(),
            ..Request::create("", "pods", namespace, pod)
        };
        let got = request
            .run(&with(&objects, account).await)
            .await
            .map(|pod| {
                let tolerations = pod["spec"]["tolerations"]
                    .as_array()
                    .expect("a list")
                    .clone();
                let keys = tolerations
                    .iter()
                    .filter_map(|one| one["key"].as_str().map(str::to_owned));
                keys.collect::<Vec<_>>()
            });
        assert_eq!(got, want, "{namespace}");
    }
}

#[tokio::test]
async fn events_are_limited_by_their_buckets() {
    let objects = memory(vec![namespace("a", "Active"), namespace("b", "Active")]);
    let configuration = json!({
        "kind": "Configuration", "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
        "limits": [
            {"type": "Namespace", "qps": 1, "burst": 1},
            {"type": "SourceAndObject", "qps": 1, "burst": 1},
        ],
    });
    let settings = configured("EventRateLimit", configuration);
    let plugin = event_rate_limit::EventRateLimit::new(&settings.plugins.event_rate_limit);
    let calls = plugins::find("EventRateLimit").expect("a plugin").calls;
    let chain = Chain::new(vec![(Box::new(plugin), calls)]);
    let write = async |namespace: &'static str, group: &str, dry_run: bool| {
        let event = json!({"source": {"component": "c"}, "involvedObject": {"name": "o"}});
        let mut request = Request::create(group, "events", namespace, event);
        let (gvk, user) = (Gvk::new(group, "v1", "Event"), Arc::new(User::default()));
        let attributes = Attributes {
            operation: Operation::Create,
            gvr: &request.gvr,
            gvk: &gvk,
            subresource: "",
            namespace,
            name: "",
            object: request.object.as_mut(),
            old: None,
            user: &user,
            dry_run,
            deadline: Instant::now(),
            options: OperationOptions::None,
            notes: &Silent,
            reinvocation: Reinvocation::default(),
        };
        let status = chain.validate(&attributes).await.err();
        status.map(|status| (status.code, status.message))
    };
    assert_eq!(write("a", "", true).await, None);
    assert_eq!(write("a", "", false).await, None);
    assert_eq!(write("a", "events.k8s.io", false).await, None);
    let source = "limit reached on type SourceAndObject for key co";
    let both = format!("Too many requests: [limit reached on type Namespace for key a, {source}]");
    assert_eq!(write("a", "", false).await, Some((429, both)));
    assert_eq!(
        write("b", "", false).await,
        Some((429, format!("Too many requests: {source}")))
    );
    let missing = Settings::default()
        .plugins
        .check(|plugin| plugin == "EventRateLimit");
    let why = "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty";
    assert_eq!(missing, Err(why.to_owned()));
    drop(objects);
}

/// Allows what is listed, as `verb resource/subresource name`.
struct Listed(&'static [&'static str]);

#[async_trait]
impl Authorizer for Listed {
    async fn authorize(&self, asked: &authz::Attributes) -> Decision {
        let authz::Attributes {
            verb,
            resource,
            subresource,
            name,
            namespace,
            ..
        } = asked;
        let text = format!("{verb} {resource}/{subresource} {namespace}/{name}");
        match self.0.contains(&text.as_str()) {
            true => Decision::allow(""),
            false => Decision::no_opinion(format!("no {text}")),
        }
    }
}

/// Knows Jobs and Nodes.
struct TwoKinds;

#[async_trait]
impl Kinds for TwoKinds {
    fn generation(&self) -> u64 {
        0
    }
    fn resource_of(&self, gvk: &Gvk) -> Option<KindResource> {
        let (gvr, namespaced) = match gvk.kind.as_str() {
            "Job" => (Gvr::new("batch", "v1", "jobs"), true),
            "Node" => (Gvr::new("", "v1", "nodes"), false),
            _ => return None,
        };
        Some(KindResource { gvr, namespaced })
    }
    fn equivalents(&self, _: &Gvr, _: &str) -> Vec<(Gvr, Gvk)> {
        Vec::new()
    }
    async fn versioned<'o>(&self, object: &'o Object, _: &Gvr, _: &Gvk) -> Result<Cow<'o, Object>> {
        Ok(Cow::Borrowed(object))
    }
    async fn completed(
        &self,
        shown: Object,
        _: &Gvr,
        _: &Gvk,
        _: &Object,
    ) -> std::result::Result<Object, Unfit> {
        Ok(shown)
    }
    fn type_of(&self, _: &Gvr, _: &Gvk) -> Option<KindType> {
        None
    }
}

/// The references before and after, what is allowed, and the refusal.
type Case = (
    Option<Value>,
    Value,
    &'static [&'static str],
    Option<String>,
);

#[tokio::test]
async fn owners_are_named_by_those_who_may() {
    let objects = memory(vec![namespace("a", "Active")]);
    let map = |owners: Value| json!({"metadata": {"name": "m", "ownerReferences": owners}});
    let owner = |kind: &str, blocks: bool| json!({"apiVersion": "batch/v1", "kind": kind, "name": "o", "uid": kind, "blockOwnerDeletion": blocks});
    let job = owner("Job", true);
    let cannot_finalize = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: no update";
    let cases: [Case; 9] = [
        (None, json!([owner("Job", false)]), &[], None),
        (None, json!([job]), &[], Some(format!("{cannot_finalize} jobs/finalizers a/o, <nil>"))),
        (None, json!([job]), &["update jobs/finalizers a/o"], None),
        (None, json!([owner("Node", true)]), &[], Some(format!("{cannot_finalize} nodes/finalizers /o, <nil>"))),
        (None, json!([owner("None", true)]), &["update */finalizers /*"], None),
        (
            None,
            json!([owner("None", true)]),
            &[],
            Some("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion batch/v1 Kind None: no matches for kind \"None\" in version \"batch/v1\"".to_owned()),
        ),
        (Some(json!([job])), json!([job]), &[], None),
        (
            Some(json!([job])),
            json!([]),
            &[],
            Some("cannot set an ownerRef on a resource you can't delete: no delete configmaps/ a/m, <nil>".to_owned()),
        ),
        (
            Some(json!([owner("Job", false)])),
            json!([job]),
            &["delete configmaps/ a/m"],
            Some(format!("{cannot_finalize} jobs/finalizers a/o, <nil>")),
        ),
    ];
    for (old, new, allowed, want) in cases {
        let request = match &old {
            None => Request::create("", "configmaps", "a", map(new.clone())),
            Some(old) => Request::update("configmaps", "a", map(old.clone()), map(new.clone())),
        };
        let request = Request {
            also: "OwnerReferencesPermissionEnforcement",
            authorizer: Arc::new(Listed(allowed)),
            kinds: Arc::new(TwoKinds),
            ..request
        };
        let want = want.map(|why| format!("configmaps \"m\" is forbidden: {why}"));
        assert_eq!(request.run(&objects).await.err(), want, "{old:?} {new}");
    }
}

#[tokio::test]
async fn resizes_need_features_that_the_node_declares() {
    let node = |name: &str, features: Value| {
        (
            "nodes",
            json!({"metadata": {"name": name}, "status": {"declaredFeatures": features, "allocatable": {"cpu": "9"}}}),
        )
    };
    let objects = memory(vec![
        namespace("a", "Active"),
        node("old", json!([])),
        node(
            "new",
            json!([
                "InPlacePodLevelResourcesVerticalScaling",
                "InPlacePodVerticalScalingInitContainers"
            ]),
        ),
    ]);
    let pod = |node: &str, generation: i64, whole: &str, init: &str| {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        json!({"metadata": {"name": "p", "generation": generation}, "spec": {
            "nodeName": node, "resources": cpu(whole), "containers": [],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": cpu(whole)},
                {"name": "init", "resources": cpu(init)},
            ],
        }})
    };
    let missing = |features: &str| {
        let why = format!(
            "pod update requires features {features} which are not available on node \"old\""
        );
        Some(format!("pods \"p\" is forbidden: {why}"))
    };
    let (whole, init) = (
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
    );
    for (new, want) in [
        (pod("old", 1, "2", "2"), None),
        (pod("old", 2, "2", "1"), missing(whole)),
        (pod("old", 2, "1", "2"), missing(init)),
        (
            pod("old", 2, "2", "2"),
            missing(&format!("{whole}, {init}")),
        ),
        (pod("new", 2, "2", "2"), None),
        (pod("", 2, "2", "2"), None),
        (
            pod("gone", 2, "2", "2"),
            Some("pods \"p\" is forbidden: node \"gone\" not found".to_owned()),
        ),
    ] {
        let request = Request {
            subresource: "resize",
            ..Request::update("pods", "a", pod("old", 1, "1", "1"), new.clone())
        };
        assert_eq!(request.run(&objects).await.err(), want, "{new}");
    }
}
