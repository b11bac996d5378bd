//! Functions of lists and of sets (cel-go `ext/lists.go` of version 3, `ext/sets.go`; apiserver
//! `cel/library/lists.go`).

use std::cmp::Ordering;
use std::collections::HashSet;

use jiff::SignedDuration;

use super::super::value::{Error, Key, List, Result, Value};
use super::super::work;
use super::Declaration;
use super::operators::{declare, is_operand};

/// The longest list that `lists.range` makes.
const MAX_RANGE: i64 = 1_000_000;

/// A function of lists of comparable items.
macro_rules! comparable {
    ($name:literal, $call:expr, $before:literal, $after:literal, $result:ident) => {
        Declaration {
            name: $name,
            overloads: &[
                comparable!(@one "int", "int", $before, $after, $result),
                comparable!(@one "uint", "uint", $before, $after, $result),
                comparable!(@one "double", "double", $before, $after, $result),
                comparable!(@one "bool", "bool", $before, $after, $result),
                comparable!(@one "duration", "duration", $before, $after, $result),
                comparable!(@one "timestamp", "timestamp", $before, $after, $result),
                comparable!(@one "string", "string", $before, $after, $result),
                comparable!(@one "bytes", "bytes", $before, $after, $result),
            ],
            call: $call,
        }
    };
    (@one $ty:literal, $name:literal, $before:literal, $after:literal, bool) => {
        (concat!($before, $name, $after), concat!("list(", $ty, ")() -> bool"))
    };
    (@one $ty:literal, $name:literal, $before:literal, $after:literal, item) => {
        (concat!($before, $name, $after, $name), concat!("list(", $ty, ")() -> ", $ty))
    };
    (@one $ty:literal, $name:literal, $before:literal, $after:literal, list) => {
        (concat!($before, $name, $after), concat!("list(", $ty, ")() -> list(", $ty, ")"))
    };
}

pub const DECLARATIONS: &[Declaration] = &[
    comparable!("isSorted", is_sorted, "list_", "_is_sorted_bool", bool),
    declare!("sum", sum,
        "list_int_sum_int": "list(int)() -> int",
        "list_uint_sum_uint": "list(uint)() -> uint",
        "list_double_sum_double": "list(double)() -> double",
        "list_duration_sum_duration": "list(duration)() -> duration",
    ),
    comparable!(
        "max",
        |args| extreme(args, "max", Ordering::Less),
        "list_",
        "_max_",
        item
    ),
    comparable!(
        "min",
        |args| extreme(args, "min", Ordering::Greater),
        "list_",
        "_min_",
        item
    ),
    declare!("indexOf", index_of, "list_a_index_of_int": "list(A)(A) -> int"),
    declare!("lastIndexOf", last_index_of, "list_a_last_index_of_int": "list(A)(A) -> int"),
    declare!("slice", slice, "list_slice": "list(T)(int, int) -> list(T)"),
    declare!("flatten", flatten,
        "list_flatten": "list(list(T))() -> list(T)",
        "list_flatten_int": "list(dyn)(int) -> list(dyn)",
    ),
    comparable!("sort", sort, "list_", "_sort", list),
    declare!("@sortByAssociatedKeys", sort_by_keys,
        "list_int_sortByAssociatedKeys": "list(T)(list(int)) -> list(T)",
        "list_uint_sortByAssociatedKeys": "list(T)(list(uint)) -> list(T)",
        "list_double_sortByAssociatedKeys": "list(T)(list(double)) -> list(T)",
        "list_bool_sortByAssociatedKeys": "list(T)(list(bool)) -> list(T)",
        "list_duration_sortByAssociatedKeys": "list(T)(list(duration)) -> list(T)",
        "list_timestamp_sortByAssociatedKeys": "list(T)(list(timestamp)) -> list(T)",
        "list_string_sortByAssociatedKeys": "list(T)(list(string)) -> list(T)",
        "list_bytes_sortByAssociatedKeys": "list(T)(list(bytes)) -> list(T)",
    ),
    declare!("lists.range", range, "lists_range": "(int) -> list(int)"),
    declare!("reverse", reverse, "list_reverse": "list(T)() -> list(T)"),
    declare!("distinct", distinct, "list_distinct": "list(T)() -> list(T)"),
    declare!("sets.contains", |args| sets(args, contains),
        "list_sets_contains_list": "(list(T), list(T)) -> bool"),
    declare!("sets.equivalent", |args| sets(args, |a, b| Ok(contains(a, b)? && contains(b, a)?)),
        "list_sets_equivalent_list": "(list(T), list(T)) -> bool"),
    declare!("sets.intersects", |args| sets(args, intersects),
        "list_sets_intersects_list": "(list(T), list(T)) -> bool"),
];

/// The items of a list.
fn items<'a>(list: &List<'a>) -> Result<Vec<Value<'a>>> {
    if !work::copy(list.len()) {
        return Err(Error::CostLimit);
    }
    list.iter().collect()
}

/// The items of a list, all of which are of types that have an order.
fn comparable_items<'a>(list: &List<'a>) -> Result<Vec<Value<'a>>> {
    let items = items(list)?;
    match items.iter().all(|item| is_operand("_<_", item)) {
        true => Ok(items),
        false => Err(Error::no_such_overload()),
    }
}

fn is_sorted<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    let sorted = || {
        let items = comparable_items(list)?;
        // What has no order is in order.
        for pair in items.windows(2) {
            if let [a, b] = pair
                && a.compare(b).is_ok_and(Ordering::is_gt)
            {
                return Ok(Value::Bool(false));
            }
        }
        Ok(Value::Bool(true))
    };
    Some(sorted())
}

fn sum<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    let sum = || {
        let mut items = items(list)?.into_iter();
        let Some(first) = items.next() else {
            return Ok(Value::Int(0));
        };
        let zero = match first {
            Value::Int(_) => Value::Int(0),
            Value::Uint(_) => Value::Uint(0),
            Value::Double(_) => Value::Double(0.0),
            Value::Duration(_) => Value::Duration(SignedDuration::ZERO),
            _ => return Err(Error::no_such_overload()),
        };
        let plus = super::function("_+_");
        std::iter::once(first)
            .chain(items)
            .try_fold(zero, |sum, item| {
                plus.and_then(|plus| plus.call(&[sum, item]))
                    .unwrap_or_else(|| Err(Error::no_such_overload()))
            })
    };
    Some(sum())
}

/// The greatest or the least item: one gives way to the next if it compares so with it.
fn extreme<'a>(args: &[Value<'a>], name: &str, gives_way: Ordering) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    let extreme = || {
        let mut items = comparable_items(list)?.into_iter();
        let first = items.next();
        let mut best = first.ok_or_else(|| Error::new(format!("{name} called on empty list")))?;
        for item in items {
            if best.compare(&item) == Ok(gives_way) {
                best = item;
            }
        }
        Ok(best)
    };
    Some(extreme())
}

fn position<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(
        found
            .and_then(|found| i64::try_from(found).ok())
            .unwrap_or(-1),
    )
}

fn index_of<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list), item] = args else {
        return None;
    };
    let is_it = |other: Result<Value<'a>>| other.is_ok_and(|other| other.equals(item));
    Some(Ok(position(list.iter().position(is_it))))
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list), item] = args else {
        return None;
    };
    let is_it = |index: &usize| {
        let other = list.get(*index);
        other.is_some_and(|other| other.is_ok_and(|other| other.equals(item)))
    };
    Some(Ok(position((0..list.len()).rev().find(is_it))))
}

fn slice<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return None;
    };
    let refused = |why: String| Err(Error::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Some(refused("negative indexes not supported".to_owned()));
    };
    if from > to {
        let why = "start index must be less than or equal to end index";
        return Some(refused(why.to_owned()));
    }
    if list.len() < to {
        return Some(refused(format!("list is length {}", list.len())));
    }
    if !work::copy(to - from) {
        return Some(Err(Error::CostLimit));
    }
    let items = (from..to).filter_map(|index| list.get(index));
    Some(items.collect::<Result<_>>().map(Value::list))
}

fn flatten<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return None,
    };
    if depth < 0 {
        return Some(Err(Error::new("level must be non-negative")));
    }
    let mut out = Vec::new();
    Some(flatten_into(list, depth, &mut out).map(|()| Value::list(out)))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) -> Result<()> {
    for item in list.iter() {
        if !work::copy(1) {
            return Err(Error::CostLimit);
        }
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, out)?,
            other => out.push(other),
        }
    }
    Ok(())
}

fn sort<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    Some(sorted(list, list))
}

fn sort_by_keys<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list), Value::List(keys)] = args else {
        return None;
    };
    Some(sorted(list, keys))
}

/// The items of a list in the order of their keys.
fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Result<Value<'a>> {
    let (items, keys) = (items(list)?, items(keys)?);
    if items.is_empty() && keys.is_empty() {
        return Ok(Value::List(list.clone()));
    }
    if items.len() != keys.len() {
        return Err(Error::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys \
             list, but got {} and {} elements respectively",
            items.len(),
            keys.len()
        )));
    }
    if let Some(first) = keys.first() {
        if first.compare(first).is_err() && !matches!(first, Value::Double(_)) {
            return Err(Error::new("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_name() != first.type_name()) {
            return Err(Error::new("list elements must have the same type"));
        }
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(
        pairs.into_iter().map(|(_, item)| item).collect(),
    ))
}

fn range<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::Int(count)] = args else {
        return None;
    };
    if *count > MAX_RANGE {
        let message = format!("lists.range makes no more than {MAX_RANGE} items");
        return Some(Err(Error::new(message)));
    }
    if !work::copy(usize::try_from(*count).unwrap_or(0)) {
        return Some(Err(Error::CostLimit));
    }
    Some(Ok(Value::list((0..*count).map(Value::Int).collect())))
}

fn reverse<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    Some(items(list).map(|items| Value::list(items.into_iter().rev().collect())))
}

fn distinct<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    let distinct = || {
        if list.len() == 0 {
            return Ok(Value::List(list.clone()));
        }
        let (mut known, mut others) = (HashSet::new(), Vec::new());
        let mut out = Vec::new();
        for item in items(list)? {
            let new = match Key::of(&item) {
                Some(key) => known.insert(key),
                None => {
                    let new = !others.iter().any(|other| item.equals(other));
                    others.extend(new.then(|| item.clone()));
                    new
                }
            };
            out.extend(new.then_some(item));
        }
        Ok(Value::list(out))
    };
    Some(distinct())
}

fn sets<'a>(
    args: &[Value<'a>],
    holds: fn(&List<'a>, &List<'a>) -> Result<bool>,
) -> Option<Result<Value<'a>>> {
    let [Value::List(a), Value::List(b)] = args else {
        return None;
    };
    Some(holds(a, b).map(Value::Bool))
}

/// Looks items up in a list: those that may be keys at once.
struct Lookup<'a> {
    keys: HashSet<Key>,
    others: Vec<Value<'a>>,
}

impl<'a> Lookup<'a> {
    fn new(list: &List<'a>) -> Result<Self> {
        let (mut keys, mut others) = (HashSet::new(), Vec::new());
        for item in items(list)? {
            match Key::of(&item) {
                Some(key) => drop(keys.insert(key)),
                None => others.push(item),
            }
        }
        Ok(Self { keys, others })
    }

    fn has(&self, item: &Value<'_>) -> bool {
        match Key::of(item) {
            Some(key) => self.keys.contains(&key),
            None => self.others.iter().any(|other| item.equals(other)),
        }
    }
}

fn contains(list: &List<'_>, sublist: &List<'_>) -> Result<bool> {
    let lookup = Lookup::new(list)?;
    Ok(items(sublist)?.iter().all(|item| lookup.has(item)))
}

fn intersects(a: &List<'_>, b: &List<'_>) -> Result<bool> {
    let lookup = Lookup::new(b)?;
    Ok(items(a)?.iter().any(|item| lookup.has(item)))
}
