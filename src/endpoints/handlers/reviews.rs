//! Resources without storage: access reviews, token reviews and component statuses.

use bytes::Bytes;
use http::Response;

use crate::admission::Notes;
use crate::builtin::{authentication, authorization};
use crate::meta::options::{Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status, json};
use crate::registry::Subresource;
use crate::registry::store::Page;

use super::RequestContext;
use crate::endpoints::body::Body;
use crate::endpoints::encode::Source;
use crate::endpoints::respond;

/// The name of the store as a component.
const STORE: &str = "etcd-0";

/// Answers a request to a resource without storage.
///
/// # Errors
/// 400 for the body, 422 for an invalid review, a refusal of admission.
pub async fn handle(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let info = &ctx.request.info;
    match (info.resource.as_str(), info.verb.as_str()) {
        ("componentstatuses", "list") => {
            let revision = ctx
                .store
                .storage
                .current_revision()
                .await
                .unwrap_or_default();
            Ok(respond::response(
                200,
                ctx.output,
                ctx.encoder()?
                    .list(Page {
                        revision,
                        ..Page::default()
                    })
                    .await?,
            ))
        }
        ("componentstatuses", "get") => component_status(ctx).await,
        (_, "create") => review(ctx, &body).await,
        _ => Err(Status::no_such_method()),
    }
}

/// Answers with the health of the store, the one component that this server knows itself (upstream
/// `registry/core/componentstatus`).
async fn component_status(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let name = ctx.request.info.url_name();
    if name != STORE {
        let resource = Gvr::new("", "v1", "componentstatus");
        return Err(Status::not_found(&resource, name));
    }
    let mut condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    if let Err(why) = ctx.store.storage.check_health().await {
        condition = json!({"type": "Healthy", "status": "False", "error": why.to_string()});
    }
    let status = Object::from_value(json!({
        "kind": "ComponentStatus",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "conditions": [condition],
    }));
    ctx.answer(200, Source::Tree(status.unwrap_or_default()))
}

async fn review(ctx: &RequestContext<'_>, body: &Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    let resource = &ctx.store.resource;
    let mut object = ctx
        .decode_as(body, &resource.gvk, resource.ty(), options.field_validation)?
        .object;
    ctx.audit_object(&object);
    ctx.check_namespace(&mut object)?;
    // Upstream tracks the fields of a review as of any other create, and before it is validated.
    let manager = ctx.manager(&options.field_manager);
    ctx.track(None, &mut object, Subresource::Main, &manager)
        .await;
    let gvk = &resource.gvk;
    ctx.admit_unstored(gvk, &mut object, &options).await?;
    ctx.validate_unstored(gvk, &mut object, &options).await?;
    let (user, authorizer) = (&ctx.request.user, ctx.api.authorizer.as_ref());
    let mut answer = match resource.gvr.resource.as_str() {
        "subjectaccessreviews" => authorization::subject_access_review(object, authorizer).await?,
        "localsubjectaccessreviews" => {
            authorization::local_subject_access_review(object, authorizer).await?
        }
        "selfsubjectaccessreviews" => {
            authorization::self_subject_access_review(object, user, authorizer).await?
        }
        "selfsubjectrulesreviews" => {
            authorization::self_subject_rules_review(object, user, authorizer).await?
        }
        "tokenreviews" => {
            let reviewer = ctx.api.token_reviewer.as_ref();
            let (answer, verdict) = authentication::token_review(object, reviewer).await?;
            for warning in verdict.warnings {
                ctx.warn(warning.to_owned());
            }
            for (key, value) in verdict.annotations {
                ctx.annotate(key.to_owned(), value);
            }
            answer
        }
        "selfsubjectreviews" => {
            authentication::self_subject_review(&object, user, ctx.api.clock.now())
        }
        _ => return Err(Status::no_such_method()),
    };
    if answer.metadata().is_none() {
        answer.insert("metadata", json!({}));
    }
    ctx.answer(201, Source::Fixed(answer))
}
