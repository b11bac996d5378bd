//! DELETE of an object or of a collection.

use bytes::Bytes;
use http::{Response, header};

use crate::codec;
use crate::meta::options::{DeleteOptions, ListOptions, OperationOptions};
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status};

use super::{RequestContext, RequestValidator};
use crate::endpoints::body::Body;
use crate::endpoints::encode::Source;
use crate::endpoints::negotiate::{self, MediaType};
use crate::endpoints::respond;
use crate::telemetry::trace;

/// Deletes the object.
///
/// # Errors
/// 400 for the options, 404, 409 for preconditions, a refusal of admission.
pub async fn handle(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let options = options(ctx, &body)?;
    let validator = RequestValidator {
        ctx,
        options: OperationOptions::Delete(&options),
    };
    let name = ctx.request.info.url_name();
    trace::step("About to delete object from database");
    let deleted = ctx
        .store
        .delete(
            &ctx.write_context(options.dry_run),
            name,
            &options,
            &validator,
        )
        .await?;
    trace::step("Object deleted from database");
    let object = deleted.last.object.clone();
    if deleted.gone && !ctx.store.resource.strategy.returns_deleted_object() {
        return Ok(ctx.answer_status(&Status::deleted(
            &ctx.store.resource.gvr,
            object.name(),
            object.uid(),
        )));
    }
    let code = if !deleted.gone && options.orphan_dependents == Some(false) {
        202
    } else {
        200
    };
    if deleted.gone {
        return ctx.answer(code, Source::Tree(object));
    }
    ctx.answer_stored(code, deleted.last.stored).await
}

/// Deletes what the list options select; answers with what it was.
///
/// # Errors
/// 400 for the options, and the first delete that fails.
pub async fn handle_collection(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let list = ListOptions::from_query(&ctx.request.query, false)?;
    let options = options(ctx, &body)?;
    let validator = RequestValidator {
        ctx,
        options: OperationOptions::Delete(&options),
    };
    let page = ctx
        .store
        .delete_collection(
            &ctx.write_context(options.dry_run),
            &list,
            &options,
            &validator,
            ctx.api.delete_collection_workers,
        )
        .await?;
    Ok(respond::response(
        200,
        ctx.output,
        ctx.encoder()?.list(page).await?,
    ))
}

/// The options in the body, or in the query where there is none.
///
/// # Errors
/// 400 for options that cannot be decoded, 422 for invalid ones.
pub fn options(ctx: &RequestContext<'_>, body: &Bytes) -> Result<DeleteOptions> {
    if body.is_empty() {
        return DeleteOptions::from_query(&ctx.request.query);
    }
    let options = decode(ctx, body)?;
    ctx.audit_object(&options);
    DeleteOptions::from_object(&options)
}

/// Any group and version may name DeleteOptions; other kinds are no options.
fn check_kind(api_version: &str, kind: &str) -> Result<()> {
    if matches!(kind, "" | "DeleteOptions") {
        return Ok(());
    }
    let scheme = "pkg/apis/meta/internalversion/scheme/register.go:27";
    Err(Status::bad_request(format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme {scheme:?}"
    )))
}

fn decode(ctx: &RequestContext<'_>, body: &[u8]) -> Result<Object> {
    let media = negotiate::body_media_type(&ctx.request.header(header::CONTENT_TYPE))?;
    let ty = crate::schema::builtin()
        .get(&Gvk::new("", "v1", "DeleteOptions"))
        .ok_or_else(|| Status::internal("DeleteOptions is not in the schema"))?;
    let bad = |why: codec::DecodeError| Status::bad_request(why.0);
    Ok(match media {
        MediaType::Json => {
            let unreadable = |why: codec::DecodeError| {
                Status::bad_request(format!(
                    "couldn't get version/kind; json parse error: {}",
                    why.0
                ))
            };
            let named = codec::json::Document::new(body)
                .and_then(codec::json::Document::type_meta)
                .map_err(unreadable)?;
            check_kind(&named.api_version, &named.kind)?;
            codec::json::decode(body, ty).map_err(bad)?.object
        }
        MediaType::Yaml => {
            let (value, _) = codec::yaml::to_value(body).map_err(bad)?;
            codec::from_value(&value, ty).map_err(bad)?.object
        }
        MediaType::Protobuf => {
            let envelope = codec::protobuf::unwrap(body).map_err(bad)?;
            codec::protobuf::decode(envelope.raw, ty).map_err(bad)?
        }
    })
}
