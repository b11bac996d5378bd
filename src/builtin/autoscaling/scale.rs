//! The columns of `autoscaling/v1 Scale`, which scale subresources answer with.

use crate::builtin::columns::{AGE, ColumnPrinter, integer, make};

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        make("Name", "string", "", "The name of the object", 0),
        integer("Desired", "The number of pods that is wanted"),
        integer("Available", "The number of pods that exist"),
        AGE,
    ],
    paths: "",
    fill: |row| {
        row.name()
            .int("/spec/replicas")
            .int("/status/replicas")
            .age();
    },
};
