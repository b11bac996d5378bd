//! IngressClasses (`pkg/apis/networking/validation`, ValidateIngressClass).

use super::ingress::check_resource;
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, text, with_default};
use crate::builtin::defaulting::{fill, part};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, names, str_at};
use crate::registry::validation::{
    Fields, domain_prefixed_path, immutable_text, invalid_each, one_of,
};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `ingressclasses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "ingressclasses",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        generation: true,
        ..DEFAULT
    },
    strategy: &IngressClassStrategy,
    printer: &PRINTER,
};

/// The longest name of a controller.
const CONTROLLER_MAX: usize = 250;

pub struct IngressClassStrategy;

impl Strategy for IngressClassStrategy {
    fn default(&self, object: &mut Object) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return;
        };
        if let Some(parameters) = part(spec, "parameters") {
            fill(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = object.section("spec");
        let path = Path::new("spec");
        let controller = spec.str("controller");
        if controller.len() > CONTROLLER_MAX {
            errors.too_long(&path.child("controller"), CONTROLLER_MAX);
        }
        domain_prefixed_path(&mut errors, &path.child("controller"), controller);
        if let Some(parameters) = spec.field("parameters") {
            check_parameters(&mut errors, &path.child("parameters"), parameters);
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec").child("controller");
        immutable_text(
            &mut errors,
            &path,
            object.str_at("/spec/controller"),
            old.str_at("/spec/controller"),
        );
        errors.extend(self.validate(ctx, object));
        errors
    }
}

fn check_parameters(errors: &mut ErrorList, path: &Path, parameters: &Value) {
    check_resource(errors, path, parameters);
    let namespace = parameters.opt_str("namespace");
    let namespace_path = path.child("namespace");
    match parameters.opt_str("scope") {
        None => errors.required(&path.child("scope"), ""),
        Some("Namespace") => match namespace {
            None => errors.required(&namespace_path, "`parameters.scope` is set to 'Namespace'"),
            Some(namespace) => invalid_each(
                errors,
                &namespace_path,
                namespace,
                names::dns1123_label(namespace),
            ),
        },
        Some("Cluster") if namespace.is_some() => {
            errors.forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'");
        }
        Some(other) => one_of(
            errors,
            &path.child("scope"),
            other,
            &["Cluster", "Namespace"],
        ),
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Controller", "The controller that serves this class"),
        text("Parameters", "The object with further parameters"),
        AGE,
    ],
    paths: "metadata.annotations spec.controller spec.parameters",
    fill: |row| {
        let object = row.object;
        let default = object.annotations().is_some_and(|all| {
            all.get("ingressclass.kubernetes.io/is-default-class") == Some(&"true".into())
        });
        let parameters = match object
            .at("/spec/parameters")
            .filter(|parameters| parameters.is_object())
        {
            None => NONE.to_owned(),
            Some(parameters) => {
                let group = parameters
                    .get("apiGroup")
                    .and_then(Value::as_str)
                    .map_or(String::new(), |group| format!(".{group}"));
                format!(
                    "{}{group}/{}",
                    str_at(parameters, "/kind"),
                    str_at(parameters, "/name")
                )
            }
        };
        row.cell(with_default(object.name(), default))
            .text("/spec/controller")
            .cell(parameters)
            .age();
    },
};
