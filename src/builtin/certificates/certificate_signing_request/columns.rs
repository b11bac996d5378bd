//! Columns of the Table.

use jiff::SignedDuration;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, condition, text};
use crate::meta::Object;
use crate::registry::duration;

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        AGE,
        text("SignerName", "Who is asked to sign"),
        text("Requestor", "Who asks"),
        text(
            "RequestedDuration",
            "How long the certificate should be valid",
        ),
        text("Condition", "What became of the request"),
    ],
    paths: "spec.expirationSeconds spec.signerName spec.username status.conditions.type \
        status.certificate",
    fill: |row| {
        let seconds = row.object.i64_at("/spec/expirationSeconds");
        let requested = seconds.map_or(NONE.to_owned(), |seconds| {
            duration::human(SignedDuration::from_secs(seconds))
        });
        let condition = signing_condition(row.object);
        row.name()
            .age()
            .text_unless_empty("/spec/signerName", NONE)
            .text("/spec/username")
            .cell(requested)
            .cell(condition);
    },
};

fn signing_condition(object: &Object) -> String {
    let has = |kind| condition(object, "/status/conditions", kind).is_some();
    let mut text = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !object.str_at("/status/certificate").is_empty() {
        text.push_str(",Issued");
    }
    text
}
