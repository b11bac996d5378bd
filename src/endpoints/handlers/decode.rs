//! The body of a write as an object of the served version, and what is wrong with it.

use bytes::Bytes;
use http::header;

use crate::codec::{self, Decoded, json, yaml};
use crate::meta::options::FieldValidation;
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status};
use crate::registry::store::Warnings;
use crate::schema::{Schema, TypeRef};

use super::Exchange;
use crate::endpoints::negotiate::{self, MediaType};

/// How many bytes of an unreadable body an error shows.
const SUMMARY_BYTES: usize = 30;
/// Where upstream's scheme is registered: the errors of unknown kinds say so.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// A decoded body.
#[derive(Debug)]
pub struct Body {
    pub object: Object,
    /// The apiVersion and kind that the body names, completed from the URL.
    pub gvk: Gvk,
}

impl Exchange<'_> {
    /// Decodes the body as the kind of the resource, defaults it and brings it to the storage version.
    pub fn decode_main(&self, body: &Bytes, validation: FieldValidation) -> Result<Object> {
        let resource = &self.store.resource;
        let mut object = match self.custom() {
            Some(custom) => self.decode_custom(body, custom, validation)?,
            None => self.decode_as(body, &resource.gvk, resource.ty(), validation)?.object,
        };
        self.store.to_storage(&mut object);
        Ok(object)
    }

    /// Decodes the body as `gvk`, whose schema is `ty`.
    pub fn decode_as(&self, body: &Bytes, gvk: &Gvk, ty: TypeRef<'_>, validation: FieldValidation) -> Result<Body> {
        let media = negotiate::input(&self.request.header(header::CONTENT_TYPE))?;
        let expected = Expected { gvk, ty, schema: &self.store.resource.schema };
        let (decoded, gvk) = match media {
            MediaType::Protobuf => expected.protobuf(body)?,
            MediaType::Json => expected.json(body)?,
            MediaType::Yaml => expected.yaml(body)?,
        };
        self.report(&decoded.issues, &gvk, &expected.gvk.kind, validation)?;
        let mut object = decoded.object;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        Ok(Body { object, gvk })
    }

    /// Unknown and duplicate fields: an error, warnings, or nothing.
    pub(super) fn report(&self, issues: &[String], gvk: &Gvk, expected: &str, validation: FieldValidation) -> Result<()> {
        match validation {
            _ if issues.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                issues.iter().for_each(|issue| warn(&self.warnings, issue));
                Ok(())
            }
            FieldValidation::Strict => Err(unreadable(gvk, expected, &format!("strict decoding error: {}", issues.join(", ")))),
        }
    }
}

/// Warns of an issue; the YAML reader tells several in one, a line each.
pub fn warn(warnings: &Warnings, issue: &str) {
    let lines = issue.trim_start_matches("yaml: unmarshal errors:\n").lines();
    lines.for_each(|line| warnings.add(line.trim()));
}

/// What a body should be.
struct Expected<'a> {
    gvk: &'a Gvk,
    ty: TypeRef<'a>,
    schema: &'a Schema,
}

impl Expected<'_> {
    fn json(&self, body: &[u8]) -> Result<(Decoded, Gvk)> {
        let named = self.named(body, body)?;
        let gvk = self.settle(&named.api_version, &named.kind, body, |ty| json::decode(body, ty).map(drop))?;
        let decoded = json::decode(body, self.ty).map_err(|why| unreadable(&gvk, &self.gvk.kind, &why.0))?;
        Ok((decoded, gvk))
    }

    fn yaml(&self, body: &[u8]) -> Result<(Decoded, Gvk)> {
        let (value, mut issues) = yaml::to_value(body).map_err(|why| self.unrecognized(&why.0, body))?;
        let mut text = Vec::new();
        json::encode_value(&value, &mut text);
        let named = self.named(&text, body)?;
        let gvk = self.settle(&named.api_version, &named.kind, body, |ty| codec::from_value(&value, ty).map(drop))?;
        let mut decoded = codec::from_value(&value, self.ty).map_err(|why| unreadable(&gvk, &self.gvk.kind, &why.0))?;
        issues.append(&mut decoded.issues);
        decoded.issues = issues;
        Ok((decoded, gvk))
    }

    fn protobuf(&self, body: &[u8]) -> Result<(Decoded, Gvk)> {
        let envelope = codec::protobuf::unwrap(body).map_err(|why| self.unrecognized(&why.0, body))?;
        let gvk = self.settle(envelope.api_version, envelope.kind, body, |ty| codec::protobuf::decode(envelope.raw, ty).map(drop))?;
        let mut object = codec::protobuf::decode(envelope.raw, self.ty).map_err(|why| unreadable(&gvk, &self.gvk.kind, &why.0))?;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        Ok((Decoded { object, issues: Vec::new() }, gvk))
    }

    /// What the JSON of a body says that it is.
    fn named(&self, json: &[u8], body: &[u8]) -> Result<json::TypeMeta> {
        json::Document::new(json).and_then(json::Document::type_meta).map_err(|why| {
            let why = format!("couldn't get version/kind; json parse error: {}", why.0);
            self.unrecognized(&why, body)
        })
    }

    /// The kind that a body names, completed from the expected one. A body of another kind is read as that, by `decodes`, before it is
    /// refused.
    fn settle(
        &self,
        api_version: &str,
        kind: &str,
        body: &[u8],
        decodes: impl FnOnce(TypeRef) -> std::result::Result<(), codec::DecodeError>,
    ) -> Result<Gvk> {
        if api_version.matches('/').count() > 1 {
            return Err(self.unrecognized(&format!("unexpected GroupVersion string: {api_version}"), body));
        }
        settle_kind(self.schema, self.gvk, api_version, kind).map_err(|why| {
            let (version, kind) = (Some(api_version).filter(|text| !text.is_empty()), Some(kind).filter(|text| !text.is_empty()));
            let gvk = Gvk::from_api_version(version.unwrap_or(&self.gvk.api_version()), kind.unwrap_or(&self.gvk.kind));
            let broken = self.schema.get(&gvk).and_then(|ty| decodes(ty).err());
            unreadable(&gvk, &self.gvk.kind, broken.as_ref().map_or(&why, |broken| &broken.0))
        })
    }

    fn unrecognized(&self, why: &str, body: &[u8]) -> Status {
        unrecognized(&self.gvk.kind, why, body)
    }
}

/// 400 for a body of which not even the kind can be read.
pub(super) fn unrecognized(expected: &str, why: &str, body: &[u8]) -> Status {
    Status::bad_request(format!("the object provided is unrecognized (must be of type {expected}): {why} ({})", summary(body)))
}

/// Completes the kind that a body names from the expected one; the error says why they do not go together.
pub fn settle_kind(schema: &Schema, expected: &Gvk, api_version: &str, kind: &str) -> std::result::Result<Gvk, String> {
    let mut gvk = Gvk::from_api_version(api_version, kind);
    if kind.is_empty() {
        gvk.kind.clone_from(&expected.kind);
    }
    if api_version.is_empty() {
        (gvk.group, gvk.version) = (expected.group.clone(), expected.version.clone());
    }
    if gvk == *expected {
        return Ok(gvk);
    }
    Err(if schema.get(&gvk).is_some() {
        let package = expected.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        format!("converting ({}.{}) to ({package}.{}): unknown conversion", gvk.version, gvk.kind, expected.kind)
    } else {
        format!("no kind {:?} is registered for version {:?} in scheme {SCHEME:?}", gvk.kind, gvk.api_version())
    })
}

/// 400 for a body of a known kind that does not decode.
pub(super) fn unreadable(gvk: &Gvk, expected: &str, why: &str) -> Status {
    Status::bad_request(format!("{} in version {:?} cannot be handled as a {expected}: {why}", gvk.kind, gvk.version))
}

/// The start of a body, as an error shows it: what begins like an object as it is, anything else in hex.
fn summary(body: &[u8]) -> String {
    let start = &body[..body.len().min(SUMMARY_BYTES)];
    let rest = if body.len() > SUMMARY_BYTES { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{rest}", String::from_utf8_lossy(start)),
        Some(_) => format!("{}{rest}", start.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}
