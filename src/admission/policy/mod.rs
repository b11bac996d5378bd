//! Admission policies: what clients write as ValidatingAdmissionPolicy and MutatingAdmissionPolicy,
//! put into effect by bindings (apiserver `admission/plugin/policy`).

mod definition;
mod dispatch;
mod expressions;
mod mutating;
pub mod observation;
mod params;
pub mod references;
pub mod source;
mod validating;

use std::sync::Arc;

pub use dispatch::Parts;
pub use mutating::{MutatingAdmissionPolicy, PolicyReinvocation};
pub use validating::ValidatingAdmissionPolicy;

use crate::admission::observed::Observer;
use definition::Evaluator;
use mutating::MutatingEvaluator;
use source::{Part, PolicyPart, PolicySource};
use validating::ValidatingEvaluator;

/// The policies of a server.
#[derive(Clone, Default)]
pub struct Policies {
    pub mutating: Arc<PolicySource<MutatingEvaluator>>,
    pub validating: Arc<PolicySource<ValidatingEvaluator>>,
}

impl Policies {
    /// The resources that the policies are made of, and who is to know of their objects.
    pub fn observers(&self) -> Vec<(&'static str, Arc<dyn Observer>)> {
        fn part<E: Evaluator>(source: &Arc<PolicySource<E>>, part: Part) -> Arc<dyn Observer> {
            let source = source.clone();
            Arc::new(PolicyPart { source, part })
        }
        let (mutating, validating) = (&self.mutating, &self.validating);
        vec![
            ("mutatingadmissionpolicies", part(mutating, Part::Policy)),
            (
                "mutatingadmissionpolicybindings",
                part(mutating, Part::Binding),
            ),
            (
                "validatingadmissionpolicies",
                part(validating, Part::Policy),
            ),
            (
                "validatingadmissionpolicybindings",
                part(validating, Part::Binding),
            ),
        ]
    }
}
