//! The steps of a path to a field, their order and their spelling in FieldsV1
//! (structured-merge-diff `fieldpath`).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::Number;

use crate::meta::go;
use crate::meta::{Key, Map, Value};

/// One step from a value to a part of it. Names are borrowed from where they were read: the object,
/// the managed fields, the schema.
#[derive(Clone, Debug)]
pub enum PathElement<'a> {
    /// A field of a struct or an entry of a map.
    Field(&'a str),
    /// The item of an associative list whose fields have these values, in order of the fields'
    /// names.
    Key(Arc<[KeyField<'a>]>),
    /// The item of a set.
    Value(Cow<'a, Value>),
    /// The item of a list at this index.
    Index(i64),
}

/// A key field of a list item and its value.
pub type KeyField<'a> = (Cow<'a, str>, Cow<'a, Value>);

/// A path from the root of an object.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldPath<'a>(pub Vec<PathElement<'a>>);

impl<'a> PathElement<'a> {
    /// The element for the list item with these key fields.
    pub fn key(mut fields: Vec<KeyField<'a>>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields.into())
    }

    /// Reads a key of FieldsV1. `Ok(None)` for a kind of element that is not known here, which
    /// readers pass over.
    ///
    /// # Errors
    /// The reason that the key is broken.
    pub fn parse(text: &'a str) -> Result<Option<Self>, String> {
        let &[kind, separator, ..] = text.as_bytes() else {
            return Err("key must be 2 characters long:".to_owned());
        };
        if separator != b':' {
            return Err(format!("missing colon: {text}"));
        }
        let Some(rest) = text.get(2..) else {
            return Ok(None);
        };
        if kind == b'f' {
            Ok(Some(Self::Field(rest)))
        } else {
            PathElement::parse_item(kind, rest)
        }
    }
}

impl PathElement<'static> {
    /// Reads the part after the colon of a key that is not a field name.
    fn parse_item(kind: u8, rest: &str) -> Result<Option<Self>, String> {
        match kind {
            b'v' => {
                let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
                let value = values
                    .next()
                    .ok_or("unexpected end of input")?
                    .map_err(|error| error.to_string())?;
                Ok(Some(Self::Value(Cow::Owned(as_read(value)))))
            }
            b'k' => {
                let fields: Option<Map> =
                    serde_json::from_str(rest).map_err(|error| error.to_string())?;
                let fields = fields.unwrap_or_default().into_iter();
                Ok(Some(Self::key(
                    fields
                        .map(|(name, value)| (Cow::Owned(name.into()), Cow::Owned(as_read(value))))
                        .collect(),
                )))
            }
            b'i' => rest
                .parse()
                .map(|index| Some(Self::Index(index)))
                .map_err(|_| format!("parsing {rest:?}: invalid syntax")),
            _ => Ok(None),
        }
    }

    /// [`PathElement::parse`] of a text that does not last. `None` for the name of a field, which
    /// has to.
    pub fn parse_passing(text: &str) -> Option<Result<Option<Self>, String>> {
        match text.as_bytes() {
            [b'v' | b'k' | b'i', b':', ..] => {
                Some(Self::parse_item(text.as_bytes()[0], &text[2..]))
            }
            _ => None,
        }
    }
}

impl<'a> PathElement<'a> {
    /// The key of FieldsV1 for this element, as [`PathElement::parse`] reads it.
    pub fn to_key(&self) -> String {
        let mut out = String::new();
        self.write_key(&mut out);
        out
    }

    /// Appends the key of FieldsV1 for this element.
    pub fn write_key(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.reserve(name.len() + 2);
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    go::json_string(name, false, out);
                    out.push(':');
                    go::json(value, out);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                go::json(value, out);
            }
            Self::Index(index) => out.push_str(&format!("i:{index}")),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// Numbers in FieldsV1 are read as floats, which shows in messages (`1e+06`) though not in
/// comparisons.
fn as_read(value: Value) -> Value {
    match &value {
        Value::Number(number) => number
            .as_f64()
            .and_then(Number::from_f64)
            .map_or(value, Value::Number),
        _ => value,
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement<'_> {}

fn compare_keys(a: &[KeyField], b: &[KeyField]) -> Ordering {
    let pairs = a.iter().zip(b);
    pairs
        .map(|(a, b)| a.0.cmp(&b.0).then_with(|| compare_values(&a.1, &b.1)))
        .find(|order| order.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// The order of values: numbers (by their value), strings, booleans, lists, maps, null.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b);
            pairs
                .map(|(a, b)| compare_values(a, b))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => compare_maps(a, b),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a
            .as_f64()
            .partial_cmp(&b.as_f64())
            .unwrap_or(Ordering::Equal),
    }
}

fn compare_maps(a: &Map, b: &Map) -> Ordering {
    let ordered = |map: &Map| {
        let mut keys: Vec<Key> = map.keys().cloned().collect();
        keys.sort_unstable();
        keys
    };
    let (left, right) = (ordered(a), ordered(b));
    for (x, y) in left.iter().zip(&right) {
        // A key that only one side has comes first there, which makes that side the greater one.
        let order = y
            .cmp(x)
            .then_with(|| compare_values(&a[x.as_str()], &b[y.as_str()]));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// Reports whether two values are the same: integers and floats by value, maps in any order of
/// their keys.
pub fn equal_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_values(a, b))
        }
        (Value::Object(a), Value::Object(b))
            if a.raw_json().is_some_and(|text| b.raw_json() == Some(text)) =>
        {
            true
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| equal_values(value, other)))
        }
        _ => a == b,
    }
}

impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", readable(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", readable(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A value as conflicts and duplicates show it.
fn readable(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go::sprint_number(number),
        Value::String(text) => go::quote(text),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(readable).collect::<Vec<_>>().join(",")
        ),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| format!("{key}={}", readable(value)))
            .collect(),
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_spelled_as_stored() {
        for (key, shown) in [
            ("f:spec", ".spec"),
            ("f:", "."),
            ("f:a.b/c", ".a.b/c"),
            (
                r#"k:{"containerPort":8080,"protocol":"TCP"}"#,
                r#"[containerPort=8080,protocol="TCP"]"#,
            ),
            (r#"v:"a<b""#, r#"[="a<b"]"#),
            ("v:true", "[=true]"),
            ("v:1000000", "[=1e+06]"),
            ("i:3", "[3]"),
        ] {
            let element = PathElement::parse(key).expect(key).expect(key);
            assert_eq!(element.to_string(), shown);
            let spelled = if key.contains('<') {
                r#"v:"a\u003cb""#
            } else {
                key
            };
            assert_eq!(element.to_key(), spelled);
        }
    }

    #[test]
    fn key_fields_are_put_in_order() {
        let element = PathElement::parse(r#"k:{"protocol":"TCP","port":1}"#)
            .expect("a key")
            .expect("a known kind");
        assert_eq!(element.to_key(), r#"k:{"port":1,"protocol":"TCP"}"#);
    }

    #[test]
    fn broken_keys_are_errors_and_unknown_ones_are_skipped() {
        for (key, want) in [
            ("", Err(())),
            ("f", Err(())),
            ("fx", Err(())),
            ("i:x", Err(())),
            ("v:", Err(())),
            ("k:[]", Err(())),
            ("x:y", Ok(None)),
        ] {
            assert_eq!(PathElement::parse(key).map_err(|_| ()), want, "{key}");
        }
    }

    #[test]
    fn elements_have_an_order() {
        let keys = [
            "f:a",
            "f:b",
            r#"k:{"a":1}"#,
            r#"k:{"a":1,"b":0}"#,
            r#"k:{"a":2}"#,
            r#"k:{"a":"1"}"#,
            r#"k:{"b":0}"#,
            "v:1",
            "v:1.5",
            "v:2",
            r#"v:"1""#,
            "v:true",
            "i:2",
            "i:10",
        ];
        let elements: Vec<_> = keys
            .iter()
            .map(|key| PathElement::parse(key).expect(key).expect(key))
            .collect();
        assert!(elements.is_sorted());
        assert!(elements.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
