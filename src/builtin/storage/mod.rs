//! storage.k8s.io: what its kinds do beyond their facts (`pkg/apis/storage/{v1,validation}`).

mod attachment;
mod capacity;
mod class;
mod driver;
mod node;

pub use attachment::VolumeAttachments;
pub use capacity::CsiStorageCapacities;
pub use class::{StorageClasses, VolumeAttributesClasses};
pub use driver::CsiDrivers;
pub use node::CsiNodes;
