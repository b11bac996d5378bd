//! Schemas of custom objects as expressions see them (apiserver `cel/common/schemas.go`,
//! `cel/escaping.go`).

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::cel::{
    CompileBudget, Field, ListType, MAX_REQUEST_BYTES, Object, RESERVED, Schema, Shape,
};
use crate::extensions::schema::json_schema_props::JsonSchemaProps;

/// The longest durations and times, in characters with quotes.
const MAX_TIME_CHARS: u64 = 32;
/// The bytes of a date with its quotes, and the least of a time.
const DATE_BYTES: u64 = 12;
const MIN_TIME_BYTES: u64 = 21;
const MIN_DURATION_BYTES: u64 = 3;

/// The name of the type of `self`, with which those of the objects in it begin. It is not the
/// variable's: of two meanings of a name such as `self.spec` the type would go before the field.
const ROOT_TYPE: &str = "selfType";

/// Returns the name that expressions use for a field; `None` where they cannot name it.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.peek() == Some(&'_') => {
                chars.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c == '_' || c.is_ascii_alphanumeric() => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}

/// The longest name of the type of an object that says where the object is, in bytes.
const MAX_TYPE_NAME: usize = 256;

/// The schemas of the nodes of a definition as expressions see them. Each is made once: the schema
/// of a node is a part of those of all nodes above it.
#[derive(Default)]
pub struct Schemas<'p> {
    known: HashMap<(*const JsonSchemaProps, bool), Arc<Schema>>,
    /// The count of type names that do not say where the object is.
    numbered: usize,
    /// The budget of compiling the rules of the definition.
    pub budget: CompileBudget,
    definition: PhantomData<&'p JsonSchemaProps>,
}

impl<'p> Schemas<'p> {
    /// Returns the schema of a node. With `is_root` it is an object with type and metadata, which
    /// expressions always see. The schema of the whole definition is asked for first.
    pub fn of(&mut self, props: &'p JsonSchemaProps, is_root: bool) -> Arc<Schema> {
        match self.known.get(&(std::ptr::from_ref(props), is_root)) {
            Some(schema) => schema.clone(),
            None if self.known.is_empty() => self.node(props, is_root, ROOT_TYPE),
            None => {
                let name = self.numbered_name();
                self.node(props, is_root, &name)
            }
        }
    }

    fn numbered_name(&mut self) -> String {
        self.numbered += 1;
        format!("{ROOT_TYPE}@{}", self.numbered)
    }

    /// The schema of a node whose type, if it is an object, has a name.
    fn node(&mut self, props: &'p JsonSchemaProps, is_root: bool, name: &str) -> Arc<Schema> {
        let key = (std::ptr::from_ref(props), is_root);
        if let Some(schema) = self.known.get(&key) {
            return schema.clone();
        }
        let numbered = (name.len() > MAX_TYPE_NAME).then(|| self.numbered_name());
        let name = numbered.as_deref().unwrap_or(name);
        let (shape, min_bytes, max_elements) = self.shape(props, is_root, name);
        let schema = Arc::new(Schema {
            shape,
            nullable: props.nullable,
            max_elements,
            max_key: 0,
            min_bytes,
        });
        self.known.insert(key, schema.clone());
        schema
    }

    /// The shape of a node, the least bytes and the most elements of its values.
    fn shape(
        &mut self,
        props: &'p JsonSchemaProps,
        is_root: bool,
        name: &str,
    ) -> (Shape, u64, u64) {
        let longest = || match props.values.max_length {
            Some(length) => unsigned(length).saturating_mul(4),
            None => MAX_REQUEST_BYTES - 2,
        };
        if props.int_or_string {
            return (Shape::IntOrString, 1, longest());
        }
        match if is_root {
            "object"
        } else {
            props.kind.as_str()
        } {
            "array" => self.list(props, name),
            "object" => self.object(props, is_root, name),
            "string" => text(props, longest()),
            "boolean" => (Shape::Bool, 4, 0),
            "number" => (Shape::Double, 1, 0),
            "integer" => (Shape::Int, 1, 0),
            _ => (Shape::Hidden, 1, 0),
        }
    }

    fn list(&mut self, props: &'p JsonSchemaProps, name: &str) -> (Shape, u64, u64) {
        let Some(items) = &props.items else {
            return (Shape::Hidden, 1, 0);
        };
        let item = self.node(items, items.embedded, &format!("{name}.@idx"));
        let max = match props.values.max_items {
            Some(max) => unsigned(max),
            None => (MAX_REQUEST_BYTES - 2) / (item.min_bytes + 1),
        };
        let kind = match props.list_type.as_deref() {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = props.list_map_keys.iter();
                ListType::Map(keys.map(|key| escape(key).unwrap_or(key.clone())).collect())
            }
            _ => ListType::Atomic,
        };
        if item.ty().is_none() {
            return (Shape::Hidden, 1, 0);
        }
        (Shape::List(item, kind), 2, max)
    }

    fn object(
        &mut self,
        props: &'p JsonSchemaProps,
        is_root: bool,
        name: &str,
    ) -> (Shape, u64, u64) {
        if let Some(values) = props.additional_schema().filter(|_| !is_root) {
            let value = self.node(values, values.embedded, &format!("{name}.@elem"));
            if value.ty().is_none() {
                return (Shape::Hidden, 1, 0);
            }
            let max = match props.values.max_properties {
                Some(max) => unsigned(max),
                None => (MAX_REQUEST_BYTES - 2) / (value.min_bytes + 6),
            };
            return (Shape::Map(value), 2, max);
        }
        let mut fields: Vec<(String, Arc<Schema>)> = props
            .properties
            .iter()
            .map(|(field, below)| {
                let name = format!("{name}.{field}");
                (field.clone(), self.node(below, below.embedded, &name))
            })
            .collect();
        if is_root && !has_type_and_metadata(props) {
            let meta = JsonSchemaProps::object([
                ("name", JsonSchemaProps::text()),
                ("generateName", JsonSchemaProps::text()),
            ]);
            fields
                .retain(|(field, _)| !matches!(field.as_str(), "kind" | "apiVersion" | "metadata"));
            let text = JsonSchemaProps::text();
            // These are no nodes of the definition, and must not be taken for them.
            let mut others = Schemas::default();
            for field in ["apiVersion", "kind"] {
                fields.push((field.to_owned(), others.node(&text, false, "")));
            }
            let metadata = others.node(&meta, false, &format!("{name}.metadata"));
            fields.push(("metadata".to_owned(), metadata));
        }
        let required: HashSet<&str> = props.values.required.iter().map(String::as_str).collect();
        let mut min_bytes = 2;
        let mut out = Object {
            name: name.into(),
            ..Object::default()
        };
        for (field, schema) in fields {
            let is_set = required.contains(field.as_str())
                && props
                    .properties
                    .get(&field)
                    .is_some_and(|below| below.default.is_none());
            if is_set && schema.ty().is_some() {
                min_bytes += u64::try_from(field.len()).unwrap_or(0) + schema.min_bytes + 4;
            }
            if let Some(escaped) = escape(&field) {
                out.add(
                    Field {
                        name: field.into(),
                        schema,
                    },
                    &escaped,
                );
            }
        }
        (Shape::Object(out), min_bytes, 0)
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn has_type_and_metadata(props: &JsonSchemaProps) -> bool {
    let is = |props: &JsonSchemaProps, field: &str, kind: &str| {
        props
            .properties
            .get(field)
            .is_some_and(|below| below.kind == kind)
    };
    is(props, "kind", "string")
        && is(props, "apiVersion", "string")
        && is(props, "metadata", "object")
        && props.properties.get("metadata").is_some_and(|metadata| {
            is(metadata, "name", "string") && is(metadata, "generateName", "string")
        })
}

fn text(props: &JsonSchemaProps, longest: u64) -> (Shape, u64, u64) {
    match props.format.as_str() {
        "byte" => {
            let max = props
                .values
                .max_length
                .map_or(MAX_REQUEST_BYTES - 2, unsigned);
            (Shape::Bytes, 2, max)
        }
        "duration" => (Shape::Duration, MIN_DURATION_BYTES, MAX_TIME_CHARS),
        "date" => (Shape::Date, DATE_BYTES, DATE_BYTES),
        "date-time" => (Shape::DateTime, MIN_TIME_BYTES, MAX_TIME_CHARS),
        _ => {
            let values = props.values.enumeration.values.iter();
            let listed = values
                .filter_map(|value| value.as_str())
                .map(str::len)
                .max();
            let max = match (props.values.max_length, listed) {
                (None, Some(listed)) => u64::try_from(listed).unwrap_or(u64::MAX),
                _ => longest,
            };
            (Shape::String, 2, max)
        }
    }
}
