//! Strategic merge patch: merges by the schema's patch strategies and merge keys, with directives
//! in the patch (apimachinery `util/strategicpatch`, the server's direction).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::PatchError;
use crate::meta::go;
use crate::meta::{Key, Map, Value};
use crate::schema::{Field, Kind, PatchStrategy, Schema, TypeRef};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
/// Go sorts stretches of this length by insertion, which shows where items have no order.
const INSERTION_STRETCH: usize = 20;

type Result<T> = std::result::Result<T, PatchError>;

fn other<T>(message: impl Into<String>) -> Result<T> {
    Err(PatchError::Other(message.into()))
}

fn malformed<T>(message: &str) -> Result<T> {
    Err(PatchError::Malformed(message.to_owned()))
}

/// Merges `patch` into `document`, an object of the type `ty`. After an error `document` is in
/// between.
///
/// # Errors
/// As upstream classes them: most are a bare 500.
pub fn apply(document: &mut Map, patch: Map, ty: TypeRef<'_>) -> Result<()> {
    merge_map(document, patch, Meta::Struct(ty))
}

/// The schema of a place in the document.
#[derive(Clone, Copy)]
enum Meta<'s> {
    Struct(TypeRef<'s>),
    Other(&'s Kind),
}

/// The patch strategy of a field.
struct Rule<'s> {
    /// The field's type; for a list, that of its items.
    below: Meta<'s>,
    strategy: PatchStrategy,
    merge_key: &'s str,
}

impl<'s> Meta<'s> {
    fn of(schema: &'s Schema, kind: &'s Kind) -> Self {
        match kind {
            Kind::Message(id) => Self::Struct(TypeRef { schema, id: *id }),
            other => Self::Other(other),
        }
    }

    /// Go's name for the kind of type.
    fn kind_name(self) -> &'static str {
        match self {
            Self::Struct(_) => "struct",
            Self::Other(kind) => match kind {
                Kind::String => "string",
                Kind::Bool => "bool",
                Kind::Int32 => "int32",
                Kind::Int64 => "int64",
                Kind::Double => "float64",
                Kind::Map(..) => "map",
                Kind::List(..) | Kind::Bytes => "slice",
                _ => "struct",
            },
        }
    }

    fn field(self, name: &str) -> Result<(&'s Schema, &'s Field)> {
        let ty = match self {
            Self::Struct(ty) => ty,
            Self::Other(
                kind @ (Kind::Quantity
                | Kind::Time
                | Kind::MicroTime
                | Kind::IntOrString
                | Kind::Raw
                | Kind::FieldsV1),
            ) => {
                return other(format!(
                    "unable to find api field in struct {kind:?} for the json field {name:?}"
                ));
            }
            Self::Other(..) => {
                let kind = self.kind_name();
                return other(format!(
                    "merging an object in json but data type is not struct, instead is: {kind}"
                ));
            }
        };
        let folded = || {
            ty.get()
                .fields
                .iter()
                .find(|field| field.json.eq_ignore_ascii_case(name))
        };
        match ty.field(name).or_else(folded) {
            Some(field) => Ok((ty.schema, field)),
            None => {
                let short = ty.get().name.rsplit('.').next().unwrap_or_default();
                other(format!(
                    "unable to find api field in struct {short} for the json field {}",
                    crate::meta::go::quote(name)
                ))
            }
        }
    }

    fn map_rule(self, name: &str) -> Result<Rule<'s>> {
        let (schema, field) = self.field(name)?;
        Ok(Rule {
            below: Meta::of(schema, &field.kind),
            strategy: field.patch_strategy,
            merge_key: &field.patch_merge_key,
        })
    }

    fn list_rule(self, name: &str) -> Result<Rule<'s>> {
        let (schema, field) = self.field(name)?;
        let item = match &field.kind {
            Kind::List(item, _) if matches!(**item, Kind::List(..)) => {
                return other("unexpected slice of slice");
            }
            Kind::List(item, _) => item,
            _ => {
                return other(format!(
                    "expected slice or array type, but got: {}",
                    self.kind_name()
                ));
            }
        };
        Ok(Rule {
            below: Meta::of(schema, item),
            strategy: field.patch_strategy,
            merge_key: &field.patch_merge_key,
        })
    }
}

fn merge_map(original: &mut Map, mut patch: Map, meta: Meta) -> Result<()> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => {
                patch.shift_remove(DIRECTIVE);
                *original = patch;
            }
            Some("delete") => original.clear(),
            _ => return bad_directive(directive, &patch),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    set_element_orders(original, &mut patch, meta)?;
    // Fields are taken out together: one by one, each would move those behind it.
    let mut gone = HashSet::new();
    for (key, value) in patch {
        match key.strip_prefix(DELETE_FROM_LIST) {
            None => merge_field(original, key, value, meta, false, &mut gone)?,
            Some(rest) => match rest.strip_prefix('/') {
                Some(list) => merge_field(
                    original,
                    list.to_owned().into(),
                    value,
                    meta,
                    true,
                    &mut gone,
                )?,
                None => return malformed("invalid patch format of primitive list"),
            },
        }
    }
    if !gone.is_empty() {
        original.retain(|key, _| !gone.contains(key));
    }
    Ok(())
}

fn bad_directive<T>(directive: &Value, patch: &Map) -> Result<T> {
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Array(_) | Value::Object(_) => go::sprint(directive),
        scalar => format!("%!s({}={})", go::type_name(scalar), go::sprint(scalar)),
    };
    other(format!(
        "unknown patch type: {shown} in map: {}",
        plain_map(patch)
    ))
}

fn plain_map(map: &Map) -> String {
    go::sprint(&Value::Object(map.clone()))
}

/// `expected a X, but received a Y`.
fn bad_type<T>(expected: &str, value: &Value) -> Result<T> {
    let actual = if value.is_null() {
        "%!s(<nil>)"
    } else {
        go::type_name(value)
    };
    other(format!("expected a {expected}, but received a {actual}"))
}

fn no_merge_key<T>(map: &Map, key: &str) -> Result<T> {
    other(format!(
        "map: {} does not contain declared merge key: {key}",
        plain_map(map)
    ))
}

/// `$retainKeys` clears what it does not name; the patch may not set anything else.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<()> {
    const MALFORMED: &str = "invalid patch format of retainKeys";
    let Some(retained) = patch.shift_remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(retained) = retained else {
        return malformed(MALFORMED);
    };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let mut set = patch.iter().filter(|(key, value)| {
        !value.is_null()
            && !key.starts_with(DELETE_FROM_LIST)
            && !key.starts_with(SET_ELEMENT_ORDER)
    });
    if set.any(|(key, _)| !retained.contains(key.as_str())) {
        return malformed(MALFORMED);
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// Merges the lists for which the patch gives an order in `$setElementOrder/NAME`, and takes them
/// out of the patch.
fn set_element_orders(original: &mut Map, patch: &mut Map, meta: Meta) -> Result<()> {
    let mut directives: Vec<(Key, Value)> = Vec::new();
    if patch.keys().any(|key| key.starts_with(SET_ELEMENT_ORDER)) {
        patch.retain(|key, value| {
            let kept = !key.starts_with(SET_ELEMENT_ORDER);
            if !kept {
                directives.push((key.clone(), std::mem::take(value)));
            }
            kept
        });
    }
    for (directive, order) in directives {
        let Value::Array(order) = order else {
            return bad_type("[]interface {}", &order);
        };
        let Some(name) = directive
            .strip_prefix(SET_ELEMENT_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
        else {
            return malformed("invalid patch format of setElementOrder list");
        };
        if let Some(odd) = [original.get(name), patch.get(name)]
            .into_iter()
            .flatten()
            .find(|value| !value.is_array())
        {
            return bad_type("[]interface {}", odd);
        }
        let take = |map: &mut Map| match map.get_mut(name) {
            Some(Value::Array(items)) => Some(std::mem::take(items)),
            _ => None,
        };
        let rule = meta.list_rule(name)?;
        let patched = take(patch);
        check_order(
            patched.as_deref().unwrap_or_default(),
            &order,
            rule.merge_key,
        )?;
        let before = take(original);
        let lists = [
            before.as_deref().unwrap_or_default(),
            patched.as_deref().unwrap_or_default(),
        ];
        let order_before = Positions::of(lists[0], rule.merge_key);
        let types = element_type(&lists);
        let merged = match (before, patched) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(patched)) => patched.into_iter().filter_map(without_directives).collect(),
            (Some(before), Some(patched)) => merge_list_by_rule(before, patched, &rule, false)?,
        };
        types?;
        let both = reorder(merged, &order, &order_before, rule.merge_key)?;
        original.insert(name.to_owned(), Value::Array(both));
        patch.shift_remove(name);
    }
    Ok(())
}

/// Checks that the items of a patch are in the order list, in the same order.
fn check_order(patched: &[Value], order: &[Value], merge_key: &str) -> Result<()> {
    if order.is_empty() || patched.is_empty() {
        return Ok(());
    }
    let mut kept = Vec::with_capacity(patched.len());
    for item in patched {
        match item.as_object() {
            Some(map) if !merge_key.is_empty() => {
                if map.get(DIRECTIVE).and_then(Value::as_str) != Some("delete") {
                    kept.push(item);
                }
            }
            None if !merge_key.is_empty() => return bad_type("map[string]interface {}", item),
            _ => kept.push(item),
        }
    }
    let (mut at, mut in_order) = (0, 0);
    while at < kept.len() && in_order < order.len() {
        if kept[at].get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        if same_key(kept[at], &order[in_order], merge_key)? {
            at += 1;
        }
        in_order += 1;
    }
    if at < kept.len() && in_order >= order.len() {
        let (patched, order) = (
            go::sprint(&Value::Array(patched.to_vec())),
            go::sprint(&Value::Array(order.to_vec())),
        );
        return other(format!(
            "The order in patch list:\n{patched}\n doesn't match {SET_ELEMENT_ORDER} list:\n{order}\n"
        ));
    }
    Ok(())
}

fn same_key(left: &Value, right: &Value, merge_key: &str) -> Result<bool> {
    if merge_key.is_empty() {
        return Ok(left == right);
    }
    let key = |item: &Value| {
        let Some(map) = item.as_object() else {
            return bad_type("map[string]interface {}", item);
        };
        map.get(merge_key)
            .map_or_else(|| no_merge_key(map, merge_key), |value| Ok(value.clone()))
    };
    Ok(key(left)? == key(right)?)
}

/// Merges one field of a patch. With `deleting`, `value` lists the scalars to take out of the list
/// `key`. A field that is to go is put into `gone`.
fn merge_field(
    original: &mut Map,
    key: Key,
    mut value: Value,
    meta: Meta,
    deleting: bool,
    gone: &mut HashSet<Key>,
) -> Result<()> {
    if value.is_null() {
        gone.insert(key);
        return Ok(());
    }
    let current = original.get_mut(&key);
    match (current, value) {
        (Some(Value::Object(current)), Value::Object(value)) => {
            let rule = meta.map_rule(&key)?;
            if rule.strategy.replace {
                *current = value;
                return Ok(());
            }
            return merge_map(current, value, rule.below);
        }
        (Some(Value::Array(current)), Value::Array(value)) => {
            let rule = meta.list_rule(&key)?;
            *current = merge_list_by_rule(std::mem::take(current), value, &rule, deleting)?;
            return Ok(());
        }
        (_, _) if deleting => return Ok(()),
        (Some(current), scalar) if !scalar.is_object() && !scalar.is_array() => {
            *current = scalar;
            return Ok(());
        }
        (_, new) => value = new,
    }
    discard_nulls(&mut value);
    match without_directives(value) {
        Some(value) => drop(original.insert(key, value)),
        None => drop(gone.insert(key)),
    }
    Ok(())
}

/// Drops the null members of every map in what a patch adds.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Strips maps that are directives from what a patch adds; `None` where the value is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map
                .into_iter()
                .filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

fn merge_list_by_rule(
    original: Vec<Value>,
    patch: Vec<Value>,
    rule: &Rule,
    deleting: bool,
) -> Result<Vec<Value>> {
    if rule.strategy.merge || deleting {
        merge_list(original, patch, rule, deleting)
    } else {
        Ok(patch)
    }
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    rule: &Rule,
    deleting: bool,
) -> Result<Vec<Value>> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !element_type(&[&original, &patch])? {
        if deleting {
            let gone: HashSet<Token> = patch.iter().map(Token::of).collect();
            return Ok(original
                .iter()
                .filter(|item| !gone.contains(&Token::of(item)))
                .cloned()
                .collect());
        }
        let before = Positions::of(&original, "");
        let merged = without_duplicates(original.into_iter().chain(patch.iter().cloned()));
        return reorder(merged, &patch, &before, "");
    }
    if rule.merge_key.is_empty() {
        return other(format!(
            "cannot merge lists without merge key for {}",
            rule.below.kind_name()
        ));
    }
    let (original, patch) = apply_item_directives(original, patch, rule.merge_key)?;
    let before = Positions::of(&original, rule.merge_key);
    let merged = merge_items(original, &patch, rule)?;
    reorder(merged, &patch, &before, rule.merge_key)
}

/// Reports whether the items of these lists are maps. All must be of one type, and not lists.
fn element_type(lists: &[&[Value]]) -> Result<bool> {
    let mut first = None;
    for item in lists.iter().copied().flatten() {
        let kind = go::type_name(item);
        match first {
            None if item.is_array() => {
                return Err(PatchError::Unfit(
                    "lists of lists are not supported".to_owned(),
                ));
            }
            None => first = Some(kind),
            Some(first) if first != kind => {
                let lists: Vec<Value> = lists
                    .iter()
                    .map(|list| Value::Array(list.to_vec()))
                    .collect();
                return other(format!(
                    "list element types are not identical: {}",
                    go::sprint(&Value::Array(lists))
                ));
            }
            Some(_) => {}
        }
    }
    match first {
        Some(kind) => Ok(kind == "map[string]interface {}"),
        None => other("no elements in any of the given slices"),
    }
}

/// Handles the items of a patch that are directives: deletes what they name, or replaces the whole
/// list.
fn apply_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut deleted: HashSet<Token> = HashSet::new();
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Some((directive, map)) = item
            .as_object()
            .and_then(|map| Some((map.get(DIRECTIVE)?, map)))
        else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => match map.get(merge_key) {
                Some(value) => drop(deleted.insert(Token::of(value).into_owned())),
                None => return no_merge_key(map, merge_key),
            },
            Some("replace") => replace = true,
            Some("merge") => return other("merging lists cannot yet be specified in the patch"),
            _ => return bad_directive(directive, map),
        }
    }
    if !deleted.is_empty() {
        original.retain(|item| {
            item.get(merge_key)
                .is_none_or(|value| !deleted.contains(&Token::of(value)))
        });
    }
    Ok(if replace {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

/// Merges the items of a patch into those with the same key, the first of them. Those without one
/// come at the end.
fn merge_items(mut original: Vec<Value>, patch: &[Value], rule: &Rule) -> Result<Vec<Value>> {
    let mut by_key: HashMap<Token, usize> = HashMap::with_capacity(original.len() + patch.len());
    for (index, item) in original.iter().enumerate() {
        if let Some(value) = item.get(rule.merge_key) {
            by_key.entry(Token::of(value).into_owned()).or_insert(index);
        }
    }
    for item in patch {
        let Some(map) = item.as_object() else {
            return bad_type("map[string]interface {}", item);
        };
        let Some(value) = map.get(rule.merge_key) else {
            return no_merge_key(map, rule.merge_key);
        };
        match by_key
            .get(&Token::of(value))
            .and_then(|&at| original.get_mut(at)?.as_object_mut())
        {
            Some(current) => merge_map(current, map.clone(), rule.below)?,
            None => {
                by_key.insert(Token::of(value).into_owned(), original.len());
                original.push(item.clone());
            }
        }
    }
    Ok(original)
}

/// Scalars, each once.
fn without_duplicates(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    items
        .filter(|item| seen.insert(Token::of(item).into_owned()))
        .collect()
}

/// Splits a merged list into the items that are in `ours` and those that are not, puts each part in
/// its order, and weaves the two together: an item of the rest goes before the first of ours that
/// came after it before.
fn reorder(
    merged: Vec<Value>,
    ours: &[Value],
    before: &Positions,
    merge_key: &str,
) -> Result<Vec<Value>> {
    if !merge_key.is_empty() {
        check_keys(&merged, merge_key)?;
        if let Some(at) = ours
            .iter()
            .position(|item| !item.is_object())
            .filter(|_| !merged.is_empty())
        {
            return other(format!("value for key {at} is not a map"));
        }
        check_keys(ours, merge_key)?;
    }
    let places = Positions::of(ours, merge_key);
    let (ours, rest): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| places.get(item).is_some());
    let (ours, rest) = (in_order(ours, &places), in_order(rest, before));
    let mut out = Vec::with_capacity(ours.len() + rest.len());
    let mut ours = ours.into_iter().peekable();
    for item in rest {
        let place = before.get(&item);
        let comes_first =
            |our: &Value| !matches!((place, before.get(our)), (Some(a), Some(b)) if a < b);
        while let Some(our) = ours.next_if(comes_first) {
            out.push(our);
        }
        out.push(item);
    }
    out.extend(ours);
    Ok(out)
}

fn check_keys(items: &[Value], merge_key: &str) -> Result<()> {
    for item in items {
        let Some(map) = item.as_object() else {
            return bad_type("map[string]interface {}", item);
        };
        if !map.contains_key(merge_key) {
            return no_merge_key(map, merge_key);
        }
    }
    Ok(())
}

fn in_order(mut items: Vec<Value>, places: &Positions) -> Vec<Value> {
    if items.iter().all(|item| places.get(item).is_some()) {
        items.sort_by_cached_key(|item| places.get(item));
        return items;
    }
    // What has no place is less than all, in the manner of Go's insertion sort.
    let less = |a: &Value, b: &Value| match (places.get(a), places.get(b)) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    for stretch in items.chunks_mut(INSERTION_STRETCH) {
        for end in 1..stretch.len() {
            for at in (1..=end).rev() {
                if !less(&stretch[at], &stretch[at - 1]) {
                    break;
                }
                stretch.swap(at, at - 1);
            }
        }
    }
    items
}

/// The positions of the items of a list: of the first with each key.
struct Positions<'k> {
    by_key: HashMap<Token<'static>, usize>,
    merge_key: &'k str,
}

impl<'k> Positions<'k> {
    fn of(list: &[Value], merge_key: &'k str) -> Self {
        let mut by_key = HashMap::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            by_key
                .entry(Token::of(key_of(item, merge_key)).into_owned())
                .or_insert(index);
        }
        Self { by_key, merge_key }
    }

    fn get(&self, item: &Value) -> Option<usize> {
        self.by_key
            .get(&Token::of(key_of(item, self.merge_key)))
            .copied()
    }
}

fn key_of<'v>(item: &'v Value, merge_key: &str) -> &'v Value {
    if merge_key.is_empty() {
        item
    } else {
        item.get(merge_key).unwrap_or(&Value::Null)
    }
}

/// A value by which items are looked up: a string, or the JSON of anything else.
#[derive(PartialEq, Eq, Hash)]
enum Token<'v> {
    Text(Cow<'v, str>),
    Json(String),
}

impl<'v> Token<'v> {
    fn of(value: &'v Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            other => Self::Json(other.to_string()),
        }
    }

    fn into_owned(self) -> Token<'static> {
        match self {
            Self::Text(text) => Token::Text(Cow::Owned(text.into_owned())),
            Self::Json(json) => Token::Json(json),
        }
    }
}
