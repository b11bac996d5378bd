//! ControllerRevisions: a JSON object that is kept as it came and never changes.

use crate::meta::Value;

use crate::meta::{ErrorList, FieldError, Object, Path};
use crate::registry::validation::{Fields, immutable, not_negative};
use crate::registry::{Context, Strategy, Subresource};

pub struct ControllerRevisions;

impl Strategy for ControllerRevisions {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        not_negative(
            &mut errors,
            &Path::new("revision"),
            object.int("revision").unwrap_or(0),
        );
        match object.field("data") {
            Some(Value::Object(_)) => {}
            Some(_) => errors.push(FieldError::required(
                &Path::new("data"),
                "data must be a valid JSON object",
            )),
            None => errors.push(FieldError::required(
                &Path::new("data"),
                "data is mandatory",
            )),
        }
        errors
    }

    fn validate_update(
        &self,
        _ctx: &Context,
        _sub: Subresource,
        object: &Object,
        old: &Object,
    ) -> ErrorList {
        let mut errors = ErrorList::new();
        not_negative(
            &mut errors,
            &Path::new("revision"),
            object.int("revision").unwrap_or(0),
        );
        immutable(
            &mut errors,
            &Path::new("data"),
            object.field("data"),
            old.field("data"),
        );
        errors
    }
}
