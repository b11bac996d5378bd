//! Events, as both of their groups store them: events.k8s.io asks more of them.

use std::borrow::Cow;

use crate::builtin::columns::{ColumnPrinter, RowBuilder, text, wide};
use crate::builtin::internal_types;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, Map, Object, Path, Value, names};
use crate::registry::cells::Cell;
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each, same};
use crate::registry::{Context, MetaChecks, Strategy};

/// The fields that an event can be selected by.
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The same by the names of events.k8s.io.
const NEW_EVENT_FIELDS: &[&str] = &[
    "reason",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reportingController",
    "type",
];

/// The entry of `events`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "events",
    traits: ResourceTraits {
        create_on_update: true,
        ignores_dependents: true,
        any_finalizer: true,
        meta_checks: MetaChecks::None,
        selectable: EVENT_FIELDS,
        ..DEFAULT
    },
    strategy: &EventStrategy { strict: false },
    printer: &PRINTER,
};

/// The entry of `events` of events.k8s.io.
pub static EVENTS_ENTRY: ResourceEntry = ResourceEntry {
    resource: "events",
    traits: ResourceTraits {
        create_on_update: true,
        ignores_dependents: true,
        selectable: NEW_EVENT_FIELDS,
        ..DEFAULT
    },
    strategy: &EventStrategy { strict: true },
    printer: &PRINTER,
};

/// Characters of the short texts of an event, and of its message.
const WORD_MAX: usize = 128;
const NOTE_MAX: usize = 1024;
/// Fields that an update through events.k8s.io may not change, in the order of the checks; `reason`
/// is checked twice.
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
pub struct EventStrategy {
    /// The events come through events.k8s.io.
    pub strict: bool,
}

impl Strategy for EventStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = self.check(object);
        if !self.strict {
            return errors;
        }
        check_series(&mut errors, object);
        if object.str("eventTime").is_empty() {
            errors.required(&Path::new("eventTime"), "");
        }
        let kind = object.str("type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.invalid(&Path::new("type"), "", format!("has invalid value: {kind}"));
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
            errors.invalid(&Path::new(key), "", "needs to be unset");
        }
        errors
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.check(object);
        if !self.strict {
            return errors;
        }
        if !same(object.field("series"), old.field("series")) {
            check_series(&mut errors, object);
        }
        for (key, shown) in FIXED {
            let (new, old) = (object.field(key), old.field(key));
            let text = |value: Option<&Value>| {
                value.is_none_or(|value| value.as_str() == Some("") || value.as_i64() == Some(0))
            };
            if !(same(new, old) || text(new) && text(old)) {
                let value = shown_value(key, new);
                errors.invalid(&Path::new(shown), value, IMMUTABLE);
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

impl EventStrategy {
    /// Checks the rules of any event. One with an event time is of the new kind and must say who
    /// saw what.
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
            errors.invalid(&path, about, "does not match event.namespace");
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
            errors.required(&path, "");
        }
        invalid_each(errors, &path, controller, names::qualified_name(controller));
        for key in ["reportingInstance", "action", "reason"] {
            let word = object.str(key);
            if word.is_empty() {
                errors.required(&Path::new(key), "");
            }
            check_length(errors, key, word, WORD_MAX);
        }
        check_length(errors, "message", object.str("message"), NOTE_MAX);
    }
}

/// A field as upstream's own type prints it.
fn shown_value(key: &str, value: Option<&Value>) -> Value {
    let empty = Map::new();
    let map = value.and_then(Value::as_object);
    match key {
        "involvedObject" => internal_types::json("ObjectReference", map.unwrap_or(&empty)),
        "related" => map.map_or(Value::Null, |map| {
            internal_types::json("ObjectReference", map)
        }),
        "source" => internal_types::json("EventSource", map.unwrap_or(&empty)),
        "count" => value.cloned().unwrap_or_else(|| 0.into()),
        "firstTimestamp" | "lastTimestamp" | "eventTime" => value.cloned().unwrap_or_default(),
        _ => value.cloned().unwrap_or_else(|| "".into()),
    }
}

fn check_length(errors: &mut ErrorList, key: &str, text: &str, max: usize) {
    if text.len() > max {
        errors.invalid(
            &Path::new(key),
            "",
            format!("can have at most {max} characters"),
        );
    }
}

fn check_series(errors: &mut ErrorList, object: &Object) {
    let Some(series) = object.map("series") else {
        return;
    };
    if series.int("count").unwrap_or(0) < 2 {
        errors.invalid(&Path::new("series.count"), "", "should be at least 2");
    }
    if series.str("lastObservedTime").is_empty() {
        errors.required(&Path::new("series.lastObservedTime"), "");
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        text("Last Seen", "The time since it was last observed"),
        text("Type", "Normal or Warning"),
        text("Reason", "Why, in one word"),
        text("Object", "What it is about"),
        wide("Subobject", "The part of the object it is about"),
        wide("Source", "The component that reported it"),
        text("Message", "What happened, for people"),
        wide("First Seen", "The time since it was first observed"),
        wide("Count", "How often it was observed"),
        crate::builtin::columns::make("Name", "string", "name", "The name of the object", 1),
    ],
    paths: "firstTimestamp lastTimestamp eventTime count series involvedObject source \
        reportingComponent reportingInstance type reason message",
    fill: event,
};

fn event(row: &mut RowBuilder) {
    let object = row.object;
    let seen = |path| Cell::since(object.str_at(path));
    let first = if object.str_at("/firstTimestamp").is_empty() {
        seen("/eventTime")
    } else {
        seen("/firstTimestamp")
    };
    let mut last = if object.str_at("/lastTimestamp").is_empty() {
        first.clone()
    } else {
        seen("/lastTimestamp")
    };
    let mut count = object.i64_at("/count").unwrap_or(0);
    if object.at("/series").is_some_and(Value::is_object) {
        last = seen("/series/lastObservedTime");
        count = object.i64_at("/series/count").unwrap_or(0);
    } else if count == 0 {
        // An event that happened once has no count in the newer API.
        count = 1;
    }
    let mut target = object.str_at("/involvedObject/kind").to_lowercase();
    if let Some(name) = Some(object.str_at("/involvedObject/name")).filter(|name| !name.is_empty())
    {
        target = format!("{target}/{name}");
    }
    let first_of = |one, other| {
        if object.str_at(one).is_empty() {
            object.str_at(other)
        } else {
            object.str_at(one)
        }
    };
    let (component, instance) = (
        first_of("/source/component", "/reportingComponent"),
        first_of("/source/host", "/reportingInstance"),
    );
    let source = if instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    };
    row.cell(last)
        .text("/type")
        .text("/reason")
        .cell(target)
        .text("/involvedObject/fieldPath")
        .cell(source);
    row.cell(object.str_at("/message").trim())
        .cell(first)
        .cell(count)
        .name();
}
