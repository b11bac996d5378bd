//! Values: those that expressions make, and those that lie in trees of objects, which are read
//! where they are (cel-go `common/types`, apiserver `cel/common/valuesunstructured.go`).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use jiff::SignedDuration;
use jiff::civil::DateTime;

use super::ast::Literal;
use super::environment::JSON_PATCH;
use super::extension::Extension;
use super::schema::{ListType, Schema};
use super::work;
use crate::meta;

/// The reason an expression has no value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Error {
    /// An error of the evaluation, which `&&` and `||` may absorb.
    Evaluation(String),
    /// The end of what may be spent on the expression.
    CostLimit,
    /// The lack of something that is to be waited for; then the expression is evaluated anew.
    Suspended,
}

impl Error {
    pub fn new(message: impl Into<String>) -> Self {
        Self::Evaluation(message.into())
    }

    /// No function takes arguments of these types.
    pub fn no_such_overload() -> Self {
        Self::new("no such overload")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evaluation(message) => f.write_str(message),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Suspended => f.write_str("operation suspended"),
        }
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// A value. What it borrows are the objects that the expression is about.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// A time in UTC.
    Timestamp(DateTime),
    Duration(SignedDuration),
    List(List<'a>),
    Map(Map<'a>),
    /// A type, by its name.
    Type(Text<'a>),
    Optional(Option<Arc<Value<'a>>>),
    /// A value of a type that only functions know.
    Extension(Arc<dyn Extension>),
    /// An object that the expression made.
    Struct(Arc<Struct<'a>>),
}

/// An object of a type, with the fields that it was made with.
#[derive(Clone, Debug)]
pub struct Struct<'a> {
    pub name: Arc<str>,
    pub fields: IndexMap<Arc<str>, Value<'a>>,
}

impl<'a> Struct<'a> {
    /// The value of a field. What an object to apply was made without is null.
    pub fn get(&self, field: &str) -> Option<Value<'a>> {
        let unset = match (&*self.name, field) {
            (JSON_PATCH, "op" | "path" | "from") => Value::text(""),
            (JSON_PATCH, other) if other != "value" => return None,
            _ => Value::Null,
        };
        Some(self.fields.get(field).cloned().unwrap_or(unset))
    }

    /// Reports whether a field is there. An empty text of an operation is not.
    pub fn has(&self, field: &str) -> bool {
        match self.fields.get(field) {
            Some(Value::String(text)) if &*self.name == JSON_PATCH && field != "value" => {
                !text.as_str().is_empty()
            }
            found => found.is_some(),
        }
    }

    /// Checks the types of fields that are known only now.
    ///
    /// # Errors
    /// One is of another type.
    pub fn check(&self) -> Result<()> {
        if &*self.name != JSON_PATCH {
            return Ok(());
        }
        for field in ["op", "path", "from"] {
            match self.fields.get(field) {
                None | Some(Value::String(_)) => {}
                Some(other) => {
                    return Err(Error::new(format!(
                        "unexpected type {} for JSONPatchType '{field}' field",
                        other.go_value_type()
                    )));
                }
            }
        }
        Ok(())
    }

    fn equals(&self, other: &Struct<'_>) -> bool {
        self.name == other.name
            && self.fields.len() == other.fields.len()
            && self.fields.iter().all(|(name, value)| {
                let other = other.fields.get(name);
                other.is_some_and(|other| value.equals(other))
            })
    }
}

/// A text, of an object or made.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The most items of a list that is made of two: an expression could not look at more of them.
const MAX_LIST_ITEMS: usize = 1 << 20;
/// The longest list that is copied where something is added to it.
const COPIED_ITEMS: usize = 64;

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    Made(Arc<Vec<Value<'a>>>),
    /// A list that has been made of one of a schema.
    Typed(Arc<Vec<Value<'a>>>, &'a Schema),
    /// The items of an array of a schema.
    Tree(&'a [meta::Value], &'a Schema),
    /// A list and what was added to it, neither of them copied: adding costs an expression 1.
    Joined(Arc<JoinedLists<'a>>),
}

/// Two lists that are one.
#[derive(Debug)]
pub struct JoinedLists<'a> {
    first: List<'a>,
    second: List<'a>,
    len: usize,
}

/// A map, or an object with fields.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    Made(Arc<Entries<'a>>),
    /// An object of a schema.
    Tree(&'a meta::Map, &'a Schema),
}

/// The entries of a map in the order in which they were made.
pub type Entries<'a> = IndexMap<Key, (Value<'a>, Value<'a>)>;

/// A key of a map. Numbers of different types that are equal are the same key.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Key {
    Bool(bool),
    Int(i64),
    /// A number that no int is.
    Uint(u64),
    String(Arc<str>),
}

impl Key {
    /// The key that a value is; `None` where values of its type are none, or no key equals it.
    pub fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(number) => Some(Self::Int(*number)),
            Value::Uint(number) => Some(match i64::try_from(*number) {
                Ok(number) => Self::Int(number),
                Err(_) => Self::Uint(*number),
            }),
            Value::Double(number) => double_to_int(*number)
                .map(Self::Int)
                .or_else(|| double_to_uint(*number).map(Self::Uint)),
            Value::String(text) => {
                work::read(text.as_str().len());
                Some(Self::String(text.as_str().into()))
            }
            _ => None,
        }
    }
}

/// The integer that a double is.
pub fn double_to_int(number: f64) -> Option<i64> {
    // Of the doubles, -2^63 is an i64 and 2^63 is none.
    let fits = number.fract() == 0.0
        && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    #[allow(clippy::cast_possible_truncation)] // it has been looked at
    fits.then_some(number as i64)
}

/// The unsigned integer that a double is.
pub fn double_to_uint(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&number);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it has been looked at
    fits.then_some(number as u64)
}

impl<'a> Value<'a> {
    /// A text that has been made.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Made(Arc::new(items)))
    }

    pub fn map(entries: Entries<'a>) -> Self {
        Self::Map(Map::Made(Arc::new(entries)))
    }

    pub fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub fn none() -> Self {
        Self::Optional(None)
    }

    pub fn literal(literal: &Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(value) => Self::Bool(*value),
            Literal::Int(number) => Self::Int(*number),
            Literal::Uint(number) => Self::Uint(*number),
            Literal::Double(number) => Self::Double(*number),
            Literal::String(text) => Self::String(Text::Shared(text.clone())),
            Literal::Bytes(bytes) => Self::Bytes(bytes.clone()),
        }
    }

    /// A scalar as text.
    pub fn shown(&self) -> String {
        super::library::shown(self)
    }

    /// The name of the value's type as `type(x)` is.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => super::types::OPTIONAL,
            Self::Extension(value) => value.type_name(),
            Self::Struct(object) => &object.name,
        }
    }

    /// The Go type of what cel-go makes of the value.
    pub fn go_value_type(&self) -> &'static str {
        match self {
            Self::Null => "structpb.NullValue",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int64",
            Self::Uint(_) => "uint64",
            Self::Double(_) => "float64",
            Self::String(_) => "string",
            Self::Bytes(_) => "[]uint8",
            Self::Timestamp(_) => "time.Time",
            Self::Duration(_) => "time.Duration",
            Self::List(_) => "[]ref.Val",
            Self::Map(_) => "map[ref.Val]ref.Val",
            Self::Type(_) => "string",
            Self::Optional(_) | Self::Extension(_) | Self::Struct(_) => "*types.Err",
        }
    }

    /// Reports whether two values are equal. Numbers of different types may be; values of other
    /// different types are not.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        if !work::take(1) {
            return false;
        }
        match (self, other) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(a), Value::Bool(b)) => a == b,
            (Self::String(a), Value::String(b)) | (Self::Type(a), Value::Type(b)) => {
                a.as_str() == b.as_str()
            }
            (Self::Bytes(a), Value::Bytes(b)) => a == b,
            (Self::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Self::Duration(a), Value::Duration(b)) => a == b,
            (Self::List(a), Value::List(b)) => a.equals(b),
            (Self::Map(a), Value::Map(b)) => a.equals(b),
            (Self::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (None, None) => true,
                _ => false,
            },
            (Self::Extension(a), Value::Extension(b)) => a.equals(b.as_ref()),
            (Self::Struct(a), Value::Struct(b)) => a.equals(b),
            (a, b) => compare_numbers(a, b) == Some(Ordering::Equal),
        }
    }

    /// The result of `==`: as [`equals`](Self::equals), but values of schemas are compared with
    /// nothing but such.
    ///
    /// # Errors
    /// The other value is not to be compared with this one.
    pub fn is_equal(&self, other: &Value<'_>) -> Result<bool> {
        if let (Self::List(list @ List::Tree(_, schema)), Value::List(others)) = (self, other)
            && !schema.is_unknown()
            && *schema.list_type() == ListType::Atomic
        {
            let mut pairs = list.iter().zip(others.iter());
            let agree =
                |all: bool, (a, b): (Result<Value<'a>>, Result<_>)| Ok(all && a?.is_equal(&b?)?);
            return Ok(list.len() == others.len() && pairs.try_fold(true, agree)?);
        }
        let fits = match (self, other) {
            (_, Value::Null) => true,
            (Self::Map(Map::Tree(map, schema)), Value::Map(_)) if !schema.is_unknown() => {
                // The fields that expressions do not see are compared as they lie in an object.
                matches!(other, Value::Map(Map::Tree(_, other)) if !other.is_unknown())
                    || self.size() != other.size()
                    || map.iter().all(|(name, _)| schema.shows(name))
            }
            (Self::Map(Map::Tree(_, schema)), other) if !schema.is_unknown() => {
                matches!(other, Value::Map(_))
            }
            (Self::List(List::Tree(_, schema)), other)
                if !schema.is_unknown() && !matches!(other, Value::List(_)) =>
            {
                false
            }
            // The items of such lists are told apart by their keys, which other items have not.
            (Self::List(List::Tree(list, schema)), Value::List(other))
                if matches!(schema.list_type(), ListType::Map(_)) =>
            {
                list.len() != other.len()
                    || other.iter().all(|item| matches!(item, Ok(Value::Map(_))))
            }
            (Self::Extension(_), Value::Extension(other)) => other.is_comparable(),
            _ => true,
        };
        if fits {
            Ok(self.equals(other))
        } else {
            Err(Error::no_such_overload())
        }
    }

    /// The order of two values.
    ///
    /// # Errors
    /// They have none.
    pub fn compare(&self, other: &Value<'_>) -> Result<Ordering> {
        match (self, other) {
            (Self::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
            (Self::String(a), Value::String(b)) => Ok(a.as_str().cmp(b.as_str())),
            (Self::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
            (Self::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
            (Self::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
            (a, b) if a.is_number() && b.is_number() => {
                compare_numbers(a, b).ok_or_else(|| Error::new("NaN values cannot be ordered"))
            }
            _ => Err(Error::no_such_overload()),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Uint(_) | Self::Double(_))
    }

    /// The number of code points, bytes, items or entries; `None` of what has no size.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => {
                work::read(text.as_str().len());
                Some(text.as_str().chars().count())
            }
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            Self::Extension(value) => value.size(),
            _ => None,
        }
    }

    /// Reports whether the value is what a field has that was never set.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Optional(None) => true,
            Self::Bool(value) => !value,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::Duration(duration) => duration.is_zero(),
            Self::Struct(object) => &*object.name != JSON_PATCH && object.fields.is_empty(),
            Self::Timestamp(_) | Self::Type(_) | Self::Optional(Some(_)) | Self::Extension(_) => {
                false
            }
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => {
                self.size() == Some(0)
            }
        }
    }
}

/// The order of two numbers of any types; `None` where one is not a number.
fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Int(b)) => compare_double(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => compare_double(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => {
            compare_double(*b, i128::from(*a)).map(Ordering::reverse)
        }
        (Value::Uint(a), Value::Double(b)) => {
            compare_double(*b, i128::from(*a)).map(Ordering::reverse)
        }
        _ => None,
    }
}

/// The order of a double and an integer. Large integers are rounded, as cel-go rounds them.
fn compare_double(double: f64, integer: i128) -> Option<Ordering> {
    #[allow(clippy::cast_precision_loss)] // that is what is done
    let integer = integer as f64;
    double.partial_cmp(&integer)
}

impl<'a> List<'a> {
    /// Reports whether the expression made the list.
    pub fn is_made(&self) -> bool {
        !matches!(self, Self::Tree(..))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Made(items) | Self::Typed(items, _) => items.len(),
            Self::Tree(items, _) => items.len(),
            Self::Joined(lists) => lists.len,
        }
    }

    /// An item. In a tree, one that does not fit its schema is an error.
    pub fn get(&self, mut index: usize) -> Option<Result<Value<'a>>> {
        let mut list = self;
        while let Self::Joined(lists) = list {
            list = &lists.first;
            if let Some(beyond) = index.checked_sub(list.len()) {
                (list, index) = (&lists.second, beyond);
            }
        }
        match list {
            Self::Made(items) | Self::Typed(items, _) => items.get(index).cloned().map(Ok),
            Self::Tree(items, schema) => {
                let item = items.get(index)?;
                Some(Value::from_tree(item, schema.item()))
            }
            Self::Joined(_) => None,
        }
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Reports whether an item is equal to a value.
    ///
    /// # Errors
    /// An item does not fit its schema, and no other is equal.
    pub fn contains(&self, value: &Value<'_>) -> Result<bool> {
        let mut failure = None;
        for item in self.iter() {
            match item {
                Ok(item) if item.equals(value) => return Ok(true),
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    /// The schema of the list.
    pub fn schema(&self) -> Option<&'a Schema> {
        match self {
            Self::Made(_) | Self::Joined(_) => None,
            Self::Typed(_, schema) | Self::Tree(_, schema) => Some(schema),
        }
    }

    fn equals(&self, other: &List<'_>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        match self.schema().map(Schema::list_type) {
            Some(ListType::Set | ListType::Map(_)) => super::listmap::equal(self, other),
            _ => self.iter().zip(other.iter()).all(|pair| match pair {
                (Ok(a), Ok(b)) => a.equals(&b),
                _ => false,
            }),
        }
    }

    /// The list with another behind it: in sets and maps what is there already stays where it is.
    ///
    /// # Errors
    /// A failure to evaluate either list.
    pub fn concat(&self, other: &List<'a>) -> Result<List<'a>> {
        if !work::copy(self.len().saturating_add(other.len())) {
            return Err(Error::CostLimit);
        }
        if let Some(schema) = self.schema()
            && *schema.list_type() != ListType::Atomic
        {
            return super::listmap::merged(self, other, schema);
        }
        let len = self.len() + other.len();
        if len > MAX_LIST_ITEMS {
            let why = format!("the result has over {MAX_LIST_ITEMS} items");
            return Err(Error::new(why));
        }
        if len <= COPIED_ITEMS {
            let items: Result<Vec<Value<'a>>> = self.iter().chain(other.iter()).collect();
            return Ok(List::Made(Arc::new(items?)));
        }
        Ok(List::Joined(Arc::new(JoinedLists {
            first: self.clone(),
            second: other.clone(),
            len,
        })))
    }
}

impl<'a> Map<'a> {
    /// Reports whether the expression made the map.
    pub fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Made(entries) => entries.len(),
            Self::Tree(map, _) => map.len(),
        }
    }

    /// The value of a key, or of a field by the name that expressions use; `None` where it is not
    /// there.
    pub fn get(&self, key: &Value<'_>) -> Option<Result<Value<'a>>> {
        match (self, key) {
            (Self::Made(entries), key) => entries
                .get(&Key::of(key)?)
                .map(|(_, value)| Ok(value.clone())),
            (Self::Tree(..), Value::String(name)) => self.field(name.as_str()),
            (Self::Tree(_, schema), _) if schema.is_unknown() => None,
            (Self::Tree(..), _) => Some(Err(Error::no_such_overload())),
        }
    }

    /// The value of a field or of a key that is a text.
    pub fn field(&self, name: &str) -> Option<Result<Value<'a>>> {
        match self {
            Self::Made(entries) => entries
                .get(&Key::String(name.into()))
                .map(|(_, value)| Ok(value.clone())),
            Self::Tree(map, schema) => {
                let (own, of) = schema.field(name)?;
                // A field that is null is not there.
                let value = map.get(own.unwrap_or(name));
                let value = value.filter(|value| own.is_none() || !value.is_null())?;
                Some(Value::from_tree(value, of))
            }
        }
    }

    /// All keys.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            _ if !work::take(self.len()) => Vec::new(),
            Self::Made(entries) => entries.values().map(|(key, _)| key.clone()).collect(),
            Self::Tree(map, schema) => {
                let tree: &'a meta::Map = map;
                let names = tree.iter().filter(|(name, _)| schema.shows(name));
                names
                    .map(|(name, _)| match schema.escaped(name) {
                        Some(escaped) => Value::String(Text::Shared(escaped.into())),
                        None => Value::String(Text::Borrowed(name.as_str())),
                    })
                    .collect()
            }
        }
    }

    fn equals(&self, other: &Map<'_>) -> bool {
        self.len() == other.len()
            && self.hidden_agree(other)
            && self
                .keys()
                .iter()
                .all(|key| match (self.get(key), other.get(key)) {
                    (Some(Ok(a)), Some(Ok(b))) => a.equals(&b),
                    (a, b) => a.is_none() && b.is_none(),
                })
    }

    /// Reports whether the fields that expressions do not see are the same where both have them.
    fn hidden_agree(&self, other: &Map<'_>) -> bool {
        let (Self::Tree(map, schema), Map::Tree(others, _)) = (self, other) else {
            return true;
        };
        let mut hidden = map.iter().filter(|(name, _)| !schema.shows(name));
        hidden.all(|(name, value)| others.get(name).is_none_or(|other| are_same(value, other)))
    }
}

/// Reports whether two trees are the same.
fn are_same(a: &meta::Value, b: &meta::Value) -> bool {
    if !work::take(1) {
        return false;
    }
    match (a, b) {
        (meta::Value::Array(a), meta::Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| are_same(a, b))
        }
        (meta::Value::Object(a), meta::Value::Object(b)) => {
            let mut entries = a.iter();
            a.len() == b.len()
                && entries.all(|(name, a)| b.get(name).is_some_and(|b| are_same(a, b)))
        }
        (a, b) => a == b,
    }
}

impl<'a> Value<'a> {
    /// A value of a tree as its schema shows it.
    ///
    /// # Errors
    /// It does not fit the schema.
    pub fn from_tree(value: &'a meta::Value, schema: &'a Schema) -> Result<Self> {
        schema.value(value)
    }

    /// An object that no schema describes.
    pub fn from_map(map: &'a meta::Map) -> Self {
        Self::Map(Map::Tree(map, Schema::unknown()))
    }

    /// A value of a tree that no schema describes.
    pub fn from_unknown(value: &'a meta::Value) -> Self {
        match value {
            meta::Value::Null => Self::Null,
            meta::Value::Bool(value) => Self::Bool(*value),
            meta::Value::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            meta::Value::String(text) => Self::String(Text::Borrowed(text)),
            meta::Value::Array(items) => Self::List(List::Tree(items, Schema::unknown())),
            meta::Value::Object(map) => Self::from_map(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each expression that doubles a list costs 1, and may not cost the memory of all of it.
    #[test]
    fn joined_lists_share_their_items() {
        let Value::List(mut list) = Value::list((0..60).map(Value::Int).collect()) else {
            panic!("a list")
        };
        for _ in 0..14 {
            list = list.concat(&list).expect("it is not too long");
            assert!(matches!(list, List::Joined(_)));
        }
        assert_eq!(list.len(), 60 << 14);
        for index in [0, 59, 60, 61, 60 << 13, (60 << 14) - 1] {
            let item = list.get(index).and_then(Result::ok);
            let want = i64::try_from(index % 60).expect("a number");
            assert!(
                matches!(item, Some(Value::Int(item)) if item == want),
                "{index}"
            );
        }
        assert!(list.get(60 << 14).is_none());
        assert_eq!(
            list.concat(&list).expect_err("it is too long").to_string(),
            "the result has over 1048576 items"
        );
    }
}
