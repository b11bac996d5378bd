//! GET of a collection.

use http::Response;

use crate::meta::options::ListOptions;
use crate::meta::status::Result;

use super::Exchange;
use crate::endpoints::body::Body;
use crate::endpoints::respond;

/// Answers with a page of the objects that the options select.
pub async fn handle(x: &Exchange<'_>) -> Result<Response<Body>> {
    let options = ListOptions::from_query(&x.request.query, false)?;
    let page = x.store.list(x.namespace(), &options).await?;
    Ok(respond::response(
        200,
        x.output,
        x.encoder()?.list(page).await?,
    ))
}
