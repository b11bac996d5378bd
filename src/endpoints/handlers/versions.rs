//! Kinds that a body may have beside the expected one: those of other versions are read, and then
//! refused for their version (apiserver `endpoints/handlers/create.go`).

use crate::meta::Gvk;
use crate::schema::Schema;

/// The kinds of versions that upstream knows and no longer serves, or does not by default
/// (`pkg/apis/*/install`).
const UNSERVED: &[(&str, &str, &[&str])] = &[
    (
        "admissionregistration.k8s.io",
        "v1alpha1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    (
        "apiextensions.k8s.io",
        "v1beta1",
        &["CustomResourceDefinition"],
    ),
    ("apiregistration.k8s.io", "v1beta1", &["APIService"]),
    (
        "apps",
        "v1beta1",
        &["ControllerRevision", "Deployment", "StatefulSet"],
    ),
    (
        "apps",
        "v1beta2",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
        ],
    ),
    ("authentication.k8s.io", "v1alpha1", &["SelfSubjectReview"]),
    (
        "authentication.k8s.io",
        "v1beta1",
        &["SelfSubjectReview", "TokenReview"],
    ),
    (
        "authorization.k8s.io",
        "v1beta1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("batch", "v1beta1", &["CronJob"]),
    (
        "certificates.k8s.io",
        "v1beta1",
        &["CertificateSigningRequest"],
    ),
    ("coordination.k8s.io", "v1beta1", &["Lease"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    (
        "extensions",
        "v1beta1",
        &[
            "DaemonSet",
            "Deployment",
            "Ingress",
            "NetworkPolicy",
            "ReplicaSet",
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1beta1",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1beta2",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1beta3",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "networking.k8s.io",
        "v1beta1",
        &["IPAddress", "Ingress", "IngressClass", "ServiceCIDR"],
    ),
    ("node.k8s.io", "v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io", "v1beta1", &["RuntimeClass"]),
    ("policy", "v1beta1", &["Eviction", "PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io",
        "v1alpha1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "rbac.authorization.k8s.io",
        "v1beta1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "resource.k8s.io",
        "v1beta1",
        &[
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
    ),
    (
        "resource.k8s.io",
        "v1beta2",
        &[
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
    ),
    ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    (
        "storage.k8s.io",
        "v1alpha1",
        &[
            "CSIStorageCapacity",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    (
        "storage.k8s.io",
        "v1beta1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

/// Reports whether two kinds are versions of one, both of which upstream knows.
pub fn are_of_one_kind(schema: &Schema, gvk: &Gvk, expected: &Gvk) -> bool {
    let is_unserved = || {
        UNSERVED.iter().any(|(group, version, kinds)| {
            (*group, *version) == (gvk.group.as_str(), gvk.version.as_str())
                && kinds.contains(&gvk.kind.as_str())
        })
    };
    gvk.kind == expected.kind
        && internal_group(gvk) == internal_group(expected)
        && (schema.get(gvk).is_some() || is_unserved())
}

/// The group of the type that upstream converts a kind to.
fn internal_group(gvk: &Gvk) -> &str {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        ("extensions", _) => "apps",
        ("events.k8s.io", "Event") => "",
        (group, _) => group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_kind_are_told_from_other_kinds() {
        let schema = crate::schema::builtin();
        for (group, version, kind, expected, are_one) in [
            ("apps", "v1beta1", "Deployment", ("apps", "v1"), true),
            ("apps", "v1beta1", "DaemonSet", ("apps", "v1"), false),
            ("extensions", "v1beta1", "DaemonSet", ("apps", "v1"), true),
            (
                "extensions",
                "v1beta1",
                "Ingress",
                ("networking.k8s.io", "v1"),
                true,
            ),
            ("events.k8s.io", "v1", "Event", ("", "v1"), true),
            (
                "autoscaling",
                "v1",
                "HorizontalPodAutoscaler",
                ("autoscaling", "v2"),
                true,
            ),
            (
                "autoscaling",
                "v2beta2",
                "HorizontalPodAutoscaler",
                ("autoscaling", "v2"),
                false,
            ),
            ("apps", "v2", "Deployment", ("apps", "v1"), false),
        ] {
            let (of, expected) = (
                Gvk::new(group, version, kind),
                Gvk::new(expected.0, expected.1, kind),
            );
            assert_eq!(are_of_one_kind(schema, &of, &expected), are_one, "{of:?}");
        }
    }
}
