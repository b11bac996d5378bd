//! YAML by the rules of `sigs.k8s.io/yaml`, which is `yaml.v2` (YAML 1.1) on its way from and to
//! JSON.

mod emit;
mod parse;
mod parser;
mod plain;
mod resolve;
mod scalars;
mod scanner;

pub use emit::encode;
pub use parse::to_value;

#[cfg(test)]
mod tests;
