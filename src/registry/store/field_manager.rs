//! Managed fields of the objects of a resource (apimachinery `managedfields.FieldManager`).

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::merge::managers::{self, Writer};
use crate::merge::{Ty, Versions};
use crate::meta::{Map, Object};
use crate::registry::resource::Converter;
use crate::registry::strategy::Subresource;

use super::{ObjectCodec, Store};

/// The conversions that one write may call for: managers write in many versions.
const MAX_CONVERSIONS: usize = 200;

/// A manager that writes objects of the served version.
pub struct FieldManager<'a> {
    codec: &'a ObjectCodec,
    writer: Writer<'a>,
    converter: Option<&'a Arc<dyn Converter>>,
}

/// The versions of a kind that a webhook converts. A merge is pure: where it asks for a conversion
/// that is not known, it fails, and is repeated once the webhook has made it.
struct KnownConversions<'a> {
    versions: &'a dyn Versions,
    state: Mutex<ConversionState>,
}

#[derive(Default)]
struct ConversionState {
    known: Vec<(Request, Result<Map, String>)>,
    missing: Option<Request>,
}

/// An object, and the version that it is wanted in.
type Request = (Map, String);

impl Versions for KnownConversions<'_> {
    fn type_of(&self, api_version: &str) -> Option<Ty<'_>> {
        self.versions.type_of(api_version)
    }

    fn resets_all(&self, subresource: &str) -> bool {
        self.versions.resets_all(subresource)
    }

    fn convert(&self, object: &Map, api_version: &str) -> Result<Option<Map>, String> {
        if self.type_of(api_version).is_none() {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let known = state
            .known
            .iter()
            .find(|((from, to), _)| to == api_version && from == object);
        if let Some((_, converted)) = known {
            return converted.clone().map(Some);
        }
        state.missing = Some((object.clone(), api_version.to_owned()));
        Err(format!("more than {MAX_CONVERSIONS} conversions"))
    }
}

impl<'a> Deref for FieldManager<'a> {
    type Target = Writer<'a>;

    fn deref(&self) -> &Writer<'a> {
        &self.writer
    }
}

impl FieldManager<'_> {
    /// Runs a merge; where a webhook converts versions, as often as it takes until it has every
    /// conversion that the merge asks for. `large`: the objects are.
    pub async fn merge<T>(&self, large: bool, merge: impl Fn(&Writer<'_>) -> T) -> T {
        let Some(converter) = self.converter else {
            return run_blocking_if(large, || merge(&self.writer));
        };
        let known = KnownConversions {
            versions: self.writer.versions,
            state: Mutex::default(),
        };
        for _ in 0..MAX_CONVERSIONS {
            let merged = run_blocking_if(large, || merge(&known.writer(&self.writer)));
            let Some((object, version)) = known.state.lock().missing.take() else {
                return merged;
            };
            let converted = converter
                .convert(vec![Object(object.clone())], &version)
                .await
                .map(|objects| objects.into_iter().next().unwrap_or_default().0);
            known
                .state
                .lock()
                .known
                .push(((object, version), converted));
        }
        run_blocking_if(large, || merge(&known.writer(&self.writer)))
    }

    /// Like [`FieldManager::update`], for kinds that a webhook may convert.
    pub async fn track(&self, live: Option<&Object>, object: &mut Object) {
        let large = object.is_larger_than(LARGE_BYTES);
        if self.converter.is_none() {
            return run_blocking_if(large, || self.update(live, object));
        }
        let tracked = self.merge(large, |writer| {
            let mut object = object.clone();
            managers::update(live, &mut object, writer);
            object
        });
        *object = tracked.await;
    }

    /// Records in `object` the fields that change from `live` as owned by this manager. Fields are
    /// named as in the served version.
    pub fn update(&self, live: Option<&Object>, object: &mut Object) {
        if !self.codec.converts() {
            managers::update(live, object, &self.writer);
            return;
        }
        let mut served = self.codec.served(object).into_owned();
        managers::update(
            live.map(|live| self.codec.served(live)).as_deref(),
            &mut served,
            &self.writer,
        );
        match served.metadata_mut().shift_remove("managedFields") {
            Some(managed) => object.metadata_mut().insert("managedFields", managed),
            None => object.metadata_mut().shift_remove("managedFields"),
        };
    }
}

impl KnownConversions<'_> {
    /// The writer, with the conversions that are known.
    fn writer<'b>(&'b self, writer: &Writer<'b>) -> Writer<'b> {
        Writer {
            versions: self,
            ..*writer
        }
    }
}

impl Store {
    /// Returns the field manager `name` for a write to `sub`.
    pub fn field_manager<'a>(&'a self, sub: Subresource<'a>, name: &'a str) -> FieldManager<'a> {
        let resource = &self.resource;
        FieldManager {
            codec: &self.codec,
            converter: resource
                .custom
                .as_ref()
                .and_then(|custom| custom.converter()),
            writer: Writer {
                manager: name,
                api_version: &self.api_version,
                subresource: sub.name(),
                now: self.clock.now(),
                reset_fields: resource.strategy.reset_fields(sub),
                ty: resource.ty().into(),
                versions: match &resource.custom {
                    Some(custom) => custom.versions(),
                    None => &resource.versions,
                },
            },
        }
    }
}
