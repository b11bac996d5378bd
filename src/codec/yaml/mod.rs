//! YAML by the rules of `sigs.k8s.io/yaml`, which converts between `yaml.v2` (YAML 1.1) and JSON.
//! The scanner and parser are our own: clients see the errors of yaml.v2, which no maintained crate
//! reproduces.

mod emit;
mod decode;
mod parser;
mod json_subset;
mod resolve;
mod scalars;
mod scanner;

pub use decode::to_value;
pub use emit::encode;

#[cfg(test)]
mod tests;
