//! Tables of the core group, less pods.

use crate::meta::{Key, Value};

use super::{
    AGE, CONTAINERS, IMAGES, NAME, NONE, Printer, Row, SELECTOR, TablePrinter, UNSET, condition,
    integer, join, pods, text, wide,
};
use crate::meta::{Object, array_at, i64_at, str_at};
use crate::registry::cells::Cell;

pub fn printer(resource: &str) -> Option<&'static dyn TablePrinter> {
    Some(match resource {
        "pods" => &pods::PodPrinter,
        "componentstatuses" => &COMPONENT_STATUS,
        "configmaps" => &CONFIG_MAP,
        "endpoints" => &ENDPOINTS,
        "events" => &EVENT,
        "namespaces" => &NAMESPACE,
        "nodes" => &NODE,
        "persistentvolumeclaims" => &PERSISTENT_VOLUME_CLAIM,
        "persistentvolumes" => &PERSISTENT_VOLUME,
        "podtemplates" => &POD_TEMPLATE,
        "replicationcontrollers" => &REPLICATION_CONTROLLER,
        "resourcequotas" => &RESOURCE_QUOTA,
        "secrets" => &SECRET,
        "serviceaccounts" => &SERVICE_ACCOUNT,
        "services" => &SERVICE,
        _ => return None,
    })
}

static COMPONENT_STATUS: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Whether the component is healthy"),
        text("Message", "What the component says"),
        text("Error", "What went wrong when it was asked"),
    ],
    fill: |row| {
        let healthy = condition(row.object, "/conditions", "Healthy");
        let status = match healthy.map(|condition| str_at(condition, "/status")) {
            None => "Unknown",
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
        };
        let say = |field| healthy.map_or("", |condition| str_at(condition, field));
        row.name()
            .cell(status)
            .cell(say("/message"))
            .cell(say("/error"));
    },
};

static CONFIG_MAP: Printer = Printer {
    columns: &[NAME, text("Data", "The number of entries"), AGE],
    fill: |row| {
        let entries = map_len(row.object, "/data") + map_len(row.object, "/binaryData");
        row.name().cell(entries).age();
    },
};

static ENDPOINTS: Printer = Printer {
    columns: &[
        NAME,
        text("Endpoints", "The addresses and ports that are ready"),
        AGE,
    ],
    fill: |row| {
        let addresses = endpoint_addresses(row.object);
        row.name().cell(addresses).age();
    },
};

/// At most three addresses of an Endpoints object. Once more than three were seen the rest is only
/// counted.
fn endpoint_addresses(object: &Object) -> String {
    const MAX_SHOWN: usize = 3;
    let subsets = object.array_at("/subsets");
    if subsets.is_empty() {
        return NONE.to_owned();
    }
    let (mut shown, mut count) = (Vec::new(), 0);
    for subset in subsets {
        let addresses = array_at(subset, "/addresses");
        let ips = addresses.iter().map(|address| str_at(address, "/ip"));
        let ports = array_at(subset, "/ports");
        if ports.is_empty() {
            count += addresses.len();
            shown.extend(ips.take(MAX_SHOWN - shown.len()).map(str::to_owned));
            continue;
        }
        for port in ports {
            count += addresses.len();
            let port = i64_at(port, "/port").unwrap_or(0);
            let joined = ips.clone().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            });
            shown.extend(joined.take(MAX_SHOWN - shown.len()));
        }
    }
    let text = shown.join(",");
    if count > MAX_SHOWN {
        format!("{text} + {} more...", count - MAX_SHOWN)
    } else {
        text
    }
}

static EVENT: Printer = Printer {
    columns: &[
        text("Last Seen", "The time since it was last observed"),
        text("Type", "Normal or Warning"),
        text("Reason", "Why, in one word"),
        text("Object", "What it is about"),
        wide("Subobject", "The part of the object it is about"),
        wide("Source", "The component that reported it"),
        text("Message", "What happened, for people"),
        wide("First Seen", "The time since it was first observed"),
        wide("Count", "How often it was observed"),
        super::make("Name", "string", "name", "The name of the object", 1),
    ],
    fill: event,
};

fn event(row: &mut Row) {
    let object = row.object;
    let seen = |path| Cell::since(object.str_at(path));
    let first = if object.str_at("/firstTimestamp").is_empty() {
        seen("/eventTime")
    } else {
        seen("/firstTimestamp")
    };
    let mut last = if object.str_at("/lastTimestamp").is_empty() {
        first.clone()
    } else {
        seen("/lastTimestamp")
    };
    let mut count = object.i64_at("/count").unwrap_or(0);
    if object.at("/series").is_some_and(Value::is_object) {
        last = seen("/series/lastObservedTime");
        count = object.i64_at("/series/count").unwrap_or(0);
    } else if count == 0 {
        // An event that happened once has no count in the newer API.
        count = 1;
    }
    let mut target = object.str_at("/involvedObject/kind").to_lowercase();
    if let Some(name) = Some(object.str_at("/involvedObject/name")).filter(|name| !name.is_empty())
    {
        target = format!("{target}/{name}");
    }
    let first_of = |one, other| {
        if object.str_at(one).is_empty() {
            object.str_at(other)
        } else {
            object.str_at(one)
        }
    };
    let (component, instance) = (
        first_of("/source/component", "/reportingComponent"),
        first_of("/source/host", "/reportingInstance"),
    );
    let source = if instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    };
    row.cell(last)
        .text("/type")
        .text("/reason")
        .cell(target)
        .text("/involvedObject/fieldPath")
        .cell(source);
    row.cell(object.str_at("/message").trim())
        .cell(first)
        .cell(count)
        .name();
}

static NAMESPACE: Printer = Printer {
    columns: &[NAME, text("Status", "Active or Terminating"), AGE],
    fill: |row| {
        row.name().text("/status/phase").age();
    },
};

static NODE: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Whether the node is ready and takes new pods"),
        text("Roles", "The roles that the node's labels name"),
        AGE,
        text("Version", "The version of its kubelet"),
        wide("Internal-IP", "Its address inside the cluster's network"),
        wide("External-IP", "Its address outside the cluster's network"),
        wide("OS-Image", "Its operating system"),
        wide("Kernel-Version", "Its kernel"),
        wide("Container-Runtime", "Its container runtime and version"),
    ],
    fill: node,
};

fn node(row: &mut Row) {
    let object = row.object;
    let mut status = match condition(object, "/status/conditions", "Ready")
        .map(|condition| str_at(condition, "/status"))
    {
        None => "Unknown".to_owned(),
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if object.bool_at("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind| {
        let addresses = object.array_at("/status/addresses").iter();
        addresses
            .filter(|one| str_at(one, "/type") == kind)
            .map(|one| str_at(one, "/address"))
            .next()
            .unwrap_or(NONE)
    };
    let info = |field| match object.str_at(field) {
        "" => "<unknown>",
        text => text,
    };
    let mut kernel = info("/status/nodeInfo/kernelVersion").to_owned();
    if let Some(architecture) =
        Some(object.str_at("/status/nodeInfo/architecture")).filter(|text| !text.is_empty())
    {
        kernel = format!("{kernel} ({architecture})");
    }
    row.name()
        .cell(status)
        .cell(node_roles(object))
        .age()
        .text("/status/nodeInfo/kubeletVersion");
    row.cell(address("InternalIP")).cell(address("ExternalIP"));
    row.cell(info("/status/nodeInfo/osImage"))
        .cell(kernel)
        .cell(info("/status/nodeInfo/containerRuntimeVersion"));
}

/// Roles are labels of the form `node-role.kubernetes.io/ROLE` or `kubernetes.io/role=ROLE`.
fn node_roles(object: &Object) -> String {
    let labels = object.labels().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.join(",")
    }
}

static PERSISTENT_VOLUME: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity", "The size of the volume"),
        text("Access Modes", "The ways in which it can be mounted"),
        text("Reclaim Policy", "What happens to it once it is released"),
        text("Status", "Whether it is available, bound or released"),
        text("Claim", "The claim it is bound to"),
        text("StorageClass", "The storage class it belongs to"),
        text(
            "VolumeAttributesClass",
            "The volume attributes class it belongs to",
        ),
        text("Reason", "Why it failed"),
        AGE,
        wide("VolumeMode", "Filesystem or Block"),
    ],
    fill: |row| {
        let object = row.object;
        let claim = match object.at("/spec/claimRef") {
            Some(claim) if claim.is_object() => {
                format!("{}/{}", str_at(claim, "/namespace"), str_at(claim, "/name"))
            }
            _ => String::new(),
        };
        row.name()
            .text_or("/spec/capacity/storage", "0")
            .cell(access_modes(object, "/spec/accessModes"));
        row.text("/spec/persistentVolumeReclaimPolicy")
            .cell(volume_phase(object))
            .cell(claim)
            .cell(storage_class(object));
        row.text_or("/spec/volumeAttributesClassName", UNSET)
            .text("/status/reason")
            .age()
            .text_or("/spec/volumeMode", UNSET);
    },
};

static PERSISTENT_VOLUME_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Whether the claim is bound"),
        text("Volume", "The volume it is bound to"),
        text("Capacity", "The size of that volume"),
        text(
            "Access Modes",
            "The ways in which that volume can be mounted",
        ),
        text("StorageClass", "The storage class it asks for"),
        text(
            "VolumeAttributesClass",
            "The volume attributes class it asks for",
        ),
        AGE,
        wide("VolumeMode", "Filesystem or Block"),
    ],
    fill: |row| {
        let object = row.object;
        row.name()
            .cell(volume_phase(object))
            .text("/spec/volumeName");
        if object.str_at("/spec/volumeName").is_empty() {
            row.cell("").cell("");
        } else {
            row.text_or("/status/capacity/storage", "0")
                .cell(access_modes(object, "/status/accessModes"));
        }
        row.cell(storage_class(object))
            .text_or("/spec/volumeAttributesClassName", UNSET)
            .age()
            .text_or("/spec/volumeMode", UNSET);
    },
};

fn volume_phase(object: &Object) -> &str {
    if object.deletion_timestamp().is_some() {
        "Terminating"
    } else {
        object.str_at("/status/phase")
    }
}

/// The class of a volume or claim; the annotation of old goes first.
fn storage_class(object: &Object) -> &str {
    let annotation = object
        .annotations()
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"));
    annotation
        .and_then(Value::as_str)
        .unwrap_or_else(|| object.str_at("/spec/storageClassName"))
}

fn access_modes(object: &Object, path: &str) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = object.array_at(path);
    let has = |mode: &str| modes.iter().any(|one| one == mode);
    join(
        SHORT
            .iter()
            .filter(|(mode, _)| has(mode))
            .map(|(_, short)| *short),
        ",",
    )
}

static POD_TEMPLATE: Printer = Printer {
    columns: &[
        NAME,
        text("Containers", "The names of the containers in the template"),
        text("Images", "The images of the containers in the template"),
        text("Pod Labels", "The labels of the template"),
    ],
    fill: |row| {
        row.name()
            .containers("/template/spec/containers")
            .labels("/template/metadata/labels");
    },
};

static REPLICATION_CONTROLLER: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired", "The number of pods that is wanted"),
        integer("Current", "The number of pods that exist"),
        integer("Ready", "The number of pods that are ready"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fill: |row| {
        row.name()
            .int("/spec/replicas")
            .int("/status/replicas")
            .int("/status/readyReplicas")
            .age();
        row.containers("/spec/template/spec/containers")
            .labels("/spec/selector");
    },
};

static RESOURCE_QUOTA: Printer = Printer {
    columns: &[
        NAME,
        text("Request", "What is used and allowed of requests and counts"),
        text("Limit", "What is used and allowed of limits"),
        AGE,
    ],
    fill: |row| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        let hard = row.object.at("/status/hard").and_then(Value::as_object);
        for (resource, allowed) in hard.into_iter().flatten() {
            let used = row
                .object
                .at("/status/used")
                .and_then(|used| used.get(resource))
                .and_then(Value::as_str)
                .unwrap_or("0");
            let column = if resource.starts_with("limits.") {
                &mut limits
            } else {
                &mut requests
            };
            column.push((
                resource,
                format!("{resource}: {used}/{}", allowed.as_str().unwrap_or("0")),
            ));
        }
        let list = |mut column: Vec<(&Key, String)>| {
            column.sort_unstable();
            join(column.iter().map(|(_, text)| text.as_str()), ", ")
        };
        row.name().cell(list(requests)).cell(list(limits)).age();
    },
};

static SECRET: Printer = Printer {
    columns: &[
        NAME,
        text("Type", "What the secret is for"),
        text("Data", "The number of entries"),
        AGE,
    ],
    fill: |row| {
        let entries = map_len(row.object, "/data");
        row.name().text("/type").cell(entries).age();
    },
};

static SERVICE_ACCOUNT: Printer = Printer {
    columns: &[NAME, AGE],
    fill: |row| {
        row.name().age();
    },
};

static SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text("Type", "How the service is reached"),
        text("Cluster-IP", "Its address inside the cluster"),
        text("External-IP", "Its addresses outside the cluster"),
        text("Port(s)", "The ports it listens on"),
        AGE,
        SELECTOR,
    ],
    fill: |row| {
        let object = row.object;
        let ports = service_ports(object);
        row.name()
            .text("/spec/type")
            .text_or("/spec/clusterIPs/0", NONE)
            .cell(external_ips(object));
        row.cell(if ports.is_empty() { NONE } else { &ports })
            .age()
            .labels("/spec/selector");
    },
};

fn service_ports(object: &Object) -> String {
    let ports = object.array_at("/spec/ports").iter().map(|port| {
        let (number, protocol) = (
            i64_at(port, "/port").unwrap_or(0),
            str_at(port, "/protocol"),
        );
        match i64_at(port, "/nodePort") {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    ports.collect::<Vec<_>>().join(",")
}

fn external_ips(object: &Object) -> String {
    let external = join(
        object
            .array_at("/spec/externalIPs")
            .iter()
            .filter_map(Value::as_str),
        ",",
    );
    let or_else = |text: &str, empty: &str| {
        if text.is_empty() {
            empty.to_owned()
        } else {
            text.to_owned()
        }
    };
    match object.str_at("/spec/type") {
        "ClusterIP" | "NodePort" => or_else(&external, NONE),
        "LoadBalancer" => match (ingress_points(object), external) {
            (balancer, external) if external.is_empty() => or_else(&balancer, "<pending>"),
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => object.str_at("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses or names of a load balancer's status, sorted.
pub fn ingress_points(object: &Object) -> String {
    let points = object
        .array_at("/status/loadBalancer/ingress")
        .iter()
        .map(|one| match str_at(one, "/ip") {
            "" => str_at(one, "/hostname"),
            ip => ip,
        });
    let mut points: Vec<&str> = points.filter(|point| !point.is_empty()).collect();
    points.sort_unstable();
    points.dedup();
    points.join(",")
}

fn map_len(object: &Object, path: &str) -> usize {
    object
        .at(path)
        .and_then(Value::as_object)
        .map_or(0, crate::meta::Map::len)
}
