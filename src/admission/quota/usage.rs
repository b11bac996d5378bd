//! The usage of objects, and the quotas that count it (`pkg/quota/v1/evaluator`).

use crate::meta::Value;

use crate::admission::resource_list::{self, ResourceList};
use crate::admission::{Attributes, Operation};
use crate::meta::go::quantity::{Format, Quantity};
use crate::meta::{Gvr, Object, array_at, str_at};

/// Compute resources that a quota may name besides those with a prefix.
const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Those that each container must ask for once a quota names them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const SERVICE_RESOURCES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// Between a storage class and what is limited of it.
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Kinds that could be counted by their plain name before every kind could.
const ALIASES: [&str; 4] = [
    "configmaps",
    "resourcequotas",
    "replicationcontrollers",
    "secrets",
];

/// An evaluator: how objects of a kind are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    Pods,
    Services,
    Claims,
    /// By number only: `count/RESOURCE.GROUP` and, for some, the plain name too.
    Count(String, Option<&'static str>),
}

fn one() -> Quantity {
    Quantity::new(1, Format::DecimalSi)
}

impl Evaluator {
    /// Returns the evaluator of `gvr`.
    pub fn of(gvr: &Gvr) -> Self {
        match (gvr.group.as_str(), gvr.resource.as_str()) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            (group, resource) => {
                let alias = if group.is_empty() {
                    ALIASES.into_iter().find(|alias| *alias == resource)
                } else {
                    None
                };
                Self::Count(format!("count/{}", gvr.group_resource()), alias)
            }
        }
    }

    /// Reports whether the request can change the usage.
    pub fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let (create, update) = (
            attributes.operation == Operation::Create,
            attributes.operation == Operation::Update,
        );
        match (self, attributes.subresource) {
            (Self::Pods, "") => {
                let terminating = |object: Option<&Object>| object.is_some_and(is_terminating);
                create || update && terminating(attributes.object()) != terminating(attributes.old)
            }
            (Self::Pods, "resize") => update,
            (Self::Services | Self::Claims, "") => create || update,
            (Self::Claims, "status") => {
                let allocated = |object: Option<&Object>| {
                    object.and_then(|claim| claim.at("/status/allocatedResources").cloned())
                };
                update && allocated(attributes.object()) != allocated(attributes.old)
            }
            (Self::Count(..), "") => create,
            _ => false,
        }
    }

    /// Reports whether a limit on `resource` is about objects of this kind.
    pub fn matches_resource(&self, resource: &str) -> bool {
        match self {
            Self::Pods => {
                POD_RESOURCES.contains(&resource)
                    || resource.starts_with("hugepages-")
                    || resource.starts_with("requests.hugepages-")
                    || is_extended_request(resource)
            }
            Self::Services => SERVICE_RESOURCES.contains(&resource),
            Self::Claims => {
                let of_class = |limited: &&str| {
                    resource
                        .strip_suffix(*limited)
                        .is_some_and(|class| class.ends_with(OF_STORAGE_CLASS))
                };
                resource == "count/persistentvolumeclaims"
                    || CLAIM_RESOURCES.contains(&resource)
                    || CLAIM_RESOURCES.iter().any(of_class)
            }
            Self::Count(name, alias) => resource == name || *alias == Some(resource),
        }
    }

    /// Reports whether the quota is about this object: it limits something of its kind, and all its
    /// scopes match.
    pub fn matches(&self, quota: &Object, object: &Object) -> bool {
        let hard = quota.at("/status/hard").and_then(Value::as_object);
        hard.is_some_and(|hard| hard.keys().any(|name| self.matches_resource(name)))
            && self.in_scope(quota, object)
    }

    fn in_scope(&self, quota: &Object, object: &Object) -> bool {
        let fits = |scope: &str, operator: &str, values: &[Value]| match self {
            Self::Pods => pod_in_scope(object, scope, operator, values),
            Self::Claims => {
                scope == "VolumeAttributesClass"
                    && selects(&attributes_classes(object), operator, values)
            }
            _ => false,
        };
        let plain = quota
            .array_at("/spec/scopes")
            .iter()
            .filter_map(Value::as_str);
        let selectors = quota.array_at("/spec/scopeSelector/matchExpressions");
        plain.into_iter().all(|scope| fits(scope, "Exists", &[]))
            && selectors.iter().all(|one| {
                fits(
                    str_at(one, "/scopeName"),
                    str_at(one, "/operator"),
                    array_at(one, "/values"),
                )
            })
    }

    /// Returns the amounts that the object lacks to be counted against limits on `resources`, in
    /// the words of the answer.
    pub fn constraints(&self, resources: &[String], object: &Object) -> Option<String> {
        let whole = |path: &str| {
            object
                .at(path)
                .and_then(Value::as_object)
                .is_some_and(|amounts| !amounts.is_empty())
        };
        if *self != Self::Pods
            || whole("/spec/resources/requests")
            || whole("/spec/resources/limits")
        {
            return None;
        }
        let mut missing: std::collections::BTreeMap<&str, std::collections::BTreeSet<&str>> =
            Default::default();
        for container in ["/spec/containers", "/spec/initContainers"]
            .into_iter()
            .flat_map(|path| object.array_at(path))
        {
            let requests = resource_list::read(container, "/resources/requests");
            let limits = resource_list::read(container, "/resources/limits");
            let given = compute_usage(&requests, &limits);
            for required in resources
                .iter()
                .filter(|name| REQUIRED.contains(&name.as_str()) && !given.contains_key(*name))
            {
                missing
                    .entry(required)
                    .or_default()
                    .insert(str_at(container, "/name"));
            }
        }
        if missing.is_empty() {
            return None;
        }
        let each = missing.iter().map(|(name, of)| {
            format!(
                "{name} for: {}",
                of.iter().copied().collect::<Vec<_>>().join(",")
            )
        });
        Some(format!(
            "must specify {}",
            each.collect::<Vec<_>>().join("; ")
        ))
    }

    /// Returns the usage of the object.
    pub fn usage(&self, object: &Object) -> ResourceList {
        match self {
            Self::Pods => pod_usage(object),
            Self::Services => service_usage(object),
            Self::Claims => claim_usage(object),
            Self::Count(name, alias) => {
                let names = [Some(name.as_str()), *alias];
                names
                    .into_iter()
                    .flatten()
                    .map(|name| (name.to_owned(), one()))
                    .collect()
            }
        }
    }
}

/// `requests.` of a resource that is not Kubernetes' own.
fn is_extended_request(resource: &str) -> bool {
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    resource.starts_with("requests.")
        && (!native || resource.starts_with("requests.deviceclass.resource.kubernetes.io/"))
}

fn is_terminating(pod: &Object) -> bool {
    pod.i64_at("/spec/activeDeadlineSeconds")
        .is_some_and(|seconds| seconds >= 0)
}

/// Reports whether a set of labels' values satisfies a requirement.
fn selects(found: &[&str], operator: &str, values: &[Value]) -> bool {
    let listed = || {
        found
            .iter()
            .any(|one| values.iter().any(|value| value == one))
    };
    match operator {
        "Exists" => !found.is_empty(),
        "DoesNotExist" => found.is_empty(),
        "In" => listed(),
        "NotIn" => !listed(),
        _ => false,
    }
}

fn pod_in_scope(pod: &Object, scope: &str, operator: &str, values: &[Value]) -> bool {
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => !resource_list::asks_for_compute(pod),
        "NotBestEffort" => resource_list::asks_for_compute(pod),
        "PriorityClass" => {
            let class = pod.str_at("/spec/priorityClassName");
            let found = [class];
            selects(
                if class.is_empty() { &[] } else { &found },
                operator,
                values,
            )
        }
        "CrossNamespacePodAffinity" => reaches_other_namespaces(pod),
        _ => false,
    }
}

/// Reports whether an affinity or anti-affinity of the pod looks beyond its namespace.
fn reaches_other_namespaces(pod: &Object) -> bool {
    let beyond = |term: &Value| {
        !array_at(term, "/namespaces").is_empty()
            || term.get("namespaceSelector").is_some_and(Value::is_object)
    };
    [
        "/spec/affinity/podAffinity",
        "/spec/affinity/podAntiAffinity",
    ]
    .iter()
    .any(|path| {
        let Some(affinity) = pod.at(path) else {
            return false;
        };
        let required = array_at(affinity, "/requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred =
            array_at(affinity, "/preferredDuringSchedulingIgnoredDuringExecution").iter();
        required
            .chain(preferred.filter_map(|term| term.get("podAffinityTerm")))
            .any(beyond)
    })
}

/// The volume attributes classes that a claim has, had or is about to have.
fn attributes_classes(claim: &Object) -> Vec<&str> {
    let paths = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    paths
        .into_iter()
        .map(|path| claim.str_at(path))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Requests and limits under the names by which quotas know them.
fn compute_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut out = ResourceList::from([("pods".to_owned(), one())]);
    for (name, amount) in requests {
        let compute = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-");
        let extended = name.contains('/') && !name.contains("kubernetes.io/");
        if compute {
            out.insert(name.clone(), *amount);
        }
        if compute || extended {
            out.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            out.insert(format!("limits.{name}"), *amount);
        }
    }
    out
}

fn pod_usage(pod: &Object) -> ResourceList {
    let mut out = ResourceList::from([("count/pods".to_owned(), one())]);
    if matches!(pod.str_at("/status/phase"), "Succeeded" | "Failed") {
        return out;
    }
    let (mut requests, mut limits) = (
        resource_list::of_pod(pod, "requests"),
        resource_list::of_pod(pod, "limits"),
    );
    let overhead = resource_list::overhead(pod);
    resource_list::add(&mut requests, &overhead);
    // What has no limit has none with the overhead either.
    let limited = overhead
        .into_iter()
        .filter(|(name, _)| limits.contains_key(name))
        .collect();
    resource_list::add(&mut limits, &limited);
    out.extend(compute_usage(&requests, &limits));
    out
}

fn service_usage(service: &Object) -> ResourceList {
    let ports = service.array_at("/spec/ports");
    let balanced = service.str_at("/spec/type") == "LoadBalancer";
    let allocates = service
        .at("/spec/allocateLoadBalancerNodePorts")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    let node_ports = match service.str_at("/spec/type") {
        "NodePort" => ports.len(),
        "LoadBalancer" if allocates => ports.len(),
        "LoadBalancer" => ports
            .iter()
            .filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0)
            .count(),
        _ => 0,
    };
    let number = |count: usize| Quantity::new(count as i64, Format::DecimalSi);
    let amounts = [
        ("count/services", 1),
        ("services", 1),
        ("services.nodeports", node_ports),
        ("services.loadbalancers", usize::from(balanced)),
    ];
    amounts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), number(count)))
        .collect()
}

fn claim_usage(claim: &Object) -> ResourceList {
    let mut out: ResourceList = ["count/persistentvolumeclaims", "persistentvolumeclaims"]
        .map(|name| (name.to_owned(), one()))
        .into();
    let annotated = claim
        .annotations()
        .and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"))
        .and_then(Value::as_str);
    let class = annotated.unwrap_or_else(|| claim.str_at("/spec/storageClassName"));
    if !class.is_empty() {
        out.insert(
            format!("{class}{OF_STORAGE_CLASS}persistentvolumeclaims"),
            one(),
        );
    }
    let amount = |path: &str| Quantity::parse(claim.str_at(path)).ok();
    if let Some(mut storage) = amount("/spec/resources/requests/storage") {
        if let Some(allocated) = amount("/status/allocatedResources/storage") {
            storage = storage.max(allocated);
        }
        storage.round_up(0);
        out.insert("requests.storage".to_owned(), storage);
        if !class.is_empty() {
            out.insert(
                format!("{class}{OF_STORAGE_CLASS}requests.storage"),
                storage,
            );
        }
    }
    out
}
