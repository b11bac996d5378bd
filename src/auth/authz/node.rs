//! The Node authorizer: a kubelet may read objects that the pods on its node refer to, and little
//! else (`plugin/pkg/auth/authorizer/node`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::meta::Value;
use async_trait::async_trait;
use parking_lot::RwLock;

use super::{Attributes, Authorizer, Decision, Rule, UserRules, node_metrics, pod_references};
use crate::auth::User;
use crate::meta::go;
use crate::meta::selector::FieldReader;
use crate::meta::{Object, str_at};

/// The group of every kubelet.
pub const NODES: &str = "system:nodes";
/// The prefix of the user names of nodes.
pub const USER_PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The fields that are read of a pod ([`pod_references`] included), as dotted paths.
pub const POD_PATHS: [&str; 15] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.annotations",
    "spec.nodeName",
    "spec.serviceAccountName",
    "spec.imagePullSecrets",
    "spec.volumes",
    "spec.resourceClaims",
    "spec.initContainers.env",
    "spec.initContainers.envFrom",
    "spec.containers.env",
    "spec.containers.envFrom",
    "spec.ephemeralContainers",
    "status.resourceClaimStatuses",
    "status.extendedResourceClaimStatus",
];

/// The node that `user` is the kubelet of.
pub fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(USER_PREFIX)?;
    user.groups
        .iter()
        .any(|group| group == NODES)
        .then_some(name)
}

/// The kinds of objects that a pod can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Secret,
    ConfigMap,
    Claim,
    Account,
    ResourceClaim,
}

/// An object of a namespace: kind, namespace, name.
type Reference = (Kind, Arc<str>, Arc<str>);

/// A graph of the nodes that have a reason to read an object, kept up to date object by object: an
/// update costs what the object is worth, a question a few look-ups.
#[derive(Default)]
pub struct NodeGraph {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    pods: HashMap<(Arc<str>, Arc<str>), Pod>,
    /// The number of pods of each node refer to an object.
    users: HashMap<Reference, HashMap<Arc<str>, usize>>,
    volumes: HashMap<String, Volume>,
    /// The persistent volumes that need a secret, by its namespace and name.
    volumes_of_secret: HashMap<(String, String), HashSet<String>>,
    attachments: HashMap<String, String>,
    slices: HashMap<String, String>,
}

/// A pod that is bound to a node.
struct Pod {
    node: Arc<str>,
    references: Vec<Reference>,
}

/// A persistent volume that is bound to a claim.
struct Volume {
    claim: Reference,
    secrets: Vec<(String, String)>,
}

impl State {
    fn upsert(&mut self, object: &Object) {
        let (name, node) = (object.name(), object.str_at("/spec/nodeName"));
        match object.kind() {
            "Pod" => self.set_pod(object),
            "PersistentVolume" => self.set_volume(object),
            "VolumeAttachment" => {
                self.attachments.insert(name.to_owned(), node.to_owned());
            }
            "ResourceSlice" => {
                self.slices.insert(name.to_owned(), node.to_owned());
            }
            _ => {}
        }
    }

    fn set_pod(&mut self, pod: &Object) {
        self.remove_pod(pod.namespace(), pod.name());
        let node = pod.str_at("/spec/nodeName");
        if node.is_empty() {
            return;
        }
        let node: Arc<str> = node.into();
        let namespace: Arc<str> = pod.namespace().into();
        // A mirror pod is made by the kubelet itself and gives it nothing.
        let mirror = pod
            .annotations()
            .is_some_and(|all| all.contains_key(MIRROR));
        let references = if mirror {
            Vec::new()
        } else {
            references(pod, &namespace)
        };
        for reference in &references {
            *self
                .users
                .entry(reference.clone())
                .or_default()
                .entry(node.clone())
                .or_default() += 1;
        }
        self.pods
            .insert((namespace, pod.name().into()), Pod { node, references });
    }

    fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(pod) = self.pods.remove(&(namespace.into(), name.into())) else {
            return;
        };
        for reference in &pod.references {
            let Some(nodes) = self.users.get_mut(reference) else {
                continue;
            };
            if let Some(count) = nodes.get_mut(&pod.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.users.remove(reference);
            }
        }
    }

    fn set_volume(&mut self, volume: &Object) {
        self.remove_volume(volume.name());
        let Some(claim) = volume
            .at("/spec/claimRef")
            .filter(|claim| claim.is_object())
        else {
            return;
        };
        let namespace = str_at(claim, "/namespace");
        let secrets = volume_secrets(volume, namespace);
        for secret in &secrets {
            self.volumes_of_secret
                .entry(secret.clone())
                .or_default()
                .insert(volume.name().to_owned());
        }
        let claim = (Kind::Claim, namespace.into(), str_at(claim, "/name").into());
        self.volumes
            .insert(volume.name().to_owned(), Volume { claim, secrets });
    }

    fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else {
            return;
        };
        for secret in volume.secrets {
            if let Some(volumes) = self.volumes_of_secret.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.volumes_of_secret.remove(&secret);
                }
            }
        }
    }

    fn uses(&self, node: &str, reference: &Reference) -> bool {
        self.users
            .get(reference)
            .is_some_and(|nodes| nodes.contains_key(node))
    }

    fn uses_volume(&self, node: &str, name: &str) -> bool {
        self.volumes
            .get(name)
            .is_some_and(|volume| self.uses(node, &volume.claim))
    }

    /// Reports whether something on `node` leads to the object.
    fn leads_to(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let uses = |kind| self.uses(node, &(kind, namespace.into(), name.into()));
        let is = |map: &HashMap<String, String>| map.get(name).is_some_and(|of| of == node);
        match resource {
            "secrets" => {
                let by_volume = self
                    .volumes_of_secret
                    .get(&(namespace.to_owned(), name.to_owned()));
                uses(Kind::Secret)
                    || by_volume.is_some_and(|volumes| {
                        volumes.iter().any(|volume| self.uses_volume(node, volume))
                    })
            }
            "configmaps" => uses(Kind::ConfigMap),
            "persistentvolumeclaims" => uses(Kind::Claim),
            "serviceaccounts" => uses(Kind::Account),
            "resourceclaims" => uses(Kind::ResourceClaim),
            "persistentvolumes" => self.uses_volume(node, name),
            "pods" => self
                .pods
                .get(&(namespace.into(), name.into()))
                .is_some_and(|pod| *pod.node == *node),
            "volumeattachments" => is(&self.attachments),
            "resourceslices" => is(&self.slices),
            _ => false,
        }
    }
}

fn references(pod: &Object, namespace: &Arc<str>) -> Vec<Reference> {
    let mut out = Vec::new();
    let mut add = |kind, name: &str| {
        if !name.is_empty() {
            out.push((kind, namespace.clone(), Arc::from(name)));
        }
    };
    add(Kind::Account, pod.str_at("/spec/serviceAccountName"));
    pod_references::secrets(pod)
        .into_iter()
        .for_each(|name| add(Kind::Secret, name));
    pod_references::config_maps(pod)
        .into_iter()
        .for_each(|name| add(Kind::ConfigMap, name));
    pod_references::claims(pod)
        .iter()
        .for_each(|name| add(Kind::Claim, name));
    for claim in pod.array_at("/spec/resourceClaims") {
        // One that is made from a template has its name in the status.
        let statuses = pod.array_at("/status/resourceClaimStatuses");
        let made = statuses
            .iter()
            .find(|status| str_at(status, "/name") == str_at(claim, "/name"));
        let name = str_at(claim, "/resourceClaimName");
        add(
            Kind::ResourceClaim,
            if name.is_empty() {
                made.map_or("", |made| str_at(made, "/resourceClaimName"))
            } else {
                name
            },
        );
    }
    add(
        Kind::ResourceClaim,
        pod.str_at("/status/extendedResourceClaimStatus/resourceClaimName"),
    );
    out
}

/// The secrets that a kubelet needs to mount a volume; those without a namespace are in that of the
/// claim.
fn volume_secrets(volume: &Object, claim_namespace: &str) -> Vec<(String, String)> {
    const IN_SOURCE: [&str; 7] = [
        "cephfs",
        "cinder",
        "flexVolume",
        "rbd",
        "scaleIO",
        "iscsi",
        "storageos",
    ];
    const IN_CSI: [&str; 3] = [
        "nodePublishSecretRef",
        "nodeStageSecretRef",
        "nodeExpandSecretRef",
    ];
    let spec = volume.get("spec").unwrap_or(&Value::Null);
    let mut found = vec![(
        str_at(spec, "/azureFile/secretNamespace"),
        str_at(spec, "/azureFile/secretName"),
    )];
    let sources = IN_SOURCE
        .iter()
        .filter_map(|source| spec.get(source)?.get("secretRef"));
    let csi = IN_CSI
        .iter()
        .filter_map(|secret| spec.get("csi")?.get(secret));
    found.extend(
        sources
            .chain(csi)
            .map(|secret| (str_at(secret, "/namespace"), str_at(secret, "/name"))),
    );
    let named = found.into_iter().filter(|(_, name)| !name.is_empty());
    named
        .map(|(namespace, name)| {
            (
                if namespace.is_empty() {
                    claim_namespace
                } else {
                    namespace
                }
                .to_owned(),
                name.to_owned(),
            )
        })
        .collect()
}

impl NodeGraph {
    /// Takes in a Pod, PersistentVolume, VolumeAttachment or ResourceSlice, new or changed. Other
    /// kinds are ignored.
    pub fn upsert(&self, object: &Object) {
        let begun = Instant::now();
        self.state.write().upsert(object);
        node_metrics::changed(object.kind(), true, begun);
    }

    /// Reports whether a change of a pod leaves what it refers to as it is: it may neither leave
    /// its node nor refer to something else, but by ephemeral containers and claims of resources.
    pub fn knows_pod(&self, pod: &dyn FieldReader) -> bool {
        const GROWING: [&str; 3] = [
            "spec.ephemeralContainers.0.name",
            "spec.resourceClaims.0.name",
            "status.extendedResourceClaimStatus.resourceClaimName",
        ];
        let key = (
            Arc::from(&*pod.text_at("metadata.namespace")),
            Arc::from(&*pod.text_at("metadata.name")),
        );
        let on_node = self
            .state
            .read()
            .pods
            .get(&key)
            .is_some_and(|known| *known.node == *pod.text_at("spec.nodeName"));
        on_node && GROWING.iter().all(|path| pod.text_at(path).is_empty())
    }

    /// Forgets a deleted object; `namespace` is empty for the kinds of the cluster.
    pub fn remove(&self, kind: &str, namespace: &str, name: &str) {
        let begun = Instant::now();
        let mut state = self.state.write();
        match kind {
            "Pod" => state.remove_pod(namespace, name),
            "PersistentVolume" => state.remove_volume(name),
            "VolumeAttachment" => {
                state.attachments.remove(name);
            }
            "ResourceSlice" => {
                state.slices.remove(name);
            }
            _ => {}
        }
        drop(state);
        node_metrics::changed(kind, false, begun);
    }

    /// Makes `objects` all there is of `kind`, as after a fresh list. Nothing in between is seen.
    pub fn replace<'a>(&self, kind: &str, objects: impl IntoIterator<Item = &'a Object>) {
        let mut fresh = State::default();
        objects
            .into_iter()
            .filter(|object| object.kind() == kind)
            .for_each(|object| fresh.upsert(object));
        let mut state = self.state.write();
        // What was there is dropped when the lock is free again.
        match kind {
            "Pod" => {
                std::mem::swap(&mut state.pods, &mut fresh.pods);
                std::mem::swap(&mut state.users, &mut fresh.users);
            }
            "PersistentVolume" => {
                std::mem::swap(&mut state.volumes, &mut fresh.volumes);
                std::mem::swap(&mut state.volumes_of_secret, &mut fresh.volumes_of_secret);
            }
            "VolumeAttachment" => std::mem::swap(&mut state.attachments, &mut fresh.attachments),
            "ResourceSlice" => std::mem::swap(&mut state.slices, &mut fresh.slices),
            _ => {}
        }
        drop(state);
    }
}

/// Authorizes kubelets by what their nodes' pods need. What it allows on their own objects only,
/// the NodeRestriction admission plugin narrows down.
pub struct NodeAuthorizer {
    graph: Arc<NodeGraph>,
    /// The rules that hold for every kubelet.
    rules: Vec<Rule>,
}

/// `Err` holds the reason of a refusal; empty where there is nothing to say.
type CheckResult = Result<(), String>;

fn deny(why: &str) -> CheckResult {
    Err(why.to_owned())
}

impl NodeAuthorizer {
    /// `rules` are those of the ClusterRole `system:node`.
    pub fn new(graph: Arc<NodeGraph>, rules: Vec<Rule>) -> Self {
        Self { graph, rules }
    }

    fn check(&self, node: &str, asked: &Attributes) -> CheckResult {
        if asked.resource_request {
            match (asked.group.as_str(), asked.resource.as_str()) {
                ("", "secrets" | "configmaps") => return self.read_namespaced(node, asked),
                ("", "persistentvolumeclaims") if asked.subresource == "status" => {
                    return match asked.verb.as_str() {
                        "update" | "patch" => self.related(node, asked),
                        _ => deny("can only get/update/patch this type"),
                    };
                }
                ("", "persistentvolumeclaims" | "persistentvolumes")
                | ("resource.k8s.io", "resourceclaims")
                | ("storage.k8s.io", "volumeattachments") => return self.get(node, asked),
                ("", "serviceaccounts") => return self.service_account(node, asked),
                ("coordination.k8s.io", "leases") => return own_lease(node, asked),
                ("storage.k8s.io", "csinodes") => return own_csi_node(node, asked),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, asked),
                ("", "nodes") => return own_node(node, asked),
                ("", "pods") => return self.pod(node, asked),
                ("certificates.k8s.io", "podcertificaterequests") => return deny(""),
                _ => {}
            }
        }
        match self.rules.iter().any(|rule| rule.allows(asked)) {
            true => Ok(()),
            false => deny(""),
        }
    }

    fn related(&self, node: &str, asked: &Attributes) -> CheckResult {
        if asked.name.is_empty() {
            return deny("No Object name found");
        }
        match self
            .graph
            .state
            .read()
            .leads_to(node, &asked.resource, &asked.namespace, &asked.name)
        {
            true => Ok(()),
            false => Err(format!(
                "no relationship found between node '{node}' and this object"
            )),
        }
    }

    fn get(&self, node: &str, asked: &Attributes) -> CheckResult {
        if asked.verb != "get" {
            return deny("can only get individual resources of this type");
        }
        if !asked.subresource.is_empty() {
            return deny("cannot get subresource");
        }
        self.related(node, asked)
    }

    fn read_namespaced(&self, node: &str, asked: &Attributes) -> CheckResult {
        if !matches!(asked.verb.as_str(), "get" | "list" | "watch") {
            return deny("can only read resources of this type");
        }
        if !asked.subresource.is_empty() {
            return deny("cannot read subresource");
        }
        if asked.namespace.is_empty() {
            return deny("can only read namespaced object of this type");
        }
        self.related(node, asked)
    }

    fn service_account(&self, node: &str, asked: &Attributes) -> CheckResult {
        if asked.verb == "get" && asked.subresource.is_empty() {
            return self.read_namespaced(node, asked);
        }
        if asked.verb != "create" || asked.name.is_empty() {
            return deny("can only create tokens for individual service accounts");
        }
        if asked.subresource != "token" {
            return deny("can only create token subresource of serviceaccount");
        }
        self.related(node, asked)
    }

    fn slice(&self, node: &str, asked: &Attributes) -> CheckResult {
        if !asked.subresource.is_empty() {
            return deny("cannot authorize ResourceSlice subresources");
        }
        match asked.verb.as_str() {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, asked),
            "watch" | "list" | "deletecollection" if selects(asked, "spec.nodeName", node) => {
                Ok(())
            }
            "watch" | "list" | "deletecollection" => deny(
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => deny(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, asked: &Attributes) -> CheckResult {
        match (asked.subresource.as_str(), asked.verb.as_str()) {
            ("", "get") => self.get(node, asked),
            ("", "list" | "watch") if selects(asked, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !asked.name.is_empty() => self.related(node, asked),
            ("", "list" | "watch") => {
                deny("can only list/watch pods with spec.nodeName field selector")
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(())
            }
            _ => deny(""),
        }
    }
}

fn selects(asked: &Attributes, field: &str, value: &str) -> bool {
    asked
        .field_selector
        .iter()
        .any(|term| !term.negated && term.field == field && term.value == value)
}

fn own_verb(asked: &Attributes) -> bool {
    matches!(
        asked.verb.as_str(),
        "get" | "create" | "update" | "patch" | "delete"
    )
}

fn own_lease(node: &str, asked: &Attributes) -> CheckResult {
    if !own_verb(asked) {
        return deny("can only get, create, update, patch, or delete a node lease");
    }
    if asked.namespace != LEASES {
        return Err(format!(
            "can only access leases in the {} system namespace",
            go::quote(LEASES)
        ));
    }
    // The name of what a create makes is not known here.
    match asked.verb == "create" || asked.name == node {
        true => Ok(()),
        false => deny("can only access node lease with the same name as the requesting node"),
    }
}

fn own_csi_node(node: &str, asked: &Attributes) -> CheckResult {
    if !own_verb(asked) {
        return deny("can only get, create, update, patch, or delete a CSINode");
    }
    if !asked.subresource.is_empty() {
        return deny("cannot authorize CSINode subresources");
    }
    match asked.verb == "create" || asked.name == node {
        true => Ok(()),
        false => deny("can only access CSINode with the same name as the requesting node"),
    }
}

fn own_node(node: &str, asked: &Attributes) -> CheckResult {
    match (asked.subresource.as_str(), asked.verb.as_str()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match asked.name.as_str() {
            name if name == node => Ok(()),
            "" => Err(format!(
                "node '{node}' cannot read all nodes, only its own Node object"
            )),
            other => Err(format!(
                "node '{node}' cannot read '{other}', only its own Node object"
            )),
        },
        _ => deny(""),
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match node_of(&attributes.user) {
            None => Decision::no_opinion(""),
            Some("") => Decision::no_opinion(format!(
                "unknown node for user {}",
                go::quote(&attributes.user.name)
            )),
            Some(node) => match self.check(node, attributes) {
                Ok(()) => Decision::allow(""),
                Err(why) => Decision::no_opinion(why),
            },
        }
    }

    async fn rules_for(&self, user: &User, _namespace: &str) -> UserRules {
        if node_of(user).is_none() {
            return UserRules::default();
        }
        let error = "node authorizer does not support user rule resolution".to_owned();
        UserRules {
            rules: Vec::new(),
            incomplete: true,
            errors: vec![error],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn graph() -> NodeGraph {
        let graph = NodeGraph::default();
        let volumes = json!([{"secret": {"secretName": "s"}}, {"configMap": {"name": "m"}}, {"persistentVolumeClaim": {"claimName": "c"}}]);
        let spec = json!({"nodeName": "n", "serviceAccountName": "sa", "volumes": volumes, "imagePullSecrets": [{"name": "pull"}]});
        let csi = json!({"nodeStageSecretRef": {"name": "stage", "namespace": "z"}, "controllerPublishSecretRef": {"name": "ctl", "namespace": "z"}});
        for value in [
            json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "x"}, "spec": spec}),
            json!({"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"claimRef": {"namespace": "x", "name": "c"}, "csi": csi}}),
            json!({"kind": "VolumeAttachment", "metadata": {"name": "a"}, "spec": {"nodeName": "n"}}),
        ] {
            graph.upsert(&object(value));
        }
        graph
    }

    #[test]
    fn node_graph_knows_a_pod_whose_references_stay() {
        let graph = graph();
        let known = |node: &str, name: &str, more: Value| {
            let mut pod = object(
                json!({"kind": "Pod", "metadata": {"namespace": "x", "name": name}, "spec": more}),
            );
            pod.section_mut("spec").insert("nodeName", node.into());
            graph.knows_pod(&pod)
        };
        assert!(known("n", "p", json!({})));
        assert!(!known("other", "p", json!({})) && !known("n", "new", json!({})));
        assert!(!known(
            "n",
            "p",
            json!({"ephemeralContainers": [{"name": "e"}]})
        ));
        assert!(!known("n", "p", json!({"resourceClaims": [{"name": "r"}]})));
    }

    #[test]
    fn node_graph_reaches_what_the_pods_of_a_node_refer_to() {
        let graph = graph();
        let reaches = |node: &str, (resource, namespace, name): (&str, &str, &str)| {
            graph.state.read().leads_to(node, resource, namespace, name)
        };
        let yes = [
            ("pods", "x", "p"),
            ("secrets", "x", "s"),
            ("secrets", "x", "pull"),
            ("secrets", "z", "stage"),
            ("configmaps", "x", "m"),
            ("serviceaccounts", "x", "sa"),
            ("persistentvolumeclaims", "x", "c"),
            ("persistentvolumes", "", "v"),
            ("volumeattachments", "", "a"),
        ];
        for one in yes {
            assert!(reaches("n", one) && !reaches("other", one), "{one:?}");
        }
        for one in [
            ("secrets", "x", "other"),
            ("secrets", "z", "ctl"),
            ("secrets", "y", "s"),
            ("persistentvolumes", "", "w"),
        ] {
            assert!(!reaches("n", one), "{one:?}");
        }
        graph.remove("Pod", "x", "p");
        assert!(
            yes[..8].iter().all(|one| !reaches("n", *one)),
            "nothing is left without the pod"
        );
        graph.remove("PersistentVolume", "", "v");
        let state = graph.state.read();
        assert!(state.users.is_empty() && state.volumes_of_secret.is_empty());
    }

    #[test]
    fn node_graph_is_replaced_by_a_fresh_list() {
        let graph = graph();
        let reaches =
            |resource: &str, name: &str| graph.state.read().leads_to("n", resource, "x", name);
        let spec = json!({"nodeName": "n", "serviceAccountName": "other"});
        let pod = object(
            json!({"kind": "Pod", "metadata": {"name": "q", "namespace": "x"}, "spec": spec}),
        );
        graph.replace("Pod", [&pod]);
        assert!(
            reaches("pods", "q")
                && reaches("serviceaccounts", "other")
                && reaches("volumeattachments", "a")
        );
        assert!(!reaches("pods", "p") && !reaches("secrets", "s"));
        graph.replace("VolumeAttachment", []);
        assert!(!reaches("volumeattachments", "a"));
    }

    /// Kubelets that ask meanwhile see the list before, or the fresh one.
    #[test]
    fn nobody_sees_a_node_graph_that_is_being_replaced() {
        const PODS: usize = 2000;
        let pods: Vec<Object> = (0..PODS)
            .map(|at| {
                let spec = json!({"nodeName": "n", "serviceAccountName": "sa"});
                let meta = json!({"name": format!("p{at}"), "namespace": "x"});
                object(json!({"kind": "Pod", "metadata": meta, "spec": spec}))
            })
            .collect();
        let graph = NodeGraph::default();
        graph.replace("Pod", &pods);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let last = format!("p{}", PODS - 1);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut asked = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let state = graph.state.read();
                    assert!(state.leads_to("n", "pods", "x", &last));
                    assert!(state.leads_to("n", "serviceaccounts", "x", "sa"));
                    asked += 1;
                }
                asked
            });
            for _ in 0..20 {
                graph.replace("Pod", &pods);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(asking.join().expect("no panic") > 0);
        });
    }

    #[tokio::test]
    async fn node_authorizer_gives_reasons() {
        let rules = vec![Rule::from_value(
            &json!({"verbs": ["list"], "apiGroups": [""], "resources": ["services"]}),
        )];
        let authorizer = NodeAuthorizer::new(Arc::new(graph()), rules);
        let unrelated = "no relationship found between node 'n' and this object";
        let cases = [
            ("get", "", "secrets", "x", "s", Ok(())),
            ("get", "", "secrets", "x", "t", deny(unrelated)),
            ("list", "", "secrets", "x", "", deny("No Object name found")),
            (
                "patch",
                "",
                "secrets",
                "x",
                "s",
                deny("can only read resources of this type"),
            ),
            (
                "list",
                "",
                "persistentvolumeclaims",
                "x",
                "",
                deny("can only get individual resources of this type"),
            ),
            ("get", "", "nodes", "", "n", Ok(())),
            (
                "get",
                "",
                "nodes",
                "",
                "m",
                deny("node 'n' cannot read 'm', only its own Node object"),
            ),
            (
                "list",
                "",
                "nodes",
                "",
                "",
                deny("node 'n' cannot read all nodes, only its own Node object"),
            ),
            ("delete", "", "nodes", "", "n", deny("")),
            (
                "list",
                "",
                "pods",
                "",
                "",
                deny("can only list/watch pods with spec.nodeName field selector"),
            ),
            (
                "update",
                "coordination.k8s.io",
                "leases",
                "kube-node-lease",
                "n",
                Ok(()),
            ),
            (
                "update",
                "coordination.k8s.io",
                "leases",
                "x",
                "n",
                deny("can only access leases in the \"kube-node-lease\" system namespace"),
            ),
            ("list", "", "services", "", "", Ok(())),
            ("list", "apps", "deployments", "x", "", deny("")),
        ];
        for (verb, group, resource, namespace, name, want) in cases {
            let asked = Attributes {
                user: User {
                    name: "system:node:n".to_owned(),
                    groups: vec![NODES.to_owned()],
                    ..User::default()
                }
                .into(),
                verb: verb.to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                resource_request: true,
                ..Attributes::default()
            };
            let want = want.map_or_else(Decision::no_opinion, |()| Decision::allow(""));
            assert_eq!(
                authorizer.authorize(&asked).await,
                want,
                "{verb} {resource} {name}"
            );
            let carol = Attributes {
                user: User {
                    name: "system:node:n".to_owned(),
                    ..User::default()
                }
                .into(),
                ..asked
            };
            assert_eq!(
                authorizer.authorize(&carol).await,
                Decision::no_opinion(""),
                "not in the group of nodes"
            );
        }
    }
}
