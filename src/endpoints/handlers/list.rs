//! GET of a collection.

use http::Response;

use crate::meta::options::ListOptions;
use crate::meta::status::Result;

use super::RequestContext;
use crate::endpoints::body::Body;
use crate::endpoints::respond;

/// Answers with a page of the objects that the options select.
///
/// # Errors
/// 400 for the options, 410 for a state that is gone, 504 for one that is not reached in time.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let options = ListOptions::from_query(&ctx.request.query, false)?;
    let page = ctx.store.list(ctx.namespace(), &options).await?;
    Ok(respond::response(
        200,
        ctx.output,
        ctx.encoder()?.list(page).await?,
    ))
}
