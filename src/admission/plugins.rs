//! The table of all admission plugins of kube-apiserver v1.36, in the order in which they run
//! (`pkg/kubeapiserver/options/plugins.go`), with the support that this server has for each. There
//! is no other list.

use std::sync::Arc;

use super::kinds::Kinds;
use super::observation::{Calls, Step};
use super::policy;
use super::webhook;
use super::{
    Objects, Operation, Plugin, Registrations, Settings, certificates, deny, event_rate_limit,
    image_policy, ingress_class, limit_ranger, namespace_lifecycle, namespaces,
    node_declared_features, node_restriction, owner_references, pod_node_selector, pod_resize,
    pod_security, pod_toleration_restriction, pod_topology_labels, pods, priority, quota,
    runtime_class, service_account, storage, taints,
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
}

/// One plugin.
pub struct Entry {
    pub name: &'static str,
    /// True if kube-apiserver runs it by default.
    pub by_default: bool,
    /// The steps and operations that upstream calls it for, whatever the resource.
    pub calls: Calls,
    pub support: Support,
}

const fn default(name: &'static str, (steps, operations): (u8, u8), support: Support) -> Entry {
    Entry {
        name,
        by_default: true,
        calls: Calls { steps, operations },
        support,
    }
}

const fn optional(name: &'static str, calls: (u8, u8), support: Support) -> Entry {
    Entry {
        by_default: false,
        ..default(name, calls, support)
    }
}

const ADMITS: u8 = 1 << Step::Admit as u8;
const VALIDATES: u8 = 1 << Step::Validate as u8;
const C: u8 = 1 << Operation::Create as u8;
const U: u8 = 1 << Operation::Update as u8;
const D: u8 = 1 << Operation::Delete as u8;
const X: u8 = 1 << Operation::Connect as u8;
const ALL: u8 = C | U | D | X;

/// The plugin of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}

use Support::{Inert, Runs};

/// In the order in which they run.
#[rustfmt::skip]
pub const PLUGINS: &[Entry] = &[
    optional("AlwaysAdmit", (ADMITS | VALIDATES, ALL), Inert("it lets everything through")),
    optional("NamespaceAutoProvision", (ADMITS, C), Runs(|parts| Box::new(namespaces::NamespaceAutoProvision(parts.objects.clone())))),
    default("NamespaceLifecycle", (ADMITS, C | U | D), Runs(|parts| Box::new(namespace_lifecycle::NamespaceLifecycle(parts.objects.clone())))),
    optional("NamespaceExists", (VALIDATES, C | U | D), Runs(|parts| Box::new(namespaces::NamespaceExists(parts.objects.clone())))),
    optional("LimitPodHardAntiAffinityTopology", (VALIDATES, C | U), Runs(|_| Box::new(pods::LimitPodHardAntiAffinityTopology))),
    default("LimitRanger", (ADMITS | VALIDATES, C | U), Runs(|parts| Box::new(limit_ranger::LimitRanger(parts.objects.clone())))),
    default("ServiceAccount", (ADMITS | VALIDATES, C | U), Runs(|parts| Box::new(service_account::ServiceAccount(parts.objects.clone())))),
    optional("NodeRestriction", (ADMITS, C | U | D), Runs(|parts| Box::new(node_restriction::NodeRestriction { objects: parts.objects.clone(), authorizer: parts.authorizer.clone() }))),
    default("TaintNodesByCondition", (ADMITS, C), Runs(|_| Box::new(taints::TaintNodesByCondition))),
    optional("AlwaysPullImages", (ADMITS | VALIDATES, C | U), Runs(|_| Box::new(pods::AlwaysPullImages))),
    optional("ImagePolicyWebhook", (VALIDATES, C | U), Runs(|parts| Box::new(image_policy::ImagePolicyWebhook::new(parts.settings.plugins.image_policy.clone())))),
    default("PodSecurity", (VALIDATES, C | U), Runs(|parts| Box::new(pod_security::PodSecurity::new(parts.objects.clone(), parts.settings.plugins.pod_security.clone())))),
    optional("PodNodeSelector", (ADMITS | VALIDATES, C), Runs(|parts| Box::new(pod_node_selector::PodNodeSelector { objects: parts.objects.clone(), configuration: parts.settings.plugins.pod_node_selector.clone() }))),
    default("Priority", (ADMITS | VALIDATES, C | U | D), Runs(|parts| Box::new(priority::Priority(parts.objects.clone())))),
    default("DefaultTolerationSeconds", (ADMITS, C | U), Runs(|parts| Box::new(taints::DefaultTolerationSeconds::new(parts.settings)))),
    optional("PodTolerationRestriction", (ADMITS | VALIDATES, C | U), Runs(|parts| Box::new(pod_toleration_restriction::PodTolerationRestriction { objects: parts.objects.clone(), configuration: parts.settings.plugins.pod_tolerations.clone() }))),
    optional("EventRateLimit", (VALIDATES, C | U), Runs(|parts| Box::new(event_rate_limit::EventRateLimit::new(&parts.settings.plugins.event_rate_limit)))),
    optional("ExtendedResourceToleration", (ADMITS, C | U), Runs(|_| Box::new(pods::ExtendedResourceToleration))),
    default("DefaultStorageClass", (ADMITS, C), Runs(|parts| Box::new(storage::DefaultStorageClass(parts.objects.clone())))),
    default("StorageObjectInUseProtection", (ADMITS, C), Runs(|_| Box::new(storage::StorageObjectInUseProtection))),
    default("PodGroupProtection", (ADMITS, C), Inert(NO_WORKLOADS)),
    optional("OwnerReferencesPermissionEnforcement", (VALIDATES, C | U), Runs(|parts| Box::new(owner_references::OwnerReferencesPermissionEnforcement { authorizer: parts.authorizer.clone(), kinds: parts.kinds.clone() }))),
    default("PersistentVolumeClaimResize", (VALIDATES, U), Runs(|parts| Box::new(storage::PersistentVolumeClaimResize(parts.objects.clone())))),
    default("RuntimeClass", (ADMITS | VALIDATES, C), Runs(|parts| Box::new(runtime_class::RuntimeClass(parts.objects.clone())))),
    default("CertificateApproval", (VALIDATES, U), Runs(|parts| Box::new(certificates::CertificateApproval(parts.authorizer.clone())))),
    default("CertificateSigning", (VALIDATES, U), Runs(|parts| Box::new(certificates::CertificateSigning(parts.authorizer.clone())))),
    default("ClusterTrustBundleAttest", (VALIDATES, C | U), Inert("cluster trust bundles are not served (certificates.k8s.io/v1 has none)")),
    default("CertificateSubjectRestriction", (VALIDATES, C), Runs(|_| Box::new(certificates::CertificateSubjectRestriction))),
    default("DefaultIngressClass", (ADMITS, C), Runs(|parts| Box::new(ingress_class::DefaultIngressClass(parts.objects.clone())))),
    optional("DenyServiceExternalIPs", (VALIDATES, C | U), Runs(|_| Box::new(deny::DenyServiceExternalIPs))),
    default("PodTopologyLabels", (ADMITS, C), Runs(|parts| Box::new(pod_topology_labels::PodTopologyLabels(parts.objects.clone())))),
    default("PodGroupWorkloadExists", (VALIDATES, C), Inert(NO_WORKLOADS)),
    default("NodeDeclaredFeatureValidator", (VALIDATES, U), Runs(|parts| Box::new(node_declared_features::NodeDeclaredFeatureValidator(parts.objects.clone())))),
    default("JobValidation", (VALIDATES, U), Inert(NO_WORKLOADS)),
    default("PodResizeValidator", (VALIDATES, U), Runs(|parts| Box::new(pod_resize::PodResizeValidator(parts.objects.clone())))),
    // What is new goes above; these come last.
    default("MutatingAdmissionPolicy", (ADMITS, C | U | X), Runs(|parts| Box::new(policy::MutatingAdmissionPolicy { source: parts.registrations.policies.mutating.clone(), parts: parts.of_policies() }))),
    default("MutatingAdmissionWebhook", (ADMITS, ALL), Runs(|parts| Box::new(webhook::MutatingAdmissionWebhook { source: parts.registrations.webhooks.mutating.clone(), parts: parts.of_webhooks(&parts.settings.plugins.mutating_webhooks) }))),
    default("ValidatingAdmissionPolicy", (VALIDATES, ALL), Runs(|parts| Box::new(policy::ValidatingAdmissionPolicy { source: parts.registrations.policies.validating.clone(), parts: parts.of_policies() }))),
    default("ValidatingAdmissionWebhook", (VALIDATES, ALL), Runs(|parts| Box::new(webhook::ValidatingAdmissionWebhook { source: parts.registrations.webhooks.validating.clone(), parts: parts.of_webhooks(&parts.settings.plugins.validating_webhooks) }))),
    // Last, so that only requests that all others admit are counted.
    default("ResourceQuota", (VALIDATES, C | U), Runs(|parts| Box::new(quota::ResourceQuota::new(parts.objects.clone(), parts.settings.plugins.quota.clone())))),
    optional("AlwaysDeny", (ADMITS | VALIDATES, ALL), Runs(|_| Box::new(deny::AlwaysDeny))),
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

    /// The row of a plugin in the table of ARCHITECTURE.md, without its configuration.
    fn row(plugin: &Entry) -> String {
        let named = |bits: u8, names: &[(u8, &'static str)], by: &str| {
            let set = names.iter().filter(|(bit, _)| bits & bit != 0);
            set.map(|(_, name)| *name).collect::<Vec<_>>().join(by)
        };
        let steps = [(ADMITS, "admits"), (VALIDATES, "validates")];
        let operations = [(C, "create"), (U, "update"), (D, "delete"), (X, "connect")];
        let by_default = if plugin.by_default { "yes" } else { "no" };
        format!(
            "| {} | {by_default} | {} | {} |",
            plugin.name,
            named(plugin.calls.steps, &steps, " and "),
            match plugin.calls.operations {
                ALL => "all".to_owned(),
                some => named(some, &operations, ", "),
            }
        )
    }

    #[test]
    fn the_table_of_the_architecture_is_that_of_the_code() {
        let text = include_str!("../../ARCHITECTURE.md");
        let (_, section) = text.split_once("## Admission plugins").expect("a section");
        let (section, _) = section.split_once("\n## ").expect("an end");
        let rows: Vec<&str> = section
            .lines()
            .filter(|line| line.starts_with("| "))
            .skip(2)
            .collect();
        assert_eq!(rows.len(), PLUGINS.len());
        for (told, plugin) in rows.into_iter().zip(PLUGINS) {
            let row = row(plugin);
            let configuration = told.strip_prefix(row.as_str());
            let configuration = configuration.unwrap_or_else(|| panic!("{told}\nis not\n{row}"));
            // What takes a configuration refuses one of another kind.
            let mut read = crate::admission::configuration::PluginConfigurations::default();
            let wrong = crate::meta::json!({"podNodeSelectorPluginConfig": 1, "imagePolicy": 1});
            let has_one = read.read(plugin.name, &wrong).is_err();
            assert_eq!(configuration.contains('`'), has_one, "{}", plugin.name);
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
