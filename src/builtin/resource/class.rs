//! DeviceClasses: devices that are alike, and how they are set up.

use crate::builtin::core::resources::is_extended;
use crate::meta::{ErrorList, FieldError, Object, Path};
use crate::registry::{Context, Strategy};

use super::{CONFIGS_MAX, check_opaque, check_selectors, check_size};

pub struct DeviceClasses;

impl Strategy for DeviceClasses {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        check_selectors(
            &mut errors,
            &path.child("selectors"),
            object.array_at("/spec/selectors"),
        );
        let configs = object.array_at("/spec/config");
        check_size(&mut errors, &path.child("config"), configs, CONFIGS_MAX);
        for (index, config) in configs.iter().enumerate() {
            check_opaque(&mut errors, &path.child("config").index(index), config);
        }
        let name = object.str_at("/spec/extendedResourceName");
        if !name.is_empty() && !is_extended(name) {
            errors.push(FieldError::invalid(
                &path.child("extendedResourceName"),
                name,
                "must be a valid extended resource name",
            ));
        }
        errors
    }
}
