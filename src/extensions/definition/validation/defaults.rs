//! Validation of the defaults in a schema: they must be pruned, and valid themselves (apiextensions
//! `schema/defaulting/validation.go`).

use crate::extensions::schema::embedded_resource;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::extensions::schema::prune_and_default::{self, META_FIELDS, PrunedPaths};
use crate::extensions::schema::value_validation::{self, Budget};
use crate::meta::{ErrorList, Map, Path, Value};

/// Checks every default of a structural schema. `pruned`: a default may have no fields that the
/// schema does not specify.
pub fn validate(path: &Path, schema: &JsonSchemaProps, pruned: bool) -> ErrorList {
    let root = schema.clone().into_resource();
    let mut walk = SchemaWalk {
        errors: ErrorList::new(),
        budget: Budget::default(),
        pruned,
    };
    walk.schema(
        &LazyPath::Root(path.as_str()),
        &root,
        SurroundingObject::Root(&root),
        false,
    );
    walk.errors
}

/// Reports whether no default has fields that the schema does not specify.
pub fn are_pruned(schema: &JsonSchemaProps) -> bool {
    let mut pruned = schema.clone();
    prune_and_default::prune_defaults(&mut pruned);
    same_defaults(schema, &pruned)
}

fn same_defaults(a: &JsonSchemaProps, b: &JsonSchemaProps) -> bool {
    let pairs = a.properties.values().zip(b.properties.values());
    let items = a.items.as_deref().zip(b.items.as_deref());
    let additional = a.additional_schema().zip(b.additional_schema());
    a.default == b.default
        && pairs
            .chain(items)
            .chain(additional)
            .all(|(a, b)| same_defaults(a, b))
}

/// The resource around a default, for those of metadata: they are checked as part of a whole
/// object.
#[derive(Clone, Copy)]
enum SurroundingObject<'a> {
    Root(&'a JsonSchemaProps),
    Key(&'a SurroundingObject<'a>, &'a str),
    Item(&'a SurroundingObject<'a>),
}

impl<'a> SurroundingObject<'a> {
    /// The schema of the resource, and an object that has the value in its place, and a type.
    fn object(&self, value: &Value) -> (&'a JsonSchemaProps, Map) {
        let (mut around, mut inner) = (self, value.clone());
        let root = loop {
            match around {
                Self::Root(root) => break root,
                Self::Key(above, key) => {
                    inner = Value::Object(Map::from_iter([((*key).to_owned(), inner)]));
                    around = above;
                }
                Self::Item(above) => {
                    inner = Value::Array(vec![inner]);
                    around = above;
                }
            }
        };
        let Value::Object(mut object) = inner else {
            return (root, Map::new());
        };
        object.entry("kind").or_insert_with(|| "Validation".into());
        object
            .entry("apiVersion")
            .or_insert_with(|| "validation/v1".into());
        (root, object)
    }
}

/// The way down a schema.
struct SchemaWalk {
    errors: ErrorList,
    /// The steps that the validation of all defaults together may take.
    budget: Budget,
    pruned: bool,
}

impl SchemaWalk {
    fn schema(
        &mut self,
        path: &LazyPath<'_>,
        schema: &JsonSchemaProps,
        around: SurroundingObject<'_>,
        in_meta: bool,
    ) {
        if self.errors.is_full() {
            return;
        }
        let (around, in_meta) = if schema.embedded {
            (SurroundingObject::Root(schema), false)
        } else {
            (around, in_meta)
        };
        if let Some(default) = &schema.default {
            let place = path.child("default");
            if in_meta {
                self.in_meta(&place, schema, default, around);
            } else {
                self.value(&place, schema, default);
            }
        }
        if let Some(items) = schema.items.as_deref() {
            let place = LazyPath::Field(path, "items");
            self.schema(&place, items, SurroundingObject::Item(&around), in_meta);
        }
        let properties = LazyPath::Field(path, "properties");
        for (name, property) in &schema.properties {
            let in_meta = in_meta || (schema.embedded && META_FIELDS.contains(&name.as_str()));
            let place = LazyPath::Key(&properties, name);
            self.schema(
                &place,
                property,
                SurroundingObject::Key(&around, name),
                in_meta,
            );
        }
    }

    fn in_meta(
        &mut self,
        place: &Path,
        schema: &JsonSchemaProps,
        default: &Value,
        around: SurroundingObject<'_>,
    ) {
        let (root, object) = around.object(default);
        let mut object = Value::Object(object);
        let errors = &mut self.errors;
        let mut refuse = |why: String| {
            errors.invalid(
                place,
                default.clone(),
                format!("must result in valid metadata: {why}"),
            )
        };
        if let Err(why) = prune_and_default::coerce(
            &LazyPath::EMPTY,
            &mut object,
            Some(root),
            false,
            &mut PrunedPaths::default(),
        ) {
            return refuse(why.to_string());
        }
        let found = object.as_object().map_or_else(ErrorList::new, |entries| {
            embedded_resource::validate(&LazyPath::EMPTY, entries, root)
        });
        match &*found {
            [] => self.errors.extend(value_validation::validate_within(
                &self.budget,
                schema,
                default,
                None,
                place,
            )),
            [one] => refuse(one.to_string()),
            many => refuse(format!(
                "[{}]",
                many.iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }

    fn value(&mut self, place: &Path, schema: &JsonSchemaProps, default: &Value) {
        if self.pruned {
            let (mut copy, mut lost) = (default.clone(), PrunedPaths::default());
            prune_and_default::prune(&mut copy, Some(schema), &LazyPath::EMPTY, &mut lost);
            if copy != *default {
                self.errors
                    .invalid(place, default.clone(), "must not have unknown fields");
            }
        }
        let mut copy = default.clone();
        let root = LazyPath::Root(place.as_str());
        if let Err(why) = prune_and_default::coerce(
            &root,
            &mut copy,
            Some(schema),
            false,
            &mut PrunedPaths::default(),
        ) {
            self.errors.push(why);
            return;
        }
        let found = copy.as_object().map_or_else(ErrorList::new, |entries| {
            embedded_resource::validate(&root, entries, schema)
        });
        if found.is_empty() {
            let budget = &self.budget;
            self.errors.extend(value_validation::validate_within(
                budget, schema, &copy, None, place,
            ));
        } else {
            self.errors.extend(found);
        }
    }
}
