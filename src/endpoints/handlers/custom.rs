//! Differences between custom and built-in resources: routes, and bodies that are trees
//! (apiextensions `customresource_handler.go`).

use crate::meta::Value;
use bytes::Bytes;
use http::header;

use crate::codec::{json, yaml};
use crate::meta::options::FieldValidation;
use crate::meta::status::Result;
use crate::meta::{FieldError, Gvk, Object, Path, Status};
use crate::registry::Custom;
use crate::registry::store::Warnings;

use super::RequestContext;
use super::decode::{another_version, named, named_in, unreadable, unrecognized};
use super::patch::{PatchBody, PatchType, Patched};
use crate::endpoints::Request;
use crate::endpoints::negotiate::{self, MediaType};

/// Reports whether a request is for a custom resource, in a place where there is none.
pub fn is_misplaced(request: &Request) -> bool {
    let (info, store) = (&request.info, request.store.as_ref());
    let Some(store) = store.filter(|store| store.resource.custom.is_some()) else {
        return false;
    };
    let namespaced = store.resource.decl.namespaced;
    // Across all namespaces there is only looking.
    let across =
        namespaced && info.namespace.is_empty() && !matches!(info.verb.as_str(), "list" | "watch");
    across || info.is_misplaced(namespaced)
}

/// 404 for subresources that the definition does not have, 405 for verbs that there are not.
///
/// # Errors
/// 404 for the subresource, 405 for the verb.
pub fn check_verb(ctx: &RequestContext<'_>) -> Result<()> {
    let (info, resource) = (&ctx.request.info, &ctx.store.resource);
    let verb = info.verb.as_str();
    let verbs: &[&str] = match info.subresource.as_str() {
        "" => &[
            "get",
            "list",
            "watch",
            "create",
            "update",
            "patch",
            "delete",
            "deletecollection",
        ],
        sub if resource.decl.subresources.iter().any(|one| one.name == sub) => {
            &["get", "update", "patch"]
        }
        _ => return Err(Status::not_found(&resource.gvr, &info.name)),
    };
    if !verbs.contains(&verb) {
        return Err(Status::method_not_supported(&resource.gvr, verb));
    }
    if info.url_name().is_empty() && matches!(verb, "update" | "patch") {
        return Err(Status::bad_request("name must be provided"));
    }
    Ok(())
}

impl RequestContext<'_> {
    /// The body as an object of the custom kind. That it names the right kind is for validation to
    /// say.
    pub(super) fn decode_custom(
        &self,
        body: &Bytes,
        custom: &dyn Custom,
        validation: FieldValidation,
    ) -> Result<Object> {
        let expected = &self.store.resource.gvk;
        let unknown = |why: &str| unrecognized(&expected.kind, why, body);
        let (value, mut issues) = match negotiate::body_media_type(
            &self.request.header(header::CONTENT_TYPE),
        )? {
            MediaType::Json => {
                let (document, _) = named(body).map_err(|why| unknown(&why))?;
                document.parse().map_err(|why| unknown(&why.0))?
            }
            MediaType::Yaml => {
                let (value, issues) = yaml::to_value(body).map_err(|why| unknown(&why.0))?;
                named_in(&value).map_err(|why| unknown(&why))?;
                (value, issues)
            }
            MediaType::Protobuf => {
                return Err(unknown(
                    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
                ));
            }
        };
        let missing = || {
            unknown(&format!(
                "Object 'Kind' is missing in '{}'",
                String::from_utf8_lossy(body)
            ))
        };
        let mut object = Object::from_value(value)
            .filter(|object| !object.kind().is_empty())
            .ok_or_else(missing)?;
        let gvk = Gvk::from_api_version(object.api_version(), object.kind());
        let lost = custom
            .read(&mut object)
            .map_err(|why| unreadable(&gvk, &expected.kind, &why))?;
        issues.extend(lost.iter().map(|path| format!("unknown field \"{path}\"")));
        self.report(&issues, &gvk, &expected.kind, validation)?;
        if object.api_version() != expected.api_version() {
            return Err(another_version(
                object.api_version(),
                &expected.api_version(),
            ));
        }
        Ok(object)
    }
}

impl PatchBody<'_> {
    /// The patched object of a custom kind.
    pub(super) fn apply_custom(
        &self,
        live: &Object,
        custom: &dyn Custom,
        warnings: &Warnings,
    ) -> Result<Object> {
        let Patched { value, mut issues } = match self.kind {
            PatchType::Json => self.apply_json(live.clone())?,
            _ => self.apply_merge(live.clone())?,
        };
        let shown = json::text_of(&value);
        let refuse = |why: &str| {
            let error = FieldError::invalid(&Path::new("patch"), Value::String(shown.clone()), why);
            Status::invalid(&Gvk::default(), "", [error].into())
        };
        let mut object = Object::from_value(value).unwrap_or_default();
        if object.kind().is_empty() {
            return Err(refuse(&format!("Object 'Kind' is missing in '{shown}'")));
        }
        let lost = custom.read(&mut object).map_err(|why| refuse(&why))?;
        issues.extend(lost.iter().map(|path| format!("unknown field \"{path}\"")));
        match self.validation {
            FieldValidation::Strict if !issues.is_empty() => Err(refuse(&format!(
                "strict decoding error: {}",
                issues.join(", ")
            ))),
            FieldValidation::Warn => {
                issues.into_iter().for_each(|issue| warnings.add(issue));
                Ok(object)
            }
            _ => Ok(object),
        }
    }
}
