//! DeviceClasses: devices that are alike, and how they are set up.

use super::device_rules::{CONFIGS_MAX, check_opaque, check_selectors, check_size};
use crate::builtin::columns::NAME_AND_AGE;
use crate::builtin::compute_resources::is_extended;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::Fields;
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `deviceclasses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "deviceclasses",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        generation: true,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &DeviceClassStrategy,
    printer: &NAME_AND_AGE,
};

pub struct DeviceClassStrategy;

impl Strategy for DeviceClassStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        check_selectors(
            &mut errors,
            &path.child("selectors"),
            object.array_at("/spec/selectors"),
        );
        let configs = object.array_at("/spec/config");
        let fits = check_size(&mut errors, &path.child("config"), configs, CONFIGS_MAX);
        for (index, config) in configs.iter().enumerate().filter(|_| fits) {
            check_opaque(&mut errors, &path.child("config").index(index), config);
        }
        let name = object
            .map("spec")
            .and_then(|spec| spec.opt_str("extendedResourceName"));
        if let Some(name) = name.filter(|name| !is_extended(name)) {
            errors.invalid(
                &path.child("extendedResourceName"),
                name,
                "must be a valid extended resource name",
            );
        }
        errors
    }
}
