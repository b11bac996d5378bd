//! Schemas of objects, as expressions see them: the types of fields, how values are read, and how
//! large they can become (apiserver `cel/common/schemas.go`, `cel/types.go`).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indexmap::IndexMap;
use jiff::civil::{Date, Time};

use super::types::Type;
use super::value::{Error, List, Map, Result, Text, Value};
use crate::meta;

/// The largest request in bytes, which bounds what has no bound of its own.
pub const MAX_REQUEST_BYTES: u64 = 3 << 20;

/// The kind of a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListType {
    Atomic,
    /// Items that are there once; their order is none.
    Set,
    /// Objects that are known by some of their fields.
    Map(Vec<String>),
}

/// A schema.
#[derive(Debug)]
pub struct Schema {
    pub shape: Shape,
    pub nullable: bool,
    /// The maximum number of elements of a list or map, or the longest text.
    pub max_elements: u64,
    /// The longest key of a map; 0 where nothing is known of it.
    pub max_key: u64,
    /// The least bytes that a value takes as JSON.
    pub min_bytes: u64,
}

/// The form of values.
#[derive(Debug)]
pub enum Shape {
    /// Anything, read as the JSON that it is.
    Unknown,
    /// Anything, not seen by expressions; lists and objects that hold it are compared by it.
    Hidden,
    /// A value of a type that only functions or nobody knows, read as the JSON that it is.
    Typed(Type),
    IntOrString,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Date,
    DateTime,
    Duration,
    List(Arc<Schema>, ListType),
    Map(Arc<Schema>),
    Object(Object),
}

/// The fields of an object.
#[derive(Debug, Default)]
pub struct Object {
    /// The name of its type, which no other has.
    pub name: Arc<str>,
    /// The fields by the names that expressions use.
    pub fields: IndexMap<Box<str>, Field>,
    /// The names of expressions that are not the fields' own, by these.
    pub escaped: IndexMap<Box<str>, Box<str>>,
}

/// A field.
#[derive(Debug)]
pub struct Field {
    pub name: Box<str>,
    pub schema: Arc<Schema>,
}

impl Object {
    /// Adds a field by the name that expressions use.
    pub fn add(&mut self, field: Field, escaped: &str) {
        if *field.name != *escaped {
            self.escaped.insert(field.name.clone(), escaped.into());
        }
        self.fields.insert(escaped.into(), field);
    }
}

const NO_INT_OR_STRING: &str =
    "invalid data, expected XIntOrString value to be either a string or integer";
const NO_ARRAY: &str = "invalid data, expected an array for the provided schema with type=array";
const NO_MAP: &str = "invalid data, expected a map for the provided schema with type=object";

static UNKNOWN: Schema = Schema::of(Shape::Unknown, 1);

impl Schema {
    /// A schema of values that take at least so many bytes.
    pub const fn of(shape: Shape, min_bytes: u64) -> Self {
        Self {
            shape,
            nullable: false,
            max_elements: MAX_REQUEST_BYTES,
            max_key: 0,
            min_bytes,
        }
    }

    /// The schema of texts of which nothing is known.
    pub fn text() -> Arc<Self> {
        Arc::new(Self::of(Shape::String, 1))
    }

    /// The schema of lists of which nothing is known but their items.
    pub fn list(item: Arc<Self>) -> Arc<Self> {
        Arc::new(Self::of(Shape::List(item, ListType::Atomic), 1))
    }

    /// The schema of maps of which nothing is known but their values.
    pub fn map(value: Arc<Self>) -> Arc<Self> {
        Arc::new(Self::of(Shape::Map(value), 1))
    }

    /// The schema of objects of a type with fields.
    pub fn object<'n>(
        name: &str,
        fields: impl IntoIterator<Item = (&'n str, Arc<Self>)>,
    ) -> Arc<Self> {
        let mut object = Object {
            name: name.into(),
            ..Object::default()
        };
        for (name, schema) in fields {
            let field = Field {
                name: name.into(),
                schema,
            };
            object.add(field, name);
        }
        Arc::new(Self::of(Shape::Object(object), 1))
    }

    /// The schema of what no schema describes.
    pub fn unknown() -> &'static Self {
        &UNKNOWN
    }

    /// The type that expressions see; `None` where they do not see it.
    pub fn ty(&self) -> Option<Type> {
        Some(match &self.shape {
            Shape::Hidden => return None,
            Shape::Typed(ty) => ty.clone(),
            Shape::Unknown | Shape::IntOrString => Type::Dyn,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::Duration => Type::Duration,
            Shape::List(item, _) => Type::list(item.ty()?),
            Shape::Map(value) => Type::map(Type::String, value.ty()?),
            Shape::Object(object) => Type::Struct(object.name.clone()),
        })
    }

    /// Reports whether values are read as the JSON that they are.
    pub fn is_unknown(&self) -> bool {
        matches!(self.shape, Shape::Unknown | Shape::Hidden)
    }

    /// The schema of the items of a list.
    pub fn item(&self) -> &Self {
        match &self.shape {
            Shape::List(item, _) => item,
            _ => Self::unknown(),
        }
    }

    pub fn list_type(&self) -> &ListType {
        match &self.shape {
            Shape::List(_, kind) => kind,
            _ => &ListType::Atomic,
        }
    }

    /// The schema of a field by the name that expressions use, and the field's own name where it is
    /// another.
    pub fn field(&self, name: &str) -> Option<(Option<&str>, &Self)> {
        match &self.shape {
            Shape::Object(object) => {
                let field = object.fields.get(name)?;
                Some((Some(&*field.name), &*field.schema))
            }
            Shape::Map(value) => Some((None, value)),
            _ => Some((None, Self::unknown())),
        }
    }

    /// The schema of a field that expressions see.
    pub fn declared_field(&self, name: &str) -> Option<&Self> {
        match &self.shape {
            Shape::Object(object) => {
                let schema = &object.fields.get(name)?.schema;
                schema.ty().map(|_| &**schema)
            }
            _ => None,
        }
    }

    /// The schema of the items of a list or the values of a map.
    pub fn element(&self) -> Option<&Self> {
        match &self.shape {
            Shape::List(element, _) | Shape::Map(element) => Some(element),
            _ => None,
        }
    }

    /// Reports whether values are of a type that nobody knows.
    pub fn is_any(&self) -> bool {
        matches!(self.shape, Shape::Typed(Type::Any))
    }

    /// Reports whether a key of an object is seen.
    pub fn shows(&self, name: &str) -> bool {
        match &self.shape {
            Shape::Object(object) => {
                object.fields.contains_key(name) || object.escaped.contains_key(name)
            }
            _ => true,
        }
    }

    /// The name that expressions use for a field, where it is not the field's own.
    pub fn escaped(&self, name: &str) -> Option<&str> {
        match &self.shape {
            Shape::Object(object) => object.escaped.get(name).map(|escaped| &**escaped),
            _ => None,
        }
    }

    /// A value of a tree as the schema shows it.
    ///
    /// # Errors
    /// It does not fit.
    pub fn value<'a>(&'a self, value: &'a meta::Value) -> Result<Value<'a>> {
        use meta::Value as Json;
        let invalid = |wanted: &str| {
            let message = format!("invalid data, expected {wanted}, got {}", go_type(value));
            Err(Error::new(message))
        };
        Ok(match (&self.shape, value) {
            (Shape::Unknown | Shape::Hidden | Shape::Typed(_), value) => Value::from_unknown(value),
            (_, Json::Null) if self.nullable => Value::Null,
            (_, Json::Null) => {
                let message = "invalid data, got null for schema with nullable=false";
                return Err(Error::new(message));
            }
            (Shape::IntOrString | Shape::String, Json::String(text)) => {
                Value::String(Text::Borrowed(text))
            }
            (Shape::IntOrString | Shape::Int, Json::Number(number)) if number.is_i64() => {
                Value::Int(number.as_i64().unwrap_or_default())
            }
            (Shape::IntOrString, _) => return Err(Error::new(NO_INT_OR_STRING)),
            (Shape::Bool, Json::Bool(value)) => Value::Bool(*value),
            (Shape::Double, Json::Number(number)) => {
                Value::Double(number.as_f64().unwrap_or(f64::NAN))
            }
            (Shape::List(..), Json::Array(items)) => Value::List(List::Tree(items, self)),
            (Shape::Map(_) | Shape::Object(_), Json::Object(map)) => {
                Value::Map(Map::Tree(map, self))
            }
            (
                Shape::Bytes | Shape::Date | Shape::DateTime | Shape::Duration,
                Json::String(text),
            ) => {
                return self.formatted(text);
            }
            (Shape::Bool, _) => return invalid("bool"),
            (Shape::Int, _) => return invalid("int"),
            (Shape::Double, _) => return invalid("float"),
            (Shape::List(..), _) => return Err(Error::new(NO_ARRAY)),
            (Shape::Map(_) | Shape::Object(_), _) => return Err(Error::new(NO_MAP)),
            _ => return invalid("string"),
        })
    }

    /// A value that an expression adds to a list whose items have the schema: it is taken for one
    /// of an object, in which a time is a text (apiserver `cel/common/valuesunstructured.go`,
    /// `Add`).
    ///
    /// # Errors
    /// It does not fit.
    pub fn fitting<'a>(&self, value: Value<'a>) -> Result<Value<'a>> {
        let wanted = match (&self.shape, &value) {
            (Shape::Double, Value::Int(number)) => return Ok(Value::Double(*number as f64)),
            (
                Shape::Bytes | Shape::Date | Shape::DateTime | Shape::Duration,
                Value::String(text),
            ) => return self.formatted(text.as_str()),
            (Shape::Bool, Value::Bool(_))
            | (Shape::Int, Value::Int(_))
            | (Shape::Double, Value::Double(_))
            | (Shape::String, Value::String(_))
            | (Shape::IntOrString, Value::Int(_) | Value::String(_))
            | (Shape::List(..), Value::List(_))
            | (Shape::Map(_) | Shape::Object(_), Value::Map(_))
            | (Shape::Unknown | Shape::Hidden | Shape::Typed(_), _) => return Ok(value),
            (Shape::Bool, _) => "bool",
            (Shape::Int, _) => "int",
            (Shape::Double, _) => "float",
            (Shape::IntOrString, _) => return Err(Error::new(NO_INT_OR_STRING)),
            (Shape::List(..), _) => return Err(Error::new(NO_ARRAY)),
            (Shape::Map(_) | Shape::Object(_), _) => return Err(Error::new(NO_MAP)),
            _ => "string",
        };
        let got = value.go_value_type();
        Err(Error::new(format!(
            "invalid data, expected {wanted}, got {got}"
        )))
    }

    /// The value that a text of a format stands for.
    fn formatted<'a>(&self, text: &str) -> Result<Value<'a>> {
        let invalid =
            |what: &str, why: String| Err(Error::new(format!("Invalid {what} {text}: {why}")));
        match &self.shape {
            Shape::Bytes => match STANDARD.decode(text) {
                Ok(bytes) => Ok(Value::Bytes(bytes.into())),
                Err(why) => invalid("byte formatted string", why.to_string()),
            },
            Shape::Date => match text.parse::<Date>() {
                Ok(date) => Ok(Value::Timestamp(date.to_datetime(Time::midnight()))),
                Err(why) => invalid("date formatted string", why.to_string()),
            },
            Shape::DateTime => match super::time::parse_timestamp(text) {
                Some(at) => Ok(Value::Timestamp(at)),
                None => invalid("date-time formatted string", "no date-time".to_owned()),
            },
            _ => match super::time::parse_duration(text) {
                Some(duration) => Ok(Value::Duration(duration)),
                None => invalid("duration", format!("time: invalid duration {text:?}")),
            },
        }
    }
}

/// The Go type that JSON of a kind is decoded to.
fn go_type(value: &meta::Value) -> &'static str {
    match value {
        meta::Value::Null => "<nil>",
        meta::Value::Bool(_) => "bool",
        meta::Value::Number(number) if number.is_i64() => "int64",
        meta::Value::Number(_) => "float64",
        meta::Value::String(_) => "string",
        meta::Value::Array(_) => "[]interface {}",
        meta::Value::Object(_) => "map[string]interface {}",
    }
}
