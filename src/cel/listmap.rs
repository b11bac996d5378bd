//! Lists that are sets or maps by what their schemas say: their order is none, and what is added
//! takes the place of what is there (apiserver `cel/common/maplist.go`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::schema::{ListType, Schema};
use super::value::{Key, List, Map, Result, Value};

/// The identity of an item: its value, or those of its keys.
fn keys(item: &Value<'_>, kind: &ListType) -> Vec<Option<Key>> {
    match (kind, item) {
        (ListType::Map(fields), Value::Map(map)) => fields
            .iter()
            .map(|field| Key::of(&map.field(field)?.ok()?))
            .collect(),
        (_, item) => vec![Key::of(item)],
    }
}

/// Reports whether two lists have equal items, in any order.
///
/// # Errors
/// An item does not fit its schema, or is not to be compared with the other.
pub fn equal(list: &List<'_>, other: &List<'_>, schema: &Schema) -> Result<bool> {
    let kind = schema.list_type();
    let mut known = HashMap::new();
    for item in list.iter() {
        let item = item?;
        known.insert(keys(&item, kind), item);
    }
    for item in other.iter() {
        let item = item?;
        // Only what objects have has such keys.
        if matches!(kind, ListType::Map(_)) && !matches!(item, Value::Map(Map::Tree(..))) {
            return Ok(false);
        }
        match known.get(&keys(&item, kind)) {
            Some(known) if known.is_equal(&item)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// A list with the items of another: those that it has stay where they are, and in maps get the new
/// value.
///
/// # Errors
/// An item does not fit its schema.
pub fn merged<'a>(list: &List<'a>, other: &List<'a>, schema: &'a Schema) -> Result<List<'a>> {
    let kind = schema.list_type();
    let mut items: Vec<Value<'a>> = list.iter().collect::<Result<_>>()?;
    let there = items.len();
    let mut replaced = HashSet::new();
    if matches!(kind, ListType::Set) {
        let mut known: HashSet<_> = items.iter().map(|item| keys(item, kind)).collect();
        for item in other.iter() {
            let item = item?;
            if known.insert(keys(&item, kind)) {
                items.push(item);
            }
        }
        return Ok(typed(items, schema, |index| index >= there));
    }
    let mut places: HashMap<_, usize> = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        places.insert(keys(item, kind), place);
    }
    for item in other.iter() {
        let item = item?;
        match places.get(&keys(&item, kind)) {
            Some(place) if *place < there => {
                items[*place] = item;
                replaced.insert(*place);
            }
            _ => items.push(item),
        }
    }
    Ok(typed(items, schema, |index| {
        index >= there || replaced.contains(&index)
    }))
}

/// A list of a schema. Items that were added to it are to be of that schema, too.
fn typed<'a>(
    items: Vec<Value<'a>>,
    schema: &'a Schema,
    is_added: impl Fn(usize) -> bool,
) -> List<'a> {
    let items = items.into_iter().enumerate();
    let items = items.map(|(index, item)| match is_added(index) {
        true => schema.item().fitting(item),
        false => Ok(item),
    });
    List::Typed(Arc::new(items.collect()), schema)
}
