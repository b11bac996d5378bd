//! One handler per verb, and the context that they share: the request, its resource, its
//! representation.

mod audit;
pub mod connect;
mod create;
mod custom;
mod decode;
mod delete;
mod device_claims;
mod eviction;
mod get;
mod list;
mod patch;
mod reviews;
pub mod scale;
mod spans;
mod stream_options;
mod subresources;
pub mod token;
mod update;
mod versions;
mod watch;
mod write;

pub use decode::resolve_kind;
pub use write::is_stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response, header};

use crate::admission::policy::references;
use crate::admission::{self, Attributes, Notes, Operation, Reinvocation};
use crate::audit::Audit;
use crate::auth::authz::{self, escalation};
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::merge::managers;
use crate::meta::options::{OperationOptions, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{ErrorList, Gvk, Object, Status, go};
use crate::registry::store::{AdmissionValidator, Store, Warnings, WriteContext};
use crate::registry::strategy::Subresource;
use crate::registry::table::IncludeObject;
use crate::registry::{Custom, Resource};
use crate::schema::TypeRef;
use crate::storage::Stored;
use crate::telemetry::{requests, trace};

use super::body::Body;
use super::compress;
use super::encode::{Encoder, Source};
use super::negotiate::{self, MediaType, Output, Purpose};
use super::request_info::RequestInfo;
use super::respond;
use super::{Api, Request};

/// A request to a resource, with the context needed to answer it.
pub struct RequestContext<'a> {
    pub api: &'a Api,
    pub request: &'a Request,
    pub store: Arc<Store>,
    pub output: Output,
    pub warnings: Warnings,
    /// The kind of the subresource, where it is not that of the resource.
    subresource_kind: Option<Gvk>,
    /// The time at which the request has failed if it is not done.
    deadline: Instant,
}

/// The time that a request may take that does not ask for less (apiserver
/// `requestTimeoutUpperBound`).
const MAX_TIME: Duration = Duration::from_secs(34);

/// The annotation of requests for versions that will go (apiserver `endpoints/metrics`). None of
/// them has a release in which it goes.
const DEPRECATED: &str = "k8s.io/deprecated";

/// The time that a request may take.
fn time_limit(request: &Request) -> Duration {
    let asked = request.query.get("timeout").map(go::parse_duration);
    match asked {
        Some(Ok(nanos)) if nanos > 0 => MAX_TIME.min(Duration::from_nanos(nanos.unsigned_abs())),
        _ => MAX_TIME,
    }
}

impl Notes for RequestContext<'_> {
    fn warn(&self, text: String) {
        self.warnings.add(text);
    }

    fn annotate(&self, key: String, value: String) {
        if let Some(audit) = &self.request.audit {
            audit.annotate(&key, &value);
        }
    }

    fn webhook_took(&self, mutating: bool, time: Duration) {
        self.request.webhook_time.add(mutating, time);
    }

    fn annotate_object(&self, key: String, value: String) {
        let tells = |audit: &Arc<Audit>| audit.tells_request();
        if self.request.audit.as_ref().is_some_and(tells) {
            self.annotate(key, value);
        }
    }
}

/// Answers a request to a resource. Every failure becomes a Status in the representation that the
/// client accepts. A write that has begun continues when this future is dropped, and keeps
/// everything that the request holds.
pub async fn handle(api: &Arc<Api>, request: Arc<Request>) -> Response<Body> {
    if write::is_write(&request.info) {
        return write::run(api, request).await;
    }
    answer(api, &request).await
}

async fn answer(api: &Api, request: &Request) -> Response<Body> {
    if custom::is_misplaced(request) {
        return respond::page_not_found();
    }
    let (answer, warnings) = match RequestContext::new(api, request) {
        Ok(ctx) => {
            let answer = match spans::operation(&request.info) {
                Some(name) => {
                    let attributes = || spans::attributes(request);
                    trace::in_span(name, trace::SLOW, attributes, dispatch(&ctx)).await
                }
                None => dispatch(&ctx).await,
            };
            (answer, ctx.warnings.take())
        }
        Err(status) => (Err(status), Vec::new()),
    };
    let response =
        answer.unwrap_or_else(|status| respond::status(&status, request.status_output()));
    let mut response = audit::record(request, response).await;
    respond::add_warnings(&mut response, warnings);
    let is_stream = request.info.verb == "watch" || write::is_stream(&request.info);
    if api.compresses && !is_stream && compress::accepted(&request.headers) {
        response = compress::compress(response).await;
    }
    response
}

async fn dispatch(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let info = &ctx.request.info;
    if let Some(warning) = ctx.custom().and_then(Custom::deprecation) {
        ctx.warnings.add(warning);
        ctx.note_deprecated();
    }
    let (allowed, reads) = (
        ctx.check_verb(),
        matches!(info.verb.as_str(), "get" | "list" | "watch"),
    );
    if let Some(warning) = deprecation(&ctx.store.resource.gvk).filter(|_| allowed.is_ok() || reads)
    {
        ctx.warnings.add(warning);
        ctx.note_deprecated();
    }
    requests::field_validation(ctx.request.query.get("fieldValidation"));
    allowed?;
    if !info.subresource.is_empty() {
        return Box::pin(subresources::handle(ctx)).await;
    }
    if ctx.store.resource.decl.storage_prefix.is_empty() {
        let body = ctx.read_body().await?;
        return if info.resource == "bindings" {
            Box::pin(subresources::bind_named(ctx, body)).await
        } else {
            Box::pin(reviews::handle(ctx, body)).await
        };
    }
    // Each apart, so that a request takes and moves no more memory than its verb needs.
    match info.verb.as_str() {
        "get" => get::handle(ctx).await,
        "list" => Box::pin(list::handle(ctx)).await,
        "watch" => Box::pin(watch::handle(ctx)).await,
        "create" => Box::pin(create::handle(ctx, ctx.read_body().await?)).await,
        "update" => {
            let body = ctx.read_body().await?;
            Box::pin(update::handle(ctx, Subresource::Main, body)).await
        }
        "patch" => Box::pin(patch::handle(ctx, Subresource::Main)).await,
        "delete" => Box::pin(delete::handle(ctx, ctx.read_body().await?)).await,
        "deletecollection" => {
            let body = ctx.read_body().await?;
            Box::pin(delete::handle_collection(ctx, body)).await
        }
        _ => Err(Status::method_not_supported(
            &ctx.store.resource.gvr,
            &info.verb,
        )),
    }
}

/// Reports whether the resource has routes below the deprecated verb in the path, if there is one:
/// watchable resources have some below `watch/`, but not for subresources, and none has any below
/// `proxy/`. Requests to custom resources have no routes.
fn has_prefix_route(resource: &Resource, info: &RequestInfo) -> bool {
    let watchable =
        || info.subresource.is_empty() && resource.decl.verbs.iter().any(|verb| verb == "watch");
    resource.custom.is_some() || info.verb != "proxy" && (!info.watch_path || watchable())
}

/// The warning about a deprecated kind (`+k8s:prerelease-lifecycle-gen`).
fn deprecation(gvk: &Gvk) -> Option<&'static str> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        ("", "Endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

impl<'a> RequestContext<'a> {
    fn new(api: &'a Api, request: &'a Request) -> Result<Self> {
        let info = &request.info;
        let store = request.store.clone().ok_or_else(Status::no_such_path)?;
        let beyond = info.segments > 3 && !subresources::takes_path(&info.subresource);
        if beyond
            || info.is_misplaced(store.resource.decl.namespaced)
            || !has_prefix_route(&store.resource, info)
        {
            return Err(Status::no_such_path());
        }
        Self {
            api,
            request,
            subresource_kind: subresource_kind(&store.resource, &info.subresource),
            store,
            output: Output::default(),
            warnings: Warnings::default(),
            deadline: Instant::now() + time_limit(request),
        }
        .negotiated()
    }

    /// Settles the representation of the answer.
    fn negotiated(mut self) -> Result<Self> {
        let info = &self.request.info;
        let purpose = match info.verb.as_str() {
            "list" => Purpose::List,
            "deletecollection" => Purpose::Deleted,
            "watch" => Purpose::Watch,
            "create"
                if !info.subresource.is_empty()
                    || self.store.resource.decl.storage_prefix.is_empty() =>
            {
                Purpose::Ephemeral
            }
            // Their storages make no Tables.
            _ if matches!(info.subresource.as_str(), "approval" | "log") => Purpose::Ephemeral,
            _ => Purpose::Object,
        };
        let media = if self.custom().is_some() {
            &MediaType::TEXT[..]
        } else {
            &MediaType::ALL[..]
        };
        let (accept, agent) = (
            self.request.header(header::ACCEPT),
            self.request.user_agent(),
        );
        self.output = negotiate::output(&accept, agent, &self.request.query, purpose, media)?;
        Ok(self)
    }

    /// 404 for unknown subresources, 405 for verbs that the resource does not have.
    fn check_verb(&self) -> Result<()> {
        if self.custom().is_some() {
            return custom::check_verb(self);
        }
        let info = &self.request.info;
        let decl = &self.store.resource.decl;
        let (verbs, action) = if info.subresource.is_empty() {
            (&decl.verbs, info.verb.as_str())
        } else {
            let sub = decl
                .subresources
                .iter()
                .find(|sub| sub.name == info.subresource)
                .ok_or_else(Status::no_such_path)?;
            (&sub.verbs, info.verb.as_str())
        };
        if self.routed(action) && verbs.iter().any(|verb| verb == action) {
            return Ok(());
        }
        // A method without a verb.
        if info.subresource == "proxy" && self.request.method == Method::OPTIONS {
            return Ok(());
        }
        if self.routed(action)
            && info.subresource.is_empty()
            && action == "watch"
            && decl.verbs.iter().any(|verb| verb == "list")
        {
            return Err(Status::method_not_supported(
                &self.store.resource.gvr,
                "watch",
            ));
        }
        Err(Status::no_such_method())
    }

    /// Reports whether the verb goes with the path and the method: collections are created in,
    /// objects changed; across all namespaces there is only looking.
    fn routed(&self, verb: &str) -> bool {
        let info = &self.request.info;
        let named = !info.url_name().is_empty();
        // What is proxied takes every method, other resources have no route for HEAD, and watches
        // are only got.
        let method = &self.request.method;
        if method == Method::HEAD && info.subresource != "proxy"
            || info.watch_path && method != Method::GET
        {
            return false;
        }
        let across = self.store.resource.decl.namespaced && info.namespace.is_empty();
        match verb {
            "create" if info.subresource.is_empty() => {
                !named && (!across || self.store.resource.decl.storage_prefix.is_empty())
            }
            "patch" | "update" => named,
            "deletecollection" => !across,
            _ => true,
        }
    }

    /// Notes in audit event and metrics that the client uses a version that will go.
    fn note_deprecated(&self) {
        self.annotate(DEPRECATED.to_owned(), "true".to_owned());
        let resource = &self.store.resource;
        let mut declared = resource.decl.subresources.iter();
        let sub = declared.find(|sub| sub.name == self.request.info.subresource);
        requests::deprecated(
            &resource.gvr.group,
            &resource.gvr.version,
            &resource.gvr.resource,
            sub.map_or("", |sub| sub.name.as_str()),
        );
    }

    /// Returns the whole body; see [`super::request_body::RequestBody::read`].
    ///
    /// # Errors
    /// 400, 408 and 413 for a body that is broken off, too slow or too large.
    pub async fn read_body(&self) -> Result<Bytes> {
        let (body, user) = (&self.request.body, &self.request.user);
        let read = body.read(&self.api.bodies, user).await;
        match &read {
            Ok(body) => {
                self.store.metrics.body(&self.request.info.verb, body.len());
                spans::length("limitedReadBody succeeded", body);
            }
            Err(_) => trace::step("limitedReadBody failed"),
        }
        read
    }

    /// The form of the kind, where a CRD defines it.
    pub fn custom(&self) -> Option<&dyn Custom> {
        self.store.resource.custom.as_deref()
    }

    /// The namespace that the store works in.
    pub fn namespace(&self) -> &str {
        if self.store.resource.decl.namespaced {
            &self.request.info.namespace
        } else {
            ""
        }
    }

    pub fn write_context(&self, dry_run: bool) -> WriteContext<'_> {
        WriteContext {
            user: &self.request.user,
            namespace: self.namespace(),
            dry_run,
            warnings: &self.warnings,
        }
    }

    /// The encoder of the answer.
    ///
    /// # Errors
    /// 400 for an `includeObject` that does not exist.
    pub fn encoder(&self) -> Result<Encoder> {
        let include = match self.output.form {
            negotiate::Form::Table(_) => {
                IncludeObject::parse(self.request.query.get("includeObject").unwrap_or(""))?
            }
            _ => IncludeObject::default(),
        };
        Ok(Encoder::new(
            self.store.clone(),
            self.api.encodings.clone(),
            self.output,
            include,
            self.api.clock.now(),
        ))
    }

    /// Answers with an object in the negotiated representation.
    ///
    /// # Errors
    /// 500 if the object cannot be encoded.
    pub fn answer(&self, code: u16, source: Source) -> Result<Response<Body>> {
        trace::step("About to write a response");
        let encoder = self.encoder()?;
        let is_large =
            matches!(&source, Source::Stored(stored) if stored.value.len() > LARGE_BYTES);
        let attributes = || spans::of_answer(self);
        let encode = || run_blocking_if(is_large, || encoder.object(source));
        let body = trace::in_span_sync("SerializeObject", trace::SLOW_ANSWER, attributes, encode)?;
        trace::step("Writing http response done");
        Ok(respond::bytes(code, self.output, body))
    }

    /// Answers with an object that was just written, in the served version.
    ///
    /// # Errors
    /// 500 if the object cannot be converted or encoded.
    pub async fn answer_stored(&self, code: u16, stored: Stored) -> Result<Response<Body>> {
        let served = self.store.read_back(stored).await?;
        self.answer(code, Source::Stored(served))
    }

    /// A Status as the answer of something that worked.
    pub fn answer_status(&self, status: &Status) -> Response<Body> {
        respond::status(status, self.output)
    }

    /// The manager that writes: the `fieldManager` option, else the User-Agent.
    pub fn manager(&self, option: &str) -> String {
        managers::manager_name(option, self.request.user_agent()).into_owned()
    }

    /// Records the managers of the fields that a write sets.
    pub async fn track(
        &self,
        live: Option<&Object>,
        object: &mut Object,
        sub: Subresource<'_>,
        manager: &str,
    ) {
        let manager = self.store.field_manager(sub, manager);
        manager.track(live, object).await;
    }

    /// The writer of a kind that is not a resource of its own (Scale, TokenRequest).
    pub fn writer_of_fixed<'b>(
        &'b self,
        api_version: &'b str,
        ty: TypeRef<'b>,
        manager: &'b str,
    ) -> managers::Writer<'b> {
        managers::Writer {
            manager,
            api_version,
            subresource: &self.request.info.subresource,
            now: self.api.clock.now(),
            reset_fields: &[],
            ty: ty.into(),
            versions: &managers::OneVersion,
        }
    }

    /// Runs the mutating half of admission.
    ///
    /// # Errors
    /// The first refusal of a plugin.
    pub async fn admit(
        &self,
        object: &mut Object,
        old: Option<&Object>,
        name: &str,
        options: &WriteOptions,
    ) -> Result<()> {
        let operation = if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        };
        if old.is_none() && self.custom().is_some_and(Custom::is_terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&self.store.resource.gvr, name, why));
        }
        let mut attributes = self.attributes(operation, name, OperationOptions::Write(options));
        attributes.object = Some(&mut *object);
        attributes.old = old;
        self.api.admission.admit(&mut attributes).await?;
        // Plugins may have changed what the URL says.
        self.check_namespace(object)?;
        if old.is_none() && !self.request.info.url_name().is_empty() {
            self.check_name(object)?;
        }
        Ok(())
    }

    /// Runs the mutating half of admission on an object that is created but not stored: a Binding,
    /// an Eviction, a TokenRequest, a review. Before its name is compared to the URL's, as upstream
    /// does.
    ///
    /// # Errors
    /// The first refusal of a plugin.
    pub async fn admit_unstored(
        &self,
        gvk: &Gvk,
        object: &mut Object,
        options: &WriteOptions,
    ) -> Result<()> {
        let name = self.subresource_name(object);
        let options = OperationOptions::Write(options);
        let mut attributes = self.attributes(Operation::Create, &name, options);
        attributes.gvk = gvk;
        attributes.object = Some(object);
        self.api.admission.admit(&mut attributes).await
    }

    /// Runs the validating half of admission, like [`RequestContext::admit_unstored`].
    ///
    /// # Errors
    /// The first refusal of a plugin.
    pub async fn validate_unstored(
        &self,
        gvk: &Gvk,
        object: &mut Object,
        options: &WriteOptions,
    ) -> Result<()> {
        let name = self.subresource_name(object);
        let options = OperationOptions::Write(options);
        let mut attributes = self.attributes(Operation::Create, &name, options);
        attributes.gvk = gvk;
        attributes.object = Some(object);
        self.api.admission.validate(&attributes).await
    }

    /// Runs both halves of admission on the options of a stream.
    ///
    /// # Errors
    /// The refusal of a plugin.
    pub async fn admit_connect(&self, options: &mut Object) -> Result<()> {
        let name = &self.request.info.name;
        let mut attributes = self.attributes(Operation::Connect, name, OperationOptions::None);
        attributes.object = Some(options);
        self.api.admission.admit(&mut attributes).await?;
        self.api.admission.validate(&attributes).await
    }

    /// The kind that the request is about: that of the subresource where it has one.
    pub fn kind(&self) -> &Gvk {
        let own = &self.store.resource.gvk;
        self.subresource_kind.as_ref().unwrap_or(own)
    }

    /// The name for admission: the URL's, or the body's if the URL has none.
    fn subresource_name(&self, object: &Object) -> String {
        let named = [self.request.info.url_name(), object.name()]
            .into_iter()
            .find(|name| !name.is_empty());
        named.unwrap_or_default().to_owned()
    }

    fn attributes<'b>(
        &'b self,
        operation: Operation,
        name: &'b str,
        options: OperationOptions<'b>,
    ) -> Attributes<'b> {
        let info = &self.request.info;
        let resource = &self.store.resource;
        Attributes {
            operation,
            gvr: &resource.gvr,
            gvk: self.kind(),
            subresource: &info.subresource,
            namespace: &info.namespace,
            name,
            object: None,
            old: None,
            user: &self.request.user,
            dry_run: options.dry_run(),
            deadline: self.deadline,
            options,
            notes: self,
            reinvocation: Reinvocation::default(),
        }
    }

    /// The body's namespace must be the URL's; where it names none, it gets the URL's.
    ///
    /// # Errors
    /// 400 if the namespaces differ.
    pub fn check_namespace(&self, object: &mut Object) -> Result<()> {
        let wanted = self.namespace();
        if object.namespace() == wanted {
            return Ok(());
        }
        if !object.namespace().is_empty() && !wanted.is_empty() {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        object.set_meta_str("namespace", wanted);
        Ok(())
    }

    /// The body's name must be the URL's.
    ///
    /// # Errors
    /// 400 if the names differ, or there is none.
    pub fn check_name(&self, object: &Object) -> Result<()> {
        let name = self.request.info.url_name();
        if object.name().is_empty() {
            let why = format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            );
            return Err(Status::bad_request(why));
        }
        if object.name() != name {
            let why = format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object.name()
            );
            return Err(Status::bad_request(why));
        }
        Ok(())
    }
}

/// The validating half of admission, bound to one request.
pub struct RequestValidator<'a> {
    pub ctx: &'a RequestContext<'a>,
    pub options: OperationOptions<'a>,
}

#[async_trait]
impl AdmissionValidator for RequestValidator<'_> {
    async fn validate(&self, mut new: Option<&mut Object>, old: Option<&Object>) -> Result<()> {
        let operation = match (&new, old) {
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            (None, _) => Operation::Delete,
        };
        // A request to delete many names none.
        let name = match &new {
            Some(object) => object.name(),
            None => self.ctx.request.info.url_name(),
        };
        let name = name.to_owned();
        let mut attributes = self.ctx.attributes(operation, &name, self.options);
        attributes.old = old;
        attributes.object = new.as_deref_mut();
        if operation == Operation::Delete {
            self.ctx.api.admission.admit(&mut attributes).await?;
        }
        self.ctx.api.admission.validate(&attributes).await?;
        let (Some(rbac), Some(object)) = (&self.ctx.api.rbac, new.as_deref()) else {
            return Ok(());
        };
        let (user, info) = (&self.ctx.request.user, &self.ctx.request.info);
        let gvr = &self.ctx.store.resource.gvr;
        let write = escalation::Write {
            gvr,
            namespace: &info.namespace,
            name: info.url_name(),
            object,
            old,
            user,
        };
        escalation::check(&write, rbac, self.ctx.api.authorizer.as_ref()).await
    }

    async fn field_errors(
        &self,
        sub: Subresource<'_>,
        new: &Object,
        old: Option<&Object>,
    ) -> ErrorList {
        device_claims::errors(self.ctx, sub, new, old).await
    }

    async fn reference_errors(&self, new: &Object, old: Option<&Object>) -> ErrorList {
        let ctx = self.ctx;
        let gvr = &ctx.store.resource.gvr;
        if gvr.group != admission::GROUP {
            return ErrorList::new();
        }
        let write = references::ReferenceWrite {
            gvr,
            object: new,
            old,
            user: &ctx.request.user,
        };
        references::errors(&write, &ctx.api.references).await
    }

    async fn authorize_create(&self) -> Result<()> {
        let attributes = authz::Attributes {
            verb: "create".to_owned(),
            ..self.ctx.request.attributes()
        };
        authz::require(self.ctx.api.authorizer.as_ref(), &attributes).await
    }
}

/// The kind of a subresource, where it is not that of its resource.
fn subresource_kind(resource: &Resource, name: &str) -> Option<Gvk> {
    let sub = resource
        .decl
        .subresources
        .iter()
        .find(|sub| !name.is_empty() && sub.name == name)?;
    let mut kind = sub.kind.clone();
    if kind.version.is_empty() {
        (kind.group, kind.version) = (resource.gvk.group.clone(), resource.gvk.version.clone());
    }
    (kind != resource.gvk).then_some(kind)
}
