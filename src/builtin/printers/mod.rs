//! What `kubectl get` shows of each built-in kind: its columns and cells (facts of
//! `pkg/printers/internalversion`).
//!
//! A kind is a list of columns and a function that fills a [`Row`], one call for each column.

mod admission;
mod autoscaling;
mod cluster;
mod core;
mod labels;
mod networking;
pub mod paths;
mod pods;
mod storage;
mod workloads;

use std::borrow::Cow;

use crate::meta::Value;

use crate::meta::Object;
use crate::registry::cells::Cell;
use crate::registry::table::{Column, TablePrinter};

/// Shown where a value was never set.
const UNSET: &str = "<unset>";
/// Shown where there is nothing.
const NONE: &str = "<none>";

/// The printer of a built-in resource, or the default one: name and creation time.
pub fn for_resource(group: &str, resource: &str) -> &'static dyn TablePrinter {
    let found = match group {
        "" => core::printer(resource),
        "apps" | "batch" | "policy" => workloads::printer(resource),
        "autoscaling" => autoscaling::printer(resource),
        "admissionregistration.k8s.io"
        | "rbac.authorization.k8s.io"
        | "flowcontrol.apiserver.k8s.io" => admission::printer(resource),
        "networking.k8s.io" | "discovery.k8s.io" => networking::printer(resource),
        "storage.k8s.io" | "resource.k8s.io" => storage::printer(resource),
        "events.k8s.io" => core::printer("events"),
        _ => cluster::printer(group, resource),
    };
    found.unwrap_or(&DefaultPrinter)
}

/// The printer of `autoscaling/v1 Scale`, which scale subresources answer with.
pub fn scale() -> &'static dyn TablePrinter {
    &autoscaling::SCALE
}

/// Name and creation time: for kinds that have no printer of their own.
pub struct DefaultPrinter;

impl TablePrinter for DefaultPrinter {
    fn columns(&self) -> &[Column] {
        static COLUMNS: &[Column] = &[
            NAME,
            column("Created At", "date", "When the object was created"),
        ];
        COLUMNS
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        let created = match object.creation_timestamp() {
            "" => "0001-01-01T00:00:00Z",
            time => time,
        };
        vec![object.name().into(), created.into()]
    }

    fn empty_is_null(&self) -> bool {
        true
    }
}

/// The printer of one kind.
struct Printer {
    columns: &'static [Column],
    fill: fn(&mut Row),
}

impl TablePrinter for Printer {
    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        let mut row = Row {
            object,
            cells: Vec::with_capacity(self.columns.len()),
        };
        (self.fill)(&mut row);
        row.cells
    }
}

/// A row in the making. Each method adds one cell; paths are those of [`Object::at`].
struct Row<'a> {
    object: &'a Object,
    cells: Vec<Cell>,
}

impl<'a> Row<'a> {
    fn cell(&mut self, value: impl Into<Cell>) -> &mut Self {
        self.cells.push(value.into());
        self
    }

    fn name(&mut self) -> &mut Self {
        self.cell(self.object.name())
    }

    /// The time since the object was created.
    fn age(&mut self) -> &mut Self {
        self.cell(Cell::since(self.object.creation_timestamp()))
    }

    /// The time since the timestamp at `path`; `absent` where there is none.
    fn since_or(&mut self, path: &str, absent: &str) -> &mut Self {
        match self.object.str_at(path) {
            "" => self.cell(absent),
            time => self.cell(Cell::since(time)),
        }
    }

    /// The string at `path`, empty where there is none.
    fn text(&mut self, path: &str) -> &mut Self {
        self.cell(self.object.str_at(path))
    }

    /// The string at `path`; `absent` where there is none.
    fn text_or(&mut self, path: &str, absent: &str) -> &mut Self {
        self.cell(
            self.object
                .at(path)
                .and_then(Value::as_str)
                .unwrap_or(absent),
        )
    }

    /// The string at `path`; `empty` where it is absent or empty.
    fn text_unless_empty(&mut self, path: &str, empty: &str) -> &mut Self {
        let text = self.object.str_at(path);
        self.cell(if text.is_empty() { empty } else { text })
    }

    /// The integer at `path`, 0 where there is none.
    fn int(&mut self, path: &str) -> &mut Self {
        self.cell(self.object.i64_at(path).unwrap_or(0))
    }

    /// The integer at `path`; `absent` where there is none.
    fn int_or(&mut self, path: &str, absent: &str) -> &mut Self {
        match self.object.i64_at(path) {
            Some(number) => self.cell(number),
            None => self.cell(absent),
        }
    }

    /// The boolean at `path`; `absent` where there is none.
    fn bool_or(&mut self, path: &str, absent: bool) -> &mut Self {
        self.cell(
            self.object
                .at(path)
                .and_then(Value::as_bool)
                .unwrap_or(absent),
        )
    }

    /// How many items the list at `path` has.
    fn count(&mut self, path: &str) -> &mut Self {
        self.cell(self.object.array_at(path).len())
    }

    /// Two integers as `3/5`.
    fn ratio(&mut self, part: &str, whole: &str) -> &mut Self {
        let number = |path| self.object.i64_at(path).unwrap_or(0);
        self.cell(format!("{}/{}", number(part), number(whole)))
    }

    /// The string map at `path` as `key=value` pairs.
    fn labels(&mut self, path: &str) -> &mut Self {
        self.cell(labels::format_labels(self.object.at(path)))
    }

    /// The label selector at `path`.
    fn selector(&mut self, path: &str) -> &mut Self {
        self.cell(labels::format_selector(self.object.at(path)))
    }

    /// The names and the images of the containers at `path`: two cells.
    fn containers(&mut self, path: &str) -> &mut Self {
        let containers = self.object.array_at(path);
        let join = |field: &str| {
            join(
                containers.iter().map(|one| crate::meta::str_at(one, field)),
                ",",
            )
        };
        self.cell(join("/name")).cell(join("/image"))
    }
}

/// Joins strings without a list in between.
fn join<'a>(parts: impl Iterator<Item = &'a str>, separator: &str) -> String {
    let mut out = String::new();
    for (index, part) in parts.enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(part);
    }
    out
}

/// At most `MAX_SHOWN` of `items`, and how many more there are; [`UNSET`] where there are none.
fn join_some<'a>(items: impl Iterator<Item = Cow<'a, str>>) -> String {
    const MAX_SHOWN: usize = 3;
    let (mut shown, mut count) = (String::new(), 0);
    for item in items {
        if count < MAX_SHOWN {
            shown.push_str(if count > 0 { "," } else { "" });
            shown.push_str(&item);
        }
        count += 1;
    }
    match count {
        _ if count > MAX_SHOWN => format!("{shown} + {} more...", count - MAX_SHOWN),
        _ if shown.is_empty() => UNSET.to_owned(),
        _ => shown,
    }
}

/// The item of a condition list that has this type.
fn condition<'a>(object: &'a Object, path: &str, kind: &str) -> Option<&'a Value> {
    object
        .array_at(path)
        .iter()
        .find(|condition| crate::meta::str_at(condition, "/type") == kind)
}

const fn make(
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i32,
) -> Column {
    Column {
        name: Cow::Borrowed(name),
        kind: Cow::Borrowed(kind),
        format: Cow::Borrowed(format),
        description: Cow::Borrowed(description),
        priority,
    }
}

const fn column(name: &'static str, kind: &'static str, description: &'static str) -> Column {
    make(name, kind, "", description, 0)
}

/// A string column.
const fn text(name: &'static str, description: &'static str) -> Column {
    column(name, "string", description)
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    column(name, "integer", description)
}

const fn boolean(name: &'static str, description: &'static str) -> Column {
    column(name, "boolean", description)
}

/// A string column that only wide output shows.
const fn wide(name: &'static str, description: &'static str) -> Column {
    make(name, "string", "", description, 1)
}

const NAME: Column = make("Name", "string", "name", "The name of the object", 0);
const AGE: Column = text("Age", "The time since the object was created");
const CONTAINERS: Column = wide("Containers", "The names of the containers in the template");
const IMAGES: Column = wide("Images", "The images of the containers in the template");
const SELECTOR: Column = wide("Selector", "The labels of the pods that are meant");

#[cfg(test)]
mod tests;
