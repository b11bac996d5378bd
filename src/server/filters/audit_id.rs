//! The audit ID, by which a request is found in logs (apiserver `endpoints/filters/audit_init.go`).

use http::{HeaderName, HeaderValue, Response};

use super::{Filter, FilterContext, Next};
use crate::base::random;
use crate::endpoints::body::Body;

/// The header of the audit ID, in requests and responses.
pub const HEADER: HeaderName = HeaderName::from_static("audit-id");

/// Sets the audit ID of the request: the client's, or a random one.
pub struct AuditId;

impl Filter for AuditId {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let given = ctx.request.headers.get(&HEADER).filter(|id| !id.is_empty());
        ctx.audit_id = match given {
            Some(id) => id.clone(),
            None => HeaderValue::try_from(random::uuid())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        };
        let id = ctx.audit_id.clone();
        match ctx.request_mut() {
            Ok(request) => request.audit_id = Some(id),
            Err(status) => return ctx.status(&status),
        }
        N::handle(ctx).await
    }
}
