//! Columns of the Table.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, join, text};
use crate::meta::Value;

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("State", "Pending, allocated, reserved or deleted"),
        AGE,
    ],
    paths: "status.allocation status.reservedFor",
    fill: |row| {
        let object = row.object;
        let deleted = object.deletion_timestamp().is_some();
        let allocated = object
            .at("/status/allocation")
            .is_some_and(Value::is_object);
        let reserved = allocated && !object.array_at("/status/reservedFor").is_empty();
        let states = [
            (deleted, "deleted"),
            (!allocated && !deleted, "pending"),
            (allocated, "allocated"),
            (reserved, "reserved"),
        ];
        let state = join(
            states
                .into_iter()
                .filter(|(holds, _)| *holds)
                .map(|(_, name)| name),
            ",",
        );
        row.name().cell(state).age();
    },
};
