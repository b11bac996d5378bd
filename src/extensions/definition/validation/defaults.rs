//! What the defaults of a schema must look like: pruned, and valid themselves (apiextensions
//! `schema/defaulting/validation.go`).

use crate::extensions::schema::embedded_resource;
use crate::extensions::schema::json_schema_props::Props;
use crate::extensions::schema::lazy_path::Place;
use crate::extensions::schema::prune_and_default::{self, Lost, META_FIELDS};
use crate::extensions::schema::value_validation::{self, Budget};
use crate::meta::{ErrorList, FieldError, Map, Path, Value};

/// Checks every default of a structural schema. `pruned` says that a default may have no fields
/// that the schema does not specify.
pub fn validate(path: &Path, schema: &Props, pruned: bool) -> ErrorList {
    let root = schema.clone().into_resource();
    let mut walk = Walk {
        errors: ErrorList::new(),
        budget: Budget::default(),
        pruned,
    };
    walk.schema(
        &Place::Root(path.as_str()),
        &root,
        Around::Root(&root),
        false,
    );
    walk.errors
}

/// Whether no default has fields that the schema does not specify.
pub fn are_pruned(schema: &Props) -> bool {
    let mut pruned = schema.clone();
    prune_and_default::prune_defaults(&mut pruned);
    same_defaults(schema, &pruned)
}

fn same_defaults(a: &Props, b: &Props) -> bool {
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
enum Around<'a> {
    Root(&'a Props),
    Key(&'a Around<'a>, &'a str),
    Item(&'a Around<'a>),
}

impl<'a> Around<'a> {
    /// The schema of the resource, and an object that has the value in its place, and a type.
    fn object(&self, value: &Value) -> (&'a Props, Map) {
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
struct Walk {
    errors: ErrorList,
    /// What the validation of all defaults together may take.
    budget: Budget,
    pruned: bool,
}

impl Walk {
    fn schema(&mut self, path: &Place<'_>, schema: &Props, around: Around<'_>, in_meta: bool) {
        if self.errors.is_full() {
            return;
        }
        let (around, in_meta) = if schema.embedded {
            (Around::Root(schema), false)
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
            let place = Place::Field(path, "items");
            self.schema(&place, items, Around::Item(&around), in_meta);
        }
        let properties = Place::Field(path, "properties");
        for (name, property) in &schema.properties {
            let in_meta = in_meta || (schema.embedded && META_FIELDS.contains(&name.as_str()));
            let place = Place::Key(&properties, name);
            self.schema(&place, property, Around::Key(&around, name), in_meta);
        }
    }

    fn in_meta(&mut self, place: &Path, schema: &Props, default: &Value, around: Around<'_>) {
        let (root, object) = around.object(default);
        let mut object = Value::Object(object);
        let errors = &mut self.errors;
        let mut refuse = |why: String| {
            errors.push(FieldError::invalid(
                place,
                default.clone(),
                format!("must result in valid metadata: {why}"),
            ))
        };
        if let Err(why) = prune_and_default::coerce(
            &Place::NOWHERE,
            &mut object,
            Some(root),
            false,
            &mut Lost::default(),
        ) {
            return refuse(why.to_string());
        }
        let found = object.as_object().map_or_else(ErrorList::new, |entries| {
            embedded_resource::validate(&Place::NOWHERE, entries, root)
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

    fn value(&mut self, place: &Path, schema: &Props, default: &Value) {
        if self.pruned {
            let (mut copy, mut lost) = (default.clone(), Lost::default());
            prune_and_default::prune(&mut copy, Some(schema), &Place::NOWHERE, &mut lost);
            if copy != *default {
                self.errors.push(FieldError::invalid(
                    place,
                    default.clone(),
                    "must not have unknown fields",
                ));
            }
        }
        let mut copy = default.clone();
        let root = Place::Root(place.as_str());
        if let Err(why) =
            prune_and_default::coerce(&root, &mut copy, Some(schema), false, &mut Lost::default())
        {
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
