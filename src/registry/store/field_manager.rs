//! Managed fields of the objects of a resource (apimachinery `managedfields.FieldManager`).

use std::ops::Deref;

use crate::merge::managers::{self, Writer};
use crate::meta::Object;
use crate::registry::strategy::Subresource;

use super::{ObjectCodec, Store};

/// A manager that writes objects of the served version.
pub struct FieldManager<'a> {
    codec: &'a ObjectCodec,
    writer: Writer<'a>,
}

impl<'a> Deref for FieldManager<'a> {
    type Target = Writer<'a>;

    fn deref(&self) -> &Writer<'a> {
        &self.writer
    }
}

impl FieldManager<'_> {
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

impl Store {
    /// Returns the field manager `name` for a write to `sub`.
    pub fn field_manager<'a>(&'a self, sub: Subresource<'a>, name: &'a str) -> FieldManager<'a> {
        let resource = &self.resource;
        FieldManager {
            codec: &self.codec,
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
