//! The graph of API types, which drives decoding, encoding, defaulting, merging and documentation.
//! Knows no users and no CRD objects.

mod builtin;
mod descriptor;
mod graph;
mod handle;

pub use builtin::builtin;
pub use graph::{
    Arity, Field, GroupVersionDecl, Kind, ListType, MapType, PatchStrategy, Presence, ResourceDecl,
    Schema, SchemaAlternative, SubresourceDecl, Type, TypeId, TypeRef, WireField, WireType,
};
pub use handle::SchemaHandle;
