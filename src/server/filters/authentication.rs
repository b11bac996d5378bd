//! Authentication of requests (apiserver `endpoints/filters/authentication.go`).

use http::Response;

use super::{Filter, FilterContext, Next, max_in_flight};
use crate::auth::ANONYMOUS;
use crate::auth::authn::{Authenticator, Credentials};
use crate::endpoints::body::Body;
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
        let user = match authenticated {
            Ok(Some(user)) if user.name != ANONYMOUS => {
                if !connection.authenticated(&user) {
                    return max_in_flight::too_many_requests();
                }
                Some(user)
            }
            other => {
                if chain.goaway.unauthenticated {
                    connection.go_away();
                }
                other.ok().flatten()
            }
        };
        let known = ctx.request_mut().and_then(|request| {
            chain.authenticator.strip(&mut request.headers);
            request.user = user.ok_or_else(Status::unauthorized)?.into();
            Ok(())
        });
        match known {
            Ok(()) => N::handle(ctx).await,
            Err(status) => ctx.status(&status),
        }
    }
}
