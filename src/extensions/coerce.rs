//! Brings an object of a custom kind into the form of its schema: metadata in the form of ObjectMeta, unknown fields and
//! nulls gone, defaults filled in (apiextensions `schema/{pruning,objectmeta,defaulting}`).

use super::props::Props;
use crate::codec::{self, DecodeError};
use crate::meta::{FieldError, Map, Object, Path, Value};
use crate::schema::{TypeRef, builtin};

/// The fields that every resource has, whatever its schema says.
pub const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The type of ObjectMeta.
pub fn object_meta() -> TypeRef<'static> {
    builtin().named("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("ObjectMeta is built in")
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
    let unknown = decoded.issues.iter().filter_map(|issue| issue.strip_prefix("unknown field \"")?.strip_suffix('"'));
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

/// How to bring an object into form.
#[derive(Clone, Copy, Debug)]
pub struct Coercion<'a> {
    /// `None` for a version without a schema.
    pub schema: Option<&'a Props>,
    /// Nothing is pruned (`spec.preserveUnknownFields`).
    pub preserve: bool,
    /// The object comes from storage: what is wrong with its metadata is dropped.
    pub stored: bool,
}

impl Coercion<'_> {
    /// Brings the object into form and returns the paths of what it lost, sorted in the groups in which upstream sorts
    /// them.
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
            let mut pruned = Vec::new();
            prune_root(&mut object.0, self.schema, &mut pruned);
            pruned.sort();
            lost.extend(pruned);
            prune_nulls(object, self.schema);
        }
        let mut dropped = Vec::new();
        if let Some(schema) = self.schema {
            coerce_entries(&Path::default(), &mut object.0, schema, self.stored, &mut dropped).map_err(|error| error.to_string())?;
        }
        dropped.sort();
        lost.extend(dropped);
        if let Some(meta) = meta {
            object.insert("metadata", meta);
        }
        Ok(lost)
    }
}

/// Removes what the schema does not specify from a resource and notes the paths.
pub fn prune_root(entries: &mut Map, schema: Option<&Props>, lost: &mut Vec<String>) {
    match schema {
        Some(schema) if schema.preserves() => walk_preserved(entries, schema, true, "", lost),
        schema => prune_entries(entries, schema, true, "", lost),
    }
}

/// Removes what the schema does not specify from a value and notes the paths.
pub fn prune(value: &mut Value, schema: Option<&Props>, path: &str, lost: &mut Vec<String>) {
    let preserved = schema.filter(|schema| schema.preserves());
    match (value, preserved) {
        (Value::Object(entries), Some(schema)) => walk_preserved(entries, schema, schema.embedded, path, lost),
        (Value::Array(items), Some(schema)) => {
            for (index, item) in items.iter_mut().enumerate() {
                skip(item, schema.items.as_deref(), &format!("{path}[{index}]"), lost);
            }
        }
        (Value::Object(entries), None) => prune_entries(entries, schema, schema.is_some_and(|schema| schema.embedded), path, lost),
        (Value::Array(items), None) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, below, &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn prune_entries(entries: &mut Map, schema: Option<&Props>, embedded: bool, path: &str, lost: &mut Vec<String>) {
    entries.retain(|name, value| {
        let is_meta = META_FIELDS.contains(&name.as_str());
        if embedded && is_meta {
            return true;
        }
        let known = schema.and_then(|schema| match schema.properties.get(name.as_str()) {
            Some(property) => Some(Some(property)),
            None => schema.additional.as_ref().map(|additional| additional.schema.as_deref()),
        });
        match known {
            Some(below) => {
                prune(value, below, &join(path, name), lost);
                true
            }
            None => {
                if !is_meta || !path.is_empty() {
                    lost.push(join(path, name));
                }
                false
            }
        }
    });
}

/// Where unknown fields are preserved, those that are specified are still pruned inside.
fn walk_preserved(entries: &mut Map, schema: &Props, embedded: bool, path: &str, lost: &mut Vec<String>) {
    for (name, value) in entries.iter_mut() {
        if embedded && META_FIELDS.contains(&name.as_str()) {
            continue;
        }
        if let Some(property) = schema.properties.get(name.as_str()) {
            prune(value, Some(property), &join(path, name), lost);
        } else if let Some(additional) = &schema.additional {
            prune(value, additional.schema.as_deref(), &join(path, name), lost);
        }
    }
}

fn skip(value: &mut Value, schema: Option<&Props>, path: &str, lost: &mut Vec<String>) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(entries) => walk_preserved(entries, schema, schema.embedded, path, lost),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                skip(item, schema.items.as_deref(), &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

/// Removes nulls that the schema allows no null for, unless a default will take their place.
pub fn prune_nulls(entries: &mut Map, schema: Option<&Props>) {
    entries.retain(|name, value| {
        let below = schema.and_then(|schema| schema.entry(name));
        if value.is_null() && below.is_some_and(|below| !below.nullable && below.default.is_none()) {
            return false;
        }
        prune_nulls_in(value, below);
        true
    });
}

fn prune_nulls_in(value: &mut Value, schema: Option<&Props>) {
    match value {
        Value::Object(entries) => prune_nulls(entries, schema),
        Value::Array(items) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| prune_nulls_in(item, below));
        }
        _ => {}
    }
}

/// Checks and forms the type and metadata of embedded resources below a value.
///
/// # Errors
/// What is wrong with them, unless that is to be dropped.
pub fn coerce(path: &Path, value: &mut Value, schema: Option<&Props>, drop: bool, lost: &mut Vec<String>) -> Result<(), FieldError> {
    let Some(schema) = schema else { return Ok(()) };
    match value {
        Value::Object(entries) => coerce_entries(path, entries, schema, drop, lost),
        Value::Array(items) => {
            let below = schema.items.as_deref();
            items.iter_mut().enumerate().try_for_each(|(index, item)| coerce(&path.index(index), item, below, drop, lost))
        }
        _ => Ok(()),
    }
}

fn coerce_entries(path: &Path, entries: &mut Map, schema: &Props, drop: bool, lost: &mut Vec<String>) -> Result<(), FieldError> {
    if schema.embedded {
        coerce_embedded(path, entries, drop, lost)?;
    }
    for (name, value) in entries.iter_mut() {
        match (schema.properties.get(name.as_str()), &schema.additional) {
            (Some(property), _) => coerce(&path.child(name), value, Some(property), drop, lost)?,
            (None, Some(additional)) => coerce(&path.key(name), value, additional.schema.as_deref(), drop, lost)?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn coerce_embedded(path: &Path, entries: &mut Map, drop: bool, lost: &mut Vec<String>) -> Result<(), FieldError> {
    for name in ["apiVersion", "kind"] {
        match entries.get(name) {
            Some(value) if !value.is_string() && drop => {
                entries.shift_remove(name);
            }
            Some(value) if !value.is_string() => {
                return Err(FieldError::invalid(&path.child(name), value.clone(), "must be a string"));
            }
            _ => {}
        }
    }
    let Some(value) = entries.get("metadata") else { return Ok(()) };
    let meta = match read_meta(value) {
        Ok((meta, unknown)) => {
            let place = path.child("metadata");
            lost.extend(unknown.into_iter().map(|name| format!("{place}.{name}")));
            meta
        }
        Err(_) if drop => salvage_meta(value),
        Err(why) => return Err(FieldError::invalid(&path.child("metadata"), value.clone(), why.0)),
    };
    entries.insert("metadata", meta);
    Ok(())
}

/// Fills in the defaults of a schema, also for nulls that it does not allow.
pub fn default(value: &mut Value, schema: Option<&Props>) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(entries) => default_entries(entries, schema),
        Value::Array(items) => {
            let below = schema.items.as_deref();
            for item in items {
                default_null(item, below);
                default(item, below);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of the entries of an object.
pub fn default_entries(entries: &mut Map, schema: &Props) {
    for (name, property) in &schema.properties {
        let Some(given) = &property.default else { continue };
        if entries.get(name).is_none_or(|value| value.is_null() && !property.nullable) {
            entries.insert(name.clone(), given.clone());
        }
    }
    for (name, value) in entries.iter_mut() {
        if let Some(property) = schema.properties.get(name.as_str()) {
            default(value, Some(property));
        } else {
            let below = schema.additional_schema();
            default_null(value, below);
            default(value, below);
        }
    }
}

fn default_null(value: &mut Value, schema: Option<&Props>) {
    if value.is_null()
        && let Some(given) = schema.filter(|schema| !schema.nullable).and_then(|schema| schema.default.clone())
    {
        *value = given;
    }
}

/// Prunes the defaults themselves, by the whole schema that they stand in: what they may not set, they do not set.
pub fn prune_defaults(schema: &mut Props) {
    prune_defaults_below(schema, true);
}

fn prune_defaults_below(schema: &mut Props, is_root: bool) {
    if let Some(mut given) = schema.default.take() {
        let mut lost = Vec::new();
        let embedded = schema.embedded || is_root;
        match (&mut given, schema.preserves()) {
            (Value::Object(entries), false) => prune_entries(entries, Some(schema), embedded, "", &mut lost),
            (value, _) => prune(value, Some(schema), "", &mut lost),
        }
        // Metadata in a default is dropped where it is not in form, never refused.
        let _ = coerce(&Path::default(), &mut given, Some(schema), true, &mut lost);
        schema.default = Some(given);
    }
    if let Some(additional) = schema.additional.as_mut().and_then(|one| one.schema.as_deref_mut()) {
        prune_defaults_below(additional, false);
    }
    if let Some(items) = schema.items.as_deref_mut() {
        prune_defaults_below(items, false);
    }
    schema.properties.values_mut().for_each(|property| prune_defaults_below(property, false));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn schema() -> Props {
        Props::read(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "nullable": true, "default": "y"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}}},
            "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"in": {"type": "object"}}},
            "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}))
    }

    #[test]
    fn what_is_not_specified_goes() {
        let mut object = Object::from_value(json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "x", "zz": 1}, "top": 1,
            "spec": {"a": null, "n": null, "zz": 1, "l": [{"k": 1, "z": 2}, {"z": null}], "p": {"q": 1, "in": {"z": 1}},
                "e": {"kind": "P", "apiVersion": "v1", "metadata": {"name": "y", "bogus": 1}, "x": 1}}}))
        .expect("an object");
        let schema = schema();
        let lost = Coercion { schema: Some(&schema), preserve: false, stored: false }.apply(&mut object).expect("in form");
        let want = ["metadata.zz", "spec.l[0].z", "spec.l[1].z", "spec.p.in.z", "spec.zz", "top", "spec.e.metadata.bogus"];
        assert_eq!(lost, want);
        default_entries(&mut object, &schema);
        let spec = json!({"a": "x", "n": null, "l": [{"k": 1}, {}], "p": {"q": 1, "in": {}},
            "e": {"kind": "P", "apiVersion": "v1", "metadata": {"name": "y"}, "x": 1}});
        assert_eq!(object.get("spec"), Some(&spec));
    }

    #[test]
    fn metadata_must_be_in_form() {
        let wrong = json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "x", "labels": {"a": 1}}});
        let coerce = |stored| {
            let mut object = Object::from_value(wrong.clone()).expect("an object");
            Coercion { schema: None, preserve: true, stored }.apply(&mut object).map(|_| object)
        };
        assert_eq!(coerce(false), Err("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string".to_owned()));
        assert_eq!(coerce(true).expect("dropped").get("metadata"), Some(&json!({"name": "x"})));
    }
}
