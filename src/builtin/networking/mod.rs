//! networking.k8s.io: what its kinds do beyond their facts.

mod addresses;
mod ingress;
mod ingressclass;
mod networkpolicy;
pub mod strings;

pub use addresses::{IpAddresses, ServiceCidrs};
pub use ingress::Ingresses;
pub use ingressclass::IngressClasses;
pub use networkpolicy::NetworkPolicies;
