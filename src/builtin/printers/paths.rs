//! Which fields the printers read: for a row nothing else of an object has to be decoded.

/// The paths that the printer of a built-in resource reads beside the metadata that all read
/// ([`crate::registry::table::PRINTED_METADATA`]), as a projection takes them
/// ([`crate::codec::protobuf::Projection`]), with spaces in between. They are those of the storage
/// version.
pub fn of(group: &str, resource: &str) -> &'static str {
    match group {
        "" => core(resource),
        "apps" | "batch" | "policy" => workloads(resource),
        "autoscaling" => "spec status",
        "networking.k8s.io" | "discovery.k8s.io" => networking(resource),
        "storage.k8s.io" | "resource.k8s.io" => storage(resource),
        "events.k8s.io" => core("events"),
        _ => others(resource),
    }
}

fn core(resource: &str) -> &'static str {
    match resource {
        "pods" => {
            "spec.containers.name spec.initContainers.name spec.initContainers.restartPolicy spec.nodeName spec.readinessGates \
             status.phase status.reason status.podIPs status.nominatedNodeName \
             status.conditions.type status.conditions.status status.conditions.reason \
             status.initContainerStatuses.name status.initContainerStatuses.ready status.initContainerStatuses.started \
             status.initContainerStatuses.restartCount status.initContainerStatuses.state \
             status.initContainerStatuses.lastState.terminated.finishedAt \
             status.containerStatuses.ready status.containerStatuses.restartCount status.containerStatuses.state.running \
             status.containerStatuses.state.waiting.reason status.containerStatuses.state.terminated \
             status.containerStatuses.lastState.terminated.finishedAt"
        }
        "componentstatuses" => "conditions",
        "configmaps" => "data binaryData",
        "endpoints" => "subsets",
        "events" => {
            "firstTimestamp lastTimestamp eventTime count series involvedObject source reportingComponent reportingInstance type reason \
             message"
        }
        "namespaces" => "status.phase",
        "nodes" => {
            "metadata.labels spec.unschedulable status.conditions.type status.conditions.status status.addresses status.nodeInfo"
        }
        "persistentvolumeclaims" => {
            "metadata.annotations spec.volumeName spec.storageClassName spec.volumeAttributesClassName spec.volumeMode status.phase \
             status.capacity status.accessModes"
        }
        "persistentvolumes" => {
            "metadata.annotations spec.capacity spec.accessModes spec.persistentVolumeReclaimPolicy spec.claimRef spec.storageClassName \
             spec.volumeAttributesClassName spec.volumeMode status.phase status.reason"
        }
        "podtemplates" => {
            "template.metadata.labels template.spec.containers.name template.spec.containers.image"
        }
        "replicationcontrollers" => {
            "spec.replicas spec.selector spec.template.spec.containers.name spec.template.spec.containers.image status.replicas \
             status.readyReplicas"
        }
        "resourcequotas" => "status.hard status.used",
        "secrets" => "type data",
        "services" => {
            "spec.type spec.clusterIPs spec.externalIPs spec.externalName spec.ports spec.selector status.loadBalancer"
        }
        _ => "",
    }
}

fn workloads(resource: &str) -> &'static str {
    match resource {
        "controllerrevisions" => "metadata.ownerReferences revision",
        "daemonsets" => {
            "spec.selector spec.template.spec.nodeSelector spec.template.spec.containers.name spec.template.spec.containers.image \
             status.desiredNumberScheduled status.currentNumberScheduled status.numberReady status.updatedNumberScheduled \
             status.numberAvailable"
        }
        "deployments" => {
            "spec.replicas spec.selector spec.template.spec.containers.name spec.template.spec.containers.image \
             status.readyReplicas status.updatedReplicas status.availableReplicas"
        }
        "replicasets" => {
            "spec.replicas spec.selector spec.template.spec.containers.name spec.template.spec.containers.image status.replicas \
             status.readyReplicas"
        }
        "statefulsets" => {
            "spec.replicas spec.template.spec.containers.name spec.template.spec.containers.image status.readyReplicas"
        }
        "cronjobs" => {
            "spec.schedule spec.timeZone spec.suspend spec.jobTemplate.spec.selector \
             spec.jobTemplate.spec.template.spec.containers.name spec.jobTemplate.spec.template.spec.containers.image \
             status.active status.lastScheduleTime"
        }
        "jobs" => {
            "spec.completions spec.parallelism spec.selector spec.template.spec.containers.name spec.template.spec.containers.image \
             status.conditions.type status.conditions.status status.succeeded status.startTime status.completionTime"
        }
        "poddisruptionbudgets" => "spec.minAvailable spec.maxUnavailable status.disruptionsAllowed",
        _ => "",
    }
}

fn networking(resource: &str) -> &'static str {
    match resource {
        "endpointslices" => "addressType ports endpoints.addresses",
        "ingressclasses" => "metadata.annotations spec.controller spec.parameters",
        "ingresses" => "spec.ingressClassName spec.rules.host spec.tls status.loadBalancer",
        "ipaddresses" => "spec.parentRef",
        "networkpolicies" => "spec.podSelector",
        "servicecidrs" => "spec.cidrs",
        _ => "",
    }
}

fn storage(resource: &str) -> &'static str {
    match resource {
        "csidrivers" => "spec",
        "csinodes" => "spec.drivers.name",
        "storageclasses" => {
            "metadata.annotations provisioner reclaimPolicy volumeBindingMode allowVolumeExpansion"
        }
        "volumeattachments" => {
            "spec.attacher spec.nodeName spec.source.persistentVolumeName status.attached"
        }
        "volumeattributesclasses" => "driverName",
        "resourceclaims" => "status.allocation status.reservedFor",
        "resourceslices" => "spec.nodeName spec.driver spec.pool.name",
        _ => "",
    }
}

fn others(resource: &str) -> &'static str {
    match resource {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => "webhooks.name",
        "mutatingadmissionpolicies" => "spec.mutations spec.paramKind",
        "validatingadmissionpolicies" => "spec.validations spec.paramKind",
        "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings" => {
            "spec.policyName spec.paramRef"
        }
        "clusterrolebindings" | "rolebindings" => "roleRef subjects",
        "flowschemas" => {
            "spec.priorityLevelConfiguration spec.matchingPrecedence spec.distinguisherMethod status.conditions.type \
             status.conditions.status"
        }
        "prioritylevelconfigurations" => "spec",
        "apiservices" => "spec.service status.conditions",
        "certificatesigningrequests" => {
            "spec.expirationSeconds spec.signerName spec.username status.conditions.type status.certificate"
        }
        "leases" => "spec.holderIdentity",
        "runtimeclasses" => "handler",
        "priorityclasses" => "value globalDefault preemptionPolicy",
        _ => "",
    }
}
