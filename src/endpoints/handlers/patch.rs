//! PATCH of an object or of a subresource that shares its kind.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Response, header};

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::normalize::{Rules, normalize};
use crate::codec::{self, MAX_ISSUES, unstructured};
use crate::merge::apply::{not_convertible, not_decodable};
use crate::merge::patch::{json, merge as merge_patch, strategic};
use crate::merge::{self, Writer};
use crate::meta::field::{FieldError, Path};
use crate::meta::go;
use crate::meta::options::{FieldValidation, OperationOptions, Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvk, Map, Object, Status, Value};
use crate::registry::store::{Target, Updater, Warnings};
use crate::registry::strategy::Subresource;
use crate::schema::{Schema, TypeRef};

use super::create::{AFTER_ADMISSION, dedup_owner_references};
use super::decode::{named, resolve_kind, warn};
use super::{RequestContext, RequestValidator};
use crate::endpoints::body::Body;
use crate::endpoints::negotiate;
use crate::telemetry::trace;

/// The types of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// The content types that a patch may have.
const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

/// The content types that a patch of a custom kind may have.
const ACCEPTED_BY_CUSTOM: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl PatchType {
    /// The kind of patch that a Content-Type names.
    ///
    /// # Errors
    /// 415 for a type that is not a patch.
    pub fn from_content_type(content_type: &str) -> Result<Self> {
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => {
                let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
                status.details_mut();
                Err(status)
            }
        }
    }
}

/// The type of the patch; custom kinds have no strategic merge patches.
pub(super) fn patch_type(ctx: &RequestContext<'_>) -> Result<PatchType> {
    let kind = PatchType::from_content_type(&ctx.request.header(header::CONTENT_TYPE));
    match ctx.custom() {
        Some(_)
            if kind
                .as_ref()
                .is_ok_and(|kind| *kind != PatchType::Strategic) =>
        {
            kind
        }
        Some(_) => Err(negotiate::unsupported(ACCEPTED_BY_CUSTOM)),
        None => kind,
    }
}

/// Patches the object.
///
/// # Errors
/// 400 or 422 for the patch, 404, 409 for conflicts, 413 beyond a bound, 415 for its content type,
/// and the errors of an update.
pub async fn handle(ctx: &RequestContext<'_>, sub: Subresource<'_>) -> Result<Response<Body>> {
    let kind = patch_type(ctx)?;
    let body = ctx.read_body().await?;
    ctx.audit_patch(&body);
    let write = if kind == PatchType::Apply {
        Write::Apply
    } else {
        Write::Patch
    };
    let options = WriteOptions::from_query(&ctx.request.query, write)?;
    let updater = Patch {
        ctx,
        sub,
        kind,
        body,
        options,
    };
    let validator = RequestValidator {
        ctx,
        options: OperationOptions::Write(&updater.options),
    };
    let force_create = kind == PatchType::Apply;
    let target = Target {
        name: ctx.request.info.url_name(),
        sub,
        force_create,
    };
    let updated = ctx
        .store
        .update(
            &ctx.write_context(updater.options.dry_run),
            target,
            &updater,
            &validator,
        )
        .await?;
    trace::step("Object stored in database");
    let code = if updated.created { 201 } else { 200 };
    ctx.answer_stored(code, updated.written.stored).await
}

/// Makes the new state out of the standing one and the patch.
struct Patch<'a> {
    ctx: &'a RequestContext<'a>,
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

    fn keeps_managers(&self) -> bool {
        self.kind == PatchType::Apply
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let ctx = self.ctx;
        trace::step("About to apply patch");
        let name = ctx.request.info.url_name();
        let large = self.body.len() > LARGE_BYTES
            || live.is_some_and(|live| live.is_larger_than(LARGE_BYTES));
        let mut object = match (self.kind, live) {
            (PatchType::Apply, live) => self.apply_configuration(live, large).await?,
            (_, None) => return Err(Status::not_found(&ctx.store.resource.gvr, name)),
            (_, Some(live)) => {
                let mut object = run_blocking_if(large, || self.apply(live))?;
                ctx.track(
                    Some(live),
                    &mut object,
                    self.sub,
                    &ctx.manager(&self.options.field_manager),
                )
                .await;
                object
            }
        };
        if live.is_none() && !object.uid().is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object.uid()
            );
            return Err(Status::conflict(&ctx.store.resource.gvr, name, &why));
        }
        ctx.check_namespace(&mut object)?;
        ctx.check_name(&object)?;
        trace::step("About to check admission control");
        ctx.admit(&mut object, live, name, &self.options).await?;
        dedup_owner_references(&mut object, &ctx.warnings, AFTER_ADMISSION);
        Ok(object)
    }
}

impl Patch<'_> {
    /// The patched object, of the storage version, defaulted.
    fn apply(&self, live: &Object) -> Result<Object> {
        let (store, resource) = (&self.ctx.store, &self.ctx.store.resource);
        let body = PatchBody {
            kind: self.kind,
            bytes: &self.body,
            validation: self.options.field_validation,
        };
        let served = store.codec.served(live);
        let mut object = match self.ctx.custom() {
            Some(custom) => body.apply_custom(&served, custom, &self.ctx.warnings)?,
            None => body.apply(
                &served,
                resource.ty(),
                &resource.gvk,
                &resource.schema,
                &self.ctx.warnings,
            )?,
        };
        store.codec.to_storage(&mut object);
        Ok(object)
    }

    /// Server-side apply: the configuration merged into the stored object, with its managers.
    async fn apply_configuration(&self, live: Option<&Object>, large: bool) -> Result<Object> {
        let (store, resource) = (&self.ctx.store, &self.ctx.store.resource);
        let force = self.options.force.unwrap_or(false);
        let body = ApplyBody {
            bytes: &self.body,
            force,
            validation: self.options.field_validation,
        };
        let manager = store.field_manager(self.sub, &self.options.field_manager);
        let warnings = &self.ctx.warnings;
        if self.ctx.custom().is_some() {
            let merged = manager.merge(large, |writer| {
                body.apply_custom(live, &resource.gvk, writer, warnings)
            });
            let mut object = merged.await?;
            // Defaults that came to a schema later are no change of an apply that changes nothing.
            if !live.is_some_and(|live| without_managers(live) == without_managers(&object)) {
                store.codec.to_storage(&mut object);
            }
            return Ok(object);
        }
        let merged = manager.merge(large, |writer| {
            let served = live.map(|live| store.codec.served(live));
            let (ty, gvk) = (resource.ty(), &resource.gvk);
            let mut object = body.apply(served.as_deref(), ty, gvk, writer, warnings)?;
            store.codec.to_storage(&mut object);
            Ok(object)
        });
        merged.await
    }
}

/// A configuration to apply, as it came.
#[derive(Clone, Copy, Debug)]
pub struct ApplyBody<'a> {
    pub bytes: &'a [u8],
    pub force: bool,
    pub validation: FieldValidation,
}

impl ApplyBody<'_> {
    /// The configuration merged into `live`, in the form of its type, with its managers.
    ///
    /// # Errors
    /// 400 or 422 for a patch that cannot be applied, 409 for conflicts of managers.
    pub fn apply(
        &self,
        live: Option<&Object>,
        ty: TypeRef<'_>,
        gvk: &Gvk,
        writer: &Writer<'_>,
        warnings: &Warnings,
    ) -> Result<Object> {
        let (config, duplicates) = self.parse()?;
        let mut object = merge::apply(live, &config, gvk, writer, self.force)?;
        if !normalize(&mut object, ty, Rules::Unstructured) {
            if let Some(why) = unstructured::conversion_error(&object, ty) {
                return Err(not_decodable(&config, &why).into());
            }
            // There is something that the type does not know, which goes.
            let decoded = codec::from_value(&Value::Object(object.0), ty)
                .map_err(|why| not_decodable(&config, &why.0))?;
            object = decoded.object;
        }
        self.report(&duplicates, warnings)?;
        Ok(object)
    }

    /// The error for a merged object that does not become the hub version of its kind; `why` is the
    /// converter's.
    pub(super) fn not_convertible(&self, why: &str) -> Status {
        self.parse().map_or_else(
            |status| status,
            |(config, _)| not_convertible(&config, why).into(),
        )
    }

    /// The configuration merged into `live`, of a custom kind, with its managers.
    fn apply_custom(
        &self,
        live: Option<&Object>,
        gvk: &Gvk,
        writer: &Writer<'_>,
        warnings: &Warnings,
    ) -> Result<Object> {
        let (config, duplicates) = self.parse()?;
        let object = merge::apply(live, &config, gvk, writer, self.force)?;
        self.report(&duplicates, warnings)?;
        Ok(object)
    }

    /// Reports duplicate keys as the client's field validation asks for.
    fn report(&self, duplicates: &[String], warnings: &Warnings) -> Result<()> {
        match self.validation {
            FieldValidation::Strict if !duplicates.is_empty() => {
                let why = format!(
                    "error strict decoding YAML: error converting YAML to JSON: {}",
                    duplicates.join(", ")
                );
                return Err(Status::bad_request(why));
            }
            FieldValidation::Warn => duplicates.iter().for_each(|issue| warn(warnings, issue)),
            _ => {}
        }
        Ok(())
    }

    /// The configuration, and the keys that are in it twice.
    fn parse(&self) -> Result<(Map, Vec<String>)> {
        match codec::yaml::to_value(self.bytes) {
            Ok((Value::Object(config), duplicates)) => Ok((config, duplicates)),
            Ok((Value::Null, duplicates)) => Ok((Map::new(), duplicates)),
            Ok((other, _)) => {
                let why = format!(
                    "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    go::json_type(&other)
                );
                Err(Status::bad_request(format!(
                    "error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}"
                )))
            }
            Err(why) => Err(Status::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: {}",
                why.0
            ))),
        }
    }
}

/// An object without its managed fields.
pub(super) fn without_managers(object: &Object) -> Object {
    let mut object = object.clone();
    object.shift_remove("apiVersion");
    object.metadata_mut().shift_remove("managedFields");
    object
}

/// A patch as it came.
#[derive(Clone, Copy, Debug)]
pub struct PatchBody<'a> {
    pub kind: PatchType,
    pub bytes: &'a [u8],
    pub validation: FieldValidation,
}

/// A patched tree, before it is known to be an object of its kind.
pub(super) struct Patched {
    pub value: Value,
    /// Unknown and duplicate members of the patch itself.
    pub issues: Vec<String>,
}

impl PatchBody<'_> {
    /// The patched object of the kind `gvk`; a patch may not turn it into another one.
    ///
    /// # Errors
    /// 400 or 422 for a patch that cannot be applied, 409 for conflicts of managers.
    pub fn apply(
        &self,
        live: &Object,
        ty: TypeRef<'_>,
        gvk: &Gvk,
        schema: &Schema,
        warnings: &Warnings,
    ) -> Result<Object> {
        let mut patched = self.patched(live, ty)?;
        if let (Value::Object(object), true) = (&mut patched.value, patched.issues.is_empty()) {
            let (rules, text) = (self.rules(), |key: &str| {
                object.get(key).and_then(Value::as_str)
            });
            let same = rules == Rules::Unstructured
                || (text("kind") == Some(&gvk.kind)
                    && text("apiVersion") == Some(&*gvk.api_version()));
            if same && normalize(object, ty, rules) {
                return Ok(Object(std::mem::take(object)));
            }
            if same {
                // It is no longer what the patch came to.
                patched = self.patched(live, ty)?;
            }
        }
        self.explained(patched, ty, gvk, schema, warnings)
    }

    /// Returns the error for the result of a patch.
    fn explained(
        &self,
        patched: Patched,
        ty: TypeRef<'_>,
        gvk: &Gvk,
        schema: &Schema,
        warnings: &Warnings,
    ) -> Result<Object> {
        let Patched {
            mut value,
            mut issues,
        } = patched;
        // What an error shows: the patch where it was strategic, else the patched object.
        let shown = match self.kind {
            PatchType::Strategic => self
                .parse_map()
                .map(|(patch, _)| go::sprint(&Value::Object(patch)))
                .unwrap_or_default(),
            _ => codec::json::text_of(&value),
        };
        let refuse = |why: &str| {
            let error = FieldError::invalid(&Path::new("patch"), Value::String(shown.clone()), why);
            Status::invalid(&Gvk::default(), "", [error].into())
        };
        if let (Rules::Unstructured, Value::Object(object)) = (self.rules(), &value) {
            if let Some(why) = unstructured::conversion_error(object, ty) {
                return Err(refuse(&why));
            }
            issues.extend(unstructured::unknown_fields(object, ty));
        } else {
            let (_, named) = named(shown.as_bytes()).map_err(|why| refuse(&why))?;
            resolve_kind(schema, gvk, &named.api_version, &named.kind)
                .map_err(|why| refuse(&why))?;
            if named.api_version.is_empty() {
                // Upstream takes it for an object of its internal version, whose fields have other
                // names.
                let keys = value
                    .as_object()
                    .into_iter()
                    .flat_map(Map::keys)
                    .filter(|key| !matches!(key.as_str(), "apiVersion" | "kind"));
                issues.extend(
                    keys.take(MAX_ISSUES)
                        .map(|key| format!("unknown field \"{key}\"")),
                );
                value = Value::Object(Map::new());
            }
        }
        let decoded = codec::from_value(&value, ty).map_err(|why| refuse(&why.0))?;
        if self.rules() == Rules::Json {
            issues.extend(decoded.issues);
        }
        match self.validation {
            FieldValidation::Strict if !issues.is_empty() => {
                return Err(refuse(&format!(
                    "strict decoding error: {}",
                    issues.join(", ")
                )));
            }
            FieldValidation::Warn => issues.into_iter().for_each(|issue| warnings.add(issue)),
            _ => {}
        }
        Ok(decoded.object)
    }

    fn rules(&self) -> Rules {
        if self.kind == PatchType::Strategic {
            Rules::Unstructured
        } else {
            Rules::Json
        }
    }

    fn patched(&self, live: &Object, ty: TypeRef<'_>) -> Result<Patched> {
        match self.kind {
            PatchType::Json => self.apply_json(live.clone()),
            PatchType::Merge => self.apply_merge(live.clone()),
            PatchType::Strategic => self.apply_strategic(live.clone(), ty),
            PatchType::Apply => Err(negotiate::unsupported(ACCEPTED)),
        }
    }

    fn parse(&self) -> Result<(Value, Vec<String>)> {
        codec::json::parse(self.bytes).map_err(|why| match (self.kind, self.validation) {
            (PatchType::Strategic, _) => Status::bad_request(why.0),
            (_, FieldValidation::Ignore) if self.kind == PatchType::Merge => {
                Status::bad_request("Invalid JSON Patch")
            }
            (_, FieldValidation::Ignore) => Status::bad_request(why.0),
            _ => Status::bad_request(format!("error decoding patch: {}", why.0)),
        })
    }

    /// The patch as a map; the error is that of Go's decoder.
    fn parse_map(&self) -> Result<(Map, Vec<String>)> {
        let (patch, issues) = self.parse()?;
        let found = match patch {
            Value::Object(map) => return Ok((map, issues)),
            Value::Null if self.kind == PatchType::Strategic => return Ok((Map::new(), issues)),
            Value::Null => return Err(Status::bad_request("Invalid JSON Patch")),
            other => go::json_type(&other),
        };
        let why = format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        );
        Err(Status::bad_request(if self.kind == PatchType::Strategic {
            why
        } else {
            format!("error decoding patch: {why}")
        }))
    }

    pub(super) fn apply_json(&self, object: Object) -> Result<Patched> {
        let (patch, duplicates) = self.parse()?;
        let operations = json::operations(patch)?;
        let mut issues = json::unknown_fields(&operations);
        issues.extend(duplicates);
        let issues = issues
            .into_iter()
            .map(|issue| format!("json patch {issue}"))
            .collect();
        let mut value = Value::from(object);
        json::apply(&mut value, operations)?;
        Ok(Patched { value, issues })
    }

    pub(super) fn apply_merge(&self, object: Object) -> Result<Patched> {
        let (patch, issues) = if self.validation == FieldValidation::Ignore {
            self.parse()?
        } else {
            let (map, issues) = self.parse_map()?;
            (Value::Object(map), issues)
        };
        let mut value = Value::from(object);
        merge_patch::apply(&mut value, patch)?;
        Ok(Patched { value, issues })
    }

    fn apply_strategic(&self, mut object: Object, ty: TypeRef<'_>) -> Result<Patched> {
        let (patch, issues) = self.parse_map()?;
        strategic::apply(&mut object.0, patch, ty)?;
        Ok(Patched {
            value: object.into(),
            issues,
        })
    }
}
