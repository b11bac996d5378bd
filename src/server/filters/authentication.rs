//! Authentication of requests (apiserver `endpoints/filters/authentication.go`).

use http::Response;

use super::{Filter, FilterContext, Next, audit, max_in_flight};
use crate::auth::ANONYMOUS;
use crate::auth::authn::{Authenticator, Credentials};
use crate::endpoints::body::Body;
use crate::endpoints::respond;
use crate::meta::Status;

/// Authenticates the user of the request. HTTP/2 connections of unauthenticated clients, and those
/// beyond the limit of a user, are closed.
pub struct Authentication;

impl Filter for Authentication {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let (chain, connection) = (ctx.chain, ctx.connection);
        let credentials = Credentials {
            headers: &ctx.request.headers,
            peer: &connection.peer,
        };
        let authenticated = chain.authenticator.authenticate(&credentials).await;
        let (user, warnings, annotations) = match authenticated {
            Ok(Some(known)) if known.user.name != ANONYMOUS => {
                if !connection.authenticated(&known.user) {
                    return max_in_flight::too_many_requests();
                }
                (Some(known.user), known.warnings, known.annotations)
            }
            other => {
                if chain.goaway.unauthenticated {
                    connection.go_away();
                }
                let user = other.ok().flatten().map(|known| known.user);
                (user, Vec::new(), Vec::new())
            }
        };
        let known = ctx.request_mut().and_then(|request| {
            chain.authenticator.strip(&mut request.headers);
            request.user = user.ok_or_else(Status::unauthorized)?.into();
            Ok(())
        });
        ctx.annotations = annotations;
        let mut response = match known {
            Ok(()) => N::handle(ctx).await,
            Err(status) => {
                audit::unauthenticated(ctx, &status).await;
                ctx.status(&status)
            }
        };
        respond::add_warnings(
            &mut response,
            warnings.into_iter().map(str::to_owned).collect(),
        );
        response
    }
}
