//! ComponentStatus: only its columns; nothing is stored.

use crate::builtin::columns::{ColumnPrinter, NAME, condition, text};
use crate::builtin::resource_traits::{DEFAULT, DefaultStrategy, ResourceEntry};
use crate::meta::str_at;

/// The entry of `componentstatuses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "componentstatuses",
    traits: DEFAULT,
    strategy: &DefaultStrategy,
    printer: &PRINTER,
};

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Status", "Whether the component is healthy"),
        text("Message", "What the component says"),
        text("Error", "What went wrong when it was asked"),
    ],
    paths: "conditions",
    fill: |row| {
        let healthy = condition(row.object, "/conditions", "Healthy");
        let status = match healthy.map(|condition| str_at(condition, "/status")) {
            None => "Unknown",
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
        };
        let say = |field| healthy.map_or("", |condition| str_at(condition, field));
        row.name()
            .cell(status)
            .cell(say("/message"))
            .cell(say("/error"));
    },
};
