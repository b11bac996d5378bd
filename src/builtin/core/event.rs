//! Events, as both of their groups store them: events.k8s.io asks more of them.

use std::borrow::Cow;

use crate::meta::Value;

use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, FieldError, Object, Path, names};
use crate::registry::validation::{
    Fields, IMMUTABLE, invalid_each, same, validate_object_meta, validate_object_meta_update,
};
use crate::registry::{Context, NameRule, Strategy, Subresource};

/// Characters of the short texts of an event, and of its message.
const WORD_MAX: usize = 128;
const NOTE_MAX: usize = 1024;
/// What an update through events.k8s.io may not change, in the order of the checks; `reason` is
/// checked twice.
const FIXED: [(&str, &str); 14] = [
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Events of one of the groups.
pub struct Events {
    /// Whether they come through events.k8s.io.
    pub strict: bool,
}

impl Strategy for Events {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = self.check(object);
        if !self.strict {
            return errors;
        }
        errors.extend(validate_object_meta(object, true, NameRule::DnsSubdomain));
        check_series(&mut errors, object);
        if object.str("eventTime").is_empty() {
            errors.push(FieldError::required(&Path::new("eventTime"), ""));
        }
        let kind = object.str("type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(FieldError::invalid(
                &Path::new("type"),
                "",
                format!("has invalid value: {kind}"),
            ));
        }
        let source = object.map("source").is_some_and(|source| {
            !source.str("component").is_empty() || !source.str("host").is_empty()
        });
        let set = [
            ("firstTimestamp", !object.str("firstTimestamp").is_empty()),
            ("lastTimestamp", !object.str("lastTimestamp").is_empty()),
            ("count", object.int("count").unwrap_or(0) != 0),
            ("source", source),
        ];
        for (key, _) in set.into_iter().filter(|(_, set)| *set) {
            errors.push(FieldError::invalid(
                &Path::new(key),
                "",
                "needs to be unset",
            ));
        }
        errors
    }

    fn validate_update(
        &self,
        _ctx: &Context,
        _sub: Subresource,
        object: &Object,
        old: &Object,
    ) -> ErrorList {
        let mut errors = self.check(object);
        if !self.strict {
            return errors;
        }
        errors.extend(validate_object_meta_update(object, old));
        if !same(object.field("series"), old.field("series")) {
            check_series(&mut errors, object);
        }
        for (key, shown) in FIXED {
            let (new, old) = (object.field(key), old.field(key));
            let text = |value: Option<&Value>| {
                value.is_none_or(|value| value.as_str() == Some("") || value.as_i64() == Some(0))
            };
            if !(same(new, old) || text(new) && text(old)) {
                errors.push(FieldError::invalid(
                    &Path::new(shown),
                    new.cloned().unwrap_or_default(),
                    IMMUTABLE,
                ));
            }
        }
        errors
    }

    fn selectable_value<'a>(&self, object: &'a dyn FieldReader, field: &str) -> Cow<'a, str> {
        match field {
            "source" => match object.text_at("source.component") {
                component if component.is_empty() => object.text_at("reportingComponent"),
                component => component,
            },
            "reportingController" => object.text_at("reportingComponent"),
            other => object.text_at(&other.replacen("regarding.", "involvedObject.", 1)),
        }
    }
}

impl Events {
    /// What any event must satisfy. One with an event time is of the new kind and must say who saw
    /// what.
    fn check(&self, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let (namespace, about) = (
            object.namespace(),
            object.str_at("/involvedObject/namespace"),
        );
        let new_kind = !object.str("eventTime").is_empty();
        let foreign = match (new_kind, about.is_empty()) {
            (false, true) => !matches!(namespace, "" | "default"),
            (false, false) => namespace != about,
            (true, true) => !matches!(namespace, "default" | "kube-system"),
            (true, false) => false,
        };
        if foreign {
            let path = Path::new("involvedObject").child("namespace");
            errors.push(FieldError::invalid(
                &path,
                about,
                "does not match event.namespace",
            ));
        }
        if new_kind {
            self.check_words(&mut errors, object);
        }
        invalid_each(
            &mut errors,
            &Path::new("namespace"),
            namespace,
            names::dns1123_subdomain(namespace),
        );
        errors
    }

    fn check_words(&self, errors: &mut ErrorList, object: &Object) {
        let controller = object.str("reportingComponent");
        let path = Path::new(if self.strict {
            "reportingController"
        } else {
            "reportingComponent"
        });
        if controller.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        invalid_each(errors, &path, controller, names::qualified_name(controller));
        for key in ["reportingInstance", "action", "reason"] {
            let word = object.str(key);
            if word.is_empty() {
                errors.push(FieldError::required(&Path::new(key), ""));
            }
            check_length(errors, key, word, WORD_MAX);
        }
        check_length(errors, "message", object.str("message"), NOTE_MAX);
    }
}

fn check_length(errors: &mut ErrorList, key: &str, text: &str, max: usize) {
    if text.len() > max {
        errors.push(FieldError::invalid(
            &Path::new(key),
            "",
            format!("can have at most {max} characters"),
        ));
    }
}

fn check_series(errors: &mut ErrorList, object: &Object) {
    let Some(series) = object.map("series") else {
        return;
    };
    if series.int("count").unwrap_or(0) < 2 {
        errors.push(FieldError::invalid(
            &Path::new("series.count"),
            "",
            "should be at least 2",
        ));
    }
    if series.str("lastObservedTime").is_empty() {
        errors.push(FieldError::required(
            &Path::new("series.lastObservedTime"),
            "",
        ));
    }
}
