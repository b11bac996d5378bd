//! POST to a collection.

use std::collections::HashSet;

use crate::meta::Value;
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;

use crate::meta::Object;
use crate::meta::options::{OperationOptions, Write, WriteOptions};
use crate::meta::status::Result;
use crate::registry::store::Warnings;
use crate::registry::strategy::Subresource;

use super::{RequestContext, RequestValidator, spans};
use crate::endpoints::body::Body;
use crate::endpoints::negotiate;
use crate::telemetry::trace;

/// Metadata that only the server sets.
const SYSTEM_FIELDS: [&str; 5] = [
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// The maximum number of repeated owners that a warning names.
const MAX_REPEATED_OWNERS: usize = 100;

/// The end of a warning of owners that plugins have repeated.
pub const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Creates the object in the body.
///
/// # Errors
/// A body or name that is refused, a failure of admission or validation, 409 for a name that is
/// taken.
pub async fn handle(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    // A body that cannot be read is refused before the options are looked at.
    negotiate::body_media_type(&ctx.request.header(CONTENT_TYPE))?;
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    trace::step("About to convert to expected version");
    let mut object = ctx.decode_main(&body, options.field_validation)?;
    trace::step("Conversion done");
    ctx.audit_object(&object);
    for field in SYSTEM_FIELDS {
        object.metadata_mut().shift_remove(field);
    }
    ctx.check_namespace(&mut object)?;
    dedup_owner_references(&mut object, &ctx.warnings, "");
    ctx.track(
        None,
        &mut object,
        Subresource::Main,
        &ctx.manager(&options.field_manager),
    )
    .await;
    let name = object.name().to_owned();
    ctx.admit(&mut object, None, &name, &options).await?;
    dedup_owner_references(&mut object, &ctx.warnings, AFTER_ADMISSION);
    let validator = RequestValidator {
        ctx,
        options: OperationOptions::Write(&options),
    };
    trace::step("About to store object in database");
    let live = ctx
        .store
        .create(&ctx.write_context(options.dry_run), object, &validator)
        .await;
    spans::stored(live.is_ok(), &body);
    let live = live?;
    ctx.answer_stored(201, live.stored).await
}

/// The text that values have in common if and only if they are equal.
fn sorted_text(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

/// Drops repeated owners, with a warning (apiserver `dedupOwnerReferencesAndAddWarning`).
pub fn dedup_owner_references(object: &mut Object, warnings: &Warnings, when: &str) {
    let Some(Value::Array(owners)) = object.at_mut("/metadata/ownerReferences") else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    // Owners of one form are alike exactly if their texts are.
    let mut seen = HashSet::with_capacity(owners.len());
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let first = seen.insert(sorted_text(owner));
        if !first && repeated.len() < MAX_REPEATED_OWNERS {
            repeated.push(crate::meta::str_at(owner, "/uid").to_owned());
            repeated.dedup();
        }
        first
    });
    if !repeated.is_empty() {
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}
