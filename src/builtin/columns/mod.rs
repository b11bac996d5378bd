//! Columns and cells of the built-in kinds, as `kubectl get` prints them (facts of
//! `pkg/printers/internalversion`).
//!
//! A kind is a list of columns and a function that fills a [`RowBuilder`], one call for each
//! column.

pub mod labels;

use std::borrow::Cow;

use crate::meta::{Object, Value, str_at};
use crate::registry::cells::Cell;
use crate::registry::table::{Column, TablePrinter};

/// Shown where a value was never set.
pub const UNSET: &str = "<unset>";
/// Shown where there is nothing.
pub const NONE: &str = "<none>";

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
pub struct ColumnPrinter {
    pub columns: &'static [Column],
    /// The fields that `fill` reads, as [`TablePrinter::paths`].
    pub paths: &'static str,
    pub fill: fn(&mut RowBuilder),
}

impl TablePrinter for ColumnPrinter {
    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn paths(&self) -> &'static str {
        self.paths
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        let mut row = RowBuilder {
            object,
            cells: Vec::with_capacity(self.columns.len()),
        };
        (self.fill)(&mut row);
        row.cells
    }
}

/// A row in the making. Each method adds one cell; paths are those of [`Object::at`].
pub struct RowBuilder<'a> {
    pub object: &'a Object,
    pub cells: Vec<Cell>,
}

impl<'a> RowBuilder<'a> {
    pub fn cell(&mut self, value: impl Into<Cell>) -> &mut Self {
        self.cells.push(value.into());
        self
    }

    pub fn name(&mut self) -> &mut Self {
        self.cell(self.object.name())
    }

    /// The time since the object was created.
    pub fn age(&mut self) -> &mut Self {
        self.cell(Cell::since(self.object.creation_timestamp()))
    }

    /// The time since the timestamp at `path`; `absent` where there is none.
    pub fn since_or(&mut self, path: &str, absent: &str) -> &mut Self {
        match self.object.str_at(path) {
            "" => self.cell(absent),
            time => self.cell(Cell::since(time)),
        }
    }

    /// The string at `path`, empty where there is none.
    pub fn text(&mut self, path: &str) -> &mut Self {
        self.cell(self.object.str_at(path))
    }

    /// The string at `path`; `absent` where there is none.
    pub fn text_or(&mut self, path: &str, absent: &str) -> &mut Self {
        self.cell(
            self.object
                .at(path)
                .and_then(Value::as_str)
                .unwrap_or(absent),
        )
    }

    /// The string at `path`; `empty` where it is absent or empty.
    pub fn text_unless_empty(&mut self, path: &str, empty: &str) -> &mut Self {
        let text = self.object.str_at(path);
        self.cell(if text.is_empty() { empty } else { text })
    }

    /// The integer at `path`, 0 where there is none.
    pub fn int(&mut self, path: &str) -> &mut Self {
        self.cell(self.object.i64_at(path).unwrap_or(0))
    }

    /// The integer at `path`; `absent` where there is none.
    pub fn int_or(&mut self, path: &str, absent: &str) -> &mut Self {
        match self.object.i64_at(path) {
            Some(number) => self.cell(number),
            None => self.cell(absent),
        }
    }

    /// The boolean at `path`; `absent` where there is none.
    pub fn bool_or(&mut self, path: &str, absent: bool) -> &mut Self {
        self.cell(
            self.object
                .at(path)
                .and_then(Value::as_bool)
                .unwrap_or(absent),
        )
    }

    /// Adds the number of items of the list at `path`.
    pub fn count(&mut self, path: &str) -> &mut Self {
        self.cell(self.object.array_at(path).len())
    }

    /// Two integers as `3/5`.
    pub fn ratio(&mut self, part: &str, whole: &str) -> &mut Self {
        let number = |path| self.object.i64_at(path).unwrap_or(0);
        self.cell(format!("{}/{}", number(part), number(whole)))
    }

    /// The string map at `path` as `key=value` pairs.
    pub fn labels(&mut self, path: &str) -> &mut Self {
        self.cell(labels::format_labels(self.object.at(path)))
    }

    /// The label selector at `path`.
    pub fn selector(&mut self, path: &str) -> &mut Self {
        self.cell(labels::format_selector(self.object.at(path)))
    }

    /// The names and the images of the containers at `path`: two cells.
    pub fn containers(&mut self, path: &str) -> &mut Self {
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
pub fn join<'a>(parts: impl Iterator<Item = &'a str>, separator: &str) -> String {
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
pub fn join_some<'a>(items: impl Iterator<Item = Cow<'a, str>>) -> String {
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
pub fn condition<'a>(object: &'a Object, path: &str, kind: &str) -> Option<&'a Value> {
    object
        .array_at(path)
        .iter()
        .find(|condition| crate::meta::str_at(condition, "/type") == kind)
}

pub const fn make(
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
pub const fn text(name: &'static str, description: &'static str) -> Column {
    column(name, "string", description)
}

pub const fn integer(name: &'static str, description: &'static str) -> Column {
    column(name, "integer", description)
}

pub const fn boolean(name: &'static str, description: &'static str) -> Column {
    column(name, "boolean", description)
}

/// A string column that only wide output shows.
pub const fn wide(name: &'static str, description: &'static str) -> Column {
    make(name, "string", "", description, 1)
}

pub const NAME: Column = make("Name", "string", "name", "The name of the object", 0);
pub const AGE: Column = text("Age", "The time since the object was created");
pub const CONTAINERS: Column = wide("Containers", "The names of the containers in the template");
pub const IMAGES: Column = wide("Images", "The images of the containers in the template");
pub const SELECTOR: Column = wide("Selector", "The labels of the pods that are meant");

/// The path of a template's containers.
pub const TEMPLATE: &str = "/spec/template/spec/containers";

pub static NAME_AND_AGE: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, AGE],
    paths: "",
    fill: |row| {
        row.name().age();
    },
};

/// The name of a class, marked where it is the default one.
pub fn with_default(name: &str, default: bool) -> String {
    if default {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}

/// The addresses or names of a load balancer's status, sorted.
pub fn ingress_points(object: &Object) -> String {
    let points = object
        .array_at("/status/loadBalancer/ingress")
        .iter()
        .map(|one| match str_at(one, "/ip") {
            "" => str_at(one, "/hostname"),
            ip => ip,
        });
    let mut points: Vec<&str> = points.filter(|point| !point.is_empty()).collect();
    points.sort_unstable();
    points.dedup();
    points.join(",")
}

pub fn map_len(object: &Object, path: &str) -> usize {
    object
        .at(path)
        .and_then(Value::as_object)
        .map_or(0, crate::meta::Map::len)
}

#[cfg(test)]
mod tests;
