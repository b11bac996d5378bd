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
    /// A list that has been made of one of a schema. What was added to it may not fit.
    Typed(Arc<Vec<Result<Value<'a>>>>, &'a Schema),
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
    /// A value that nothing finds, by the number of the entry.
    Other(usize),
}

impl Key {
    /// The key of an entry of a map that has so many others: that may be any value.
    pub fn of_entry(value: &Value<'_>, others: usize) -> Self {
        Self::of(value).unwrap_or(Self::Other(others))
    }

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
        self.is_equal(other) == Ok(true)
    }

    /// The result of `==`.
    ///
    /// # Errors
    /// The other value is not to be compared with this one: values of schemas, and those that only
    /// functions know, are compared with nothing but their like.
    pub fn is_equal(&self, other: &Value<'_>) -> Result<bool> {
        match (self, other) {
            (Self::Null, other) | (other, Value::Null) => Ok(matches!(other, Value::Null)),
            _ => self.equals_its_like(other),
        }
    }

    /// The result of comparing the value with another that is to be of its kind.
    fn equals_its_like(&self, other: &Value<'_>) -> Result<bool> {
        if !work::take(1) {
            return Err(Error::CostLimit);
        }
        Ok(match (self, other) {
            (Self::Null, other) => matches!(other, Value::Null),
            (Self::String(a), Value::String(b)) | (Self::Type(a), Value::Type(b)) => {
                a.as_str() == b.as_str()
            }
            (Self::Bool(a), Value::Bool(b)) => a == b,
            (Self::Bytes(a), Value::Bytes(b)) => a == b,
            (Self::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Self::Duration(a), Value::Duration(b)) => a == b,
            (Self::List(a), Value::List(b)) => a.is_equal(b)?,
            (Self::Map(a), Value::Map(b)) => a.is_equal(b)?,
            (Self::List(_) | Self::Map(_), _) if self.is_particular() => {
                return Err(Error::no_such_overload());
            }
            (Self::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.is_equal(b)?,
                (None, None) => true,
                _ => false,
            },
            (Self::Extension(a), Value::Extension(b))
                if a.type_name() == b.type_name() && b.is_comparable() =>
            {
                a.equals(b.as_ref())
            }
            (Self::Extension(_), _) => return Err(Error::no_such_overload()),
            (Self::Struct(a), Value::Struct(b)) => a.equals(b),
            (a, b) => compare_numbers(a, b) == Some(Ordering::Equal),
        })
    }

    /// Reports whether comparing the value with one of another kind is an error.
    fn is_particular(&self) -> bool {
        match self {
            Self::List(list) => list.is_of_schema(),
            Self::Map(map) => map.is_of_schema(),
            Self::Extension(_) => true,
            _ => false,
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
            (Self::Double(a), _) if a.is_nan() => Err(Error::new("NaN values cannot be ordered")),
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
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::Duration(duration) => duration.is_zero(),
            Self::Struct(object) => &*object.name != JSON_PATCH && object.fields.is_empty(),
            Self::Timestamp(_) | Self::Type(_) | Self::Optional(_) | Self::Extension(_) => false,
            // Those of a schema are no zero value to cel-go, however many items they have.
            Self::List(list) if list.is_of_schema() => false,
            Self::Map(map) if map.is_of_schema() => false,
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
            Self::Made(items) => items.len(),
            Self::Typed(items, _) => items.len(),
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
            Self::Made(items) => items.get(index).cloned().map(Ok),
            Self::Typed(items, _) => items.get(index).cloned(),
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
        let of_schema = self.is_of_schema();
        for item in self.iter() {
            let equal = match of_schema {
                true => item.and_then(|item| item.equals_its_like(value)),
                false => item.map(|item| value.equals(&item)),
            };
            match equal {
                Ok(true) => return Ok(true),
                Ok(false) => {}
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

    /// Reports whether a schema says how the list is compared.
    fn is_of_schema(&self) -> bool {
        self.schema().is_some_and(|schema| !schema.is_unknown())
    }

    fn is_equal(&self, other: &List<'_>) -> Result<bool> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if let Some(schema) = self.schema()
            && *schema.list_type() != ListType::Atomic
        {
            return super::listmap::equal(self, other, schema);
        }
        for (a, b) in self.iter().zip(other.iter()) {
            if !agree(a, b, self.is_of_schema())? {
                return Ok(false);
            }
        }
        Ok(true)
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
        match (self.len(), other.len()) {
            (0, _) if !self.is_of_schema() => return Ok(other.clone()),
            (_, 0) => return Ok(self.clone()),
            _ => {}
        }
        let len = self.len() + other.len();
        if len > MAX_LIST_ITEMS {
            let why = format!("the result has over {MAX_LIST_ITEMS} items");
            return Err(Error::new(why));
        }
        if let Some(schema) = self.schema().filter(|_| self.is_of_schema()) {
            // What is added to a list of a schema is to be of that schema, too.
            let added = other.iter().map(|item| schema.item().fitting(item?));
            return Ok(List::Typed(
                Arc::new(self.iter().chain(added).collect()),
                schema,
            ));
        }
        if len <= COPIED_ITEMS {
            let items: Result<Vec<Value<'a>>> = self.iter().chain(other.iter()).collect();
            let items = List::Made(Arc::new(items?));
            return Ok(List::joined(items, List::Made(Arc::default()), len));
        }
        Ok(List::joined(self.clone(), other.clone(), len))
    }

    fn joined(first: List<'a>, second: List<'a>, len: usize) -> Self {
        List::Joined(Arc::new(JoinedLists { first, second, len }))
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

    /// All keys with their values.
    pub fn entries(&self) -> Vec<(Value<'a>, Result<Value<'a>>)> {
        match self {
            _ if !work::take(self.len()) => Vec::new(),
            Self::Made(entries) => {
                let entries = entries.values().cloned();
                entries.map(|(key, value)| (key, Ok(value))).collect()
            }
            Self::Tree(map, schema) => {
                let tree: &'a meta::Map = map;
                let shown = tree.iter().filter(|(name, _)| schema.shows(name));
                let key = |name: &'a str| match schema.escaped(name) {
                    Some(escaped) => Value::String(Text::Shared(escaped.into())),
                    None => Value::String(Text::Borrowed(name)),
                };
                let found = |key: Value<'a>| {
                    let value = self.get(&key);
                    (key, value.unwrap_or_else(|| Err(Error::new("no such key"))))
                };
                shown.map(|(name, _)| found(key(name.as_str()))).collect()
            }
        }
    }

    /// Reports whether a schema says how the map is compared.
    fn is_of_schema(&self) -> bool {
        matches!(self, Self::Tree(_, schema) if !schema.is_unknown())
    }

    fn is_equal(&self, other: &Map<'_>) -> Result<bool> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if let Self::Tree(map, schema) = self
            && self.is_of_schema()
            && !other.is_of_schema()
            && map.iter().any(|(name, _)| !schema.shows(name))
        {
            // The fields that expressions do not see are compared as they lie in an object.
            return Err(Error::no_such_overload());
        }
        if !self.hidden_agree(other) {
            return Ok(false);
        }
        for (key, value) in self.entries() {
            // A field that is null is not there.
            let is_there = matches!(self, Self::Made(_)) || self.get(&key).is_some();
            let agree = match (is_there, other.get(&key)) {
                (true, Some(found)) => agree(value, found, self.is_of_schema())?,
                (is_there, found) => is_there == found.is_some(),
            };
            if !agree {
                return Ok(false);
            }
        }
        Ok(true)
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

/// Reports whether a pair within lists or maps is equal. Two that cannot be compared do not tell
/// the lists or maps apart, unless those are of a schema.
fn agree(a: Result<Value<'_>>, b: Result<Value<'_>>, of_schema: bool) -> Result<bool> {
    if let (Ok(a), Err(Error::Evaluation(_)), false) = (&a, &b, of_schema) {
        return Ok(a.is_particular());
    }
    let equal = a.and_then(|a| match of_schema {
        true => a.equals_its_like(&b?),
        false => a.is_equal(&b?),
    });
    match equal {
        Err(Error::Evaluation(_)) if !of_schema => Ok(true),
        other => other,
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
