//! IPAddress (`pkg/apis/networking/validation`).

use crate::builtin::columns::{ColumnPrinter, NAME, NONE, text};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, FieldError, Object, Path, Value, json, names, str_at};
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each, required_segment, same};
use crate::registry::{Context, NameRule, Strategy};

/// The entry of `ipaddresses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "ipaddresses",
    traits: ResourceTraits {
        name: NameRule::PathSegment,
        ..DEFAULT
    },
    strategy: &IpAddressStrategy,
    printer: &PRINTER,
};

pub struct IpAddressStrategy;

impl Strategy for IpAddressStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if !object.name().is_empty() {
            invalid_each(
                &mut errors,
                &Path::new("metadata").child("name"),
                object.name(),
                names::ip(object.name()),
            );
        }
        let path = Path::new("spec").child("parentRef");
        let Some(parent) = object
            .at("/spec/parentRef")
            .filter(|parent| !parent.is_null())
        else {
            errors.required(&path, "");
            return errors;
        };
        let group = parent.str("group");
        if !group.is_empty() {
            invalid_each(
                &mut errors,
                &path.child("group"),
                group,
                names::dns1123_subdomain(group),
            );
        }
        required_segment(&mut errors, &path.child("resource"), parent.str("resource"));
        required_segment(&mut errors, &path.child("name"), parent.str("name"));
        let namespace = parent.str("namespace");
        if !namespace.is_empty() {
            invalid_each(
                &mut errors,
                &path.child("namespace"),
                namespace,
                names::path_segment_name(namespace),
            );
        }
        errors
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let (new, old) = (object.at("/spec/parentRef"), old.at("/spec/parentRef"));
        if same(new, old) {
            return ErrorList::new();
        }
        let shown = new.filter(|parent| !parent.is_null()).map_or(Value::Null, |parent| {
            let text = |key: &str| parent.str(key);
            json!({"Group": text("group"), "Resource": text("resource"), "Namespace": text("namespace"), "Name": text("name")})
        });
        [FieldError::invalid(
            &Path::new("spec").child("parentRef"),
            shown,
            IMMUTABLE,
        )]
        .into()
    }
}

/// Its rows have one cell more than there are columns: the age, as upstream has it.
pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, text("ParentRef", "The object the address belongs to")],
    paths: "spec.parentRef",
    fill: |row| {
        let parent = match row
            .object
            .at("/spec/parentRef")
            .filter(|parent| parent.is_object())
        {
            None => NONE.to_owned(),
            Some(parent) => {
                let (group, namespace) = (str_at(parent, "/group"), str_at(parent, "/namespace"));
                let mut text = str_at(parent, "/resource").to_lowercase();
                if !group.is_empty() {
                    text = format!("{text}.{}", group.to_lowercase());
                }
                if !namespace.is_empty() {
                    text = format!("{text}/{namespace}");
                }
                format!("{text}/{}", str_at(parent, "/name"))
            }
        };
        row.name().cell(parent).age();
    },
};
