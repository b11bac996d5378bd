//! Impersonation (apiserver `endpoints/filters/impersonation`).

use std::sync::Arc;

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::auth::{User, impersonation};
use crate::endpoints::body::Body;
use crate::meta::status::Result;
use crate::telemetry::latency::{Layer, measure};
use crate::telemetry::requests::FilterName;

/// Replaces the user of the request by the one it asks to act as, if its own user may.
pub struct Impersonate;

impl Filter for Impersonate {
    const SPAN: Option<&'static str> = Some("constrainedimpersonation");

    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        match impersonate(ctx).await {
            Ok(()) => {
                ctx.end_filter(FilterName::Impersonation);
                N::handle(ctx).await
            }
            Err(status) => ctx.status(&status),
        }
    }
}

async fn impersonate(ctx: &mut FilterContext<'_>) -> Result<()> {
    let wanted = impersonation::requested_user(&mut ctx.request_mut()?.headers)?;
    match wanted {
        Some(wanted) => Box::pin(act_as(ctx, &wanted)).await,
        None => Ok(()),
    }
}

async fn act_as(ctx: &mut FilterContext<'_>, wanted: &User) -> Result<()> {
    let attributes = ctx.request.attributes();
    let impersonated = ctx.chain.impersonation.impersonate(wanted, &attributes);
    let (user, constraint) = measure(Layer::Impersonation, impersonated).await?;
    let user = Arc::new(user);
    if let Some(audit) = &ctx.audit {
        audit.impersonate(user.clone(), &constraint);
    }
    ctx.request_mut()?.user = user;
    Ok(())
}
