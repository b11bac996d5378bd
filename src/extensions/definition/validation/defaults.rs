//! What the defaults of a schema must look like: pruned, and valid themselves (apiextensions
//! `schema/defaulting/validation.go`).

use crate::extensions::schema::embedded_resource;
use crate::extensions::schema::json_schema_props::Props;
use crate::extensions::schema::lazy_path::Place;
use crate::extensions::schema::prune_and_default::{self, Lost, META_FIELDS};
use crate::extensions::schema::value_validation;
use crate::meta::{ErrorList, FieldError, Map, Path, Value};

/// Checks every default of a structural schema.
pub fn validate(path: &Path, schema: &Props, pruned: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = schema.clone().into_resource();
    check(
        &mut errors,
        path,
        &root,
        &Around {
            root: &root,
            steps: Vec::new(),
        },
        false,
        pruned,
    );
    errors
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
#[derive(Clone)]
struct Around<'a> {
    root: &'a Props,
    /// Keys, and `None` for the items of lists.
    steps: Vec<Option<String>>,
}

impl Around<'_> {
    fn child(&self, key: &str) -> Self {
        let mut next = self.clone();
        next.steps.push(Some(key.to_owned()));
        next
    }

    fn index(&self) -> Self {
        let mut next = self.clone();
        next.steps.push(None);
        next
    }

    /// An object that has the value in its place, and a type.
    fn object(&self, value: &Value) -> Map {
        let around = self
            .steps
            .iter()
            .rev()
            .fold(value.clone(), |inner, step| match step {
                Some(key) => Value::Object(Map::from_iter([(key.clone(), inner)])),
                None => Value::Array(vec![inner]),
            });
        let Value::Object(mut object) = around else {
            return Map::new();
        };
        object.entry("kind").or_insert_with(|| "Validation".into());
        object
            .entry("apiVersion")
            .or_insert_with(|| "validation/v1".into());
        object
    }
}

fn check<'a>(
    errors: &mut ErrorList,
    path: &Path,
    schema: &'a Props,
    around: &Around<'a>,
    in_meta: bool,
    pruned: bool,
) {
    let (around, in_meta) = if schema.embedded {
        (
            &Around {
                root: schema,
                steps: Vec::new(),
            },
            false,
        )
    } else {
        (around, in_meta)
    };
    if let Some(default) = &schema.default {
        let place = path.child("default");
        if in_meta {
            check_in_meta(errors, &place, schema, default, around);
        } else {
            check_value(errors, &place, schema, default, pruned);
        }
    }
    if let Some(items) = schema.items.as_deref() {
        check(
            errors,
            &path.child("items"),
            items,
            &around.index(),
            in_meta,
            pruned,
        );
    }
    for (name, property) in &schema.properties {
        let meta = in_meta || (schema.embedded && META_FIELDS.contains(&name.as_str()));
        check(
            errors,
            &path.child("properties").key(name),
            property,
            &around.child(name),
            meta,
            pruned,
        );
    }
}

fn check_in_meta(
    errors: &mut ErrorList,
    place: &Path,
    schema: &Props,
    default: &Value,
    around: &Around<'_>,
) {
    let mut object = Value::Object(around.object(default));
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
        Some(around.root),
        false,
        &mut Lost::default(),
    ) {
        return refuse(why.to_string());
    }
    let found = object.as_object().map_or_else(ErrorList::new, |entries| {
        embedded_resource::validate(&Place::NOWHERE, entries, around.root)
    });
    match &*found {
        [] => errors.extend(value_validation::validate(schema, default, None, place)),
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

fn check_value(
    errors: &mut ErrorList,
    place: &Path,
    schema: &Props,
    default: &Value,
    pruned: bool,
) {
    if pruned {
        let (mut copy, mut lost) = (default.clone(), Lost::default());
        prune_and_default::prune(&mut copy, Some(schema), &Place::NOWHERE, &mut lost);
        if copy != *default {
            errors.push(FieldError::invalid(
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
        errors.push(why);
        return;
    }
    let found = copy.as_object().map_or_else(ErrorList::new, |entries| {
        embedded_resource::validate(&root, entries, schema)
    });
    if found.is_empty() {
        errors.extend(value_validation::validate(schema, &copy, None, place));
    } else {
        errors.extend(found);
    }
}
