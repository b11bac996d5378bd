//! An arena of types that refer to one another by index. Built-in and custom types differ only in
//! the builder.

mod wire;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::meta::Gvk;
use crate::meta::{Key, Value};
pub use wire::{Arity, WireField, WireType};

/// The index of a type in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Types by index, by name and by kind. Immutable once built; shared behind an `Arc` or a `'static`
/// reference.
#[derive(Debug, Default)]
pub struct Schema {
    pub types: Vec<Type>,
    /// By [`Type::name`].
    pub by_name: HashMap<String, TypeId>,
    pub by_gvk: HashMap<Gvk, TypeId>,
    /// Every resource that the types declare, in discovery order (empty for a CRD's schema).
    pub resources: Vec<ResourceDecl>,
    /// The versions that are served, in discovery order (empty for a CRD's schema).
    pub group_versions: Vec<GroupVersionDecl>,
}

/// A served version of a group, with the priorities of its APIService.
#[derive(Debug, Clone, Default)]
pub struct GroupVersionDecl {
    pub group: String,
    pub version: String,
    /// `groupPriorityMinimum`; 0 for the group of the APIServices, which has no APIService itself.
    pub group_priority: i32,
    pub version_priority: i32,
}

/// A structured type: the fields of a JSON object.
#[derive(Debug, Default, Clone)]
pub struct Type {
    /// The full protobuf name, such as `k8s.io.api.core.v1.PodSpec`; for a CRD's types a path of
    /// its own.
    pub name: String,
    /// The OpenAPI definition name, such as `io.k8s.api.core.v1.PodSpec`; empty where none is
    /// published.
    pub openapi_name: String,
    /// The kinds that this type is the schema of.
    pub gvks: Vec<Gvk>,
    /// In the order of the Go struct, which is the order of the JSON.
    pub fields: Vec<Field>,
    /// JSON name to index in `fields`. Names are matched exactly, case included.
    pub by_json: HashMap<Key, usize>,
    /// Protobuf number to index in `fields`. Inlined messages have an entry of kind
    /// [`Kind::Inline`].
    pub by_number: HashMap<u32, usize>,
    /// The values of `by_number` by ascending number, the order in which protobuf is written.
    pub wire_order: Vec<usize>,
    /// Ownership of the struct as a whole (`x-kubernetes-map-type: atomic`).
    pub map_type: MapType,
    /// `x-kubernetes-unions`, as published in OpenAPI.
    pub unions: Option<Value>,
    /// Only for types from a CRD: unknown fields stay.
    pub preserve_unknown: bool,
    /// The tables of the protobuf codec, made at first use; see [`Schema::wire`].
    pub wire: OnceLock<WireType>,
}

/// One field of a structured type.
#[derive(Debug, Clone)]
pub struct Field {
    pub json: Key,
    /// Protobuf field number; 0 for fields that protobuf does not carry (apiVersion, kind; CRD
    /// types).
    pub number: u32,
    pub kind: Kind,
    pub presence: Presence,
    pub patch_strategy: PatchStrategy,
    /// The key that pairs list items in a strategic merge patch.
    pub patch_merge_key: String,
    /// `x-kubernetes-map-type` of the field itself, which overrides that of its message
    /// (PersistentVolumeSpec.claimRef).
    pub map_type: Option<MapType>,
    /// The declared default.
    pub default: Option<Value>,
    pub enumeration: Vec<String>,
    /// Listed in the OpenAPI `required`.
    pub required: bool,
    /// The index of the [`Kind::Inline`] field through which protobuf carries this one; JSON shows
    /// it in place.
    pub via: Option<usize>,
    /// A list that protobuf carries as the only field of a message (APIResource.verbs). The lists
    /// of a map always are.
    pub wrapped: bool,
    /// The Go type as decoding errors spell it (`v1.PodPhase`); empty if [`Kind`] determines it.
    pub go_type: String,
    /// The text that the codec puts where the string is empty: upstream applies some defaults
    /// whenever it reads (the phase of a PersistentVolumeClaim). Empty for most.
    pub filled: String,
    /// The items of the list are shown with their kind and apiVersion
    /// (StatefulSetSpec.volumeClaimTemplates).
    pub embedded: bool,
    /// An empty list that is sent is not the same as none: managed fields are forgotten, and rules
    /// for scaling have no policies rather than the default ones.
    pub keeps_empty: bool,
}

impl Field {
    /// A field with a name and a kind only, which is omitted when absent.
    pub fn new(json: impl Into<Key>, kind: Kind) -> Self {
        Self {
            json: json.into(),
            number: 0,
            kind,
            presence: Presence::Pointer,
            patch_strategy: PatchStrategy::default(),
            patch_merge_key: String::new(),
            map_type: None,
            default: None,
            enumeration: Vec::new(),
            required: false,
            via: None,
            wrapped: false,
            go_type: String::new(),
            filled: String::new(),
            embedded: false,
            keeps_empty: false,
        }
    }
}

/// The strategy names of a strategic merge patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    /// The patch's value takes the place of the whole map (PodDisruptionBudgetSpec.selector).
    pub replace: bool,
}

/// The condition under which JSON shows a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// A Go value without `omitempty`: always shown, zero value included (`"status": {}`, `"port":
    /// 0`); null for a nil list, map, time or raw value.
    Always,
    /// A Go value with `omitempty`: the zero value is absence. Protobuf writes it always.
    OmitEmpty,
    /// A Go pointer: present with a zero value differs from absent.
    Pointer,
    /// A Go pointer without `omitempty`: absence is shown as null (`"apiGroup": null`).
    Nullable,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    /// Base64 in JSON.
    Bytes,
    Quantity,
    /// RFC 3339 to the second.
    Time,
    /// RFC 3339 to the microsecond.
    MicroTime,
    IntOrString,
    /// `runtime.RawExtension` and `apiextensions JSON`: any JSON, kept as sent.
    Raw,
    /// `FieldsV1`: a JSON object of field paths.
    FieldsV1,
    /// JSONSchemaPropsOrArray, ...OrBool, ...OrStringArray: a schema, or an alternative of another
    /// JSON type.
    SchemaOr(SchemaAlternative, TypeId),
    /// Any JSON (CRD types with x-kubernetes-preserve-unknown-fields and no type).
    Any,
    Message(TypeId),
    List(Box<Kind>, ListType),
    Map(Box<Kind>, MapType),
    /// A protobuf message whose fields JSON shows in the parent. Never a JSON field itself.
    Inline(TypeId),
}

impl Kind {
    /// Reports whether protobuf has the value as an integer or a float, not as bytes.
    pub fn is_numeric(&self) -> bool {
        matches!(self, Self::Bool | Self::Int32 | Self::Int64 | Self::Double)
    }
}

/// The alternative to a schema in apiextensions' union types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaAlternative {
    Array,
    Bool,
    StringArray,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// Items are told apart by these keys.
    Map(Vec<String>),
}

/// `x-kubernetes-map-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// A served resource, as discovery shows it.
#[derive(Debug, Clone, Default)]
pub struct ResourceDecl {
    pub group: String,
    pub version: String,
    /// The plural in URLs.
    pub resource: String,
    pub singular: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub subresources: Vec<SubresourceDecl>,
    /// The path between `/registry/` and the namespace or name; empty for resources that are not
    /// stored.
    pub storage_prefix: String,
    /// The kind whose bytes are stored, where it differs from this one (HPA v1 is stored as v2).
    pub storage_gvk: Option<Gvk>,
    /// Stored as JSON rather than protobuf (CRDs, APIServices).
    pub stored_as_json: bool,
}

/// A subresource of a resource, as discovery shows it.
#[derive(Debug, Clone, Default)]
pub struct SubresourceDecl {
    pub name: String,
    /// The kind it answers with; group and version are the parent's where empty.
    pub kind: Gvk,
    pub verbs: Vec<String>,
}

/// A type together with the schema that its indexes refer to. Copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef<'a> {
    pub schema: &'a Schema,
    pub id: TypeId,
}

impl Type {
    /// The index of the field that JSON calls `name`. Quick if it is `guess` or soon after it, as
    /// in objects that keep the order of the schema.
    pub fn index_from(&self, guess: usize, name: &str) -> Option<usize> {
        const AHEAD: usize = 8;
        let ahead = self.fields.iter().skip(guess).take(AHEAD);
        let near = ahead
            .enumerate()
            .find(|(_, field)| field.json == name && !matches!(field.kind, Kind::Inline(_)));
        near.map(|(step, _)| guess + step)
            .or_else(|| self.by_json.get(name).copied())
    }
}

impl<'a> TypeRef<'a> {
    pub fn get(self) -> &'a Type {
        &self.schema.types[self.id.0 as usize]
    }

    /// The type `id` of the same schema.
    pub fn to(self, id: TypeId) -> Self {
        Self {
            schema: self.schema,
            id,
        }
    }

    /// The field that JSON calls `name`.
    pub fn field(self, name: &str) -> Option<&'a Field> {
        let ty = self.get();
        ty.by_json.get(name).map(|&index| &ty.fields[index])
    }
}

impl Schema {
    pub fn get(&self, gvk: &Gvk) -> Option<TypeRef<'_>> {
        self.by_gvk.get(gvk).map(|&id| TypeRef { schema: self, id })
    }

    /// A type as the protobuf codec reads it.
    #[inline]
    pub fn wire(&self, id: TypeId) -> &WireType {
        let ty = &self.types[id.0 as usize];
        ty.wire.get_or_init(|| WireType::new(self, ty))
    }

    /// The type with this protobuf name.
    pub fn named(&self, name: &str) -> Option<TypeRef<'_>> {
        self.by_name
            .get(name)
            .map(|&id| TypeRef { schema: self, id })
    }
}
