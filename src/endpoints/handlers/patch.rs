//! PATCH of an object or of a subresource that shares its kind.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Response, header};
use http_body::Body as HttpBody;
use serde_json::Value;

use crate::codec;
use crate::merge::patch::{self, json, merge, strategic};
use crate::meta::field::{FieldError, Path};
use crate::meta::options::{FieldValidation, Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status};
use crate::registry::store::{Target, Updater};
use crate::registry::strategy::Subresource;

use super::create::dedup_owner_references;
use super::{Exchange, RequestGate, read};
use crate::endpoints::body::Body;
use crate::endpoints::negotiate;
use crate::endpoints::respond::Shown;

/// How a patch says what is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Json,
    Merge,
    Strategic,
}

/// The content types that a patch may have.
pub const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";

impl PatchType {
    fn from_content_type(content_type: &str) -> Result<Self> {
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            _ => Err(negotiate::unsupported(ACCEPTED)),
        }
    }
}

/// Patches the object.
pub async fn handle<B>(x: &Exchange<'_>, sub: Subresource<'_>, body: B) -> Result<Response<Body>>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let kind = PatchType::from_content_type(&x.request.header(header::CONTENT_TYPE))?;
    let body = read(body).await?;
    let options = WriteOptions::from_query(&x.request.query, Write::Patch)?;
    let updater = Patch { x, sub, kind, body, options };
    let gate = RequestGate { x, dry_run: updater.options.dry_run };
    let target = Target { name: x.request.info.url_name(), sub, force_create: false };
    let updated = x.store.update(&x.write_context(updater.options.dry_run), target, &updater, &gate).await?;
    x.answer(if updated.created { 201 } else { 200 }, Shown::Tree(updated.live.object))
}

/// Makes the new state out of the standing one and the patch.
struct Patch<'a> {
    x: &'a Exchange<'a>,
    sub: Subresource<'a>,
    kind: PatchType,
    body: Bytes,
    options: WriteOptions,
}

#[async_trait]
impl Updater for Patch<'_> {
    fn uid(&self) -> Option<&str> {
        None
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let x = self.x;
        let name = x.request.info.url_name();
        let Some(live) = live else { return Err(Status::not_found(&x.store.resource.gvr, name)) };
        let mut object = self.apply(live)?;
        x.track(Some(live), &mut object, self.sub, &x.manager(&self.options.field_manager));
        x.check_namespace(&mut object)?;
        x.check_name(&object)?;
        x.admit(&mut object, Some(live), name, self.options.dry_run).await?;
        dedup_owner_references(&mut object, &x.warnings, " after mutating admission happens");
        Ok(object)
    }
}

impl Patch<'_> {
    /// The patched object, of the storage version, defaulted.
    fn apply(&self, live: &Object) -> Result<Object> {
        let resource = &self.x.store.resource;
        let mut served = live.clone();
        if let Some(conversion) = resource.conversion {
            conversion.to_served(&mut served);
            served.insert("kind".to_owned(), resource.gvk.kind.clone().into());
            served.insert("apiVersion".to_owned(), resource.gvk.api_version().into());
        }
        let patched = match self.kind {
            PatchType::Json => json::apply(served.into(), &self.body, self.options.field_validation)?,
            PatchType::Merge => merge::apply(served.into(), &self.body, self.options.field_validation)?,
            PatchType::Strategic => strategic::apply(served.into(), &self.body, resource.ty(), self.options.field_validation)?,
        };
        let mut object = self.typed(patched)?;
        self.x.store.to_storage(&mut object);
        Ok(object)
    }

    /// The patched tree as an object of its kind; what does not fit is shown with the whole of it.
    fn typed(&self, patched: patch::Patched) -> Result<Object> {
        let resource = &self.x.store.resource;
        let patch::Patched { value, mut issues, shown } = patched;
        let refuse = |why: &str| {
            let error = FieldError::invalid(&Path::new("patch"), Value::String(shown()), why);
            Status::invalid(&Gvk::default(), "", vec![error])
        };
        self.check_kind(&value).map_err(|why| refuse(&why))?;
        let decoded = codec::from_value(value.clone(), resource.ty()).map_err(|why| refuse(&why.0))?;
        issues.extend(decoded.issues);
        match self.options.field_validation {
            FieldValidation::Strict if !issues.is_empty() => Err(refuse(&format!("strict decoding error: {}", issues.join(", ")))),
            FieldValidation::Warn => {
                issues.into_iter().for_each(|issue| self.x.warnings.add(issue));
                Ok(decoded.object)
            }
            _ => Ok(decoded.object),
        }
    }

    /// A patch may not turn the object into another kind.
    fn check_kind(&self, value: &Value) -> std::result::Result<(), String> {
        if self.kind == PatchType::Strategic {
            return Ok(());
        }
        let resource = &self.x.store.resource;
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("");
        super::decode::settle_kind(&resource.schema, &resource.gvk, text("apiVersion"), text("kind")).map(|_| ())
    }
}
