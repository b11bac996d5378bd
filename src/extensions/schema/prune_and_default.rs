//! Pruning and defaulting of custom objects: normalises metadata as ObjectMeta, removes unknown
//! fields and nulls, and fills in defaults (apiextensions
//! `schema/{pruning,objectmeta,defaulting}`).

use crate::codec::{self, DecodeError};
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::meta::field::shown_bytes;
use crate::meta::{FieldError, Map, Object, Value};
use crate::schema::{TypeRef, builtin};

/// The fields of every resource, independent of its schema.
pub const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The maximum number of removed fields that are reported, and about the maximum bytes of their
/// paths: a body may have a million.
const MAX_LOST: usize = 1_000;
const MAX_LOST_BYTES: usize = 256 * 1024;
/// The maximum number of bytes of JSON that defaults may add to one object: many more than any
/// store takes. What they would add beyond stays away.
const MAX_DEFAULTED_BYTES: usize = 16 * 1024 * 1024;
/// The bytes that a field takes beside its name and value.
const FIELD_BYTES: usize = 32;

/// The paths of fields that an object lost.
#[derive(Debug, Default)]
pub struct PrunedPaths {
    paths: Vec<String>,
    bytes: usize,
}

impl PrunedPaths {
    /// Records a path, unless there are too many already.
    fn add(&mut self, path: impl std::fmt::Display) {
        if self.paths.len() < MAX_LOST && self.bytes < MAX_LOST_BYTES {
            let path = path.to_string();
            self.bytes += path.len();
            self.paths.push(path);
        }
    }

    fn sorted(mut self) -> Vec<String> {
        self.paths.sort();
        self.paths
    }
}

/// The type of ObjectMeta.
pub fn object_meta() -> TypeRef<'static> {
    builtin()
        .named("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .expect("ObjectMeta is built in")
}

/// ObjectMeta in its form, and the names of fields that it does not have, relative to it.
///
/// # Errors
/// Go's, where a field has a wrong type.
pub fn read_meta(value: &Value) -> Result<(Value, Vec<String>), DecodeError> {
    let decoded = codec::from_value(value, object_meta())?;
    let mut meta = decoded.object.0;
    if meta.get("creationTimestamp").is_some_and(Value::is_null) {
        meta.shift_remove("creationTimestamp");
    }
    let unknown = decoded
        .issues
        .iter()
        .filter_map(|issue| issue.strip_prefix("unknown field \"")?.strip_suffix('"'));
    Ok((Value::Object(meta), unknown.map(str::to_owned).collect()))
}

/// ObjectMeta without the fields that are not in form.
fn salvage_meta(value: &Value) -> Value {
    let mut kept = Map::new();
    for (key, one) in value.as_object().into_iter().flatten() {
        let alone = Value::Object(Map::from_iter([(key.clone(), one.clone())]));
        if read_meta(&alone).is_ok() {
            kept.insert(key.clone(), one.clone());
        }
    }
    read_meta(&Value::Object(kept)).map_or_else(|_| Value::Object(Map::new()), |(meta, _)| meta)
}

/// The rules by which an object is brought into form.
#[derive(Clone, Copy, Debug)]
pub struct SchemaCoercer<'a> {
    /// `None` for a version without a schema.
    pub schema: Option<&'a JsonSchemaProps>,
    /// Nothing is pruned (`spec.preserveUnknownFields`).
    pub preserve: bool,
    /// The object comes from storage: what is wrong with its metadata is dropped.
    pub stored: bool,
}

impl SchemaCoercer<'_> {
    /// Brings the object into form and returns the paths of what it lost, sorted in the groups in
    /// which upstream sorts them.
    ///
    /// # Errors
    /// Metadata that is not in form: Go's text.
    pub fn apply(self, object: &mut Object) -> Result<Vec<String>, String> {
        let mut lost = Vec::new();
        let meta = match object.get("metadata") {
            None => None,
            Some(value) => Some(match read_meta(value) {
                Ok((meta, unknown)) => {
                    lost.extend(unknown.into_iter().map(|path| format!("metadata.{path}")));
                    meta
                }
                Err(_) if self.stored => salvage_meta(value),
                Err(why) => return Err(why.0),
            }),
        };
        if !self.preserve {
            let mut pruned = PrunedPaths::default();
            prune_root(&mut object.0, self.schema, &mut pruned);
            lost.extend(pruned.sorted());
            prune_nulls(object, self.schema);
        }
        let mut dropped = PrunedPaths::default();
        if let Some(schema) = self.schema {
            coerce_entries(
                &LazyPath::EMPTY,
                &mut object.0,
                schema,
                self.stored,
                &mut dropped,
            )
            .map_err(|error| error.to_string())?;
        }
        lost.extend(dropped.sorted());
        if let Some(meta) = meta {
            object.insert("metadata", meta);
        }
        Ok(lost)
    }
}

/// Removes what the schema does not specify from a resource and notes the paths.
pub fn prune_root(entries: &mut Map, schema: Option<&JsonSchemaProps>, lost: &mut PrunedPaths) {
    match schema {
        Some(schema) if schema.preserves() => {
            walk_preserved(entries, schema, true, &LazyPath::EMPTY, lost)
        }
        schema => prune_entries(entries, schema, true, &LazyPath::EMPTY, lost),
    }
}

/// Removes what the schema does not specify from a value and notes the paths.
pub fn prune(
    value: &mut Value,
    schema: Option<&JsonSchemaProps>,
    path: &LazyPath<'_>,
    lost: &mut PrunedPaths,
) {
    let preserved = schema.filter(|schema| schema.preserves());
    match (value, preserved) {
        (Value::Object(entries), Some(schema)) => {
            walk_preserved(entries, schema, schema.embedded, path, lost)
        }
        (Value::Array(items), Some(schema)) => {
            for (index, item) in items.iter_mut().enumerate() {
                skip(
                    item,
                    schema.items.as_deref(),
                    &LazyPath::Index(path, index),
                    lost,
                );
            }
        }
        (Value::Object(entries), None) => prune_entries(
            entries,
            schema,
            schema.is_some_and(|schema| schema.embedded),
            path,
            lost,
        ),
        (Value::Array(items), None) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, below, &LazyPath::Index(path, index), lost);
            }
        }
        _ => {}
    }
}

fn prune_entries(
    entries: &mut Map,
    schema: Option<&JsonSchemaProps>,
    embedded: bool,
    path: &LazyPath<'_>,
    lost: &mut PrunedPaths,
) {
    entries.retain(|name, value| {
        let is_meta = META_FIELDS.contains(&name.as_str());
        if embedded && is_meta {
            return true;
        }
        let known = schema.and_then(|schema| match schema.properties.get(name.as_str()) {
            Some(property) => Some(Some(property)),
            None => schema
                .additional
                .as_ref()
                .map(|additional| additional.schema.as_deref()),
        });
        match known {
            Some(below) => {
                prune(value, below, &LazyPath::Field(path, name), lost);
                true
            }
            None => {
                if !is_meta || !path.is_empty() {
                    lost.add(LazyPath::Field(path, name));
                }
                false
            }
        }
    });
}

/// Prunes inside of specified fields, where unknown ones are preserved.
fn walk_preserved(
    entries: &mut Map,
    schema: &JsonSchemaProps,
    embedded: bool,
    path: &LazyPath<'_>,
    lost: &mut PrunedPaths,
) {
    for (name, value) in entries.iter_mut() {
        if embedded && META_FIELDS.contains(&name.as_str()) {
            continue;
        }
        if let Some(property) = schema.properties.get(name.as_str()) {
            prune(value, Some(property), &LazyPath::Field(path, name), lost);
        } else if let Some(additional) = &schema.additional {
            prune(
                value,
                additional.schema.as_deref(),
                &LazyPath::Field(path, name),
                lost,
            );
        }
    }
}

fn skip(
    value: &mut Value,
    schema: Option<&JsonSchemaProps>,
    path: &LazyPath<'_>,
    lost: &mut PrunedPaths,
) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(entries) => walk_preserved(entries, schema, schema.embedded, path, lost),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                skip(
                    item,
                    schema.items.as_deref(),
                    &LazyPath::Index(path, index),
                    lost,
                );
            }
        }
        _ => {}
    }
}

/// Removes nulls that the schema allows no null for, unless a default will take their place.
pub fn prune_nulls(entries: &mut Map, schema: Option<&JsonSchemaProps>) {
    entries.retain(|name, value| {
        let below = schema.and_then(|schema| schema.entry(name));
        if value.is_null() && below.is_some_and(|below| !below.nullable && below.default.is_none())
        {
            return false;
        }
        prune_nulls_in(value, below);
        true
    });
}

fn prune_nulls_in(value: &mut Value, schema: Option<&JsonSchemaProps>) {
    match value {
        Value::Object(entries) => prune_nulls(entries, schema),
        Value::Array(items) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            items
                .iter_mut()
                .for_each(|item| prune_nulls_in(item, below));
        }
        _ => {}
    }
}

/// Checks and forms the type and metadata of embedded resources below a value.
///
/// # Errors
/// Fails on the first mistake in them, unless mistakes are to be dropped.
pub fn coerce(
    path: &LazyPath<'_>,
    value: &mut Value,
    schema: Option<&JsonSchemaProps>,
    drop: bool,
    lost: &mut PrunedPaths,
) -> Result<(), FieldError> {
    let Some(schema) = schema else { return Ok(()) };
    match value {
        Value::Object(entries) => coerce_entries(path, entries, schema, drop, lost),
        Value::Array(items) => {
            let below = schema.items.as_deref();
            items.iter_mut().enumerate().try_for_each(|(index, item)| {
                coerce(&LazyPath::Index(path, index), item, below, drop, lost)
            })
        }
        _ => Ok(()),
    }
}

fn coerce_entries(
    path: &LazyPath<'_>,
    entries: &mut Map,
    schema: &JsonSchemaProps,
    drop: bool,
    lost: &mut PrunedPaths,
) -> Result<(), FieldError> {
    if schema.embedded {
        coerce_embedded(path, entries, drop, lost)?;
    }
    for (name, value) in entries.iter_mut() {
        match (schema.properties.get(name.as_str()), &schema.additional) {
            (Some(property), _) => coerce(
                &LazyPath::Field(path, name),
                value,
                Some(property),
                drop,
                lost,
            )?,
            (None, Some(additional)) => coerce(
                &LazyPath::Key(path, name),
                value,
                additional.schema.as_deref(),
                drop,
                lost,
            )?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn coerce_embedded(
    path: &LazyPath<'_>,
    entries: &mut Map,
    drop: bool,
    lost: &mut PrunedPaths,
) -> Result<(), FieldError> {
    for name in ["apiVersion", "kind"] {
        match entries.get(name) {
            Some(value) if !value.is_string() && drop => {
                entries.shift_remove(name);
            }
            Some(value) if !value.is_string() => {
                return Err(FieldError::invalid(
                    &path.path().child(name),
                    value.clone(),
                    "must be a string",
                ));
            }
            _ => {}
        }
    }
    let Some(value) = entries.get("metadata") else {
        return Ok(());
    };
    let meta = match read_meta(value) {
        Ok((meta, unknown)) => {
            unknown.into_iter().for_each(|name| {
                lost.add(format_args!("{}.{name}", LazyPath::Field(path, "metadata")))
            });
            meta
        }
        Err(_) if drop => salvage_meta(value),
        Err(why) => {
            return Err(FieldError::invalid(
                &path.path().child("metadata"),
                value.clone(),
                why.0,
            ));
        }
    };
    entries.insert("metadata", meta);
    Ok(())
}

/// Fills in the defaults of the entries of an object, also for nulls that their schemas do not
/// allow.
pub fn default_entries(entries: &mut Map, schema: &JsonSchemaProps) {
    Defaults {
        left: MAX_DEFAULTED_BYTES,
    }
    .fill(entries, schema);
}

/// The bytes that defaults may still add.
struct Defaults {
    left: usize,
}

impl Defaults {
    /// A default for a field of this name, if there is room for it.
    fn take(&mut self, name: &str, given: &Value) -> Option<Value> {
        let bytes = shown_bytes(given, MAX_DEFAULTED_BYTES) + name.len() + FIELD_BYTES;
        self.left = self.left.saturating_sub(bytes);
        (self.left > 0).then(|| given.clone())
    }

    fn value(&mut self, value: &mut Value, schema: Option<&JsonSchemaProps>) {
        let Some(schema) = schema else { return };
        match value {
            Value::Object(entries) => self.fill(entries, schema),
            Value::Array(items) => {
                let below = schema.items.as_deref();
                for item in items {
                    self.null(item, below);
                    self.value(item, below);
                }
            }
            _ => {}
        }
    }

    fn fill(&mut self, entries: &mut Map, schema: &JsonSchemaProps) {
        if self.left == 0 {
            return;
        }
        for name in &schema.defaulted {
            let Some((property, given)) = schema
                .properties
                .get(name)
                .and_then(|one| Some((one, one.default.as_ref()?)))
            else {
                continue;
            };
            if entries
                .get(name)
                .is_none_or(|value| value.is_null() && !property.nullable)
                && let Some(given) = self.take(name, given)
            {
                entries.insert(name.clone(), given);
            }
        }
        for (name, value) in entries.iter_mut() {
            if let Some(property) = schema.properties.get(name.as_str()) {
                self.value(value, Some(property));
            } else {
                let below = schema.additional_schema();
                self.null(value, below);
                self.value(value, below);
            }
        }
    }

    fn null(&mut self, value: &mut Value, schema: Option<&JsonSchemaProps>) {
        if value.is_null()
            && let Some(given) = schema
                .filter(|schema| !schema.nullable)
                .and_then(|schema| schema.default.as_ref())
            && let Some(given) = self.take("", given)
        {
            *value = given;
        }
    }
}

/// Prunes the defaults themselves, by the whole schema that they stand in: what they may not set,
/// they do not set.
pub fn prune_defaults(schema: &mut JsonSchemaProps) {
    prune_defaults_below(schema, true);
}

fn prune_defaults_below(schema: &mut JsonSchemaProps, is_root: bool) {
    if let Some(mut given) = schema.default.take() {
        let mut lost = PrunedPaths::default();
        let embedded = schema.embedded || is_root;
        match (&mut given, schema.preserves()) {
            (Value::Object(entries), false) => {
                prune_entries(entries, Some(schema), embedded, &LazyPath::EMPTY, &mut lost)
            }
            (value, _) => prune(value, Some(schema), &LazyPath::EMPTY, &mut lost),
        }
        // Metadata in a default is dropped where it is not in form, never refused.
        let _ = coerce(&LazyPath::EMPTY, &mut given, Some(schema), true, &mut lost);
        schema.default = Some(given);
    }
    if let Some(additional) = schema
        .additional
        .as_mut()
        .and_then(|one| one.schema.as_deref_mut())
    {
        prune_defaults_below(additional, false);
    }
    if let Some(items) = schema.items.as_deref_mut() {
        prune_defaults_below(items, false);
    }
    schema
        .properties
        .values_mut()
        .for_each(|property| prune_defaults_below(property, false));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn schema() -> JsonSchemaProps {
        JsonSchemaProps::read(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "nullable": true, "default": "y"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}}},
            "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"in": {"type": "object"}}},
            "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}),
        )
    }

    #[test]
    fn unspecified_fields_are_pruned() {
        let mut object = Object::from_value(json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "x", "zz": 1}, "top": 1,
            "spec": {"a": null, "n": null, "zz": 1, "l": [{"k": 1, "z": 2}, {"z": null}], "p": {"q": 1, "in": {"z": 1}},
                "e": {"kind": "P", "apiVersion": "v1", "metadata": {"name": "y", "bogus": 1}, "x": 1}}}))
        .expect("an object");
        let schema = schema();
        let lost = SchemaCoercer {
            schema: Some(&schema),
            preserve: false,
            stored: false,
        }
        .apply(&mut object)
        .expect("in form");
        let want = [
            "metadata.zz",
            "spec.l[0].z",
            "spec.l[1].z",
            "spec.p.in.z",
            "spec.zz",
            "top",
            "spec.e.metadata.bogus",
        ];
        assert_eq!(lost, want);
        default_entries(&mut object, &schema);
        let spec = json!({"a": "x", "n": null, "l": [{"k": 1}, {}], "p": {"q": 1, "in": {}},
            "e": {"kind": "P", "apiVersion": "v1", "metadata": {"name": "y"}, "x": 1}});
        assert_eq!(object.get("spec"), Some(&spec));
    }

    #[test]
    fn pruned_paths_and_defaults_are_bounded() {
        let schema = JsonSchemaProps::read(&json!({"type": "object", "properties": {
            "m": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}},
            "d": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string", "default": "y".repeat(100_000)}}}}}}));
        let unknown: Map = (0..100_000)
            .map(|number| (format!("u{number}"), json!(1)))
            .collect();
        let long: Map = Map::from_iter([(
            "k".repeat(100_000),
            Value::Array(vec![json!({"z": 1}); 20_000]),
        )]);
        let empty = Value::Array(vec![json!({}); 100_000]);
        let mut object = Object(unknown);
        object.insert("m", Value::Object(long));
        object.insert("d", empty);
        let lost = SchemaCoercer {
            schema: Some(&schema),
            preserve: false,
            stored: false,
        }
        .apply(&mut object)
        .expect("in form");
        assert!(
            lost.len() <= MAX_LOST
                && lost.iter().map(String::len).sum::<usize>() < 2 * MAX_LOST_BYTES,
            "{} paths",
            lost.len()
        );
        default_entries(&mut object, &schema);
        let filled = object
            .get("d")
            .and_then(Value::as_array)
            .map_or(0, |items| {
                items.iter().filter(|item| item.get("x").is_some()).count()
            });
        assert_eq!(filled, MAX_DEFAULTED_BYTES / 100_002);
    }

    #[test]
    fn malformed_metadata_is_refused_or_dropped() {
        let wrong = json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "x", "labels": {"a": 1}}});
        let coerce = |stored| {
            let mut object = Object::from_value(wrong.clone()).expect("an object");
            SchemaCoercer {
                schema: None,
                preserve: true,
                stored,
            }
            .apply(&mut object)
            .map(|_| object)
        };
        assert_eq!(coerce(false), Err("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string".to_owned()));
        assert_eq!(
            coerce(true).expect("dropped").get("metadata"),
            Some(&json!({"name": "x"}))
        );
    }
}
