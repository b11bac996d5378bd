//! The kinds that the server serves, as admission asks for them.

use std::borrow::Cow;

use async_trait::async_trait;

use super::cel::PatchTypes;
use crate::merge::Ty;
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object};
use crate::schema::{SchemaHandle, TypeId, TypeRef};

/// The resource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindResource {
    pub gvr: Gvr,
    pub namespaced: bool,
}

/// The type of a kind whose objects a plugin changes. It keeps the schema of a custom kind alive.
#[derive(Clone, Debug)]
pub struct KindType {
    schema: SchemaHandle,
    id: TypeId,
    is_builtin: bool,
}

impl KindType {
    /// Returns the type of a built-in kind.
    pub fn builtin(gvk: &Gvk) -> Option<Self> {
        let schema = crate::schema::builtin();
        Some(Self {
            id: schema.get(gvk)?.id,
            schema: SchemaHandle::Static(schema),
            is_builtin: true,
        })
    }

    /// Returns the type of a custom kind.
    pub fn custom(schema: &SchemaHandle, gvk: &Gvk) -> Option<Self> {
        Some(Self {
            id: schema.get(gvk)?.id,
            schema: schema.clone(),
            is_builtin: false,
        })
    }

    /// The type as mutations need it.
    pub fn patch_types(&self) -> PatchTypes<'_> {
        let ty = TypeRef {
            schema: &self.schema,
            id: self.id,
        };
        PatchTypes {
            merge: Ty::from(ty),
            native: self.is_builtin.then_some(ty),
        }
    }
}

/// The reason why a changed object is no object of its kind any more, in the words of upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It cannot be read: a value does not fit its field, or there is no such kind.
    Unreadable(String),
    /// It is of another kind.
    Unconvertible(String),
}

/// The served kinds.
#[async_trait]
pub trait Kinds: Send + Sync {
    /// Grows with each change of what is served.
    fn generation(&self) -> u64;

    /// The resource of a kind, where clients are served it.
    fn resource_of(&self, gvk: &Gvk) -> Option<KindResource>;

    /// Every other resource that shows the objects of a resource, or of its subresource, and the
    /// kind that it shows them in (apimachinery `runtime.EquivalentResourceMapper`).
    fn equivalents(&self, gvr: &Gvr, subresource: &str) -> Vec<(Gvr, Gvk)>;

    /// An object of a request in the kind that the resource `gvr` shows.
    ///
    /// # Errors
    /// The object cannot be converted.
    async fn versioned<'o>(
        &self,
        object: &'o Object,
        gvr: &Gvr,
        gvk: &Gvk,
    ) -> Result<Cow<'o, Object>>;

    /// Brings an object that [`Kinds::versioned`] showed as `gvr` and `gvk`, and that a plugin has
    /// changed since, into the form of [`Attributes::object`](super::Attributes::object), which
    /// `original` has: of its version, complete and defaulted. What its kind does not know goes
    /// without a word.
    ///
    /// # Errors
    /// The change has made it unfit.
    async fn completed(
        &self,
        shown: Object,
        gvr: &Gvr,
        gvk: &Gvk,
        original: &Object,
    ) -> std::result::Result<Object, Unfit>;

    /// Returns the type of what [`Kinds::versioned`] shows; `None` for a kind without a schema.
    fn type_of(&self, gvr: &Gvr, gvk: &Gvk) -> Option<KindType>;
}

/// Knows of no kinds.
#[cfg(test)]
pub struct NoKinds;

#[cfg(test)]
#[async_trait]
impl Kinds for NoKinds {
    fn generation(&self) -> u64 {
        0
    }

    fn resource_of(&self, _gvk: &Gvk) -> Option<KindResource> {
        None
    }

    fn equivalents(&self, _gvr: &Gvr, _subresource: &str) -> Vec<(Gvr, Gvk)> {
        Vec::new()
    }

    async fn versioned<'o>(
        &self,
        object: &'o Object,
        _gvr: &Gvr,
        _gvk: &Gvk,
    ) -> Result<Cow<'o, Object>> {
        Ok(Cow::Borrowed(object))
    }

    async fn completed(
        &self,
        shown: Object,
        _gvr: &Gvr,
        _gvk: &Gvk,
        _original: &Object,
    ) -> std::result::Result<Object, Unfit> {
        Ok(shown)
    }

    fn type_of(&self, _gvr: &Gvr, gvk: &Gvk) -> Option<KindType> {
        KindType::builtin(gvk)
    }
}
