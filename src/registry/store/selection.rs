//! The selectors of lists and watches, and the objects that they take.

use crate::codec;
use crate::meta::Status;
use crate::meta::options::ListOptions;
use crate::meta::selector::FieldReader;
use crate::meta::selector::fields::FieldSelector;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::registry::Strategy;
use crate::storage::Stored;

use super::Store;

/// The selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Reports whether an object is selected. Readers of stored bytes need no tree for that.
    pub fn matches(&self, strategy: &dyn Strategy, object: &dyn FieldReader) -> bool {
        self.labels.selects(object)
            && self.fields.matches(|field| match field {
                "metadata.name" | "metadata.namespace" => object.text_at(field),
                other => strategy.selectable_value(object, other),
            })
    }
}

impl Store {
    /// Reports whether a selection takes a stored object.
    pub(super) fn selects(&self, selection: &Selection, stored: &Stored) -> Result<bool> {
        if selection.is_empty() {
            return Ok(true);
        }
        let strategy = &*self.resource.strategy;
        Ok(match self.codec.message(stored)? {
            Some(message) => selection.matches(strategy, &message),
            None => selection.matches(strategy, &codec::json::Reader::new(&stored.value)),
        })
    }

    /// Checks the field labels of a selector and turns the options into a selection.
    ///
    /// # Errors
    /// 400 for a field that objects of the resource are not selected by.
    pub fn selection(&self, options: &ListOptions) -> Result<Selection> {
        for term in &options.field_selector.terms {
            self.resource
                .check_field_label(&term.field)
                .map_err(Status::bad_request)?;
        }
        Ok(Selection {
            labels: options.label_selector.clone(),
            fields: options.field_selector.clone(),
        })
    }
}
