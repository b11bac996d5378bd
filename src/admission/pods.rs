//! Plugins for pods that are off by default: AlwaysPullImages, ExtendedResourceToleration,
//! LimitPodHardAntiAffinityTopology (`plugin/pkg/admission`).

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;

use super::taints::list_mut;
use super::{Attributes, Operation, Plugin};
use crate::meta::names::qualified_name;
use crate::meta::status::Result;
use crate::meta::{FieldError, Object, Path, Status, Value, json, map_at, str_at};

/// The lists of containers in a pod's spec.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const ALWAYS: &str = "Always";

fn writes_pod(attributes: &Attributes<'_>) -> bool {
    matches!(attributes.operation, Operation::Create | Operation::Update)
        && attributes.is("", "pods")
}

/// The containers of a pod with their paths.
fn containers(pod: &Object) -> impl Iterator<Item = (Path, &Value)> {
    CONTAINERS.into_iter().flat_map(|list| {
        let path = Path::new("spec").child(list);
        let found = pod.array_at(&format!("/spec/{list}"));
        found
            .iter()
            .enumerate()
            .map(move |(at, container)| (path.index(at), container))
    })
}

/// Makes kubelets pull images at every start of a container, so that only those with access to an
/// image can run it.
pub struct AlwaysPullImages;

impl AlwaysPullImages {
    /// Reports whether an update brings an image that no container had.
    fn has_new_image(new: &Object, old: &Object) -> bool {
        let known: HashSet<&str> = containers(old)
            .map(|(_, container)| str_at(container, "/image"))
            .collect();
        containers(new).any(|(_, container)| !known.contains(str_at(container, "/image")))
    }

    fn minds(attributes: &Attributes<'_>) -> bool {
        match (attributes.operation, attributes.object(), attributes.old) {
            (Operation::Update, Some(new), Some(old)) => Self::has_new_image(new, old),
            _ => true,
        }
    }
}

#[async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        writes_pod(attributes) && Self::minds(attributes)
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object_mut() else {
            return Ok(());
        };
        for list in CONTAINERS {
            let Some(Value::Array(containers)) = pod.at_mut(&format!("/spec/{list}")) else {
                continue;
            };
            for container in containers.iter_mut().filter_map(Value::as_object_mut) {
                container.insert("imagePullPolicy", ALWAYS.into());
            }
        }
        if let Some(Value::Array(volumes)) = pod.at_mut("/spec/volumes") {
            for image in volumes
                .iter_mut()
                .filter_map(|volume| volume.get_mut("image")?.as_object_mut())
            {
                image.insert("pullPolicy", ALWAYS.into());
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        let mut wrong = Vec::new();
        let mut check = |path: Path, policy: &str| {
            if policy != ALWAYS {
                let error = FieldError::not_supported(&path, policy, &[ALWAYS]);
                wrong.push(attributes.forbidden(&error.to_string()).message);
            }
        };
        for (path, container) in containers(pod) {
            check(
                path.child("imagePullPolicy"),
                str_at(container, "/imagePullPolicy"),
            );
        }
        for (at, volume) in pod.array_at("/spec/volumes").iter().enumerate() {
            if map_at(volume, "/image").is_some() {
                check(
                    Path::new("spec")
                        .child("volumes")
                        .index(at)
                        .child("image")
                        .child("pullPolicy"),
                    str_at(volume, "/image/pullPolicy"),
                );
            }
        }
        // Upstream gives a list of errors, which is no Status: clients get a 500 with their texts.
        match wrong.as_slice() {
            [] => Ok(()),
            [one] => Err(Status::failure(500, "", one.clone())),
            several => Err(Status::failure(
                500,
                "",
                format!("[{}]", several.join(", ")),
            )),
        }
    }
}

/// Adds tolerations for the taints of extended resources to pods that request those resources.
pub struct ExtendedResourceToleration;

/// Reports whether a resource belongs to a domain that is not Kubernetes' own
/// (`IsExtendedResourceName`).
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        writes_pod(attributes)
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object_mut() else {
            return Ok(());
        };
        let lists = pod
            .array_at("/spec/containers")
            .iter()
            .chain(pod.array_at("/spec/initContainers"));
        let requests = lists.flat_map(|container| {
            map_at(container, "/resources/requests")
                .into_iter()
                .flatten()
        });
        let resources: BTreeSet<String> = requests
            .map(|(name, _)| name.to_string())
            .filter(|name| is_extended(name))
            .collect();
        for resource in resources {
            let wanted = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
            let tolerations = list_mut(pod.section_mut("spec"), "tolerations");
            let same = |one: &Value| {
                ["/key", "/operator", "/effect", "/value"]
                    .iter()
                    .all(|path| str_at(one, path) == str_at(&wanted, path))
            };
            let mut found = false;
            for toleration in tolerations.iter_mut().filter(|one| same(one)) {
                toleration.clone_from(&wanted);
                found = true;
            }
            if !found {
                tolerations.push(wanted);
            }
        }
        Ok(())
    }
}

/// Refuses pods with anti-affinity beyond a single node: for a zone, or whatever a label of nodes
/// spans.
pub struct LimitPodHardAntiAffinityTopology;

const HOSTNAME: &str = "kubernetes.io/hostname";

#[async_trait]
impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        writes_pod(attributes)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        let terms = pod.array_at(
            "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution",
        );
        match terms
            .iter()
            .map(|term| str_at(term, "/topologyKey"))
            .find(|key| *key != HOSTNAME)
        {
            None => Ok(()),
            Some(key) => {
                let why = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                );
                Err(Status::forbidden(attributes.gvr, pod.name(), &why))
            }
        }
    }
}
