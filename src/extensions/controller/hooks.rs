//! Hooks that notify the controller of writes to definitions before the client gets its answer.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;

use super::Extensions;
use crate::meta::Object;
use crate::registry::resource::Hooks;

/// The hooks of the resource of definitions. They need the registry that holds it, so the
/// controller comes later, and is not kept alive by them.
#[derive(Default)]
pub struct DefinitionHooks(OnceLock<Weak<Extensions>>);

impl DefinitionHooks {
    /// Sets the controller.
    pub fn attach(&self, extensions: &Arc<Extensions>) {
        // Only the first call counts, and there is one.
        let _ = self.0.set(Arc::downgrade(extensions));
    }

    fn extensions(&self) -> Option<Arc<Extensions>> {
        self.0.get()?.upgrade()
    }
}

#[async_trait]
impl Hooks for DefinitionHooks {
    async fn written(&self, object: &Object, _old: Option<&Object>) {
        if let Some(extensions) = self.extensions() {
            extensions.observe(object);
        }
    }

    async fn deleted(&self, object: &Object) {
        if let Some(extensions) = self.extensions() {
            extensions.forget(object);
        }
    }
}
