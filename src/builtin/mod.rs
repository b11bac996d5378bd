//! The built-in kinds. A kind has a folder or file of its own, `<group>/<kind>`: its entry (traits,
//! strategy, printer), defaults, validation and columns. What several kinds share lies beside the
//! groups, and refers to none of them.
//!
//! A group is named after its API group: with all of the name where a module of the crate has the
//! short one already (`discovery_k8s_io`, `resource_k8s_io`, `storage_k8s_io`).

mod claim_spec;
mod columns;
mod compute_resources;
mod defaulting;
mod internal_types;
mod ip_strings;
mod line_diff;
mod node_labels;
mod pod_spec;
mod quantities;
mod resource_traits;
mod template_meta;
mod volume_spec;
mod workload;

mod admissionregistration;
mod apiregistration;
mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
mod batch;
pub mod certificates;
mod coordination;
pub mod core;
mod discovery_k8s_io;
pub mod events;
mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource_k8s_io;
mod scheduling;
mod storage_k8s_io;

#[cfg(test)]
mod collection_tests;

use crate::registry::Strategy;
use crate::registry::table::TablePrinter;

use columns::DefaultPrinter;
use resource_traits::{DEFAULT, ResourceEntry};

pub use admissionregistration::webhook_configuration::{
    check_service as check_webhook_service, check_url as check_webhook_url,
};
pub use certificates::certificate_signing_request::USAGES as CERTIFICATE_USAGES;
pub use pod_spec::scheduling::check_tolerations;
pub use resource_traits::DefaultStrategy;

/// The entries of every API group that has stored resources.
const GROUPS: &[(&str, &[&ResourceEntry])] = &[
    ("", core::ENTRIES),
    ("apps", apps::ENTRIES),
    ("autoscaling", autoscaling::ENTRIES),
    ("batch", batch::ENTRIES),
    ("policy", policy::ENTRIES),
    ("networking.k8s.io", networking::ENTRIES),
    ("discovery.k8s.io", discovery_k8s_io::ENTRIES),
    ("events.k8s.io", events::ENTRIES),
    ("certificates.k8s.io", certificates::ENTRIES),
    ("rbac.authorization.k8s.io", rbac::ENTRIES),
    ("storage.k8s.io", storage_k8s_io::ENTRIES),
    (
        "admissionregistration.k8s.io",
        admissionregistration::ENTRIES,
    ),
    ("apiregistration.k8s.io", apiregistration::ENTRIES),
    ("scheduling.k8s.io", scheduling::ENTRIES),
    ("node.k8s.io", node::ENTRIES),
    ("coordination.k8s.io", coordination::ENTRIES),
    ("resource.k8s.io", resource_k8s_io::ENTRIES),
    ("flowcontrol.apiserver.k8s.io", flowcontrol::ENTRIES),
];

/// The entry of a resource that has none of its own.
static UNLISTED: ResourceEntry = ResourceEntry {
    resource: "",
    traits: DEFAULT,
    strategy: &DefaultStrategy,
    printer: &DefaultPrinter,
};

/// Returns the entry of a resource, whatever its version.
fn entry(group: &str, resource: &str) -> &'static ResourceEntry {
    GROUPS
        .iter()
        .filter(|(name, _)| *name == group)
        .flat_map(|(_, entries)| entries.iter())
        .find(|entry| entry.resource == resource)
        .copied()
        .unwrap_or(&UNLISTED)
}

/// Returns the strategy of a built-in resource, whatever its version; the default one for a
/// resource without an entry of its own.
pub fn strategy(group: &str, resource: &str) -> &'static dyn Strategy {
    entry(group, resource)
}

/// Returns the printer of a built-in resource; one of name and creation time for a resource without
/// a printer of its own.
pub fn printer(group: &str, resource: &str) -> &'static dyn TablePrinter {
    entry(group, resource).printer
}

/// Returns the printer of `autoscaling/v1 Scale`, which scale subresources answer with.
pub fn scale_printer() -> &'static dyn TablePrinter {
    &autoscaling::scale::PRINTER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{NameRule, Subresource};

    #[test]
    fn strategies_have_the_traits_of_their_entries() {
        let deployments = strategy("apps", "deployments");
        assert!(
            deployments.has_status()
                && deployments.has_generation()
                && deployments.allow_unconditional_update()
        );
        assert_eq!(
            deployments.reset_fields(Subresource::Status),
            ["/spec", "/metadata/labels"]
        );
        assert_eq!(strategy("", "namespaces").name_rule(), NameRule::DnsLabel);
        assert!(!strategy("", "nothing").has_status());
        assert!(strategy("coordination.k8s.io", "leases").allow_create_on_update());
        assert!(!strategy("coordination.k8s.io", "leases").allow_unconditional_update());
    }

    #[test]
    fn each_resource_has_one_entry() {
        let mut seen = std::collections::BTreeSet::new();
        for (group, entries) in GROUPS {
            for entry in *entries {
                assert!(
                    seen.insert((group, entry.resource)),
                    "{group} {}",
                    entry.resource
                );
            }
        }
        assert!(seen.len() > 50, "{}", seen.len());
    }
}
