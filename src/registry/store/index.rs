//! The index keys of objects: their labels, and the field that many clients select by.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cacher::{IndexFn, IndexKey};
use crate::codec;
use crate::meta::selector::FieldReader;
use crate::meta::selector::labels::Operator;
use crate::storage::Stored;

use super::{Selection, Store};
use crate::registry::Strategy;

const LABEL: &str = "label";
const FIELD: &str = "field";

/// Returns the function that reads the index keys of the store's objects for the watch cache.
pub(super) fn reader(store: &Store) -> IndexFn {
    let bare = Store {
        cacher: None,
        ..store.clone()
    };
    Arc::new(
        move |stored: &Stored, keys: &mut Vec<IndexKey>| match bare.codec.message(stored) {
            Ok(Some(message)) => {
                read(&bare, &message, message.labels(), keys);
                true
            }
            Ok(None) if looks_like_json(&stored.value) => {
                let document = codec::json::Reader::new(&stored.value);
                read(&bare, &document, document.labels(), keys);
                true
            }
            _ => false,
        },
    )
}

/// Reports whether stored bytes can be an object, as far as that shows without decoding them.
pub(super) fn is_readable(store: &Store, stored: &Stored) -> bool {
    store
        .codec
        .message(stored)
        .is_ok_and(|message| message.is_some() || looks_like_json(&stored.value))
}

/// Reports whether bytes begin and end as a JSON object does.
fn looks_like_json(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii();
    bytes.starts_with(b"{") && bytes.ends_with(b"}")
}

fn read<'a>(
    store: &Store,
    object: &dyn FieldReader,
    labels: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    keys: &mut Vec<IndexKey>,
) {
    keys.extend(labels.map(|(key, value)| IndexKey::new(LABEL, &key, &value)));
    let strategy = &*store.resource.strategy;
    keys.extend(
        strategy
            .indexed_field()
            .map(|field| IndexKey::new(FIELD, field, &strategy.selectable_value(object, field))),
    );
}

/// Returns the index keys that every selected object has, those of fields first.
pub(super) fn keys(selection: &Selection, strategy: &dyn Strategy) -> Vec<IndexKey> {
    let field = strategy.indexed_field().and_then(|field| {
        Some(IndexKey::new(
            FIELD,
            field,
            selection.fields.required(field)?,
        ))
    });
    let labels = selection.labels.requirements.iter().filter_map(|one| {
        match (one.operator, one.values.as_slice()) {
            (Operator::Equals | Operator::In, [value]) => {
                Some(IndexKey::new(LABEL, &one.key, value))
            }
            _ => None,
        }
    });
    field.into_iter().chain(labels).collect()
}
