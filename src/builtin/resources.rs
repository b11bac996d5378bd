//! The table of built-in resources. A row says how a resource differs from [`PLAIN`].

use super::facts::{Facts, META_OF_STATUS, PLAIN, Row, WITH_STATUS, WORKLOAD};
use super::{
    admissionregistration, apiregistration, apps, autoscaling, batch, certificates, coordination,
    core, discovery, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use crate::registry::{NameRule, Strategy};

const fn row(
    group: &'static str,
    resource: &'static str,
    facts: Facts,
    code: &'static dyn Strategy,
) -> Row {
    Row {
        group,
        resource,
        facts,
        code,
    }
}

/// What an event can be selected by.
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The same by the names of events.k8s.io.
const NEW_EVENT_FIELDS: &[&str] = &[
    "reason",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reportingController",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

/// Webhooks and policies: they count changes of anything, and no write may be blind.
const ADMISSION: Facts = Facts {
    generation: true,
    any_finalizer: true,
    unconditional_update: false,
    ..PLAIN
};
/// RBAC: any name that fits into a URL, and PUT creates.
const RBAC: Facts = Facts {
    name: NameRule::PathSegment,
    create_on_update: true,
    ..PLAIN
};
/// A status write leaves all metadata but managedFields as it was.
const STATUS_ALONE: Facts = Facts {
    status_keeps: META_OF_STATUS,
    status_resets: &["/metadata", "/spec"],
    ..WITH_STATUS
};

/// Every resource of the discovery documents.
#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    // core
    row("", "configmaps", Facts { revalidates_meta: true, ..PLAIN }, &core::ConfigMaps),
    row("", "endpoints", Facts { create_on_update: true, revalidates_meta: true, ..PLAIN }, &core::Endpoints),
    row("", "events", Facts { create_on_update: true, ignores_dependents: true, selectable: EVENT_FIELDS, ..PLAIN }, &core::Events { strict: false }),
    row("", "limitranges", Facts { create_on_update: true, ..PLAIN }, &core::LimitRanges),
    row("", "namespaces", Facts { name: NameRule::DnsLabel, returns_deleted: true, selectable: &["status.phase"], ..WITH_STATUS }, &core::Namespaces),
    row("", "nodes", Facts { status_on_create: true, selectable: &["spec.unschedulable"], ..WITH_STATUS }, &core::Nodes),
    row("", "persistentvolumeclaims", Facts { returns_deleted: true, revalidates_meta: true, ..WITH_STATUS }, &core::Claims),
    row("", "persistentvolumes", Facts { returns_deleted: true, ..WITH_STATUS }, &core::PersistentVolumes),
    row("", "pods", Facts { pod_spec: Some("/spec"), returns_deleted: true, selectable: POD_FIELDS, status_keeps: &["ownerReferences"], status_resets: &["/spec", "/metadata/deletionTimestamp", "/metadata/ownerReferences"], ..WORKLOAD }, &core::Pods),
    row("", "podtemplates", Facts { pod_spec: Some("/template/spec"), generation: true, returns_deleted: true, ..PLAIN }, &core::PodTemplates),
    row("", "replicationcontrollers", Facts { pod_spec: Some("/spec/template/spec"), orphans: true, selectable: &["status.replicas"], ..WORKLOAD }, &core::ReplicationControllers),
    row("", "resourcequotas", Facts { returns_deleted: true, ..WITH_STATUS }, &core::ResourceQuotas),
    row("", "secrets", Facts { selectable: &["type"], revalidates_meta: true, ..PLAIN }, &core::Secrets),
    row("", "serviceaccounts", Facts { returns_deleted: true, revalidates_meta: true, ..PLAIN }, &core::ServiceAccounts),
    row("", "services", Facts { name: NameRule::DnsLabel, create_on_update: true, returns_deleted: true, selectable: &["spec.clusterIP", "spec.type"], ..WITH_STATUS }, &core::Service),
    // apps
    row("apps", "controllerrevisions", Facts { revalidates_meta: true, ..PLAIN }, &apps::ControllerRevisions),
    row("apps", "daemonsets", Facts { pod_spec: Some("/spec/template/spec"), ..WORKLOAD }, &apps::DaemonSets),
    row("apps", "deployments", Facts { pod_spec: Some("/spec/template/spec"), status_keeps: &["labels"], status_resets: &["/spec", "/metadata/labels"], ..WORKLOAD }, &apps::Deployments),
    row("apps", "replicasets", Facts { pod_spec: Some("/spec/template/spec"), ..WORKLOAD }, &apps::ReplicaSets),
    row("apps", "statefulsets", Facts { pod_spec: Some("/spec/template/spec"), name: NameRule::DnsLabel, ..WORKLOAD }, &apps::StatefulSets),
    // autoscaling, batch, policy
    row("autoscaling", "horizontalpodautoscalers", WITH_STATUS, &autoscaling::HorizontalPodAutoscalers),
    row("batch", "cronjobs", Facts { pod_spec: Some("/spec/jobTemplate/spec/template/spec"), ..WORKLOAD }, &batch::CronJobs),
    row("batch", "jobs", Facts { pod_spec: Some("/spec/template/spec"), orphans: true, selectable: &["status.successful"], ..WORKLOAD }, &batch::Jobs),
    row("policy", "poddisruptionbudgets", Facts { any_finalizer: true, unconditional_update: false, ..WORKLOAD }, &policy::PodDisruptionBudgets),
    // networking, discovery
    row("networking.k8s.io", "ingressclasses", Facts { generation: true, ..PLAIN }, &networking::IngressClasses),
    row("networking.k8s.io", "ingresses", WORKLOAD, &networking::Ingresses),
    row("networking.k8s.io", "ipaddresses", Facts { name: NameRule::PathSegment, ..PLAIN }, &networking::IpAddresses),
    row("networking.k8s.io", "networkpolicies", Facts { generation: true, ..PLAIN }, &networking::NetworkPolicies),
    row("networking.k8s.io", "servicecidrs", STATUS_ALONE, &networking::ServiceCidrs),
    row("discovery.k8s.io", "endpointslices", Facts { generation: true, ..PLAIN }, &discovery::EndpointSlices),
    // events in their own group are the same objects
    row("events.k8s.io", "events", Facts { create_on_update: true, ignores_dependents: true, selectable: NEW_EVENT_FIELDS, ..PLAIN }, &core::Events { strict: true }),
    // access
    row("certificates.k8s.io", "certificatesigningrequests", Facts { selectable: &["spec.signerName"], status_resets: &["/spec", "/status/conditions"], ..WITH_STATUS }, &certificates::CertificateSigningRequests),
    row("rbac.authorization.k8s.io", "clusterrolebindings", RBAC, &rbac::ClusterRoleBindings),
    row("rbac.authorization.k8s.io", "clusterroles", RBAC, &rbac::ClusterRoles),
    row("rbac.authorization.k8s.io", "rolebindings", RBAC, &rbac::RoleBindings),
    row("rbac.authorization.k8s.io", "roles", RBAC, &rbac::Roles),
    // storage
    row("storage.k8s.io", "csidrivers", Facts { unconditional_update: false, returns_deleted: true, ..PLAIN }, &storage::CsiDrivers),
    row("storage.k8s.io", "csinodes", Facts { unconditional_update: false, returns_deleted: true, ..PLAIN }, &storage::CsiNodes),
    row("storage.k8s.io", "csistoragecapacities", Facts { unconditional_update: false, ..PLAIN }, &storage::CsiStorageCapacities),
    row("storage.k8s.io", "storageclasses", Facts { returns_deleted: true, ..PLAIN }, &storage::StorageClasses),
    row("storage.k8s.io", "volumeattachments", Facts { unconditional_update: false, returns_deleted: true, ..STATUS_ALONE }, &storage::VolumeAttachments),
    row("storage.k8s.io", "volumeattributesclasses", Facts { returns_deleted: true, ..PLAIN }, &storage::VolumeAttributesClasses),
    // admission and extension
    row("admissionregistration.k8s.io", "mutatingadmissionpolicies", ADMISSION, &admissionregistration::MutatingPolicies),
    row("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ADMISSION, &admissionregistration::MutatingBindings),
    row("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ADMISSION, &admissionregistration::MutatingWebhooks),
    row("admissionregistration.k8s.io", "validatingadmissionpolicies", Facts { any_finalizer: true, status: true, status_keeps: META_OF_STATUS, status_resets: &["/spec", "/metadata"], ..ADMISSION }, &admissionregistration::ValidatingPolicies),
    row("admissionregistration.k8s.io", "validatingadmissionpolicybindings", ADMISSION, &admissionregistration::ValidatingBindings),
    row("admissionregistration.k8s.io", "validatingwebhookconfigurations", ADMISSION, &admissionregistration::ValidatingWebhooks),
    row("apiregistration.k8s.io", "apiservices", Facts { any_finalizer: true, name: NameRule::PathSegment, unconditional_update: false, ..STATUS_ALONE }, &apiregistration::ApiServices),
    // scheduling, nodes, leases
    row("scheduling.k8s.io", "priorityclasses", PLAIN, &scheduling::PriorityClasses),
    row("node.k8s.io", "runtimeclasses", Facts { any_finalizer: true, create_on_update: true, unconditional_update: false, ..PLAIN }, &node::RuntimeClasses),
    row("coordination.k8s.io", "leases", Facts { any_finalizer: true, create_on_update: true, unconditional_update: false, ..PLAIN }, &coordination::Leases),
    // dynamic resources
    row("resource.k8s.io", "deviceclasses", Facts { generation: true, returns_deleted: true, ..PLAIN }, &resource::DeviceClasses),
    row("resource.k8s.io", "resourceclaims", Facts { returns_deleted: true, ..STATUS_ALONE }, &resource::ResourceClaims),
    row("resource.k8s.io", "resourceclaimtemplates", Facts { returns_deleted: true, ..PLAIN }, &resource::ResourceClaimTemplates),
    row("resource.k8s.io", "resourceslices", Facts { generation: true, returns_deleted: true, selectable: &["spec.nodeName", "spec.driver"], ..PLAIN }, &resource::ResourceSlices),
    // flow control
    row("flowcontrol.apiserver.k8s.io", "flowschemas", Facts { status_keeps: META_OF_STATUS, status_resets: &["/metadata", "/spec"], ..WORKLOAD }, &flowcontrol::FlowSchemas),
    row("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", Facts { status_keeps: META_OF_STATUS, status_resets: &["/metadata", "/spec"], ..WORKLOAD }, &flowcontrol::PriorityLevels),
];
