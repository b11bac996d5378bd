//! admissionregistration.k8s.io: what its kinds do beyond their facts
//! (`pkg/apis/admissionregistration/{v1,validation}`). Expressions are read where they are
//! compiled, not here.

mod policy;
mod rules;
mod webhook;

pub use policy::{MutatingBindings, MutatingPolicies, ValidatingBindings, ValidatingPolicies};
pub use webhook::{MutatingWebhooks, ValidatingWebhooks, check_service, check_url};
