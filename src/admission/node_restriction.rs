//! NodeRestriction: limits a kubelet to its own node and the pods on it
//! (`plugin/pkg/admission/noderestriction`).

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin, certificates};
use crate::auth::authz::node::node_of;
use crate::auth::authz::{self, Authorizer, pod_references};
use crate::meta::go;
use crate::meta::status::Result;
use crate::meta::{Gvr, Key, Map, Object, Status, Value, array_at, bool_at, str_at};

const MIRROR: &str = "kubernetes.io/config.mirror";
const RESTRICTED: &str = "node-restriction.kubernetes.io";
const LEASES: &str = "kube-node-lease";
const NODE_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// The labels of Kubernetes' own that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
];
/// The domains below which it may set any.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

pub struct NodeRestriction {
    pub objects: Arc<dyn Objects>,
    pub authorizer: Arc<dyn Authorizer>,
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Connect && node_of(attributes.user).is_some()
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let attributes = &*attributes;
        let Some(node) = node_of(attributes.user) else {
            return Ok(());
        };
        if node.is_empty() {
            return Err(attributes.forbidden(&format!(
                "could not determine node from user {}",
                go::quote(&attributes.user.name)
            )));
        }
        let refusal = match (
            attributes.gvr.group.as_str(),
            attributes.gvr.resource.as_str(),
        ) {
            ("", "pods") => return self.pod(node, attributes).await,
            ("", "serviceaccounts") => return self.token(node, attributes).await,
            ("", "nodes") => node_refusal(node, attributes),
            ("", "persistentvolumeclaims") => claim_refusal(node, attributes),
            ("coordination.k8s.io", "leases") => lease_refusal(node, attributes),
            ("storage.k8s.io", "csinodes") => (name_of(attributes) != node).then(|| {
                "can only access CSINode with the same name as the requesting node".to_owned()
            }),
            ("resource.k8s.io", "resourceslices") => slice_refusal(node, attributes),
            ("certificates.k8s.io", "certificatesigningrequests") => {
                request_refusal(node, attributes)
            }
            _ => None,
        };
        refusal.map_or(Ok(()), |why| Err(attributes.forbidden(&why)))
    }
}

impl NodeRestriction {
    async fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Arc<Object>> {
        let gvr = Gvr::new("", "v1", resource);
        self.objects
            .get(&gvr, namespace, name)
            .await?
            .ok_or_else(|| Status::not_found(&gvr, name))
    }

    async fn pod(&self, node: &str, attributes: &Attributes<'_>) -> Result<()> {
        let quoted = go::quote(node);
        let refuse = |why: String| Err(attributes.forbidden(&why));
        let stored = || self.get("pods", attributes.namespace, attributes.name);
        match (attributes.subresource, attributes.operation) {
            ("", Operation::Create) => self.mirror_pod(node, attributes).await,
            ("", Operation::Delete) if stored().await?.str_at("/spec/nodeName") != node => refuse(
                format!("node {quoted} can only delete pods with spec.nodeName set to itself"),
            ),
            ("", Operation::Delete) => Ok(()),
            ("", operation) => {
                let operation = go::quote(operation.as_str());
                refuse(format!(
                    "unexpected operation {operation}, node {quoted} can only create and delete mirror pods"
                ))
            }
            ("status", Operation::Update) => {
                status_refusal(node, attributes).map_or(Ok(()), refuse)
            }
            ("eviction", Operation::Create) if stored().await?.str_at("/spec/nodeName") != node => {
                refuse(format!(
                    "node {node} can only evict pods with spec.nodeName set to itself"
                ))
            }
            ("eviction", Operation::Create) => Ok(()),
            ("status", operation) => refuse(format!(
                "unexpected operation {}",
                go::quote(operation.as_str())
            )),
            ("eviction", operation) => {
                refuse(format!("unexpected operation {}", operation.as_str()))
            }
            (other, _) => refuse(format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                go::quote(other)
            )),
        }
    }

    /// A kubelet creates nothing but mirror pods, bound to and owned by its node, that refer to
    /// nothing.
    async fn mirror_pod(&self, node: &str, attributes: &Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        let quoted = go::quote(node);
        let refuse = |why: String| Err(attributes.forbidden(&why));
        if pod
            .annotations()
            .is_none_or(|all| !all.contains_key(MIRROR))
        {
            return refuse(format!(
                "pod does not have {} annotation, node {quoted} can only create mirror pods",
                go::quote(MIRROR)
            ));
        }
        if pod.str_at("/spec/nodeName") != node {
            return refuse(format!(
                "node {quoted} can only create pods with spec.nodeName set to itself"
            ));
        }
        let owner = match pod.array_at("/metadata/ownerReferences") {
            [owner] => owner,
            [] => {
                return refuse(format!(
                    "node {quoted} can only create pods with an owner reference set to itself"
                ));
            }
            _ => {
                return refuse(format!(
                    "node {quoted} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        if (
            str_at(owner, "/apiVersion"),
            str_at(owner, "/kind"),
            str_at(owner, "/name"),
        ) != ("v1", "Node", node)
        {
            return refuse(format!(
                "node {quoted} can only create pods with an owner reference set to itself"
            ));
        }
        if !bool_at(owner, "/controller") {
            return refuse(format!(
                "node {quoted} can only create pods with a controller owner reference set to itself"
            ));
        }
        if bool_at(owner, "/blockOwnerDeletion") {
            return refuse(format!(
                "node {quoted} must not set blockOwnerDeletion on an owner reference"
            ));
        }
        let (given, stored) = (str_at(owner, "/uid"), self.get("nodes", "", node).await?);
        if given != stored.uid() {
            return refuse(format!(
                "node {node} UID mismatch: expected {given} got {}",
                stored.uid()
            ));
        }
        match referenced(pod) {
            Some(kind) => refuse(format!(
                "node {quoted} can not create pods that reference {kind}"
            )),
            None => Ok(()),
        }
    }

    /// A kubelet gets tokens for the pods on its node, for audiences that these mention or that it
    /// may have anyway.
    async fn token(&self, node: &str, attributes: &Attributes<'_>) -> Result<()> {
        if attributes.operation != Operation::Create || attributes.subresource != "token" {
            return Ok(());
        }
        let Some(request) = attributes.object() else {
            return Ok(());
        };
        let bound = |key: &str| {
            request
                .at("/spec/boundObjectRef")
                .map_or("", |bound| str_at(bound, key))
        };
        if (bound("/apiVersion"), bound("/kind")) != ("v1", "Pod") || bound("/name").is_empty() {
            return Err(attributes.forbidden("node requested token not bound to a pod"));
        }
        let uid = bound("/uid");
        if uid.is_empty() {
            return Err(
                attributes.forbidden("node requested token with a pod binding without a uid")
            );
        }
        let pod = self
            .get("pods", attributes.namespace, bound("/name"))
            .await?;
        if pod.uid() != uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            );
            return Err(attributes.forbidden(&why));
        }
        if pod.str_at("/spec/nodeName") != node {
            return Err(attributes
                .forbidden("node requested token bound to a pod scheduled on a different node"));
        }
        let audience = match request.array_at("/spec/audiences") {
            [] => "",
            [one] => one.as_str().unwrap_or(""),
            _ => return Err(attributes.forbidden("node may only request 0 or 1 audiences")),
        };
        if self.mentions(&pod, audience).await? || self.may_have(attributes, audience).await {
            return Ok(());
        }
        let user = &attributes.user.name;
        let audience = go::quote(audience);
        let why = format!(
            "audience {audience} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
        );
        Err(attributes.forbidden(&why))
    }

    /// Reports whether a volume of the pod, or the driver behind one, asks for tokens for the
    /// audience.
    async fn mentions(&self, pod: &Object, audience: &str) -> Result<bool> {
        let volumes = pod.array_at("/spec/volumes");
        let mut sources = volumes
            .iter()
            .flat_map(|volume| array_at(volume, "/projected/sources"));
        let token = |source: &Value| {
            source
                .get("serviceAccountToken")
                .is_some_and(|token| str_at(token, "/audience") == audience)
        };
        if sources.any(token) {
            return Ok(true);
        }
        let mut drivers: BTreeSet<String> = volumes
            .iter()
            .map(|volume| str_at(volume, "/csi/driver").to_owned())
            .collect();
        for claim in pod_references::claims(pod) {
            let Ok(claim) = self
                .get("persistentvolumeclaims", pod.namespace(), &claim)
                .await
            else {
                continue;
            };
            if let Ok(volume) = self
                .get("persistentvolumes", "", claim.str_at("/spec/volumeName"))
                .await
            {
                drivers.insert(volume.str_at("/spec/csi/driver").to_owned());
            }
        }
        drivers.remove("");
        for driver in drivers {
            let driver = self
                .objects
                .get(&Gvr::new("storage.k8s.io", "v1", "csidrivers"), "", &driver)
                .await?;
            let requests = driver
                .iter()
                .flat_map(|driver| driver.array_at("/spec/tokenRequests"));
            if requests
                .into_iter()
                .any(|request| str_at(request, "/audience") == audience)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn may_have(&self, attributes: &Attributes<'_>, audience: &str) -> bool {
        let asked = authz::Attributes {
            user: attributes.user.clone(),
            verb: "request-serviceaccounts-token-audience".to_owned(),
            version: "v1".to_owned(),
            resource: audience.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            resource_request: true,
            ..authz::Attributes::default()
        };
        self.authorizer.authorize(&asked).await.is_allowed()
    }
}

/// The name of the object: the request's, or that in the object.
fn name_of<'a>(attributes: &'a Attributes<'_>) -> &'a str {
    match attributes.name {
        "" => attributes.object().map_or("", |object| object.name()),
        name => name,
    }
}

/// The first kind of object that the pod refers to.
fn referenced(pod: &Object) -> Option<&'static str> {
    if !pod.str_at("/spec/serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    if !pod_references::secrets(pod).is_empty() {
        return Some("secrets");
    }
    if !pod_references::config_maps(pod).is_empty() {
        return Some("configmaps");
    }
    if !pod.array_at("/spec/resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    const VOLUMES: [(&str, &str); 7] = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        (
            "ephemeral",
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: [(&str, &str); 5] = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        (
            "serviceAccountToken",
            "serviceaccounts (via projected volumes)",
        ),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let first = |value: &Value, kinds: &[(&str, &'static str)]| {
        kinds
            .iter()
            .find(|(key, _)| value.get(*key).is_some_and(Value::is_object))
            .map(|(_, kind)| *kind)
    };
    pod.array_at("/spec/volumes").iter().find_map(|volume| {
        let projected = array_at(volume, "/projected/sources").iter();
        first(volume, &VOLUMES).or_else(|| {
            projected
                .into_iter()
                .find_map(|source| first(source, &PROJECTED))
        })
    })
}

fn status_refusal(node: &str, attributes: &Attributes<'_>) -> Option<String> {
    let (new, old) = (attributes.object()?, attributes.old?);
    let quoted = go::quote(node);
    if old.str_at("/spec/nodeName") != node {
        return Some(format!(
            "node {quoted} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if filled(new.labels()) != filled(old.labels()) {
        return Some(format!(
            "node {quoted} cannot update labels through pod status"
        ));
    }
    let claims = |pod: &Object| -> Vec<(String, Option<String>)> {
        let claims = pod.array_at("/status/resourceClaimStatuses").iter();
        let name = |claim: &Value| {
            claim
                .get("resourceClaimName")
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        claims
            .map(|claim| (str_at(claim, "/name").to_owned(), name(claim)))
            .collect()
    };
    if claims(new) != claims(old) {
        return Some(format!(
            "node {quoted} cannot update resource claim statues"
        ));
    }
    let extended = |pod: &Object| {
        pod.at("/status/extendedResourceClaimStatus")
            .filter(|claim| claim.is_object())
            .cloned()
    };
    (extended(new) != extended(old))
        .then(|| format!("node {quoted} cannot update extended resource claim status"))
}

fn filled(map: Option<&Map>) -> Option<&Map> {
    map.filter(|map| !map.is_empty())
}

fn node_refusal(node: &str, attributes: &Attributes<'_>) -> Option<String> {
    let (quoted, name) = (go::quote(node), name_of(attributes));
    if name != node {
        return Some(format!(
            "node {quoted} is not allowed to modify node {}",
            go::quote(name)
        ));
    }
    let new = attributes.object()?;
    let source = |node: &Object| {
        node.at("/spec/configSource")
            .filter(|source| source.is_object())
            .cloned()
    };
    match (attributes.operation, attributes.old) {
        (Operation::Create, _) => {
            if source(new).is_some() {
                return Some(format!(
                    "node {quoted} is not allowed to create pods with a non-nil configSource"
                ));
            }
            let labels = forbidden_labels(new, &Object::default());
            (!labels.is_empty()).then(|| {
                format!("node {quoted} is not allowed to set the following labels: {labels}")
            })
        }
        (Operation::Update, Some(old)) => {
            if source(new).is_some() && source(new) != source(old) {
                return Some(format!(
                    "node {quoted} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if new.array_at("/spec/taints") != old.array_at("/spec/taints") {
                return Some(format!("node {quoted} is not allowed to modify taints"));
            }
            if new.array_at("/metadata/ownerReferences")
                != old.array_at("/metadata/ownerReferences")
            {
                return Some(format!(
                    "node {quoted} is not allowed to modify ownerReferences"
                ));
            }
            let labels = forbidden_labels(new, old);
            (!labels.is_empty()).then(|| format!("is not allowed to modify labels: {labels}"))
        }
        _ => None,
    }
}

/// The labels that changed and that are not a kubelet's to change, in order.
fn forbidden_labels(new: &Object, old: &Object) -> String {
    let value =
        |object: &Object, key: &str| object.labels().and_then(|labels| labels.get(key)).cloned();
    let keys: BTreeSet<&Key> = [new, old]
        .into_iter()
        .filter_map(Object::labels)
        .flat_map(Map::keys)
        .collect();
    let forbidden = keys
        .into_iter()
        .filter(|key| value(new, key) != value(old, key) && !may_set(key));
    forbidden.cloned().collect::<Vec<_>>().join(", ")
}

fn may_set(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else {
        return true;
    };
    let within = |of: &str| {
        domain
            .strip_suffix(of)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if within(RESTRICTED) {
        return false;
    }
    let of_kubernetes = within("kubernetes.io") || within("k8s.io");
    !of_kubernetes || KUBELET_LABELS.contains(&label) || KUBELET_DOMAINS.into_iter().any(within)
}

fn claim_refusal(node: &str, attributes: &Attributes<'_>) -> Option<String> {
    if attributes.subresource != "status" {
        return Some("may only update PVC status".to_owned());
    }
    if attributes.operation != Operation::Update {
        return Some(format!(
            "unexpected operation {}",
            go::quote(attributes.operation.as_str())
        ));
    }
    let rest = |claim: &Object| {
        let mut claim = claim.clone();
        for key in ["resourceVersion", "managedFields"] {
            claim.metadata_mut().shift_remove(key);
        }
        for key in [
            "capacity",
            "conditions",
            "allocatedResourceStatuses",
            "allocatedResources",
        ] {
            claim.section_mut("status").shift_remove(key);
        }
        claim
    };
    let changed = rest(attributes.object()?) != rest(attributes.old?);
    changed.then(|| format!("node {} is not allowed to update fields other than status.quantity and status.conditions", go::quote(node)))
}

fn lease_refusal(node: &str, attributes: &Attributes<'_>) -> Option<String> {
    if attributes.namespace != LEASES {
        return Some(format!(
            "can only access leases in the {} system namespace",
            go::quote(LEASES)
        ));
    }
    (name_of(attributes) != node)
        .then(|| "can only access node lease with the same name as the requesting node".to_owned())
}

fn slice_refusal(node: &str, attributes: &Attributes<'_>) -> Option<String> {
    let (slice, verb) = match attributes.operation {
        Operation::Create => (attributes.object()?, "create"),
        Operation::Delete => (attributes.old?, "delete"),
        _ => return None,
    };
    let own = slice.str_at("/spec/nodeName") == node;
    (!own).then(|| {
        format!("can only {verb} ResourceSlice with the same NodeName as the requesting node")
    })
}

fn request_refusal(node: &str, attributes: &Attributes<'_>) -> Option<String> {
    let request = attributes.object()?;
    if attributes.operation != Operation::Create
        || !NODE_SIGNERS.contains(&request.str_at("/spec/signerName"))
    {
        return None;
    }
    match certificates::subject(request) {
        Err(why) => Some(format!("unable to parse csr: {why}")),
        Ok(subject) if subject.common_name.strip_prefix("system:node:") == Some(node) => None,
        Ok(_) => Some(format!(
            "can only create a node CSR with CN=system:node:{node}"
        )),
    }
}
