//! CustomResourceDefinitions: their validation, the handling of their objects, and the controller
//! that registers their resources.

mod controller;
pub mod conversion;
pub mod definition;
mod openapi;
mod printing;
mod resource;
pub mod schema;

pub use controller::{CustomStores, DefinitionHooks, Extensions};
pub use definition::strategy::CustomResourceDefinitions;
pub use definition::version_order::compare as compare_versions;
pub use printing::jsonpath::{Budget, JsonPath};
pub use resource::resources;
