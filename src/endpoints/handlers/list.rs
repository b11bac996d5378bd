//! GET of a collection.

use http::Response;

use crate::meta::options::ListOptions;
use crate::meta::status::Result;

use super::{RequestContext, spans};
use crate::endpoints::body::Body;
use crate::endpoints::respond;
use crate::telemetry::trace;

/// Answers with a page of the objects that the options select.
///
/// # Errors
/// 400 for the options, 410 for a state that is gone, 504 for one that is not reached in time.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let options = ListOptions::from_query(&ctx.request.query, false)?;
    let page = ctx.store.list(ctx.namespace(), &options).await?;
    trace::step("About to write a response");
    let encoder = ctx.encoder()?;
    let (attributes, encoded) = (|| spans::of_answer(ctx), encoder.list(page));
    let body = trace::in_span("SerializeObject", trace::SLOW_ANSWER, attributes, encoded).await?;
    trace::step("Writing http response done");
    Ok(respond::response(200, ctx.output, body))
}
