//! The token subresource of service accounts (authentication.k8s.io/v1 TokenRequest).

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;

use crate::admission::Notes;
use crate::auth::authn::jwt;
use crate::base::random;
use crate::merge;
use crate::meta::options::{Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status, time};

use super::RequestContext;
use crate::endpoints::body::Body;
use crate::endpoints::encode::Source;

/// The lifetime of a token whose request names none, in seconds (`SetDefaults_TokenRequest`).
pub const DEFAULT_SECONDS: i64 = 3600;

/// The annotation with the ID of a token, for the audit event.
const ISSUED: &str = "authentication.kubernetes.io/issued-credential-id";

/// Signs tokens for service accounts.
#[async_trait]
pub trait TokenIssuer: Send + Sync {
    /// Completes a TokenRequest for the service account with its token.
    async fn issue(&self, service_account: &Object, request: Object) -> Result<Object>;
}

/// Answers a TokenRequest.
///
/// # Errors
/// 400 or 422 for the request, 404 for the service account or the bound object.
pub async fn handle(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    let gvk = Gvk::new("authentication.k8s.io", "v1", "TokenRequest");
    let ty = ctx
        .store
        .resource
        .schema
        .get(&gvk)
        .ok_or_else(|| Status::internal("TokenRequest is not in the schema"))?;
    let mut request = ctx
        .decode_as(&body, &gvk, ty, options.field_validation)?
        .object;
    ctx.audit_object(&request);
    ctx.check_namespace(&mut request)?;
    if request.i64_at("/spec/expirationSeconds").is_none() {
        request
            .section_mut("spec")
            .insert("expirationSeconds", DEFAULT_SECONDS.into());
    }
    let manager = ctx.manager(&options.field_manager);
    merge::update(
        None,
        &mut request,
        &ctx.writer_of_fixed(&gvk.api_version(), ty, &manager),
    );
    let issuer = ctx.api.tokens.as_ref().ok_or_else(Status::no_such_path)?;
    let name = ctx.request.info.url_name();
    // Admission first: a refusal must not reveal whether the account exists.
    ctx.admit_unstored(&gvk, &mut request, &options).await?;
    let account = ctx
        .store
        .cached_get(ctx.namespace(), name)
        .await?
        .ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, name))?;
    // What is answered does not have what validation is shown of a new object.
    let mut shown = request.clone();
    shown.set_meta_str("uid", &random::uuid());
    let now = time::format(ctx.api.clock.now().as_second());
    shown.set_meta_str("creationTimestamp", &now);
    ctx.validate_unstored(&gvk, &mut shown, &options).await?;
    let seconds = |object: &Object| object.i64_at("/spec/expirationSeconds");
    let asked = seconds(&request);
    let answer = issuer.issue(&account, request).await?;
    if let (Some(asked), Some(given)) = (asked, seconds(&answer))
        && given < asked
    {
        ctx.warnings.add(format!(
            "requested expiration of {asked} seconds shortened to {given} seconds"
        ));
    }
    if let Some(token) = jwt::parse(answer.str_at("/status/token")) {
        ctx.annotate(ISSUED.to_owned(), format!("JTI={}", token.claims.jti));
    }
    ctx.answer(201, Source::Fixed(answer))
}
