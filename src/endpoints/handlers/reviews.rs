//! Resources without storage: access reviews, token reviews and component statuses.

use bytes::Bytes;
use http::Response;

use crate::builtin::{authentication, authorization};
use crate::meta::options::{Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status, json};
use crate::registry::store::Page;

use super::RequestContext;
use crate::endpoints::body::Body;
use crate::endpoints::encode::Source;
use crate::endpoints::respond;

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
        ("componentstatuses", _) => Err(Status::not_found(
            &Gvr::new("", "v1", "componentstatus"),
            info.url_name(),
        )),
        (_, "create") => review(ctx, &body).await,
        _ => Err(Status::no_such_method()),
    }
}

async fn review(ctx: &RequestContext<'_>, body: &Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    let resource = &ctx.store.resource;
    let mut object = ctx
        .decode_as(body, &resource.gvk, resource.ty(), options.field_validation)?
        .object;
    ctx.check_namespace(&mut object)?;
    let gvk = &resource.gvk;
    ctx.admit_unstored(gvk, &mut object, &options).await?;
    ctx.validate_unstored(gvk, &mut object, &options).await?;
    let (user, authorizer) = (&ctx.request.user, ctx.api.authorizer.as_ref());
    let answer = match resource.gvr.resource.as_str() {
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
            authentication::token_review(object, ctx.api.token_reviewer.as_ref()).await?
        }
        "selfsubjectreviews" => {
            authentication::self_subject_review(&object, user, ctx.api.clock.now())
        }
        _ => return Err(Status::no_such_method()),
    };
    ctx.answer(201, Source::Fixed(tracked(ctx, answer, &options).await))
}

/// Upstream tracks the fields of a review as of any other create.
async fn tracked(ctx: &RequestContext<'_>, mut answer: Object, options: &WriteOptions) -> Object {
    let mut asked = answer.clone();
    asked.shift_remove("status");
    ctx.track(
        None,
        &mut asked,
        crate::registry::Subresource::Main,
        &ctx.manager(&options.field_manager),
    )
    .await;
    if let Some(managed) = asked.at("/metadata/managedFields").cloned() {
        answer.metadata_mut().insert("managedFields", managed);
    } else if answer.metadata().is_none() {
        answer.insert("metadata", json!({}));
    }
    answer
}
