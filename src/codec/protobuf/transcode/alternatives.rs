//! The messages of apiextensions that hold a schema or something else (`JSONSchemaPropsOrBool`,
//! `JSONSchemaPropsOrArray`, ...).

use super::{Open, Transcoder};
use crate::codec::DecodeError;
use crate::codec::protobuf::field_offsets::{ByteRange, Value};
use crate::codec::protobuf::wire::RawField;
use crate::schema::{Kind, SchemaAlternative, TypeId};

impl Transcoder<'_> {
    pub(super) fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        part: ByteRange,
        open: Open,
    ) -> Result<(), DecodeError> {
        let (schema, other) = if alternative == SchemaAlternative::Bool {
            (2, 1)
        } else {
            (1, 2)
        };
        let (mut found, mut allows, mut items) = (None, false, false);
        let mut fields = self.read(part);
        while let Some(RawField { number, value }) = fields.next()? {
            if number == schema {
                found = Some(Value::new(false, value, fields.at));
            } else if number == other {
                items = true;
                allows = value.integer() != 0;
            }
        }
        match (alternative, found) {
            (SchemaAlternative::Array, _) if items => {
                self.alternatives(&Kind::Message(id), part, open)
            }
            (SchemaAlternative::StringArray, _) if items => {
                self.alternatives(&Kind::String, part, open)
            }
            (_, Some(schema)) => self.message(schema.range(), id, open.depth + 1, open.top, None),
            (SchemaAlternative::Bool, None) => self.literal(if allows { "true" } else { "false" }),
            _ => self.literal("null"),
        }
    }

    /// The items of a JSONSchemaPropsOr…Array, which have number 2.
    fn alternatives(
        &mut self,
        kind: &Kind,
        part: ByteRange,
        open: Open,
    ) -> Result<(), DecodeError> {
        let begun = self.out.len();
        let mut values = self.read(part);
        while let Some(raw) = values.next()? {
            if raw.number == 2 {
                self.out.push(b',');
                self.value(kind, Value::new(false, raw.value, values.at), open)?;
            }
        }
        self.close(begun, *b"[]");
        Ok(())
    }
}
