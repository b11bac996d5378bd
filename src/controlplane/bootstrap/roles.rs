//! The ClusterRoles of a fresh server, with the bindings and the roles in single namespaces
//! (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`).

use super::rbac::{
    ClusterRole, EVENTS, READ, READ_WRITE, RuleRow, Subject, WRITE, account, group, named, role,
    rule, urls, user,
};

/// ClusterRoles by name, those of the controllers excepted.
#[rustfmt::skip]
pub(super) const CLUSTER_ROLES: &[ClusterRole] = &[
    ClusterRole { name: "admin", feeds: "", gathers: "admin", rules: &[] },
    role("cluster-admin", &[
        rule("*", "*", "*"),
        urls("*", "*"),
    ]),
    ClusterRole { name: "edit", feeds: "admin", gathers: "edit", rules: &[] },
    ClusterRole { name: "system:aggregate-to-admin", feeds: "admin", gathers: "", rules: &[
        rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        rule(READ_WRITE, "rbac.authorization.k8s.io", "rolebindings,roles"),
    ]},
    ClusterRole { name: "system:aggregate-to-edit", feeds: "edit", gathers: "", rules: &[
        rule(READ, "", "pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy"),
        rule("impersonate", "", "serviceaccounts"),
        rule(WRITE, "", "pods,pods/attach,pods/exec,pods/portforward,pods/proxy"),
        rule("create", "", "pods/eviction"),
        rule(WRITE, "",
            "configmaps,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,serviceaccounts,services,services/proxy"),
        rule("create", "", "serviceaccounts/token"),
        rule(WRITE, ",events.k8s.io", "events"),
        rule(WRITE, "apps",
            "daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,statefulsets,statefulsets/scale"),
        rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
        rule(WRITE, "batch", "cronjobs,jobs"),
        rule(WRITE, "extensions",
            "daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,networkpolicies,replicasets,replicasets/scale,replicationcontrollers/scale"),
        rule(WRITE, "policy", "poddisruptionbudgets"),
        rule(WRITE, "networking.k8s.io", "ingresses,networkpolicies"),
        rule(READ_WRITE, "coordination.k8s.io", "leases"),
        rule(WRITE, "resource.k8s.io", "resourceclaims,resourceclaimtemplates"),
    ]},
    ClusterRole { name: "system:aggregate-to-view", feeds: "view", gathers: "", rules: &[
        rule(READ, "",
            "configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status"),
        rule(READ, "",
            "bindings,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,resourcequotas,resourcequotas/status"),
        rule(READ, "", "namespaces"),
        rule(READ, ",events.k8s.io", "events"),
        rule(READ, "discovery.k8s.io", "endpointslices"),
        rule(READ, "apps",
            "controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status"),
        rule(READ, "autoscaling", "horizontalpodautoscalers,horizontalpodautoscalers/status"),
        rule(READ, "batch", "cronjobs,cronjobs/status,jobs,jobs/status"),
        rule(READ, "extensions",
            "daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,ingresses/status,networkpolicies,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale"),
        rule(READ, "policy", "poddisruptionbudgets,poddisruptionbudgets/status"),
        rule(READ, "networking.k8s.io", "ingresses,ingresses/status,networkpolicies"),
        rule(READ, "resource.k8s.io",
            "resourceclaims,resourceclaims/status,resourceclaimtemplates"),
    ]},
    role("system:auth-delegator", &[
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ]),
    role("system:basic-user", &[
        rule("create", "authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews"),
        rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ]),
    role("system:certificates.k8s.io:certificatesigningrequests:nodeclient", &[
        rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient"),
    ]),
    role("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", &[
        rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient"),
    ]),
    role("system:certificates.k8s.io:kube-apiserver-client-approver", &[
        named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client"),
    ]),
    role("system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", &[
        named("approve", "certificates.k8s.io", "signers",
            "kubernetes.io/kube-apiserver-client-kubelet"),
    ]),
    role("system:certificates.k8s.io:kubelet-serving-approver", &[
        named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
    ]),
    role("system:certificates.k8s.io:legacy-unknown-approver", &[
        named("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown"),
    ]),
    role("system:discovery", &[
        urls("get",
            "/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/"),
    ]),
    role("system:heapster", &[
        rule(READ, "", "events,namespaces,nodes,pods"),
        rule(READ, "extensions", "deployments"),
    ]),
    role("system:kube-aggregator", &[rule(READ, "", "endpoints,services")]),
    role("system:kube-controller-manager", &[
        EVENTS,
        rule("create", "coordination.k8s.io", "leases"),
        named("get,update", "coordination.k8s.io", "leases", "kube-controller-manager"),
        rule("create", "", "secrets,serviceaccounts"),
        rule("delete", "", "secrets"),
        rule("get", "", "configmaps,namespaces,secrets,serviceaccounts"),
        rule("update", "", "secrets,serviceaccounts"),
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        rule("list,watch", "*", "*"),
        rule("create", "", "serviceaccounts/token"),
    ]),
    role("system:kube-dns", &[rule("list,watch", "", "endpoints,services")]),
    role("system:kube-scheduler", &[
        EVENTS,
        rule("create", "coordination.k8s.io", "leases"),
        named("get,list,update,watch", "coordination.k8s.io", "leases", "kube-scheduler"),
        rule(READ_WRITE, "coordination.k8s.io", "leasecandidates"),
        rule(READ, "", "nodes"),
        rule("delete,get,list,watch", "", "pods"),
        rule("create", "", "bindings,pods/binding"),
        rule("patch,update", "", "pods/status"),
        rule(READ, "", "replicationcontrollers,services"),
        rule(READ, "apps,extensions", "replicasets"),
        rule(READ, "apps", "statefulsets"),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(READ, "", "persistentvolumeclaims,persistentvolumes"),
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        rule(READ, "storage.k8s.io", "csinodes"),
        rule(READ, "storage.k8s.io", "volumeattachments"),
        rule(READ, "", "namespaces"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule(READ, "storage.k8s.io", "csistoragecapacities"),
        rule(READ, "resource.k8s.io", "deviceclasses"),
        rule("get,list,patch,update,watch", "resource.k8s.io", "resourceclaims"),
        rule("get,list,patch,update,watch", "resource.k8s.io", "resourceclaims/status"),
        rule("update", "", "pods/finalizers"),
        rule(READ, "resource.k8s.io", "resourceslices"),
        rule("create,delete", "resource.k8s.io", "resourceclaims"),
        rule("patch,update", "resource.k8s.io", "resourceclaims/binding"),
    ]),
    role("system:kubelet-api-admin", &[
        rule(READ, "", "nodes"),
        rule("proxy", "", "nodes"),
        rule("*", "", "nodes/log,nodes/metrics,nodes/proxy,nodes/stats"),
        rule("*", "", "nodes/configz,nodes/healthz,nodes/pods"),
    ]),
    role("system:monitoring", &[
        urls("get",
            "/flagz,/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*,/statusz"),
        rule("get", "", "nodes/metrics"),
    ]),
    role("system:node", &[
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "localsubjectaccessreviews,subjectaccessreviews"),
        rule(READ, "", "services"),
        rule("create,get,list,watch", "", "nodes"),
        rule("patch,update", "", "nodes/status"),
        rule("patch,update", "", "nodes"),
        EVENTS,
        rule(READ, "", "pods"),
        rule("create,delete", "", "pods"),
        rule("patch,update", "", "pods/status"),
        rule("create", "", "pods/eviction"),
        rule(READ, "", "configmaps,secrets"),
        rule("get", "", "persistentvolumeclaims,persistentvolumes"),
        rule("get", "", "endpoints"),
        rule("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
        rule("create,delete,get,patch,update", "coordination.k8s.io", "leases"),
        rule("get", "storage.k8s.io", "volumeattachments"),
        rule("create", "", "serviceaccounts/token"),
        rule("get,patch,update", "", "persistentvolumeclaims/status"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule("create,delete,get,patch,update", "storage.k8s.io", "csinodes"),
        rule(READ, "node.k8s.io", "runtimeclasses"),
        rule("get", "resource.k8s.io", "resourceclaims"),
        rule("deletecollection", "resource.k8s.io", "resourceslices"),
        rule("get", "", "serviceaccounts"),
    ]),
    role("system:node-bootstrapper", &[
        rule("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
    ]),
    role("system:node-problem-detector", &[
        rule("get", "", "nodes"),
        rule("patch", "", "nodes/status"),
        EVENTS,
    ]),
    role("system:node-proxier", &[
        rule("list,watch", "", "endpoints,services"),
        rule(READ, "", "nodes"),
        EVENTS,
        rule("list,watch", "networking.k8s.io", "servicecidrs"),
        rule("list,watch", "discovery.k8s.io", "endpointslices"),
    ]),
    role("system:persistent-volume-provisioner", &[
        rule("create,delete,get,list,watch", "", "persistentvolumes"),
        rule("get,list,update,watch", "", "persistentvolumeclaims"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule("watch", "", "events"),
        EVENTS,
    ]),
    role("system:public-info-viewer", &[urls("get", "/healthz,/livez,/readyz,/version,/version/")]),
    role("system:service-account-issuer-discovery", &[
        urls("get",
            "/.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/"),
    ]),
    role("system:volume-scheduler", &[
        rule("get,list,patch,update,watch", "", "persistentvolumes"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule("get,list,patch,update,watch", "", "persistentvolumeclaims"),
    ]),
    ClusterRole { name: "view", feeds: "edit", gathers: "view", rules: &[] },
];

/// ClusterRoleBindings, named as the ClusterRole that they bind.
#[rustfmt::skip]
pub(super) const CLUSTER_BINDINGS: &[(&str, &[Subject])] = &[
    ("cluster-admin", &[group("system:masters")]),
    ("system:basic-user", &[group("system:authenticated")]),
    ("system:discovery", &[group("system:authenticated")]),
    ("system:kube-controller-manager", &[user("system:kube-controller-manager")]),
    ("system:kube-dns", &[account("kube-dns")]),
    ("system:kube-scheduler", &[user("system:kube-scheduler")]),
    ("system:monitoring", &[group("system:monitoring")]),
    ("system:node", &[]),
    ("system:node-proxier", &[user("system:kube-proxy")]),
    ("system:public-info-viewer", &[
        group("system:authenticated"),
        group("system:unauthenticated"),
    ]),
    ("system:service-account-issuer-discovery", &[group("system:serviceaccounts")]),
    ("system:volume-scheduler", &[user("system:kube-scheduler")]),
];

/// Roles: namespace, name, rules.
#[rustfmt::skip]
pub(super) const ROLES: &[(&str, &str, &[RuleRow])] = &[
    ("kube-public", "system:controller:bootstrap-signer", &[
        rule(READ, "", "configmaps"),
        named("update", "", "configmaps", "cluster-info"),
        EVENTS,
    ]),
    ("kube-system", "extension-apiserver-authentication-reader", &[
        named(READ, "", "configmaps", "extension-apiserver-authentication"),
    ]),
    ("kube-system", "system::leader-locking-kube-controller-manager", &[
        rule("create,get,list,update,watch", "coordination.k8s.io", "leases"),
        rule("create,get,list,update,watch", "coordination.k8s.io", "leasecandidates"),
    ]),
    ("kube-system", "system::leader-locking-kube-scheduler", &[
        rule("create,get,list,update,watch", "coordination.k8s.io", "leases"),
        rule("create,get,list,update,watch", "coordination.k8s.io", "leasecandidates"),
    ]),
    ("kube-system", "system:controller:bootstrap-signer", &[rule(READ, "", "secrets")]),
    ("kube-system", "system:controller:cloud-provider", &[
        rule("create,get,list,watch", "", "configmaps"),
    ]),
    ("kube-system", "system:controller:token-cleaner", &[
        rule("delete,get,list,watch", "", "secrets"),
        EVENTS,
    ]),
];

/// RoleBindings: namespace, name, the Role, subjects.
#[rustfmt::skip]
pub(super) const BINDINGS: &[(&str, &str, &str, &[Subject])] = &[
    ("kube-public", "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", &[
        account("bootstrap-signer"),
    ]),
    ("kube-system", "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        &[user("system:kube-controller-manager"), user("system:kube-scheduler")]),
    ("kube-system", "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &[user("system:kube-controller-manager"), account("kube-controller-manager"), account("leader-election-controller")]),
    ("kube-system", "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &[user("system:kube-scheduler"), account("kube-scheduler")]),
    ("kube-system", "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", &[
        account("bootstrap-signer"),
    ]),
    ("kube-system", "system:controller:cloud-provider", "system:controller:cloud-provider", &[
        account("cloud-provider"),
    ]),
    ("kube-system", "system:controller:token-cleaner", "system:controller:token-cleaner", &[
        account("token-cleaner"),
    ]),
];
