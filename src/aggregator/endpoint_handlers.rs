//! The event handlers that notice when the server behind an APIService may have come or gone: the
//! Services and EndpointSlices of those that APIServices name. Of others nothing is read.

use std::sync::Arc;

use super::availability::SERVICE_NAME;
use super::routes::Routes;
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::Object;
use crate::meta::selector::FieldReader;
use crate::storage::Revision;

/// The parts of an object that are read.
const FIELDS: &[&str] = &["metadata.name", "metadata.namespace", "metadata.labels"];

/// Queues the APIServices of a Service when it or its endpoints change.
pub struct EndpointHandler {
    pub routes: Arc<Routes>,
    pub queue: Arc<WorkQueue>,
    /// True for EndpointSlices, which name their Service in a label.
    pub are_slices: bool,
}

impl EndpointHandler {
    /// The APIServices that an object is about.
    fn affected(&self, object: &dyn FieldReader) -> Vec<String> {
        let namespace = object.text_at("metadata.namespace");
        let name = match self.are_slices {
            true => object.label(SERVICE_NAME).unwrap_or_default(),
            false => object.text_at("metadata.name"),
        };
        self.routes.behind(&namespace, &name)
    }

    fn check(&self, object: &Object) {
        let affected = self.affected(object);
        affected.iter().for_each(|name| self.queue.add(name));
    }
}

impl EventHandler for EndpointHandler {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(FIELDS)
    }

    fn is_unchanged(&self, object: &dyn FieldReader) -> bool {
        self.affected(object).is_empty()
    }

    fn replace(&self, _objects: &[Object], _revision: Revision) {
        // Some may have gone, so all are checked.
        self.routes
            .all()
            .keys()
            .for_each(|name| self.queue.add(name));
    }

    fn upsert(&self, object: &Object) {
        self.check(object);
    }

    fn remove(&self, object: &Object) {
        self.check(object);
    }
}
