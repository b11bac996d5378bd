//! Admission policies: what clients write as ValidatingAdmissionPolicy and MutatingAdmissionPolicy,
//! put into effect by bindings (apiserver `admission/plugin/policy`).

mod definition;
mod dispatch;
pub mod matching;
pub mod observation;
mod params;
pub mod references;
pub mod source;
mod validating;

use std::sync::Arc;

pub use dispatch::Parts;
pub use source::{Observer, Part};
pub use validating::ValidatingAdmissionPolicy;

use source::PolicySource;
use validating::ValidatingEvaluator;

/// The group of the policies.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// The policies of a server.
#[derive(Clone, Default)]
pub struct Policies {
    pub validating: Arc<PolicySource<ValidatingEvaluator>>,
}

impl Policies {
    /// The resources that the policies are made of, and who is to know of their objects.
    pub fn observers(&self) -> Vec<(&'static str, Arc<dyn Observer>, Part)> {
        vec![
            (
                "validatingadmissionpolicies",
                self.validating.clone(),
                Part::Policy,
            ),
            (
                "validatingadmissionpolicybindings",
                self.validating.clone(),
                Part::Binding,
            ),
        ]
    }
}
