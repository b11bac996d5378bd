//! GET of one object.

use http::Response;

use crate::meta::Status;
use crate::meta::status::Result;

use super::{RequestContext, spans};
use crate::endpoints::body::Body;
use crate::endpoints::encode::Source;
use crate::endpoints::respond;
use crate::telemetry::trace;

/// Answers with the object, in any representation.
///
/// # Errors
/// 400 for the options, 404, 406 for the representation.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let query = &ctx.request.query;
    if query.flag("export").unwrap_or(false) {
        return Err(Status::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    trace::step("About to Get from storage");
    let stored = ctx
        .store
        .get(
            ctx.namespace(),
            ctx.request.info.url_name(),
            query.get("resourceVersion").unwrap_or(""),
        )
        .await?;
    trace::step("About to write a response");
    let encoder = ctx.encoder()?;
    let (attributes, encode) = (
        || spans::of_answer(ctx),
        || encoder.object(Source::Stored(stored)),
    );
    let body = trace::in_span_sync("SerializeObject", trace::SLOW_ANSWER, attributes, encode)?;
    trace::step("Writing http response done");
    Ok(respond::bytes(200, ctx.output, body))
}
