//! PUT of an object or of a subresource that shares its kind.

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;

use crate::meta::Object;
use crate::meta::options::{OperationOptions, Write, WriteOptions};
use crate::meta::status::Result;
use crate::registry::store::{Target, Updater};
use crate::registry::strategy::Subresource;

use super::create::{AFTER_ADMISSION, dedup_owner_references};
use super::{RequestContext, RequestValidator, spans};
use crate::endpoints::body::Body;
use crate::telemetry::trace;

/// Replaces the object with the one in the body.
///
/// # Errors
/// A body or name that is refused, 404, 409 for conflicts, a failure of admission or validation.
pub async fn handle(
    ctx: &RequestContext<'_>,
    sub: Subresource<'_>,
    body: Bytes,
) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Update)?;
    trace::step("About to convert to expected version");
    let mut object = ctx.decode_main(&body, options.field_validation)?;
    trace::step("Conversion done");
    ctx.audit_object(&object);
    ctx.check_namespace(&mut object)?;
    ctx.check_name(&object)?;
    dedup_owner_references(&mut object, &ctx.warnings, "");
    let updater = ReplaceUpdater {
        ctx,
        sub,
        manager: ctx.manager(&options.field_manager),
        options: &options,
        object,
    };
    let validator = RequestValidator {
        ctx,
        options: OperationOptions::Write(&options),
    };
    let target = Target {
        name: ctx.request.info.url_name(),
        sub,
        force_create: false,
    };
    trace::step("About to store object in database");
    let context = ctx.write_context(options.dry_run);
    let updated = ctx.store.update(&context, target, &updater, &validator);
    let updated = updated.await;
    spans::stored(updated.is_ok(), &body);
    let updated = updated?;
    let code = if updated.created { 201 } else { 200 };
    ctx.answer_stored(code, updated.written.stored).await
}

/// Replaces the stored object by the body.
struct ReplaceUpdater<'a> {
    ctx: &'a RequestContext<'a>,
    sub: Subresource<'a>,
    manager: String,
    options: &'a WriteOptions,
    object: Object,
}

#[async_trait]
impl Updater for ReplaceUpdater<'_> {
    fn uid(&self) -> Option<&str> {
        Some(self.object.uid()).filter(|uid| !uid.is_empty())
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let mut object = self.object.clone();
        let manager = &self.manager;
        self.ctx.track(live, &mut object, self.sub, manager).await;
        self.ctx
            .admit(
                &mut object,
                live,
                self.ctx.request.info.url_name(),
                self.options,
            )
            .await?;
        dedup_owner_references(&mut object, &self.ctx.warnings, AFTER_ADMISSION);
        Ok(object)
    }
}
