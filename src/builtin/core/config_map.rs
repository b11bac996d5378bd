//! The core group: what its kinds do beyond their facts.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, map_len, text};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, names};
use crate::registry::validation::{Fields, invalid_each, same};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `configmaps`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "configmaps",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        ..DEFAULT
    },
    strategy: &ConfigMapStrategy,
    printer: &PRINTER,
};

pub struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
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
                errors.invalid(
                    &Path::new("data").key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                );
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
            errors.too_long(&Path::new(""), DATA_MAX);
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = stays_immutable(object, old, &["data", "binaryData"]);
        errors.extend(self.validate(ctx, object));
        errors
    }
}

/// Once `immutable` is true, it stays so, and so does the data under `keys`.
pub fn stays_immutable(object: &Object, old: &Object, keys: &[&str]) -> ErrorList {
    let mut errors = ErrorList::new();
    if !old.flag("immutable") {
        return errors;
    }
    if !object.flag("immutable") {
        errors.forbidden(&Path::new("immutable"), IMMUTABLE_SET);
    }
    for &key in keys {
        if !same(object.field(key), old.field(key)) {
            errors.forbidden(&Path::new(key), IMMUTABLE_SET);
        }
    }
    errors
}

/// The values of a ConfigMap or Secret may come to so many bytes in all.
pub const DATA_MAX: usize = 1024 * 1024;

/// The message for a change of a ConfigMap or Secret that said it would not.
pub const IMMUTABLE_SET: &str = "field is immutable when `immutable` is set";

/// Returns the number of bytes that a base64 text decodes to.
pub fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take(2).filter(|&c| c == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, text("Data", "The number of entries"), AGE],
    paths: "data binaryData",
    fill: |row| {
        let entries = map_len(row.object, "/data") + map_len(row.object, "/binaryData");
        row.name().cell(entries).age();
    },
};
