//! PodTemplates: a template that stands alone.

use crate::meta::Map;

use super::pod::{PodOptions, default_template, template_warnings, validate_template};
use crate::builtin::defaults::part_or_new;
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::Fields;
use crate::registry::{Context, Strategy, Subresource};

pub struct PodTemplates;

impl Strategy for PodTemplates {
    fn default(&self, object: &mut Object) {
        default_template(part_or_new(object, "template"));
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        check(ctx, object, None)
    }

    fn validate_update(
        &self,
        ctx: &Context,
        _sub: Subresource,
        object: &Object,
        old: &Object,
    ) -> ErrorList {
        check(ctx, object, Some(old))
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        if old.is_some_and(|old| old.generation() == object.generation()) {
            return Vec::new();
        }
        template_warnings(&Path::new("template"), object.field("template"))
    }
}

fn check(ctx: &Context, object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let empty = Map::new();
    let options = PodOptions::of_templates(
        ctx,
        object.field("template"),
        old.and_then(|old| old.field("template")),
    );
    validate_template(
        &mut errors,
        &Path::new("template"),
        object.map("template").unwrap_or(&empty),
        &options,
    );
    errors
}
