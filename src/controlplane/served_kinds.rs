//! The kinds that the registry serves, as admission asks for them.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::admission::kinds::{KindResource, Kinds};
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object, Status};
use crate::registry::{Registry, Store};
use crate::schema::ResourceDecl;

/// The kinds of a registry.
pub struct ServedKinds(Arc<Registry>);

impl ServedKinds {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self(registry)
    }

    fn store(&self, gvr: &Gvr) -> Result<Arc<Store>> {
        self.0
            .get(gvr)
            .ok_or_else(|| Status::internal(format!("{} is not served", gvr.group_resource())))
    }

    /// Calls `look` with every declaration that clients are served, until it returns something.
    fn find<T>(&self, mut look: impl FnMut(&ResourceDecl) -> Option<T>) -> Option<T> {
        let found = self.0.decls().find_map(&mut look);
        found.or_else(|| {
            let custom = self.0.custom();
            custom.values().find_map(|store| look(&store.resource.decl))
        })
    }
}

fn gvr(decl: &ResourceDecl) -> Gvr {
    Gvr::new(&decl.group, &decl.version, &decl.resource)
}

/// The kind that a resource shows, or that its subresource does; `None` where it has none.
fn shown_kind(decl: &ResourceDecl, subresource: &str) -> Option<Gvk> {
    let own = Gvk::new(&decl.group, &decl.version, &decl.kind);
    if subresource.is_empty() {
        return Some(own);
    }
    let sub = decl
        .subresources
        .iter()
        .find(|sub| sub.name == subresource)?;
    Some(match sub.kind.version.as_str() {
        "" => Gvk::new(&decl.group, &decl.version, &sub.kind.kind),
        _ => sub.kind.clone(),
    })
}

/// Reports whether an object says that it is of a kind.
fn is_of(object: &Object, gvk: &Gvk) -> bool {
    let (group, version) = object
        .api_version()
        .split_once('/')
        .unwrap_or(("", object.api_version()));
    object.kind() == gvk.kind && group == gvk.group && version == gvk.version
}

#[async_trait]
impl Kinds for ServedKinds {
    fn generation(&self) -> u64 {
        self.0.version()
    }

    fn resource_of(&self, gvk: &Gvk) -> Option<KindResource> {
        self.find(|decl| {
            let same =
                decl.kind == gvk.kind && decl.group == gvk.group && decl.version == gvk.version;
            (same && !decl.storage_prefix.is_empty()).then(|| KindResource {
                gvr: gvr(decl),
                namespaced: decl.namespaced,
            })
        })
    }

    fn equivalents(&self, asked: &Gvr, subresource: &str) -> Vec<(Gvr, Gvk)> {
        let Some(store) = self.0.get(asked) else {
            return Vec::new();
        };
        let prefix = &store.resource.decl.storage_prefix;
        let mut found = Vec::new();
        if !prefix.is_empty() {
            self.find(|decl| -> Option<()> {
                let other = decl.storage_prefix == *prefix
                    && (&decl.group, &decl.version) != (&asked.group, &asked.version);
                let kind = other.then(|| shown_kind(decl, subresource)).flatten();
                found.extend(kind.map(|kind| (gvr(decl), kind)));
                None
            });
        }
        found.sort();
        found
    }

    async fn versioned<'o>(
        &self,
        object: &'o Object,
        gvr: &Gvr,
        gvk: &Gvk,
    ) -> Result<Cow<'o, Object>> {
        if is_of(object, gvk) {
            return Ok(Cow::Borrowed(object));
        }
        let store = self.store(gvr)?;
        let Some(custom) = &store.resource.custom else {
            return Ok(match store.codec.served(object) {
                Cow::Borrowed(_) => Cow::Borrowed(object),
                Cow::Owned(served) => Cow::Owned(served),
            });
        };
        let unknown = || Status::internal(format!("unable to convert to {gvk}: unknown kind"));
        custom
            .versions()
            .convert(&object.0, &gvk.api_version())
            .map_err(|why| Status::failure(500, "", why))?
            .map(|converted| Cow::Owned(Object(converted)))
            .ok_or_else(unknown)
    }
}
