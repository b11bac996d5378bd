//! ControllerRevisions: a JSON object that is kept as it came and never changes.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, text};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, str_at};
use crate::registry::validation::{Fields, IMMUTABLE, not_negative, same};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `controllerrevisions`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "controllerrevisions",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        ..DEFAULT
    },
    strategy: &ControllerRevisionStrategy,
    printer: &PRINTER,
};

pub struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        not_negative(
            &mut errors,
            &Path::new("revision"),
            object.int("revision").unwrap_or(0),
        );
        match object.field("data") {
            Some(Value::Object(_)) => {}
            Some(_) => errors.required(&Path::new("data"), "data must be a valid JSON object"),
            None => errors.required(&Path::new("data"), "data is mandatory"),
        }
        errors
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        not_negative(
            &mut errors,
            &Path::new("revision"),
            object.int("revision").unwrap_or(0),
        );
        // No data is other data than an empty object.
        let (data, was) = (object.field("data"), old.field("data"));
        if !same(data, was) || data.is_some() != was.is_some() {
            let shown = data.cloned().unwrap_or_default();
            errors.invalid(&Path::new("data"), shown, IMMUTABLE);
        }
        errors
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Controller", "The object it is a revision of"),
        text("Revision", "The number of the revision"),
        AGE,
    ],
    paths: "metadata.ownerReferences revision",
    fill: |row| {
        let owners = row.object.array_at("/metadata/ownerReferences");
        let controller = owners
            .iter()
            .find(|owner| crate::meta::bool_at(owner, "/controller"))
            .map_or(NONE.to_owned(), |owner| {
                let group = str_at(owner, "/apiVersion")
                    .rsplit_once('/')
                    .map_or(String::new(), |(group, _)| format!(".{group}"));
                format!(
                    "{}/{}",
                    format!("{}{group}", str_at(owner, "/kind")).to_lowercase(),
                    str_at(owner, "/name")
                )
            });
        row.name().cell(controller).int("/revision").age();
    },
};
