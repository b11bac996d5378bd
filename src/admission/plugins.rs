//! The table of all admission plugins of kube-apiserver v1.36, in the order in which they run
//! (`pkg/kubeapiserver/options/plugins.go`), with the support that this server has for each. There
//! is no other list.

use std::sync::Arc;

use super::kinds::Kinds;
use super::policy;
use super::webhook;
use super::{
    Objects, Plugin, Registrations, Settings, certificates, deny, event_rate_limit, ingress_class,
    limit_ranger, namespace_lifecycle, namespaces, node_declared_features, node_restriction,
    owner_references, pod_node_selector, pod_resize, pod_security, pod_toleration_restriction,
    pod_topology_labels, pods, priority, quota, runtime_class, service_account, storage, taints,
};
use crate::auth::authz::Authorizer;
use crate::webhook::{AuthInfos, Client, ServiceResolver};

/// The dependencies of plugins.
pub struct PluginDeps<'a> {
    pub objects: &'a Arc<dyn Objects>,
    pub authorizer: &'a Arc<dyn Authorizer>,
    pub settings: &'a Settings,
    pub kinds: &'a Arc<dyn Kinds>,
    pub registrations: &'a Registrations,
    pub services: &'a Arc<dyn ServiceResolver>,
}

impl PluginDeps<'_> {
    /// The dependencies of the policies.
    fn of_policies(&self) -> policy::Parts {
        policy::Parts {
            objects: self.objects.clone(),
            kinds: self.kinds.clone(),
            authorizer: self.authorizer.clone(),
        }
    }

    /// The dependencies of webhooks that are called with some credentials.
    fn of_webhooks(&self, credentials: &AuthInfos) -> webhook::Parts {
        webhook::Parts {
            objects: self.objects.clone(),
            kinds: self.kinds.clone(),
            authorizer: self.authorizer.clone(),
            client: Client::new(credentials.clone(), self.services.clone()),
        }
    }
}

/// The support of this server for a plugin.
#[derive(Clone, Copy)]
pub enum Support {
    /// Runs it.
    Runs(fn(&PluginDeps<'_>) -> Box<dyn Plugin>),
    /// No code, and none needed: upstream's never changes or refuses anything that can be asked of
    /// this server. The text gives the reason.
    Inert(&'static str),
    /// Not implemented. Naming it is an error; if it is on by default, a warning at start reports
    /// its absence. The text names the rules that are not enforced.
    Missing(&'static str),
}

/// One plugin.
pub struct Entry {
    pub name: &'static str,
    /// True if kube-apiserver runs it by default.
    pub by_default: bool,
    pub support: Support,
}

const fn default(name: &'static str, support: Support) -> Entry {
    Entry {
        name,
        by_default: true,
        support,
    }
}

const fn optional(name: &'static str, support: Support) -> Entry {
    Entry {
        name,
        by_default: false,
        support,
    }
}

/// The plugin of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}

use Support::{Inert, Missing, Runs};

/// In the order in which they run.
#[rustfmt::skip]
pub const PLUGINS: &[Entry] = &[
    optional("AlwaysAdmit", Inert("it lets everything through")),
    optional("NamespaceAutoProvision", Runs(|parts| Box::new(namespaces::NamespaceAutoProvision(parts.objects.clone())))),
    default("NamespaceLifecycle", Runs(|parts| Box::new(namespace_lifecycle::NamespaceLifecycle(parts.objects.clone())))),
    optional("NamespaceExists", Runs(|parts| Box::new(namespaces::NamespaceExists(parts.objects.clone())))),
    optional("LimitPodHardAntiAffinityTopology", Runs(|_| Box::new(pods::LimitPodHardAntiAffinityTopology))),
    default("LimitRanger", Runs(|parts| Box::new(limit_ranger::LimitRanger(parts.objects.clone())))),
    default("ServiceAccount", Runs(|parts| Box::new(service_account::ServiceAccount(parts.objects.clone())))),
    optional("NodeRestriction", Runs(|parts| Box::new(node_restriction::NodeRestriction { objects: parts.objects.clone(), authorizer: parts.authorizer.clone() }))),
    default("TaintNodesByCondition", Runs(|_| Box::new(taints::TaintNodesByCondition))),
    optional("AlwaysPullImages", Runs(|_| Box::new(pods::AlwaysPullImages))),
    optional("ImagePolicyWebhook", Missing("no webhook is asked about images")),
    default("PodSecurity", Runs(|parts| Box::new(pod_security::PodSecurity::new(parts.objects.clone(), parts.settings.plugins.pod_security.clone())))),
    optional("PodNodeSelector", Runs(|parts| Box::new(pod_node_selector::PodNodeSelector { objects: parts.objects.clone(), configuration: parts.settings.plugins.pod_node_selector.clone() }))),
    default("Priority", Runs(|parts| Box::new(priority::Priority(parts.objects.clone())))),
    default("DefaultTolerationSeconds", Runs(|parts| Box::new(taints::DefaultTolerationSeconds::new(parts.settings)))),
    optional("PodTolerationRestriction", Runs(|parts| Box::new(pod_toleration_restriction::PodTolerationRestriction { objects: parts.objects.clone(), configuration: parts.settings.plugins.pod_tolerations.clone() }))),
    optional("EventRateLimit", Runs(|parts| Box::new(event_rate_limit::EventRateLimit::new(&parts.settings.plugins.event_rate_limit)))),
    optional("ExtendedResourceToleration", Runs(|_| Box::new(pods::ExtendedResourceToleration))),
    default("DefaultStorageClass", Runs(|parts| Box::new(storage::DefaultStorageClass(parts.objects.clone())))),
    default("StorageObjectInUseProtection", Runs(|_| Box::new(storage::StorageObjectInUseProtection))),
    default("PodGroupProtection", Inert(NO_WORKLOADS)),
    optional("OwnerReferencesPermissionEnforcement", Runs(|parts| Box::new(owner_references::OwnerReferencesPermissionEnforcement { authorizer: parts.authorizer.clone(), kinds: parts.kinds.clone() }))),
    default("PersistentVolumeClaimResize", Runs(|parts| Box::new(storage::PersistentVolumeClaimResize(parts.objects.clone())))),
    default("RuntimeClass", Runs(|parts| Box::new(runtime_class::RuntimeClass(parts.objects.clone())))),
    default("CertificateApproval", Runs(|parts| Box::new(certificates::CertificateApproval(parts.authorizer.clone())))),
    default("CertificateSigning", Runs(|parts| Box::new(certificates::CertificateSigning(parts.authorizer.clone())))),
    default("ClusterTrustBundleAttest", Inert("cluster trust bundles are not served (certificates.k8s.io/v1 has none)")),
    default("CertificateSubjectRestriction", Runs(|_| Box::new(certificates::CertificateSubjectRestriction))),
    default("DefaultIngressClass", Runs(|parts| Box::new(ingress_class::DefaultIngressClass(parts.objects.clone())))),
    optional("DenyServiceExternalIPs", Runs(|_| Box::new(deny::DenyServiceExternalIPs))),
    default("PodTopologyLabels", Runs(|parts| Box::new(pod_topology_labels::PodTopologyLabels(parts.objects.clone())))),
    default("PodGroupWorkloadExists", Inert(NO_WORKLOADS)),
    default("NodeDeclaredFeatureValidator", Runs(|parts| Box::new(node_declared_features::NodeDeclaredFeatureValidator(parts.objects.clone())))),
    default("JobValidation", Inert(NO_WORKLOADS)),
    default("PodResizeValidator", Runs(|parts| Box::new(pod_resize::PodResizeValidator(parts.objects.clone())))),
    // What is new goes above; these come last.
    default("MutatingAdmissionPolicy", Runs(|parts| Box::new(policy::MutatingAdmissionPolicy { source: parts.registrations.policies.mutating.clone(), parts: parts.of_policies() }))),
    default("MutatingAdmissionWebhook", Runs(|parts| Box::new(webhook::MutatingAdmissionWebhook { source: parts.registrations.webhooks.mutating.clone(), parts: parts.of_webhooks(&parts.settings.plugins.mutating_webhooks) }))),
    default("ValidatingAdmissionPolicy", Runs(|parts| Box::new(policy::ValidatingAdmissionPolicy { source: parts.registrations.policies.validating.clone(), parts: parts.of_policies() }))),
    default("ValidatingAdmissionWebhook", Runs(|parts| Box::new(webhook::ValidatingAdmissionWebhook { source: parts.registrations.webhooks.validating.clone(), parts: parts.of_webhooks(&parts.settings.plugins.validating_webhooks) }))),
    // Last, so that only requests that all others admit are counted.
    default("ResourceQuota", Runs(|parts| Box::new(quota::ResourceQuota::new(parts.objects.clone(), parts.settings.plugins.quota.clone())))),
    optional("AlwaysDeny", Runs(|_| Box::new(deny::AlwaysDeny))),
];

const NO_WORKLOADS: &str =
    "workloads and pod groups are not served (GenericWorkload and WorkloadWithJob are off)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::kinds::NoKinds;
    use crate::auth::authz::AlwaysDeny;
    use crate::webhook::NoServices;

    struct Nothing;

    #[async_trait::async_trait]
    impl Objects for Nothing {
        async fn get(
            &self,
            _: &crate::meta::Gvr,
            _: &str,
            _: &str,
        ) -> crate::meta::status::Result<Option<Arc<crate::meta::Object>>> {
            Ok(None)
        }
        async fn list(
            &self,
            _: &crate::meta::Gvr,
            _: &str,
        ) -> crate::meta::status::Result<Vec<Arc<crate::meta::Object>>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn every_plugin_is_listed_once_under_the_name_that_it_has() {
        let (objects, authorizer): (Arc<dyn Objects>, Arc<dyn Authorizer>) =
            (Arc::new(Nothing), Arc::new(AlwaysDeny));
        let kinds: Arc<dyn Kinds> = Arc::new(NoKinds);
        let services: Arc<dyn ServiceResolver> = Arc::new(NoServices);
        let parts = PluginDeps {
            objects: &objects,
            authorizer: &authorizer,
            settings: &Settings::default(),
            kinds: &kinds,
            registrations: &Registrations::default(),
            services: &services,
        };
        let mut names = std::collections::BTreeSet::new();
        for plugin in PLUGINS {
            assert!(names.insert(plugin.name), "{} comes twice", plugin.name);
            if let Runs(build) = plugin.support {
                assert_eq!(build(&parts).name(), plugin.name);
            }
        }
        assert_eq!(PLUGINS.len(), 41);
        assert_eq!(
            PLUGINS.iter().filter(|plugin| plugin.by_default).count(),
            27
        );
    }
}
