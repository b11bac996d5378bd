//! Dispatch of subresource requests to their handlers.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use async_trait::async_trait;

use crate::builtin::core::pod::set_condition;
use crate::merge;
use crate::meta::options::{Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object, Status, Value, json, time};
use crate::registry::store::{AdmitAll, Store, Target, Updater};
use crate::registry::strategy::Subresource;

use super::{RequestContext, connect, eviction, get, patch, scale, token, update};
use crate::endpoints::body::Body;

/// Reports whether more of the path belongs to the subresource.
pub fn takes_path(subresource: &str) -> bool {
    subresource == "proxy"
}

/// Answers a request to a subresource that the resource declares.
///
/// # Errors
/// 405 for the verb, and the errors of the subresource.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let info = &ctx.request.info;
    let verb = info.verb.as_str();
    match (info.subresource.as_str(), verb) {
        ("scale", "get") => scale::get(ctx).await,
        ("scale", "update") => scale::put(ctx, ctx.read_body().await?).await,
        ("scale", "patch") => scale::patch(ctx, ctx.read_body().await?).await,
        ("binding", "create") => bind(ctx, ctx.read_body().await?).await,
        ("eviction", "create") => eviction::handle(ctx, ctx.read_body().await?).await,
        ("token", "create") => token::handle(ctx, ctx.read_body().await?).await,
        ("log" | "exec" | "attach" | "portforward" | "proxy", _) => connect::handle(ctx).await,
        (_, "get") => get::handle(ctx).await,
        (name, "update") => update::handle(ctx, subresource(name), ctx.read_body().await?).await,
        (name, "patch") => patch::handle(ctx, subresource(name)).await,
        _ => Err(Status::no_such_method()),
    }
}

fn subresource(name: &str) -> Subresource<'_> {
    if name == "status" {
        Subresource::Status
    } else {
        Subresource::Other(name)
    }
}

/// The Status of a subresource that made something but has nothing to show.
pub fn created() -> Status {
    Status {
        code: 201,
        success: true,
        reason: "".into(),
        message: String::new(),
        details: None,
        continue_token: String::new(),
    }
}

/// Decodes the body as the kind that the subresource takes.
///
/// # Errors
/// 400 for a body that cannot be decoded, or of another kind.
pub fn decode(ctx: &RequestContext<'_>, body: &Bytes, options: &WriteOptions) -> Result<Object> {
    let info = &ctx.request.info;
    let sub = ctx
        .store
        .resource
        .decl
        .subresources
        .iter()
        .find(|sub| sub.name == info.subresource)
        .ok_or_else(Status::no_such_path)?;
    let mut gvk = sub.kind.clone();
    if gvk.version.is_empty() {
        (gvk.group, gvk.version) = (
            ctx.store.resource.gvk.group.clone(),
            ctx.store.resource.gvk.version.clone(),
        );
    }
    let ty = ctx
        .store
        .resource
        .schema
        .get(&gvk)
        .ok_or_else(|| Status::internal(format!("{gvk} is not in the schema")))?;
    let mut object = ctx
        .decode_as(body, &gvk, ty, options.field_validation)?
        .object;
    ctx.audit_object(&object);
    ctx.check_namespace(&mut object)?;
    Ok(object)
}

/// Assigns a pod to a node (core/pod/storage `BindingREST`).
async fn bind(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    let binding = decode(ctx, &body, &options)?;
    assign(ctx, binding, &options, ctx.store.clone()).await
}

/// A Binding of its own names its pod itself (core/pod/storage `LegacyBindingREST`).
///
/// # Errors
/// 400 or 422 for the Binding, 404, 409 for a pod that is assigned already.
pub async fn bind_named(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Create)?;
    let resource = &ctx.store.resource;
    let mut binding = ctx
        .decode_as(
            &body,
            &resource.gvk,
            resource.ty(),
            options.field_validation,
        )?
        .object;
    ctx.audit_object(&binding);
    ctx.check_namespace(&mut binding)?;
    let pods = Gvr::new("", "v1", "pods");
    let store = ctx
        .api
        .registry
        .get(&pods)
        .ok_or_else(Status::no_such_path)?;
    assign(ctx, binding, &options, store).await
}

async fn assign(
    ctx: &RequestContext<'_>,
    mut binding: Object,
    options: &WriteOptions,
    pods: Arc<Store>,
) -> Result<Response<Body>> {
    let gvk = Gvk::new("", "v1", "Binding");
    if let Some(ty) = crate::schema::builtin().get(&gvk) {
        let manager = ctx.manager(&options.field_manager);
        let writer = ctx.writer_of_fixed("v1", ty, &manager);
        merge::update(None, &mut binding, &writer);
    }
    ctx.admit_unstored(&gvk, &mut binding, options).await?;
    let (name, named) = (binding.name().to_owned(), ctx.request.info.url_name());
    if !named.is_empty() && named != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    ctx.validate_unstored(&gvk, &mut binding, options).await?;
    let updater = Bind {
        ctx,
        binding,
        gvr: pods.resource.gvr.clone(),
    };
    let target = Target {
        name: &name,
        sub: Subresource::Other("binding"),
        force_create: false,
    };
    pods.update(
        &ctx.write_context(options.dry_run),
        target,
        &updater,
        &AdmitAll,
    )
    .await?;
    Ok(ctx.answer_status(&created()))
}

struct Bind<'a> {
    ctx: &'a RequestContext<'a>,
    binding: Object,
    /// Pods.
    gvr: Gvr,
}

#[async_trait]
impl Updater for Bind<'_> {
    fn uid(&self) -> Option<&str> {
        Some(self.binding.uid()).filter(|uid| !uid.is_empty())
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let gvr = &self.gvr;
        let live = live.ok_or_else(|| Status::not_found(gvr, self.binding.name()))?;
        let refused = |why: String| {
            let binding = Gvr::new(&gvr.group, &gvr.version, "pods/binding");
            Status::conflict(&binding, live.name(), &why)
        };
        if live.deletion_timestamp().is_some() {
            return Err(refused(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                live.name()
            )));
        }
        if !live.str_at("/spec/nodeName").is_empty() {
            return Err(refused(format!(
                "pod {} is already assigned to node \"{}\"",
                live.name(),
                live.str_at("/spec/nodeName")
            )));
        }
        let gates = live.array_at("/spec/schedulingGates").len();
        if gates > 0 {
            return Err(refused(format!(
                "pod {} has non-empty .spec.schedulingGates",
                live.name()
            )));
        }
        let mut pod = live.clone();
        pod.section_mut("spec")
            .insert("nodeName", self.binding.str_at("/target/name").into());
        for (key, values) in [
            ("annotations", self.binding.annotations()),
            ("labels", self.binding.labels()),
        ] {
            let Some(values) = values.filter(|values| !values.is_empty()) else {
                continue;
            };
            let slot = pod.metadata_mut().entry(key).or_insert_with(|| json!({}));
            if let Value::Object(slot) = slot {
                slot.extend(values.clone());
            }
        }
        let now = time::format(self.ctx.api.clock.now().as_second());
        let status = pod.section_mut("status");
        status.shift_remove("nominatedNodeName");
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
        set_condition(status, scheduled);
        Ok(pod)
    }
}
