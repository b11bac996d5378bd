//! CustomResourceDefinitions: what they must look like, how their objects are read, checked and
//! kept, and the watch over them that brings their resources into the registry and takes them out
//! again.

mod controller;
pub mod definition;
mod openapi;
mod printing;
mod resource;
mod schema;

pub use controller::{CustomStores, DefinitionHooks, Extensions};
pub use definition::strategy::CustomResourceDefinitions;
pub use definition::version_order::compare as compare_versions;
pub use resource::resources;
