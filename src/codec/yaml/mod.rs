//! YAML by the rules of `sigs.k8s.io/yaml`, which is `yaml.v2` (YAML 1.1) on its way from and to
//! JSON.

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
