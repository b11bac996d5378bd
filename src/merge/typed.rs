//! Values under the topology of their type: the fields that an object sets, comparison, and removal
//! of items (structured-merge-diff `typed`).

use std::borrow::Cow;
use std::fmt;

use crate::meta::{Key, Value};

use super::path::{PathElement, equal_values};
use super::set::{Node, Set};
use super::topology::{List, Map, Scalar, Shape, Ty};
use crate::meta::go;
use crate::schema::ListType;

/// A value that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    /// The path, such as `.spec.ports`; empty for the root.
    pub path: String,
    pub message: String,
}

/// Everything in a value that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TypeErrors(pub Vec<TypeError>);

impl TypeErrors {
    pub fn one(message: impl Into<String>) -> Self {
        Self(vec![TypeError {
            path: String::new(),
            message: message.into(),
        }])
    }

    /// The errors as seen from a step further up.
    #[must_use]
    pub fn below(mut self, element: &PathElement) -> Self {
        for error in &mut self.0 {
            error.path.insert_str(0, &element.to_string());
        }
        self
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.path, self.message)
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|error| write!(f, "\n  {error}"))
            }
        }
    }
}

impl std::error::Error for TypeErrors {}

type Result<T> = std::result::Result<T, TypeErrors>;

/// The form in which `ty` takes `value`.
pub(super) fn shape<'s>(ty: Option<Ty<'s>>, value: Option<&Value>) -> Result<Shape<'s>> {
    ty.and_then(|ty| ty.atom().deduce(value).shape())
        .ok_or_else(unknown_field)
}

pub(super) fn unknown_field() -> TypeErrors {
    TypeErrors::one("schema error: invalid atom: inlined")
}

/// The path element that distinguishes `item` from the other items of an associative list.
///
/// # Errors
/// It has none: the list is atomic, or a key is missing.
pub fn list_element<'a>(
    list: &List<'a>,
    item: &'a Value,
) -> std::result::Result<PathElement<'a>, String> {
    match list.relation {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Map(keys) => keyed_element(list, keys, item),
        ListType::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => Err(
                "associative list without keys has an element that's an explicit null".to_owned(),
            ),
            scalar => Ok(PathElement::Value(Cow::Borrowed(scalar))),
        },
    }
}

fn keyed_element<'a>(
    list: &List<'a>,
    keys: &'a [String],
    item: &'a Value,
) -> std::result::Result<PathElement<'a>, String> {
    let item = match item {
        Value::Object(item) => item,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut fields = Vec::with_capacity(keys.len());
    for key in keys {
        let default = || list.element.atom().map.and_then(|map| map.key_default(key));
        if let Some(value) = item.get(key).or_else(default) {
            fields.push((Cow::Borrowed(key.as_str()), Cow::Borrowed(value)));
        }
    }
    if fields.is_empty() && !keys.is_empty() {
        let quoted: Vec<String> = keys.iter().map(|key| crate::meta::go::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            quoted.join(" ")
        ));
    }
    Ok(PathElement::key(fields))
}

/// Reports whether a scalar fits its type. Absent and null fit all.
pub(super) fn check_scalar(scalar: Scalar, value: Option<&Value>, prefix: &str) -> Result<()> {
    let error = |what: String| Err(TypeErrors::one(format!("{prefix}{what}")));
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(());
    };
    match scalar {
        Scalar::Numeric if !value.is_number() => error(format!(
            "expected numeric (int or float), got {}",
            go::type_name(value)
        )),
        Scalar::String if !value.is_string() => error(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go::syntax(value)
        )),
        Scalar::Boolean if !value.is_boolean() => {
            error(format!("expected boolean, got &{{{}}}", go::sprint(value)))
        }
        Scalar::Untyped if value.is_array() || value.is_object() => error(format!(
            "expected any scalar, got &{{{}}}",
            go::sprint(value)
        )),
        _ => Ok(()),
    }
}

/// The fields that an object sets.
///
/// # Errors
/// The place where the object does not fit its type.
pub fn field_set_of_map<'a>(ty: Ty<'a>, object: &'a crate::meta::Map) -> Result<Set<'a>> {
    let Some(map) = ty.atom().map else {
        return Err(unknown_field());
    };
    map_fields(&map, object)
}

/// Reports whether the value itself is a field (a leaf), and the fields below it.
fn fields_of<'a>(ty: Option<Ty<'a>>, value: &'a Value) -> Result<(bool, Set<'a>)> {
    const LEAF: (bool, Set) = (true, Set::EMPTY);
    match shape(ty, Some(value))? {
        Shape::Scalar(_) => Ok(LEAF),
        Shape::List(list) if list.atomic() => Ok(LEAF),
        Shape::Map(map) if map.atomic => Ok(LEAF),
        Shape::List(list) => Ok((
            false,
            value
                .as_array()
                .map(|items| list_fields(&list, items))
                .transpose()?
                .unwrap_or_default(),
        )),
        Shape::Map(map) => Ok((
            false,
            value
                .as_object()
                .map(|entries| map_fields(&map, entries))
                .transpose()?
                .unwrap_or_default(),
        )),
    }
}

fn map_fields<'a>(map: &Map<'a>, entries: &'a crate::meta::Map) -> Result<Set<'a>> {
    let mut nodes = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let declared = map.declared(name);
        let (leaf, children) = fields_of(declared.or(map.element), value)?;
        let empty = value.is_null() || value.as_object().is_some_and(crate::meta::Map::is_empty);
        let member = leaf || empty || declared.is_none();
        nodes.push(Node {
            element: PathElement::Field(name),
            member,
            children,
        });
    }
    Ok(Set::from_nodes(nodes))
}

/// The items of an associative list as fields. Items that are there more than once count as one,
/// whatever is in them.
fn list_fields<'a>(list: &List<'a>, items: &'a [Value]) -> Result<Set<'a>> {
    let items = index_items(list, items)?;
    let mut nodes = Vec::with_capacity(items.len());
    for same in items.chunk_by(|a, b| a.0 == b.0) {
        let (element, item) = &same[0];
        let children = if same.len() > 1 {
            Set::default()
        } else {
            fields_of(Some(list.element), item)?.1
        };
        nodes.push(Node {
            element: element.clone(),
            member: true,
            children,
        });
    }
    Ok(Set::from_nodes(nodes))
}

/// The items of an associative list in order of their elements; those with the same in their order
/// in the list.
fn index_items<'a>(
    list: &List<'a>,
    items: &'a [Value],
) -> Result<Vec<(PathElement<'a>, &'a Value)>> {
    let mut indexed = Vec::with_capacity(items.len());
    let mut errors = TypeErrors::default();
    for (index, item) in items.iter().enumerate() {
        match list_element(list, item) {
            Ok(element) => indexed.push((element, item)),
            Err(error) => errors.0.push(TypeError {
                path: String::new(),
                message: format!("element {index}: {error}"),
            }),
        }
    }
    if !errors.0.is_empty() {
        return Err(errors);
    }
    indexed.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(indexed)
}

/// The fields that differ in the second of two values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison<'a> {
    /// In the second only.
    pub added: Set<'a>,
    /// In both, with another value.
    pub modified: Set<'a>,
    /// In the first only.
    pub removed: Set<'a>,
}

impl<'a> Comparison<'a> {
    /// Puts each of the three sets through `filter`.
    #[must_use]
    pub fn filtered(self, filter: impl Fn(Set<'a>) -> Set<'a>) -> Self {
        Self {
            added: filter(self.added),
            modified: filter(self.modified),
            removed: filter(self.removed),
        }
    }
}

/// Compares two maps as values of `ty`, for callers that hold no [`Value`].
///
/// # Errors
/// A value that does not fit its type.
pub fn compare_maps<'a>(
    ty: Ty<'a>,
    old: &'a crate::meta::Map,
    new: &'a crate::meta::Map,
) -> Result<Comparison<'a>> {
    let Some(map) = ty.atom().map else {
        return Err(unknown_field());
    };
    let mut below = ComparisonSets::default();
    compare_entries(&map, Some(old), Some(new), &mut below)?;
    Ok(below.finish())
}

/// The kind of difference between two values themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

/// The difference at a value and below it.
struct Found<'a> {
    itself: [Change; 2],
    below: ComparisonSets<'a>,
}

/// The three sets of a [`Comparison`] in the making, at one level.
#[derive(Default)]
struct ComparisonSets<'a> {
    added: Vec<Node<'a>>,
    modified: Vec<Node<'a>>,
    removed: Vec<Node<'a>>,
}

impl<'a> ComparisonSets<'a> {
    fn finish(self) -> Comparison<'a> {
        Comparison {
            added: Set::from_nodes(self.added),
            modified: Set::from_nodes(self.modified),
            removed: Set::from_nodes(self.removed),
        }
    }

    /// Takes in what was found at `element`.
    fn take(&mut self, element: &PathElement<'a>, found: Found<'a>) {
        let below = found.below.finish();
        let all = [
            (&mut self.added, Change::Added, below.added),
            (&mut self.modified, Change::Modified, below.modified),
            (&mut self.removed, Change::Removed, below.removed),
        ];
        for (nodes, change, children) in all {
            let member = found.itself.contains(&change);
            if member || !children.is_empty() {
                nodes.push(Node {
                    element: element.clone(),
                    member,
                    children,
                });
            }
        }
    }

    fn mark(nodes: &mut Vec<Node<'a>>, element: &PathElement<'a>) {
        match nodes.last_mut().filter(|last| last.element == *element) {
            Some(last) => last.member = true,
            None => nodes.push(Node {
                element: element.clone(),
                member: true,
                children: Set::default(),
            }),
        }
    }
}

fn leaf_change(old: Option<&Value>, new: Option<&Value>) -> Change {
    match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        (Some(old), Some(new)) if equal_values(old, new) => Change::None,
        _ => Change::Modified,
    }
}

/// Compares at least one value. Where the two take different forms, each is compared in its own.
fn compare_below<'a>(
    ty: Option<Ty<'a>>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Result<Found<'a>> {
    let mut found = Found {
        itself: [Change::None; 2],
        below: ComparisonSets::default(),
    };
    let atom = ty.ok_or_else(unknown_field)?.atom();
    let (before, after) = (atom.deduce(old), atom.deduce(new));
    let forms_differ = old.is_some() && new.is_some() && !before.same_forms(&after);
    if forms_differ {
        let shape = before.shape().ok_or_else(unknown_field)?;
        found.itself[1] = compare_shape(shape, old, new, &mut found.below)?.unwrap_or(Change::None);
    }
    let shape = if new.is_none() {
        before.shape()
    } else {
        after.shape()
    };
    let leaf = compare_shape(shape.ok_or_else(unknown_field)?, old, new, &mut found.below)?;
    found.itself[0] = leaf.unwrap_or(match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::None,
    });
    Ok(found)
}

/// Compares in one form; `Some` where it is a leaf.
fn compare_shape<'a>(
    shape: Shape<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    below: &mut ComparisonSets<'a>,
) -> Result<Option<Change>> {
    let leaf = || Ok(Some(leaf_change(old, new)));
    match shape {
        Shape::Scalar(scalar) => {
            if let (Err(mut errors), Err(more)) = (
                check_scalar(scalar, old, "lhs: "),
                check_scalar(scalar, new, "rhs: "),
            ) {
                errors.0.extend(more.0);
                return Err(errors);
            }
            leaf()
        }
        Shape::List(list) => {
            let (old, new) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            // Empty lists are leaves, which tells them from null.
            if list.atomic() || (old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty)) {
                return leaf();
            }
            compare_items(
                &list,
                old.map_or(&[], Vec::as_slice),
                new.map_or(&[], Vec::as_slice),
                below,
            )
            .map(|()| None)
        }
        Shape::Map(map) => {
            let (old, new) = (
                old.and_then(Value::as_object),
                new.and_then(Value::as_object),
            );
            if map.atomic
                || (old.is_none_or(crate::meta::Map::is_empty)
                    && new.is_none_or(crate::meta::Map::is_empty))
            {
                return leaf();
            }
            compare_entries(&map, old, new, below).map(|()| None)
        }
    }
}

fn compare_entries<'a>(
    map: &Map<'a>,
    old: Option<&'a crate::meta::Map>,
    new: Option<&'a crate::meta::Map>,
    below: &mut ComparisonSets<'a>,
) -> Result<()> {
    let mut entry = |name: &'a Key, old: Option<&'a Value>, new: Option<&'a Value>| {
        let element = PathElement::Field(name);
        let found =
            compare_below(map.type_of(name), old, new).map_err(|errors| errors.below(&element))?;
        below.take(&element, found);
        Ok(())
    };
    let mut matched = 0;
    // Both are nearly always in the same order, so the next entry of the other is tried before it
    // is looked up.
    let mut ahead = new.into_iter().flatten().peekable();
    for (name, value) in old.into_iter().flatten() {
        let same = ahead
            .next_if(|(other, _)| *other == name)
            .map(|(_, value)| value);
        let other = same.or_else(|| new.and_then(|new| new.get(name)));
        matched += usize::from(other.is_some());
        entry(name, Some(value), other)?;
    }
    if new.is_some_and(|new| new.len() > matched) {
        for (name, value) in new
            .into_iter()
            .flatten()
            .filter(|(name, _)| old.is_none_or(|old| !old.contains_key(name)))
        {
            entry(name, None, Some(value))?;
        }
    }
    Ok(())
}

fn compare_items<'a>(
    list: &List<'a>,
    old: &'a [Value],
    new: &'a [Value],
    below: &mut ComparisonSets<'a>,
) -> Result<()> {
    let (old, new) = (index_items(list, old)?, index_items(list, new)?);
    let mut olds = old.chunk_by(|a, b| a.0 == b.0).peekable();
    let mut news = new.chunk_by(|a, b| a.0 == b.0).peekable();
    loop {
        let (old, new): (&[_], &[_]) = match (olds.peek(), news.peek()) {
            (None, None) => return Ok(()),
            (Some(a), Some(b)) if a[0].0 == b[0].0 => (
                olds.next().unwrap_or_default(),
                news.next().unwrap_or_default(),
            ),
            (Some(a), Some(b)) if a[0].0 > b[0].0 => (&[], news.next().unwrap_or_default()),
            (None, _) => (&[], news.next().unwrap_or_default()),
            _ => (olds.next().unwrap_or_default(), &[]),
        };
        compare_same_items(list, old, new, below)?;
    }
}

/// Compares the items that have one element. Where there is more than one on a side, they count as
/// one leaf there.
fn compare_same_items<'a>(
    list: &List<'a>,
    old: &[(PathElement<'a>, &'a Value)],
    new: &[(PathElement<'a>, &'a Value)],
    below: &mut ComparisonSets<'a>,
) -> Result<()> {
    let Some((element, _)) = old.first().or(new.first()) else {
        return Ok(());
    };
    let item = |same: &[(PathElement<'a>, &'a Value)]| same.first().map(|(_, value)| *value);
    let mut compare = |old, new| {
        let found =
            compare_below(Some(list.element), old, new).map_err(|errors| errors.below(element))?;
        below.take(element, found);
        Ok(())
    };
    match (old.len(), new.len()) {
        (0 | 1, 0 | 1) => compare(item(old), item(new))?,
        (2.., 2..) => {
            let same =
                old.len() == new.len() && old.iter().zip(new).all(|(a, b)| equal_values(a.1, b.1));
            if !same {
                ComparisonSets::mark(&mut below.modified, element);
            }
        }
        (2.., _) => {
            if !new.is_empty() {
                compare(None, item(new))?;
            }
            ComparisonSets::mark(&mut below.removed, element);
        }
        _ => {
            if !old.is_empty() {
                compare(item(old), None)?;
            }
            ComparisonSets::mark(&mut below.added, element);
        }
    }
    Ok(())
}

/// Takes the fields of `items` out of `value`, and all that is below them. Containers stay, empty
/// where all went; one that is owned whole is emptied when something below it is named.
pub fn remove_items(ty: Option<Ty<'_>>, value: &mut Value, items: &Set) {
    let Ok(shape) = shape(ty, Some(value)) else {
        return empty(value);
    };
    match shape {
        Shape::Scalar(_) => {}
        Shape::List(list) => match value {
            Value::Array(values) if !list.atomic() => {
                values.retain_mut(|item| keep_item(&list, item, items))
            }
            _ => empty(value),
        },
        Shape::Map(map) => match value {
            Value::Object(entries) if !map.atomic => remove_entries(&map, entries, items),
            _ => empty(value),
        },
    }
}

fn keep_item(list: &List, item: &mut Value, items: &Set) -> bool {
    let Ok(element) = list_element(list, item) else {
        return true;
    };
    let Some(node) = items.get(&element) else {
        return true;
    };
    if !node.member {
        remove_items(Some(list.element), item, &node.children);
    }
    !node.member
}

/// Takes the fields of `items` out of a map; see [`remove_items`].
pub fn remove_entries(map: &Map, entries: &mut crate::meta::Map, items: &Set) {
    if items.is_empty() {
        return;
    }
    entries.retain(|name, value| {
        let Some(node) = items.get(&PathElement::Field(name)) else {
            return true;
        };
        if !node.member {
            remove_items(map.type_of(name), value, &node.children);
        }
        !node.member
    });
}

fn empty(value: &mut Value) {
    match value {
        Value::Array(items) => items.clear(),
        Value::Object(entries) => entries.clear(),
        other => *other = Value::Null,
    }
}
