//! The scale subresource: the replicas of a workload of any kind (autoscaling/v1 Scale).

use std::borrow::Cow;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;

use crate::merge;
use crate::merge::scale::ReplicasPaths;
use crate::meta::options::{OperationOptions, Write, WriteOptions};
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Map, Object, Path, Status, Value, json};
use crate::registry::Custom;
use crate::registry::scale::{ScalePaths, number_at, set_number, text_at};
use crate::registry::store::{AdmissionValidator, Target, Updater};
use crate::registry::strategy::Subresource;
use crate::registry::validation::MetaRules;
use crate::schema::TypeRef;

use super::patch::{ApplyBody, PatchBody, PatchType, patch_type, without_managers};
use super::{RequestContext, RequestValidator};
use crate::endpoints::body::Body;
use crate::endpoints::encode::Source;

const SCALE_VERSION: &str = "autoscaling/v1";
/// The replicas in the Scale of a custom object that has none.
const UNSET: i64 = i32::MIN as i64;

fn scale_kind() -> Gvk {
    Gvk::new("autoscaling", "v1", "Scale")
}

fn ty() -> Result<TypeRef<'static>> {
    crate::schema::builtin()
        .get(&scale_kind())
        .ok_or_else(|| Status::internal("Scale is not in the schema"))
}

/// Answers with the scale of the object.
///
/// # Errors
/// 404 if the object or its scale does not exist.
pub async fn get(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let version = ctx.request.query.get("resourceVersion").unwrap_or("");
    let stored = ctx
        .store
        .get(ctx.namespace(), ctx.request.info.url_name(), version)
        .await?;
    let object = ctx.store.codec.decode_shared(&stored)?;
    let scaled = ScaleFields::of(ctx, &object).map_err(odd)?;
    if let (None, Some(paths)) = (scaled.replicas, custom_paths(ctx)) {
        return Err(Status::internal(format!(
            "the spec replicas field {:?} does not exist",
            paths.spec_replicas
        )));
    }
    ctx.answer(200, Source::Fixed(scaled.shown(&object)))
}

/// Replaces the scale with the one in the body.
///
/// # Errors
/// 400 or 422 for the body, and the errors of an update.
pub async fn put(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let options = WriteOptions::from_query(&ctx.request.query, Write::Update)?;
    let mut scale = ctx
        .decode_as(&body, &scale_kind(), ty()?, options.field_validation)?
        .object;
    ctx.audit_object(&scale);
    ctx.check_namespace(&mut scale)?;
    ctx.check_name(&scale)?;
    write(ctx, Change::Replace(scale), options).await
}

/// Patches the scale.
///
/// # Errors
/// 400 or 422 for the patch, and the errors of an update.
pub async fn patch(ctx: &RequestContext<'_>, body: Bytes) -> Result<Response<Body>> {
    let kind = patch_type(ctx)?;
    let options = WriteOptions::from_query(
        &ctx.request.query,
        if kind == PatchType::Apply {
            Write::Apply
        } else {
            Write::Patch
        },
    )?;
    write(ctx, Change::Patch { body, kind }, options).await
}

async fn write(
    ctx: &RequestContext<'_>,
    change: Change,
    options: WriteOptions,
) -> Result<Response<Body>> {
    let dry_run = options.dry_run;
    let updater = ScaleUpdater {
        ctx,
        change,
        options,
    };
    let validator = ScaleValidator {
        validator: RequestValidator {
            ctx,
            options: OperationOptions::Write(&updater.options),
        },
    };
    let target = Target {
        name: ctx.request.info.url_name(),
        sub: Subresource::Other("scale"),
        force_create: false,
    };
    let updated = ctx
        .store
        .update(&ctx.write_context(dry_run), target, &updater, &validator)
        .await?;
    let object = &updated.written.object;
    let scaled = ScaleFields::of(ctx, object).map_err(Status::bad_request)?;
    ctx.answer(200, Source::Fixed(scaled.shown(object)))
}

/// Admission's last word about a write of a Scale: it sees the Scale before and after, not the
/// object (core/apps `toScaleUpdateValidation`).
struct ScaleValidator<'a> {
    validator: RequestValidator<'a>,
}

impl ScaleValidator<'_> {
    fn scale(&self, object: &Object) -> Result<Object> {
        let scaled = ScaleFields::of(self.validator.ctx, object).map_err(odd)?;
        Ok(scaled.shown(object))
    }
}

#[async_trait]
impl AdmissionValidator for ScaleValidator<'_> {
    async fn validate(&self, new: Option<&mut Object>, old: Option<&Object>) -> Result<()> {
        let mut new = new.map(|object| self.scale(object)).transpose()?;
        let old = old.map(|object| self.scale(object)).transpose()?;
        self.validator.validate(new.as_mut(), old.as_ref()).await
    }

    async fn authorize_create(&self) -> Result<()> {
        self.validator.authorize_create().await
    }
}

enum Change {
    Replace(Object),
    Patch { body: Bytes, kind: PatchType },
}

struct ScaleUpdater<'a> {
    ctx: &'a RequestContext<'a>,
    change: Change,
    options: WriteOptions,
}

#[async_trait]
impl Updater for ScaleUpdater<'_> {
    fn uid(&self) -> Option<&str> {
        match &self.change {
            Change::Replace(scale) => Some(scale.uid()).filter(|uid| !uid.is_empty()),
            Change::Patch { .. } => None,
        }
    }

    fn keeps_managers(&self) -> bool {
        matches!(
            self.change,
            Change::Patch {
                kind: PatchType::Apply,
                ..
            }
        )
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let resource = &self.ctx.store.resource;
        let name = self.ctx.request.info.url_name();
        let live = live.ok_or_else(|| Status::not_found(&scale_of(&resource.gvr), name))?;
        let (custom, paths) = (custom_paths(self.ctx), replicas_paths(self.ctx));
        let (api_version, managers) = (
            resource.gvk.api_version(),
            live.at("/metadata/managedFields"),
        );
        let mut scaled = ScaleFields::of(self.ctx, live).map_err(odd)?;
        scaled.replicas.get_or_insert(UNSET);
        let mut old = scaled.shown(live);
        if let Some(managers) = merge::scale::to_scale(managers, &paths).map_err(odd)? {
            old.metadata_mut().insert("managedFields", managers);
        }
        let mut scale = self.changed(&old)?;
        self.ctx
            .admit(&mut scale, Some(&old), name, &self.options)
            .await?;
        let replicas = scale.i64_at("/spec/replicas").unwrap_or(0);
        if custom.is_none() {
            self.check(&scale, live.name(), replicas)?;
            if !scale.uid().is_empty() && scale.uid() != live.uid() {
                let why = format!(
                    "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                    scale.uid(),
                    live.uid()
                );
                return Err(Status::conflict(&scale_of(&resource.gvr), name, &why));
            }
        }
        let managers = merge::scale::to_parent(
            managers,
            scale.at("/metadata/managedFields"),
            &paths,
            &api_version,
        )
        .map_err(odd)?;
        let mut object = live.clone();
        if custom.is_none() || !scale.resource_version().is_empty() {
            object.set_meta_str("resourceVersion", scale.resource_version());
        }
        match custom {
            Some(paths) if replicas == UNSET => {
                return Err(Status::bad_request(format!(
                    "the spec replicas field {:?} cannot be empty",
                    paths.spec_replicas
                )));
            }
            Some(paths) => set_number(&mut object, &paths.spec_replicas, replicas).map_err(odd)?,
            None => {
                object
                    .section_mut("spec")
                    .insert("replicas", replicas.into());
            }
        }
        match managers {
            Some(managers) => object.metadata_mut().insert("managedFields", managers),
            None => object.metadata_mut().shift_remove("managedFields"),
        };
        Ok(object)
    }
}

impl ScaleUpdater<'_> {
    /// Checks the Scale of an object of a built-in kind (autoscaling `ValidateScale`).
    fn check(&self, scale: &Object, name: &str, replicas: i64) -> Result<()> {
        let rules = MetaRules {
            namespaced: true,
            strategy: &*self.ctx.store.resource.strategy,
        };
        let mut errors = rules.validate(scale);
        if replicas < 0 {
            errors.invalid(
                &Path::new("spec").child("replicas"),
                replicas,
                "must be greater than or equal to 0",
            );
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Status::invalid(&scale_kind(), name, errors)),
        }
    }

    /// The scale that the request makes of `old`, with its managers.
    fn changed(&self, old: &Object) -> Result<Object> {
        let (ctx, ty) = (self.ctx, ty()?);
        let manager = ctx.manager(&self.options.field_manager);
        let writer = ctx.writer_of_fixed(SCALE_VERSION, ty, &manager);
        let validation = self.options.field_validation;
        let mut scale = match &self.change {
            Change::Replace(scale) => {
                let mut scale = scale.clone();
                merge::update(Some(old), &mut scale, &writer);
                return Ok(scale);
            }
            Change::Patch {
                body,
                kind: PatchType::Apply,
            } => {
                let apply = ApplyBody {
                    bytes: body,
                    force: self.options.force.unwrap_or(false),
                    validation,
                };
                let applied = apply.apply(Some(old), ty, &scale_kind(), &writer, &ctx.warnings);
                if ctx.custom().is_some() {
                    self.unconverted(&apply, old, applied)?
                } else {
                    applied?
                }
            }
            Change::Patch { body, kind } => {
                let patch = PatchBody {
                    kind: *kind,
                    bytes: body,
                    validation,
                };
                let mut scale = patch.apply(old, ty, &scale_kind(), ty.schema, &ctx.warnings)?;
                merge::update(Some(old), &mut scale, &writer);
                scale
            }
        };
        ctx.check_namespace(&mut scale)?;
        ctx.check_name(&scale)?;
        Ok(scale)
    }
}

impl ScaleUpdater<'_> {
    /// The error of an apply to the Scale of a custom object: upstream's converter of custom
    /// kinds knows no Scale, which shows as soon as an object is to be converted (`fieldmanager` of
    /// the scale scope in `customresource_handler.go`).
    fn unconverted(
        &self,
        apply: &ApplyBody<'_>,
        old: &Object,
        applied: Result<Object>,
    ) -> Result<Object> {
        let why = format!("request to convert CR to an invalid group/version: {SCALE_VERSION}");
        let untracked = old.at("/metadata/managedFields").is_none();
        match applied {
            Err(status) if status.code == 400 || !untracked => Err(status),
            _ if untracked => Err(odd(format!(
                "failed to create manager for existing fields: failed to convert live object (/; {SCALE_VERSION}, Kind=Scale) to proper \
                 version: {why}"
            ))),
            Ok(scale) if without_managers(&scale) != without_managers(old) => {
                Err(apply.not_convertible(&why))
            }
            applied => applied,
        }
    }
}

/// The resource as errors about its scale name it.
fn scale_of(gvr: &Gvr) -> Gvr {
    Gvr::new(&gvr.group, &gvr.version, format!("{}/scale", gvr.resource))
}

/// An error that upstream does not class.
fn odd(why: String) -> Status {
    Status::failure(500, "", why)
}

/// The paths at which a custom kind has what its Scale shows; `None` for built-in kinds, which all
/// have it in the same places.
fn custom_paths<'ctx>(ctx: &'ctx RequestContext<'_>) -> Option<&'ctx ScalePaths> {
    ctx.custom().and_then(Custom::scale)
}

/// The path of the replicas in each version of the kind, for the managers of a Scale.
fn replicas_paths<'ctx>(ctx: &'ctx RequestContext<'_>) -> Cow<'ctx, ReplicasPaths> {
    if let Some(custom) = ctx.custom() {
        return Cow::Borrowed(custom.replicas_paths());
    }
    // The versions that have been, too: what their managers own is not lost.
    let versions: &[&str] = match ctx.store.resource.gvr.resource.as_str() {
        "replicationcontrollers" => &["v1"],
        "replicasets" => &["apps/v1beta2", "apps/v1"],
        _ => &["apps/v1beta1", "apps/v1beta2", "apps/v1"],
    };
    versions
        .iter()
        .map(|version| {
            (
                (*version).to_owned(),
                Some(vec!["spec".to_owned(), "replicas".to_owned()]),
            )
        })
        .collect()
}

/// The parts of an object that a Scale shows.
struct ScaleFields {
    /// `None` if a custom object has none.
    replicas: Option<i64>,
    current: i64,
    selector: String,
}

impl ScaleFields {
    /// Reads an object of the served version; the error names a field of the wrong type.
    fn of(ctx: &RequestContext<'_>, object: &Object) -> std::result::Result<Self, String> {
        let Some(paths) = custom_paths(ctx) else {
            return Ok(Self {
                replicas: Some(object.i64_at("/spec/replicas").unwrap_or(0)),
                current: object.i64_at("/status/replicas").unwrap_or(0),
                selector: selector_text(object.at("/spec/selector")),
            });
        };
        let selector = paths
            .label_selector
            .as_deref()
            .map_or(Ok(None), |path| text_at(object, path));
        Ok(Self {
            replicas: number_at(object, &paths.spec_replicas)?,
            current: number_at(object, &paths.status_replicas)?.unwrap_or(0),
            selector: selector?.unwrap_or_default().to_owned(),
        })
    }

    /// The Scale of `object`.
    fn shown(self, object: &Object) -> Object {
        let mut metadata = Map::new();
        for key in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            if let Some(value) = object.metadata().and_then(|meta| meta.get(key)) {
                metadata.insert(key.to_owned(), value.clone());
            }
        }
        let mut spec = Map::new();
        if let Some(replicas) = self.replicas.filter(|replicas| *replicas != 0) {
            spec.insert("replicas", replicas.into());
        }
        let mut status = Map::new();
        status.insert("replicas", self.current.into());
        if !self.selector.is_empty() {
            status.insert("selector", self.selector.into());
        }
        let scale = json!({ "kind": "Scale", "apiVersion": SCALE_VERSION, "metadata": metadata, "spec": spec, "status": status });
        Object::from_value(scale).unwrap_or_default()
    }
}

/// A selector as text: of a LabelSelector, or of the plain map of a ReplicationController.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector.and_then(Value::as_object) else {
        return String::new();
    };
    let is_label_selector =
        selector.values().any(|value| !value.is_string()) || selector.is_empty();
    let labels = if is_label_selector {
        selector.get("matchLabels").and_then(Value::as_object)
    } else {
        Some(selector)
    };
    let mut terms: Vec<(String, String)> = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        terms.push((
            key.to_string(),
            format!("{key}={}", value.as_str().unwrap_or("")),
        ));
    }
    for one in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = crate::meta::str_at(one, "/key");
        let mut values: Vec<&str> = crate::meta::array_at(one, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let text = match crate::meta::str_at(one, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), text));
    }
    terms.sort();
    terms
        .into_iter()
        .map(|(_, text)| text)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_read_as_label_selector_text() {
        let checks = [
            (json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2"),
            (
                json!({"matchExpressions": [{"key": "t", "operator": "In", "values": ["y", "x"]}, {"key": "n", "operator": "DoesNotExist"}]}),
                "!n,t in (x,y)",
            ),
            (json!({"app": "web"}), "app=web"),
        ];
        for (selector, want) in checks {
            assert_eq!(selector_text(Some(&selector)), want);
        }
    }
}
