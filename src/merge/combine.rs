//! The merge of an applied configuration into an object by the topology of its type
//! (structured-merge-diff `typed/merge.go`).

use crate::meta::Value;

use super::path::PathElement;
use super::topology::{List, Map, Scalar, Shape, Ty};
use super::typed::{TypeErrors, check_scalar, list_element, unknown_field};

type Result<T> = std::result::Result<T, TypeErrors>;

/// Merges `config` into `object`, both of the type `ty`. After an error `object` is in between.
///
/// # Errors
/// The place where one of the two does not fit its type.
pub fn combine(ty: Ty<'_>, object: &mut crate::meta::Map, config: &crate::meta::Map) -> Result<()> {
    let Some(map) = ty.atom().map else {
        return Err(unknown_field());
    };
    combine_entries(&map, object, config)
}

fn combine_entries(
    map: &Map,
    object: &mut crate::meta::Map,
    config: &crate::meta::Map,
) -> Result<()> {
    for (name, value) in config {
        let current = object.get_mut(name);
        let below = |errors: TypeErrors| errors.below(&PathElement::Field(name));
        match current {
            Some(current) => combine_value(map.type_of(name), current, value).map_err(below)?,
            None => {
                let mut new = Value::Null;
                put_new(map.type_of(name), &mut new, value).map_err(below)?;
                object.insert(name.clone(), new);
            }
        }
    }
    Ok(())
}

fn fits_both(scalar: Scalar, old: Option<&Value>, new: &Value) -> Result<()> {
    match (
        check_scalar(scalar, old, "lhs: "),
        check_scalar(scalar, Some(new), "rhs: "),
    ) {
        (Err(mut errors), Err(more)) => {
            errors.0.extend(more.0);
            Err(errors)
        }
        _ => Ok(()),
    }
}

/// Puts a value where there was none. A list loses nothing: items that are there twice are refused.
fn put_new(ty: Option<Ty<'_>>, slot: &mut Value, config: &Value) -> Result<()> {
    let shape = ty
        .and_then(|ty| ty.atom().deduce(Some(config)).shape())
        .ok_or_else(unknown_field)?;
    match (shape, config) {
        (Shape::List(list), Value::Array(items)) if !list.atomic() && !items.is_empty() => {
            let mut out = Vec::new();
            combine_items(&list, &mut out, items)?;
            *slot = Value::Array(out);
        }
        (Shape::Map(map), Value::Object(entries)) if !map.atomic && !entries.is_empty() => {
            let mut out = crate::meta::Map::with_capacity(entries.len());
            combine_entries(&map, &mut out, entries)?;
            *slot = Value::Object(out);
        }
        _ => *slot = config.clone(),
    }
    Ok(())
}

/// Merges `config` into `current`, in the form that `config` has.
fn combine_value(ty: Option<Ty<'_>>, current: &mut Value, config: &Value) -> Result<()> {
    let atom = ty.ok_or_else(unknown_field)?.atom();
    let shape = atom
        .deduce(Some(config))
        .shape()
        .ok_or_else(unknown_field)?;
    match (shape, config) {
        (Shape::Scalar(scalar), _) => {
            fits_both(scalar, Some(current), config)?;
            *current = config.clone();
        }
        (Shape::List(list), _) => {
            let empty = current.as_array().is_none_or(Vec::is_empty);
            match config {
                Value::Array(items) if !(list.atomic() || empty && items.is_empty()) => {
                    let Value::Array(current) = fresh(current, Value::Array(Vec::new())) else {
                        return Ok(());
                    };
                    combine_items(&list, current, items)?;
                }
                // Nothing in a list that is not there: what is there stays.
                _ if !list.atomic() && !empty => {}
                _ => *current = config.clone(),
            }
        }
        (Shape::Map(map), _) => {
            let empty = current.as_object().is_none_or(crate::meta::Map::is_empty);
            match config {
                Value::Object(entries) if !(map.atomic || empty && entries.is_empty()) => {
                    let Value::Object(current) =
                        fresh(current, Value::Object(crate::meta::Map::new()))
                    else {
                        return Ok(());
                    };
                    combine_entries(&map, current, entries)?;
                }
                _ if !map.atomic && !empty => {}
                _ => *current = config.clone(),
            }
        }
    }
    Ok(())
}

/// `current`, replaced by `new` where it is of another JSON type.
fn fresh(current: &mut Value, new: Value) -> &mut Value {
    if std::mem::discriminant(current) != std::mem::discriminant(&new) {
        *current = new;
    }
    current
}

/// An item that both lists have, as seen from the configuration: where it is in the object.
#[derive(Clone, Copy, PartialEq)]
enum Match {
    Nowhere,
    At(usize),
    /// More than once, so that none of them is merged.
    Twice,
}

/// Merges the items of an associative list. They come in the order of the configuration, and those
/// that only the object has keep their places between.
fn combine_items(list: &List, current: &mut Vec<Value>, config: &[Value]) -> Result<()> {
    let (old_in_new, new_in_old) = match_items(list, current, config)?;
    let mut old: Vec<Option<Value>> = std::mem::take(current).into_iter().map(Some).collect();
    let mut out = Vec::with_capacity(old.len().max(config.len()));
    let merge = |index: usize, old: &mut [Option<Value>]| -> Result<Value> {
        let item = &config[index];
        let mut merged = match new_in_old[index] {
            Match::Nowhere => {
                let mut new = Value::Null;
                put_new(Some(list.element), &mut new, item)?;
                return Ok(new);
            }
            Match::At(at) => old[at].take().unwrap_or_default(),
            Match::Twice => Value::Null,
        };
        combine_value(Some(list.element), &mut merged, item)?;
        Ok(merged)
    };
    let mut shared = (0..config.len()).filter(|&index| new_in_old[index] != Match::Nowhere);
    let mut next_shared = shared.next();
    let mut merged = vec![false; config.len()];
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < config.len() {
        if i < old.len() && j < config.len() {
            if old_in_new[i] == Some(j) {
                merged[j] = true;
                out.push(merge(j, &mut old)?);
                (i, j) = (i + 1, j + 1);
                next_shared = shared.next();
                continue;
            }
            if old_in_new[i].is_some() && next_shared.is_some() && old_in_new[i] != next_shared {
                // In both, but not the one that comes next.
                i += 1;
                continue;
            }
        }
        if i < old.len() {
            match old_in_new[i] {
                None => {
                    out.extend(old[i].take());
                    i += 1;
                    continue;
                }
                Some(at) if merged[at] => i += 1,
                Some(_) => {}
            }
        }
        if j < config.len() {
            merged[j] = true;
            out.push(merge(j, &mut old)?);
            if next_shared == Some(j) {
                next_shared = shared.next();
            }
            j += 1;
        }
    }
    *current = out;
    Ok(())
}

/// Matches the items of the object with those of the configuration, in both directions.
fn match_items(
    list: &List,
    old: &[Value],
    new: &[Value],
) -> Result<(Vec<Option<usize>>, Vec<Match>)> {
    let (old_elements, new_elements) = (index(list, old)?, index(list, new)?);
    if let Some(pair) = new_elements.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(TypeErrors::one(format!(
            "duplicate entries for key {}",
            pair[0].0
        )));
    }
    let mut old_in_new = vec![None; old.len()];
    let mut new_in_old = vec![Match::Nowhere; new.len()];
    for same in old_elements.chunk_by(|a, b| a.0 == b.0) {
        let Ok(found) = new_elements.binary_search_by(|(element, _)| element.cmp(&same[0].0))
        else {
            continue;
        };
        let at = new_elements[found].1;
        new_in_old[at] = if same.len() > 1 {
            Match::Twice
        } else {
            Match::At(same[0].1)
        };
        for (_, index) in same {
            old_in_new[*index] = Some(at);
        }
    }
    Ok((old_in_new, new_in_old))
}

/// The elements of a list's items with their indexes, in order.
fn index<'a>(list: &'a List, items: &'a [Value]) -> Result<Vec<(PathElement<'a>, usize)>> {
    let mut out = Vec::with_capacity(items.len());
    let mut errors = TypeErrors::default();
    for (at, item) in items.iter().enumerate() {
        match list_element(list, item) {
            Ok(element) => out.push((element, at)),
            Err(message) => errors
                .0
                .extend(TypeErrors::one(format!("element {at}: {message}")).0),
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    if errors.0.is_empty() {
        Ok(out)
    } else {
        Err(errors)
    }
}
