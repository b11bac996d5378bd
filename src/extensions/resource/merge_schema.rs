//! The types that field ownership sees in the versions of a definition, as one [`Schema`]
//! (kube-openapi `schemaconv`).

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::prune_and_default::object_meta;
use crate::meta::Gvk;
use crate::schema::{Field, Kind, ListType, MapType, Schema, Type, TypeId, builtin};

/// The schema of the versions of a kind. A version without a structural schema has values of any
/// type.
pub fn schema<'a>(
    versions: impl Iterator<Item = (Gvk, Option<&'a JsonSchemaProps>)>,
    preserve: bool,
) -> Schema {
    let mut builder = Builder::default();
    let meta = builder.import(object_meta().id);
    for (gvk, props) in versions {
        let id = match props {
            Some(props) => {
                let mut root = builder.structure(props, preserve || props.preserves());
                with_meta(&mut root, meta);
                builder.add(root)
            }
            None => builder.add(Type::default()),
        };
        builder.schema.types[id.0 as usize].gvks.push(gvk.clone());
        builder.schema.by_gvk.insert(gvk, id);
    }
    builder.schema
}

#[derive(Default)]
struct Builder {
    schema: Schema,
    /// Built-in types that have been copied.
    imported: HashMap<TypeId, TypeId>,
}

impl Builder {
    fn add(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.schema.types.len()).unwrap_or(u32::MAX));
        self.schema.types.push(ty);
        id
    }

    /// Copies a built-in type and those that it refers to.
    fn import(&mut self, id: TypeId) -> TypeId {
        if let Some(known) = self.imported.get(&id) {
            return *known;
        }
        let own = self.add(Type::default());
        self.imported.insert(id, own);
        let mut ty = builtin().types[id.0 as usize].clone();
        ty.wire = OnceLock::new();
        for field in &mut ty.fields {
            field.kind = self.import_kind(&field.kind);
        }
        self.schema.types[own.0 as usize] = ty;
        own
    }

    fn import_kind(&mut self, kind: &Kind) -> Kind {
        match kind {
            Kind::Message(id) => Kind::Message(self.import(*id)),
            Kind::Inline(id) => Kind::Inline(self.import(*id)),
            Kind::SchemaOr(alternative, id) => Kind::SchemaOr(*alternative, self.import(*id)),
            Kind::List(item, relation) => {
                Kind::List(Box::new(self.import_kind(item)), relation.clone())
            }
            Kind::Map(item, map_type) => Kind::Map(Box::new(self.import_kind(item)), *map_type),
            other => other.clone(),
        }
    }

    /// An object with fields. Where unknown fields are preserved they are so at every depth.
    fn structure(&mut self, props: &JsonSchemaProps, preserve: bool) -> Type {
        let mut ty = Type {
            preserve_unknown: preserve,
            map_type: map_type(props),
            ..Type::default()
        };
        for (name, property) in &props.properties {
            let kind = self.kind(property, preserve);
            push(
                &mut ty,
                Field {
                    default: property.default.clone(),
                    ..Field::new(name, kind)
                },
            );
        }
        ty
    }

    fn kind(&mut self, props: &JsonSchemaProps, preserve: bool) -> Kind {
        let preserve = preserve || props.preserves();
        match props.kind.as_str() {
            "object" => self.object(props, preserve),
            "array" => {
                let item = props
                    .items
                    .as_deref()
                    .map_or(Kind::Raw, |items| self.kind(items, preserve));
                let relation = match props.list_type.as_deref() {
                    Some("set") => ListType::Set,
                    Some("map") => ListType::Map(props.list_map_keys.clone()),
                    _ => ListType::Atomic,
                };
                Kind::List(Box::new(item), relation)
            }
            "integer" | "number" => Kind::Double,
            "boolean" => Kind::Bool,
            "string" if matches!(props.format.as_str(), "" | "byte") => Kind::String,
            // Any scalar will do.
            "string" => Kind::Time,
            _ => Kind::Any,
        }
    }

    fn object(&mut self, props: &JsonSchemaProps, preserve: bool) -> Kind {
        let additional = props
            .additional
            .as_ref()
            .filter(|_| props.properties.is_empty() && !props.embedded);
        if let Some(additional) = additional.filter(|one| one.allows) {
            let item = additional
                .schema
                .as_deref()
                .map_or(Kind::Any, |schema| self.kind(schema, preserve));
            return Kind::Map(Box::new(item), map_type(props));
        }
        let mut ty = self.structure(props, preserve);
        if props.embedded {
            let meta = self.import(object_meta().id);
            with_meta(&mut ty, meta);
        }
        Kind::Message(self.add(ty))
    }
}

fn map_type(props: &JsonSchemaProps) -> MapType {
    if props.map_type.as_deref() == Some("atomic") {
        MapType::Atomic
    } else {
        MapType::Granular
    }
}

/// Adds type and metadata to the schema of a resource, regardless of what it says of them.
fn with_meta(ty: &mut Type, meta: TypeId) {
    for (name, kind) in [
        ("apiVersion", Kind::String),
        ("kind", Kind::String),
        ("metadata", Kind::Message(meta)),
    ] {
        match ty.by_json.get(name) {
            Some(&index) => ty.fields[index] = Field::new(name, kind),
            None => push(ty, Field::new(name, kind)),
        }
    }
}

fn push(ty: &mut Type, field: Field) {
    ty.by_json.insert(field.json.clone(), ty.fields.len());
    ty.fields.push(field);
}
