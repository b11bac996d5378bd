//! The context of a write: its user and admission.

use async_trait::async_trait;

use crate::auth::User;
use crate::meta::status::Result;
use crate::meta::{ErrorList, Object};

use super::strategy::Subresource;
use super::warnings::Warnings;

/// The request that a write belongs to.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    pub user: &'a User,
    /// Empty for cluster-scoped resources.
    pub namespace: &'a str,
    pub dry_run: bool,
    pub warnings: &'a Warnings,
}

/// Admission, as the store sees it: the handlers bind it to the request.
#[async_trait]
pub trait AdmissionValidator: Send + Sync {
    /// Admits or refuses a write: `new` is `None` for a delete, `old` for a create. Plugins must
    /// not change the object any more.
    async fn validate(&self, new: Option<&mut Object>, old: Option<&Object>) -> Result<()>;

    /// Returns errors in a prepared object that depend on other objects or on the user's rights.
    /// They are reported with those of the strategy.
    async fn field_errors(
        &self,
        _sub: Subresource<'_>,
        _new: &Object,
        _old: Option<&Object>,
    ) -> ErrorList {
        ErrorList::new()
    }

    /// Returns errors in the references of an object. They are reported only of an object that is
    /// valid in itself.
    async fn reference_errors(&self, _new: &Object, _old: Option<&Object>) -> ErrorList {
        ErrorList::new()
    }

    /// Checks that an update (or apply) may create an object that does not exist.
    async fn authorize_create(&self) -> Result<()>;
}

/// Admits everything: for the server's own writes.
#[derive(Clone, Copy, Debug)]
pub struct AdmitAll;

#[async_trait]
impl AdmissionValidator for AdmitAll {
    async fn validate(&self, _new: Option<&mut Object>, _old: Option<&Object>) -> Result<()> {
        Ok(())
    }

    async fn authorize_create(&self) -> Result<()> {
        Ok(())
    }
}

/// Makes the new state of an object out of the present one; called again when the object changed
/// meanwhile.
#[async_trait]
pub trait Updater: Send + Sync {
    /// The UID that the object must have, where the client named one.
    fn uid(&self) -> Option<&str>;

    /// The object to write. `live` is `None` where nothing exists.
    async fn updated(&self, live: Option<&Object>) -> Result<Object>;

    /// Reports whether an object that is too large may not do without its managed fields: those of
    /// an apply are what it is about.
    fn keeps_managers(&self) -> bool {
        false
    }
}
