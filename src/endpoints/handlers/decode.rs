//! Decoding of the body of a write into an object of the served version, with its errors and
//! warnings.

use bytes::Bytes;
use http::header;

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::{self, Decoded, json, yaml};
use crate::meta::options::FieldValidation;
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status, Value};
use crate::registry::store::Warnings;
use crate::schema::{Schema, TypeRef};

use super::{RequestContext, versions};
use crate::endpoints::negotiate::{self, MediaType};

/// The number of bytes of an unreadable body an error shows.
const SUMMARY_BYTES: usize = 30;
/// The place at which upstream registers its scheme, which errors of unknown kinds name.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
/// The same of the server for custom resources, which has a scheme of its own.
const EXTENSIONS_SCHEME: &str = "pkg/apiserver/apiserver.go:55";

/// A decoded body.
#[derive(Debug)]
pub struct Body {
    pub object: Object,
}

impl RequestContext<'_> {
    /// Decodes the body as the kind of the resource, defaults it and brings it to the storage
    /// version.
    ///
    /// # Errors
    /// 400 for a body that cannot be decoded, 413 beyond a bound, 415 for its content type.
    pub fn decode_main(&self, body: &Bytes, validation: FieldValidation) -> Result<Object> {
        let resource = &self.store.resource;
        run_blocking_if(body.len() > LARGE_BYTES, || {
            let mut object = match self.custom() {
                Some(custom) => self.decode_custom(body, custom, validation)?,
                None => {
                    self.decode_as(body, &resource.gvk, resource.ty(), validation)?
                        .object
                }
            };
            self.store.codec.to_storage(&mut object);
            Ok(object)
        })
    }

    /// Decodes the body as `gvk`, whose schema is `ty`.
    ///
    /// # Errors
    /// 400 for a body that cannot be decoded, 413 beyond a bound, 415 for its content type.
    pub fn decode_as(
        &self,
        body: &Bytes,
        gvk: &Gvk,
        ty: TypeRef<'_>,
        validation: FieldValidation,
    ) -> Result<Body> {
        let media = negotiate::body_media_type(&self.request.header(header::CONTENT_TYPE))?;
        let expected = Expected {
            gvk,
            ty,
            schema: &self.store.resource.schema,
        };
        let (decoded, gvk) = run_blocking_if(body.len() > LARGE_BYTES, || match media {
            MediaType::Protobuf => expected.protobuf(body),
            MediaType::Json => expected.json(body),
            MediaType::Yaml => expected.yaml(body),
        })?;
        self.report(&decoded.issues, &gvk, &expected.gvk.kind, validation)?;
        let mut object = decoded.object;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        Ok(Body { object })
    }

    /// Unknown and duplicate fields: an error, warnings, or nothing.
    pub(super) fn report(
        &self,
        issues: &[String],
        gvk: &Gvk,
        expected: &str,
        validation: FieldValidation,
    ) -> Result<()> {
        match validation {
            _ if issues.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                issues.iter().for_each(|issue| warn(&self.warnings, issue));
                Ok(())
            }
            FieldValidation::Strict => Err(unreadable(
                gvk,
                expected,
                &format!("strict decoding error: {}", issues.join(", ")),
            )),
        }
    }
}

/// Adds a warning for an issue; those of the YAML reader may hold several, one a line.
pub fn warn(warnings: &Warnings, issue: &str) {
    let lines = issue
        .trim_start_matches("yaml: unmarshal errors:\n")
        .lines();
    lines.for_each(|line| warnings.add(line.trim()));
}

/// The kind that a body should have.
struct Expected<'a> {
    gvk: &'a Gvk,
    ty: TypeRef<'a>,
    schema: &'a Schema,
}

impl Expected<'_> {
    fn json(&self, body: &[u8]) -> Result<(Decoded, Gvk)> {
        let (_, named) = named(body).map_err(|why| self.unrecognized(&why, body))?;
        let gvk = self.resolve(&named.api_version, &named.kind, |ty| {
            json::decode(body, ty).map(drop)
        })?;
        let decoded =
            json::decode(body, self.ty).map_err(|why| unreadable(&gvk, &self.gvk.kind, &why.0))?;
        Ok((decoded, gvk))
    }

    fn yaml(&self, body: &[u8]) -> Result<(Decoded, Gvk)> {
        let (value, mut issues) =
            yaml::to_value(body).map_err(|why| self.unrecognized(&why.0, body))?;
        let named = named_in(&value).map_err(|why| self.unrecognized(&why, body))?;
        let gvk = self.resolve(&named.api_version, &named.kind, |ty| {
            codec::from_value(&value, ty).map(drop)
        })?;
        let mut decoded = codec::from_value(&value, self.ty)
            .map_err(|why| unreadable(&gvk, &self.gvk.kind, &why.0))?;
        issues.append(&mut decoded.issues);
        decoded.issues = issues;
        Ok((decoded, gvk))
    }

    fn protobuf(&self, body: &[u8]) -> Result<(Decoded, Gvk)> {
        let envelope =
            codec::protobuf::unwrap(body).map_err(|why| self.unrecognized(&why.0, body))?;
        let gvk = self.resolve(envelope.api_version, envelope.kind, |ty| {
            codec::protobuf::decode(envelope.raw, ty).map(drop)
        })?;
        let mut object = codec::protobuf::decode(envelope.raw, self.ty)
            .map_err(|why| unreadable(&gvk, &self.gvk.kind, &why.0))?;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        Ok((
            Decoded {
                object,
                issues: Vec::new(),
            },
            gvk,
        ))
    }

    /// The kind that a body names, completed from the expected one. A body of another kind is read
    /// as that, by `decodes`, before it is refused.
    fn resolve(
        &self,
        api_version: &str,
        kind: &str,
        decodes: impl FnOnce(TypeRef) -> std::result::Result<(), codec::DecodeError>,
    ) -> Result<Gvk> {
        let gvk = completed(self.gvk, api_version, kind);
        if gvk == *self.gvk {
            return Ok(gvk);
        }
        let broken = self.schema.get(&gvk).and_then(|ty| decodes(ty).err());
        if broken.is_none() && versions::are_of_one_kind(self.schema, &gvk, self.gvk) {
            return Err(another_version(&gvk.api_version(), &self.gvk.api_version()));
        }
        let why = broken.map_or_else(
            || kind_error(self.schema, self.gvk, &gvk),
            |broken| broken.0,
        );
        Err(unreadable(&gvk, &self.gvk.kind, &why))
    }

    fn unrecognized(&self, why: &str, body: &[u8]) -> Status {
        unrecognized(&self.gvk.kind, why, body)
    }
}

/// 400 for a body in another version than the expected one.
pub(super) fn another_version(given: &str, expected: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({expected})"
    ))
}

/// 400 for a body of which not even the kind can be read.
pub(super) fn unrecognized(expected: &str, why: &str, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {expected}): {why} ({})",
        summary(body)
    ))
}

/// Returns a JSON document and the kind that it names. The error is that of apimachinery's
/// `SimpleMetaFactory`.
pub(super) fn named(
    json: &[u8],
) -> std::result::Result<(json::Document<'_>, json::TypeMeta), String> {
    let document =
        json::Document::new(json).and_then(|document| Ok((document, document.type_meta()?)));
    let (document, named) = document
        .map_err(|why| format!("couldn't get version/kind; json parse error: {}", why.0))?;
    if is_group_version(&named.api_version) {
        Ok((document, named))
    } else {
        Err(format!(
            "unexpected GroupVersion string: {}",
            named.api_version
        ))
    }
}

/// Returns the kind that the value of a body names, like [`named`].
pub(super) fn named_in(value: &Value) -> std::result::Result<json::TypeMeta, String> {
    let mut text = Vec::new();
    json::encode_value(value, &mut text);
    named(&text).map(|(_, named)| named)
}

fn is_group_version(text: &str) -> bool {
    text.matches('/').count() < 2
}

/// The kind that a body names, with what it leaves out as it is expected.
fn completed(expected: &Gvk, api_version: &str, kind: &str) -> Gvk {
    let mut gvk = Gvk::from_api_version(api_version, kind);
    if kind.is_empty() {
        gvk.kind.clone_from(&expected.kind);
    }
    // Envelopes of protobuf may name what is no version: that counts for none.
    if api_version.is_empty() || !is_group_version(api_version) {
        (gvk.group, gvk.version) = (expected.group.clone(), expected.version.clone());
    }
    gvk
}

/// Completes the kind that a body names from the expected one.
///
/// # Errors
/// The reason that the kinds do not go together.
pub fn resolve_kind(
    schema: &Schema,
    expected: &Gvk,
    api_version: &str,
    kind: &str,
) -> std::result::Result<Gvk, String> {
    let gvk = completed(expected, api_version, kind);
    if gvk == *expected {
        Ok(gvk)
    } else {
        Err(kind_error(schema, expected, &gvk))
    }
}

/// Builds the error for an object of another kind than the expected one.
fn kind_error(schema: &Schema, expected: &Gvk, gvk: &Gvk) -> String {
    if schema.get(gvk).is_some() {
        let package = expected
            .group
            .split('.')
            .next()
            .filter(|group| !group.is_empty())
            .unwrap_or("core");
        format!(
            "converting ({}.{}) to ({package}.{}): unknown conversion",
            gvk.version, gvk.kind, expected.kind
        )
    } else {
        let scheme = if expected.group == "apiextensions.k8s.io" {
            EXTENSIONS_SCHEME
        } else {
            SCHEME
        };
        format!(
            "no kind {:?} is registered for version {:?} in scheme {scheme:?}",
            gvk.kind,
            gvk.api_version()
        )
    }
}

/// 400 for a body of a known kind that does not decode.
pub(super) fn unreadable(gvk: &Gvk, expected: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "{} in version {:?} cannot be handled as a {expected}: {why}",
        gvk.kind, gvk.version
    ))
}

/// The start of a body, as an error shows it: what begins like an object as it is, anything else in
/// hex.
fn summary(body: &[u8]) -> String {
    let start = &body[..body.len().min(SUMMARY_BYTES)];
    let rest = if body.len() > SUMMARY_BYTES {
        " ..."
    } else {
        ""
    };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{rest}", String::from_utf8_lossy(start)),
        Some(_) => format!(
            "{}{rest}",
            start
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        ),
    }
}
