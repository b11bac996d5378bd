//! A type as the protobuf codec reads it: a dense table by field number, with the constant bytes of
//! its JSON prepared.

use super::{Field, Kind, Presence, Schema, SchemaAlternative, Type, TypeRef};

/// Stands for a tag that the type does not have.
const NONE: u8 = u8::MAX;
/// The wire types of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
/// The bytes of a prepared text that are copied at once: most keys are shorter.
const STEP: usize = 32;
/// The depth to which values nest that show where nothing is.
const MAX_ABSENT_DEPTH: usize = 16;

/// The protobuf encoding of a type.
#[derive(Clone, Debug)]
pub struct WireType {
    /// In the order of the JSON, at most 64.
    pub fields: Box<[WireField]>,
    /// By tag (number and wire type as they stand in a message), the place in `fields`.
    by_tag: Box<[u8]>,
    /// The fields come by ascending number, none of them inlined: what is read in order is written
    /// in order.
    pub in_order: bool,
    /// A bit for each of `fields` that shows even where it is absent.
    pub always: u64,
    /// The place of `resourceVersion`.
    pub resource_version: Option<usize>,
    /// The place of `metadata`.
    pub metadata: Option<usize>,
}

/// A field as protobuf carries and JSON shows it.
#[derive(Clone, Debug)]
pub struct WireField {
    pub number: u32,
    /// Number and wire type.
    pub tag: u32,
    /// The place in [`Type::fields`].
    pub index: usize,
    pub arity: Arity,
    /// The type of the value, of an item, or of a map's value.
    /// The type of one value, without what makes it a list or a map.
    pub item: Kind,
    /// Zero is as good as absent.
    pub omits_zero: bool,
    /// `,"name":`, with the quote that opens the value where that is always a string.
    pub key: PreparedText,
    pub opens_quote: bool,
    /// The JSON of an absent field, key included; mostly nothing.
    pub absent: Box<[u8]>,
    /// `,"kind":"...","apiVersion":"..."` of the items of an embedding list.
    pub embedded: Option<PreparedText>,
}

/// The cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    Single,
    List,
    /// A list that is the only field of a message.
    Wrapped,
    Map,
    /// A map of wrapped lists.
    MapOfLists,
    /// A message whose fields JSON shows in the parent.
    Inline,
}

/// Text to append. What is not long is copied in one step of a fixed size.
#[derive(Clone, Debug, Default)]
pub struct PreparedText {
    head: [u8; STEP],
    length: usize,
    /// The whole of a text that is longer than a step.
    long: Box<[u8]>,
}

impl PreparedText {
    fn new(text: &str) -> Self {
        let mut head = [0; STEP];
        match head.get_mut(..text.len()) {
            Some(start) => start.copy_from_slice(text.as_bytes()),
            None => {
                return Self {
                    head,
                    length: text.len(),
                    long: text.as_bytes().into(),
                };
            }
        }
        Self {
            head,
            length: text.len(),
            long: Box::default(),
        }
    }

    /// The length of the text in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Appends the text.
    #[inline(always)]
    pub fn append(&self, out: &mut Vec<u8>) {
        if self.length <= STEP {
            let end = out.len() + self.length;
            out.extend_from_slice(&self.head);
            out.truncate(end);
        } else {
            out.extend_from_slice(&self.long);
        }
    }
}

impl WireType {
    pub(super) fn new(schema: &Schema, ty: &Type) -> Self {
        let own = ty
            .fields
            .iter()
            .enumerate()
            .filter(|(_, field)| field.via.is_none() && field.number > 0);
        let fields: Box<[WireField]> = own
            .map(|(index, field)| WireField::new(schema, index, field))
            .collect();
        assert!(
            fields.len() <= 64,
            "{} has more fields than an integer has bits",
            ty.name
        );
        let tags = fields
            .iter()
            .map(|field| field.tag as usize + 1)
            .max()
            .unwrap_or(0);
        let mut by_tag = vec![NONE; tags].into_boxed_slice();
        for (place, field) in fields.iter().enumerate() {
            by_tag[field.tag as usize] = place as u8;
        }
        let in_order = fields.is_sorted_by_key(|field| field.number)
            && fields.iter().all(|field| field.arity != Arity::Inline);
        let shows = |field: &WireField| !field.absent.is_empty() || field.arity == Arity::Inline;
        let always = fields
            .iter()
            .enumerate()
            .filter(|(_, field)| shows(field))
            .map(|(place, _)| 1 << place)
            .sum();
        let place = |name: &str| {
            fields
                .iter()
                .position(|field| ty.fields[field.index].json == name)
        };
        Self {
            always,
            resource_version: place("resourceVersion"),
            metadata: place("metadata"),
            by_tag,
            in_order,
            fields,
        }
    }

    /// The place of the field with a tag. The wire type is then the one that the field has.
    #[inline(always)]
    pub fn slot_of_tag(&self, tag: usize) -> Option<usize> {
        match self.by_tag.get(tag) {
            Some(&place) if place != NONE => Some(place.into()),
            _ => None,
        }
    }

    /// The place of the field with a number.
    pub fn place(&self, number: u32) -> Option<usize> {
        self.fields.iter().position(|field| field.number == number)
    }
}

impl WireField {
    /// Reports whether the values are integers or floats on the wire.
    #[inline]
    pub fn is_numeric(&self) -> bool {
        self.tag & 7 != BYTES
    }

    fn new(schema: &Schema, index: usize, field: &Field) -> Self {
        let (arity, item) = match &field.kind {
            Kind::List(item, _) if field.wrapped => (Arity::Wrapped, item.as_ref().clone()),
            Kind::List(item, _) => (Arity::List, item.as_ref().clone()),
            Kind::Map(item, _) => match &**item {
                Kind::List(inner, _) => (Arity::MapOfLists, inner.as_ref().clone()),
                item => (Arity::Map, item.clone()),
            },
            Kind::Inline(id) => (Arity::Inline, Kind::Message(*id)),
            kind => (Arity::Single, kind.clone()),
        };
        let opens_quote =
            arity == Arity::Single && item == Kind::String && field.presence != Presence::Nullable;
        let wire_type = match &item {
            _ if arity != Arity::Single && arity != Arity::List => BYTES,
            Kind::Double => FIXED64,
            _ if item.is_numeric() => VARINT,
            _ => BYTES,
        };
        let quote = if opens_quote { "\"" } else { "" };
        Self {
            number: field.number,
            index,
            arity,
            item,
            tag: field.number << 3 | wire_type,
            omits_zero: arity == Arity::Single && field.presence == Presence::OmitEmpty,
            key: PreparedText::new(&format!(",\"{}\":{quote}", field.json)),
            opens_quote,
            absent: absent(schema, field, 0).into_bytes().into(),
            embedded: embedded(schema, field),
        }
    }
}

/// Returns the JSON of an absent field, after a comma.
fn absent(schema: &Schema, field: &Field, depth: usize) -> String {
    let name = &field.json;
    match field.presence {
        _ if matches!(field.kind, Kind::Inline(_)) => String::new(),
        Presence::Always => format!(",\"{name}\":{}", zero(schema, &field.kind, depth)),
        Presence::Nullable => format!(",\"{name}\":null"),
        Presence::OmitEmpty if !field.filled.is_empty() => {
            format!(",\"{name}\":\"{}\"", field.filled)
        }
        Presence::OmitEmpty | Presence::Pointer => String::new(),
    }
}

/// The zero value of a Go type as JSON.
fn zero(schema: &Schema, kind: &Kind, depth: usize) -> String {
    let text = match kind {
        Kind::String => "\"\"",
        Kind::Bool | Kind::SchemaOr(SchemaAlternative::Bool, _) => "false",
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => "0",
        Kind::Quantity => "\"0\"",
        Kind::Message(id) if depth < MAX_ABSENT_DEPTH => {
            let fields = TypeRef { schema, id: *id }.get().fields.iter();
            let shown: String = fields
                .map(|field| absent(schema, field, depth + 1))
                .collect();
            return format!("{{{}}}", shown.trim_start_matches(','));
        }
        _ => "null",
    };
    text.to_owned()
}

/// Returns the apiVersion and kind that the items of an embedding list show.
fn embedded(schema: &Schema, field: &Field) -> Option<PreparedText> {
    let (true, Kind::List(item, _)) = (field.embedded, &field.kind) else {
        return None;
    };
    let Kind::Message(id) = **item else {
        return None;
    };
    let gvk = TypeRef { schema, id }.get().gvks.first()?;
    Some(PreparedText::new(&format!(
        ",\"kind\":\"{}\",\"apiVersion\":\"{}\"",
        gvk.kind,
        gvk.api_version()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{TypeId, builtin};

    #[test]
    fn every_type_has_a_wire_table() {
        for (id, ty) in builtin().types.iter().enumerate() {
            let wire = builtin().wire(TypeId(id as u32));
            assert_eq!(wire.fields.len(), ty.by_number.len(), "{}", ty.name);
            for (number, index) in &ty.by_number {
                let place = wire.place(*number).expect("a place");
                assert_eq!(
                    (
                        wire.fields[place].index,
                        wire.slot_of_tag(wire.fields[place].tag as usize)
                    ),
                    (*index, Some(place)),
                    "{}",
                    ty.name
                );
            }
            assert_eq!(
                (
                    wire.slot_of_tag(0),
                    wire.slot_of_tag(usize::MAX),
                    wire.place(u32::MAX)
                ),
                (None, None, None)
            );
        }
    }

    #[test]
    fn absent_fields_have_prepared_json() {
        let text = |prepared: &PreparedText| {
            let mut out = b"x".to_vec();
            prepared.append(&mut out);
            String::from_utf8(out).expect("text")
        };
        let wire = |name: &str| builtin().wire(builtin().named(name).expect("a type").id);
        let service = wire("k8s.io.api.core.v1.Service");
        assert_eq!(
            service
                .fields
                .iter()
                .map(|field| text(&field.key))
                .collect::<Vec<_>>(),
            ["x,\"metadata\":", "x,\"spec\":", "x,\"status\":"]
        );
        assert_eq!(
            &*service.fields[2].absent,
            b",\"status\":{\"loadBalancer\":{}}"
        );
        assert_eq!((service.always, service.metadata), (0b111, Some(0)));
        let term = wire("k8s.io.api.core.v1.NodeAffinity");
        assert_eq!(
            text(&term.fields[0].key),
            "x,\"requiredDuringSchedulingIgnoredDuringExecution\":"
        );
    }
}
