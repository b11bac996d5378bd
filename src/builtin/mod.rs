//! The built-in resources: which facts and which code make the strategy of each.

mod admissionregistration;
mod apiregistration;
mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
mod batch;
mod certificates;
mod coordination;
pub mod core;
pub mod defaults;
mod discovery;
pub mod events;
mod facts;
mod flowcontrol;
mod networking;
mod node;
mod policy;
pub mod printers;
pub mod quantity;
mod rbac;
mod resource;
mod resources;
mod scheduling;
mod storage;

use crate::registry::Strategy;

pub use admissionregistration::{
    check_service as check_webhook_service, check_url as check_webhook_url,
};

pub use facts::{META_OF_STATUS, NoCode, PLAIN, Row, keep_meta};

/// The strategy of a built-in resource, whatever its version; the plain one for a resource without
/// a row of its own.
pub fn strategy(group: &str, resource: &str) -> &'static dyn Strategy {
    static UNKNOWN: Row = Row {
        group: "",
        resource: "",
        facts: PLAIN,
        code: &NoCode,
    };
    resources::ROWS
        .iter()
        .find(|row| row.resource == resource && row.group == group)
        .unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{NameRule, Subresource};

    #[test]
    fn facts_reach_the_strategy() {
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
    fn each_resource_has_one_row() {
        let mut seen = std::collections::BTreeSet::new();
        for row in resources::ROWS {
            assert!(
                seen.insert((row.group, row.resource)),
                "{} {}",
                row.group,
                row.resource
            );
        }
    }
}
