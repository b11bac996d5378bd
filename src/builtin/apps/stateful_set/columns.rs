//! Columns of the Table.

use crate::builtin::columns::{AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, TEMPLATE, text};

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Ready", "How many of its pods are ready"),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    paths: "spec.replicas spec.template.spec.containers.name \
        spec.template.spec.containers.image status.readyReplicas",
    fill: |row| {
        row.name()
            .ratio("/status/readyReplicas", "/spec/replicas")
            .age()
            .containers(TEMPLATE);
    },
};
