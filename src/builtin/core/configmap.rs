//! ConfigMaps: keys, size, and the promise of immutability.

use super::{DATA_MAX, IMMUTABLE_SET, decoded_len};
use crate::meta::{ErrorList, FieldError, Object, Path, names};
use crate::registry::validation::{Fields, invalid_each, same};
use crate::registry::{Context, Strategy, Subresource};

pub struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut size = 0;
        for (key, value) in object.entries("data") {
            let problems = names::config_map_key(key);
            if !problems.is_empty() {
                invalid_each(&mut errors, &Path::new("data").key(key), key, problems);
            }
            if object
                .map("binaryData")
                .is_some_and(|data| data.contains_key(key))
            {
                errors.push(FieldError::invalid(
                    &Path::new("data").key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in object.entries("binaryData") {
            let problems = names::config_map_key(key);
            if !problems.is_empty() {
                invalid_each(
                    &mut errors,
                    &Path::new("binaryData").key(key),
                    key,
                    problems,
                );
            }
            size += value.as_str().map_or(0, decoded_len);
        }
        if size > DATA_MAX {
            errors.push(FieldError::too_long(&Path::new(""), DATA_MAX));
        }
        errors
    }

    fn validate_update(
        &self,
        ctx: &Context,
        _sub: Subresource,
        object: &Object,
        old: &Object,
    ) -> ErrorList {
        let mut errors = stays_immutable(object, old, &["data", "binaryData"]);
        errors.extend(self.validate(ctx, object));
        errors
    }
}

/// Once `immutable` is true, it stays so, and so does the data under `keys`.
pub(super) fn stays_immutable(object: &Object, old: &Object, keys: &[&str]) -> ErrorList {
    let mut errors = ErrorList::new();
    if !old.flag("immutable") {
        return errors;
    }
    if !object.flag("immutable") {
        errors.push(FieldError::forbidden(
            &Path::new("immutable"),
            IMMUTABLE_SET,
        ));
    }
    for &key in keys {
        if !same(object.field(key), old.field(key)) {
            errors.push(FieldError::forbidden(&Path::new(key), IMMUTABLE_SET));
        }
    }
    errors
}
