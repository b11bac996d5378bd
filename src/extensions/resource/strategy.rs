//! The strategy of a custom kind (apiextensions `registry/customresource`).

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use crate::extensions::definition::Version;
use crate::extensions::printing::CustomPrinter;
use crate::extensions::resource::VersionedSchemas;
use crate::extensions::schema::cel_rules::RuleValidator;
use crate::extensions::schema::embedded_resource;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::extensions::schema::list_type;
use crate::extensions::schema::old_value::CorrelatedValue;
use crate::extensions::schema::value_validation;
use crate::meta::Value;
use crate::meta::field::ErrorType;
use crate::meta::names;
use crate::meta::{ErrorList, FieldError, Gvk, Object, Path};
use crate::registry::scale::{ScalePaths, number_at, text_at};
use crate::registry::strategy::{Context, Strategy, Subresource};
use crate::registry::table::TablePrinter;

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// The behaviour of one version of a custom kind.
pub struct CustomStrategy {
    family: Arc<VersionedSchemas>,
    gvk: Gvk,
    schema: Option<Arc<JsonSchemaProps>>,
    /// The rules of the schema, compiled when the first object is checked.
    rules: OnceLock<Option<RuleValidator>>,
    /// True if status is a subresource.
    status: bool,
    scale: Option<ScalePaths>,
    selectable: Vec<String>,
    printer: CustomPrinter,
}

impl CustomStrategy {
    pub fn new(version: &Version, family: Arc<VersionedSchemas>, gvk: Gvk) -> Self {
        Self {
            family,
            gvk,
            schema: version.schema.clone(),
            rules: OnceLock::new(),
            status: version.status,
            scale: version.scale.clone(),
            selectable: version.selectable.clone(),
            printer: CustomPrinter::new(&version.columns),
        }
    }

    /// The kind and version must be the resource's: nothing else is looked at where they are not.
    fn type_errors(&self, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if object.kind() != self.gvk.kind {
            errors.invalid(
                &Path::new("kind"),
                object.kind(),
                format!("must be {}", self.gvk.kind),
            );
        }
        let api_version = self.gvk.api_version();
        if object.api_version() != api_version {
            errors.invalid(
                &Path::new("apiVersion"),
                object.api_version(),
                format!("must be {api_version}"),
            );
        }
        errors
    }

    fn scale_errors(&self, object: &Object, with_spec: bool) -> ErrorList {
        let Some(scale) = &self.scale else {
            return ErrorList::new();
        };
        let mut errors = ErrorList::new();
        if with_spec {
            replicas(&mut errors, object, &scale.spec_replicas);
        }
        replicas(&mut errors, object, &scale.status_replicas);
        if let Some(path) = &scale.label_selector
            && let Err(why) = text_at(object, path)
        {
            errors.invalid(&Path::new(path), "", why);
        }
        errors
    }

    /// Checks the whole object, beyond values: embedded resources, and lists without repetition.
    fn structure_errors(&self, object: &Object, old: Option<&Object>) -> ErrorList {
        let Some(schema) = self.schema.as_deref() else {
            return ErrorList::new();
        };
        let mut errors = embedded_resource::validate(&LazyPath::EMPTY, &object.0, schema);
        errors.extend(self.list_errors(object, old));
        errors
    }

    /// Evaluates the rules of the schema, unless errors found earlier prevent it. Violations that
    /// were there before the update become warnings, even if the update is refused.
    fn rule_errors(
        &self,
        ctx: &Context,
        object: &Value,
        old: Option<CorrelatedValue<'_>>,
        found: &ErrorList,
    ) -> ErrorList {
        let compile = || self.schema.as_deref().and_then(RuleValidator::new);
        let (Some(rules), Some(schema)) = (self.rules.get_or_init(compile), &self.schema) else {
            return Default::default();
        };
        if found.iter().any(|error| keeps_rules_from(error.kind)) {
            let why = "some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
            let error = FieldError::invalid(&Path::default(), Value::Null, why);
            return ErrorList::from_iter([error]);
        }
        let (broken, forgiven) = rules.validate(schema, object, old);
        for warning in forgiven {
            ctx.warnings.add(warning);
        }
        broken
    }

    /// Repetitions, unless there were some before.
    fn list_errors(&self, object: &Object, old: Option<&Object>) -> ErrorList {
        let Some(schema) = self.schema.as_deref() else {
            return ErrorList::new();
        };
        let of = |object: &Object| list_type::validate(&LazyPath::EMPTY, schema, &object.0);
        if old.is_some_and(|old| !of(old).is_empty()) {
            ErrorList::new()
        } else {
            of(object)
        }
    }
}

impl Strategy for CustomStrategy {
    fn default(&self, object: &mut Object) {
        self.family.default(object);
    }

    fn takes_any_finalizer(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        self.status
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        if ctx.subresource != Subresource::Status {
            return;
        }
        let managed = object.metadata_mut().shift_remove("managedFields");
        let mut meta = old.metadata().cloned().unwrap_or_default();
        meta.shift_remove("managedFields");
        meta.extend(managed.map(|managed| ("managedFields".to_owned(), managed)));
        object.insert("metadata", Value::Object(meta));
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = self.type_errors(object);
        if !errors.is_empty() {
            return errors;
        }
        let tree = Value::Object(object.0.clone());
        if let Some(schema) = &self.schema {
            let root = Path::default();
            errors.extend(value_validation::validate(schema, &tree, None, &root));
        }
        errors.extend(self.scale_errors(object, true));
        errors.extend(self.structure_errors(object, None));
        let broken = self.rule_errors(ctx, &tree, None, &errors);
        errors.extend(broken);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.type_errors(object);
        if !errors.is_empty() {
            return errors;
        }
        let (new_tree, old_tree) = (
            Value::Object(object.0.clone()),
            Value::Object(old.0.clone()),
        );
        let Some(schema) = self.schema.as_deref() else {
            return self.scale_errors(object, ctx.subresource != Subresource::Status);
        };
        let whole = CorrelatedValue {
            new: &new_tree,
            old: &old_tree,
            schema,
        };
        if ctx.subresource == Subresource::Status {
            if let (Some(status), Some(below)) =
                (object.get("status"), schema.properties.get("status"))
            {
                errors.extend(value_validation::validate(
                    below,
                    status,
                    whole.key("status"),
                    &Path::new("status"),
                ));
            }
            errors.extend(self.scale_errors(object, false));
            errors.extend(self.list_errors(object, Some(old)));
            let broken = self.rule_errors(ctx, &new_tree, Some(whole), &errors);
            errors.extend(broken);
            return errors;
        }
        errors.extend(value_validation::validate(
            schema,
            &new_tree,
            Some(whole),
            &Path::default(),
        ));
        errors.extend(self.scale_errors(object, true));
        errors.extend(self.structure_errors(object, Some(old)));
        let broken = self.rule_errors(ctx, &new_tree, Some(whole), &errors);
        errors.extend(broken);
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let before: HashSet<&str> = old
            .map_or(&[][..], Object::finalizers)
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let added: BTreeSet<&str> = object
            .finalizers()
            .iter()
            .filter_map(Value::as_str)
            .filter(|one| !before.contains(one))
            .collect();
        added.into_iter().flat_map(finalizer_warnings).collect()
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn is_selectable(&self, label: &str) -> bool {
        self.selectable.iter().any(|one| one == label)
    }

    fn reset_fields(&self, sub: Subresource) -> &'static [&'static str] {
        match (self.status, sub) {
            (true, Subresource::Main) => &["/status"],
            (true, Subresource::Status) => &["/metadata", "/spec"],
            _ => &[],
        }
    }

    fn printer(&self) -> Option<&dyn TablePrinter> {
        Some(&self.printer)
    }
}

/// Reports whether an error of a kind means that values may not be of the types that rules take
/// them for.
fn keeps_rules_from(kind: ErrorType) -> bool {
    matches!(
        kind,
        ErrorType::NotSupported
            | ErrorType::Required
            | ErrorType::TooLong
            | ErrorType::TooMany
            | ErrorType::TypeInvalid
    )
}

fn finalizer_warnings(finalizer: &str) -> Vec<String> {
    let place = "metadata.finalizers";
    let mut warnings: Vec<String> = names::qualified_name(finalizer)
        .into_iter()
        .map(|why| format!("{place}: {finalizer:?}: {why}"))
        .collect();
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        let what = if finalizer.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        warnings.push(format!(
            "{place}: {finalizer:?}: prefer a domain-qualified finalizer name{what} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    warnings
}

fn replicas(errors: &mut ErrorList, object: &Object, path: &str) {
    let place = Path::new(path);
    match number_at(object, path).map(Option::unwrap_or_default) {
        Err(why) => errors.invalid(&place, 0, why),
        Ok(count) if count < 0 => errors.invalid(&place, count, "should be a non-negative integer"),
        Ok(count) if count > i64::from(i32::MAX) => {
            errors.invalid(
                &place,
                count,
                format!("should be less than or equal to {}", i32::MAX),
            );
        }
        Ok(_) => {}
    }
}
