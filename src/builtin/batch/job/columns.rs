//! Columns of the Table.

use crate::builtin::columns::{
    AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, RowBuilder, SELECTOR, TEMPLATE, condition, text,
};
use crate::meta::{Object, str_at};
use crate::registry::cells::Cell;

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Status", "How far the job is"),
        text("Completions", "How many of its pods have succeeded"),
        text("Duration", "How long it ran, or has been running"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    paths: "spec.completions spec.parallelism spec.selector \
        spec.template.spec.containers.name spec.template.spec.containers.image \
        status.conditions.type status.conditions.status status.succeeded \
        status.startTime status.completionTime",
    fill: |row| {
        let (status, completions, duration) = (
            job_status(row.object),
            completions(row.object),
            job_duration(row),
        );
        row.name()
            .cell(status)
            .cell(completions)
            .cell(duration)
            .age()
            .containers(TEMPLATE)
            .selector("/spec/selector");
    },
};

fn job_status(object: &Object) -> &'static str {
    let holds = |kind| {
        condition(object, "/status/conditions", kind)
            .is_some_and(|condition| str_at(condition, "/status") == "True")
    };
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if object.deletion_timestamp().is_some() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(object: &Object) -> String {
    let succeeded = object.i64_at("/status/succeeded").unwrap_or(0);
    match (
        object.i64_at("/spec/completions"),
        object.i64_at("/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(row: &RowBuilder) -> Cell {
    match (
        row.object.str_at("/status/startTime"),
        row.object.str_at("/status/completionTime").parse(),
    ) {
        ("", _) => "".into(),
        (start, Ok(end)) => Cell::since(start).at(end).into(),
        (start, Err(_)) => Cell::since(start),
    }
}
