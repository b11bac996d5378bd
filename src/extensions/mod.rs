//! CustomResourceDefinitions: what they must look like, how their objects are read, checked and
//! kept, and the watch over them that brings their resources into the registry and takes them out
//! again.

mod approval;
mod coerce;
mod controller;
mod correlation;
mod crd;
mod defaults;
pub mod definition;
mod embedded;
mod field_path;
mod formats;
mod hooks;
mod jsonpath;
mod kind;
mod lists;
mod naming;
mod numbers;
mod place;
mod printer;
pub mod props;
mod published;
mod rule;
mod shown;
mod strategy;
mod structural;
mod topology;
mod validate;
mod validate_conversion;
mod validate_schema;
mod values;
mod version;

pub use controller::{CustomStores, Extensions};
pub use crd::CustomResourceDefinitions;
pub use hooks::DefinitionHooks;
pub use kind::resources;
pub use version::compare as compare_versions;
