//! Columns of the Table.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, join, text, wide};
use crate::meta::str_at;

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Role", "The role that is granted"),
        AGE,
        wide("Users", "The users who get it"),
        wide("Groups", "The groups that get it"),
        wide("ServiceAccounts", "The service accounts that get it"),
    ],
    paths: "roleRef subjects",
    fill: |row| {
        let object = row.object;
        let named = |kind| {
            let subjects = object
                .array_at("/subjects")
                .iter()
                .filter(move |subject| str_at(subject, "/kind") == kind);
            join(subjects.map(|subject| str_at(subject, "/name")), ", ")
        };
        let accounts = object
            .array_at("/subjects")
            .iter()
            .filter(|subject| str_at(subject, "/kind") == "ServiceAccount");
        let accounts: Vec<String> = accounts
            .map(|one| format!("{}/{}", str_at(one, "/namespace"), str_at(one, "/name")))
            .collect();
        row.name()
            .cell(format!(
                "{}/{}",
                object.str_at("/roleRef/kind"),
                object.str_at("/roleRef/name")
            ))
            .age();
        row.cell(named("User"))
            .cell(named("Group"))
            .cell(accounts.join(", "));
    },
};
