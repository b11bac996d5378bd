//! Admission policies: what clients write as ValidatingAdmissionPolicy and MutatingAdmissionPolicy,
//! put into effect by bindings (apiserver `admission/plugin/policy`).

mod definition;
mod dispatch;
mod expressions;
pub mod matching;
mod mutating;
pub mod observation;
mod params;
pub mod references;
pub mod source;
mod validating;

use std::sync::Arc;

pub use dispatch::Parts;
pub use mutating::{MutatingAdmissionPolicy, PolicyReinvocation};
pub use source::{Observer, Part};
pub use validating::ValidatingAdmissionPolicy;

use mutating::MutatingEvaluator;
use source::PolicySource;
use validating::ValidatingEvaluator;

/// The group of the policies.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// The policies of a server.
#[derive(Clone, Default)]
pub struct Policies {
    pub mutating: Arc<PolicySource<MutatingEvaluator>>,
    pub validating: Arc<PolicySource<ValidatingEvaluator>>,
}

impl Policies {
    /// The resources that the policies are made of, and who is to know of their objects.
    pub fn observers(&self) -> Vec<(&'static str, Arc<dyn Observer>, Part)> {
        let (mutating, validating) = (&self.mutating, &self.validating);
        vec![
            ("mutatingadmissionpolicies", mutating.clone(), Part::Policy),
            (
                "mutatingadmissionpolicybindings",
                mutating.clone(),
                Part::Binding,
            ),
            (
                "validatingadmissionpolicies",
                validating.clone(),
                Part::Policy,
            ),
            (
                "validatingadmissionpolicybindings",
                validating.clone(),
                Part::Binding,
            ),
        ]
    }
}
