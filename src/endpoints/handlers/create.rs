//! POST to a collection.

use crate::meta::Value;
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;

use crate::meta::Object;
use crate::meta::options::{Write, WriteOptions};
use crate::meta::status::Result;
use crate::registry::store::Warnings;
use crate::registry::strategy::Subresource;

use super::{Exchange, RequestGate};
use crate::endpoints::body::Body;
use crate::endpoints::negotiate;
use crate::endpoints::respond::Shown;

/// Metadata that only the server sets.
const SYSTEM_FIELDS: [&str; 5] = ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// Creates the object in the body.
pub async fn handle(x: &Exchange<'_>, body: Bytes) -> Result<Response<Body>> {
    // A body that cannot be read is refused before the options are looked at.
    negotiate::input(&x.request.header(CONTENT_TYPE))?;
    let options = WriteOptions::from_query(&x.request.query, Write::Create)?;
    let mut object = x.decode_main(&body, options.field_validation)?;
    for field in SYSTEM_FIELDS {
        object.metadata_mut().shift_remove(field);
    }
    x.check_namespace(&mut object)?;
    dedup_owner_references(&mut object, &x.warnings, "");
    x.track(None, &mut object, Subresource::Main, &x.manager(&options.field_manager));
    let name = object.name().to_owned();
    x.admit(&mut object, None, &name, options.dry_run).await?;
    let gate = RequestGate { x, dry_run: options.dry_run };
    let live = x.store.create(&x.write_context(options.dry_run), object, &gate).await?;
    x.answer(201, Shown::Stored(live.stored.into()))
}

/// Drops repeated owners, with a warning (apiserver `dedupOwnerReferencesAndAddWarning`).
pub fn dedup_owner_references(object: &mut Object, warnings: &Warnings, when: &str) {
    let Some(Value::Array(owners)) = object.at_mut("/metadata/ownerReferences") else { return };
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut repeated = Vec::new();
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            repeated.push(crate::meta::str_at(&owner, "/uid").to_owned());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    if !repeated.is_empty() {
        repeated.dedup();
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}
