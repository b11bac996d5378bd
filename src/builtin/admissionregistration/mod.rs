//! admissionregistration.k8s.io.

pub mod admission_policy;
pub mod rules;
pub mod webhook_configuration;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &admission_policy::MUTATING_ADMISSION_POLICY,
    &admission_policy::MUTATING_ADMISSION_POLICY_BINDING,
    &webhook_configuration::MUTATING_WEBHOOK_CONFIGURATION,
    &admission_policy::VALIDATING_ADMISSION_POLICY,
    &admission_policy::VALIDATING_ADMISSION_POLICY_BINDING,
    &webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATION,
];
