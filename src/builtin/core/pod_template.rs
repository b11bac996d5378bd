//! PodTemplates: a template that stands alone.

use crate::builtin::columns::{ColumnPrinter, NAME, text};
use crate::builtin::defaulting::part_or_new;
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::pod_spec::template::{template_warnings, validate_template};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::Fields;
use crate::registry::{Context, Strategy};

/// The entry of `podtemplates`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "podtemplates",
    traits: ResourceTraits {
        pod_spec: Some("/template/spec"),
        generation: true,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &PodTemplateStrategy,
    printer: &PRINTER,
};

pub struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn default(&self, object: &mut Object) {
        default_template(part_or_new(object, "template"));
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        check(ctx, object, None)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
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
    let options = PodValidationOptions::of_templates(
        ctx,
        object.field("template"),
        old.and_then(|old| old.field("template")),
    );
    validate_template(
        &mut errors,
        &Path::new("template"),
        object.section("template"),
        &options,
    );
    errors
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Containers", "The names of the containers in the template"),
        text("Images", "The images of the containers in the template"),
        text("Pod Labels", "The labels of the template"),
    ],
    paths: "template.metadata.labels template.spec.containers.name \
        template.spec.containers.image",
    fill: |row| {
        row.name()
            .containers("/template/spec/containers")
            .labels("/template/metadata/labels");
    },
};
