//! The kinds that the server serves, as admission asks for them.

use std::borrow::Cow;

use async_trait::async_trait;

use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object};

/// The resource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindResource {
    pub gvr: Gvr,
    pub namespaced: bool,
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
}
