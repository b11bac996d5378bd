//! Columns of the Table.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, UNSET, integer, labels, text};
use crate::meta::{Object, str_at};
use crate::registry::table::Column;

const PARAM_KIND: Column = text("ParamKind", "The kind of its parameters");

pub static MUTATING_POLICY: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        integer("Mutations", "The number of mutations"),
        PARAM_KIND,
        AGE,
    ],
    paths: "spec.mutations spec.paramKind",
    fill: |row| {
        let kind = param_kind(row.object);
        row.name().count("/spec/mutations").cell(kind).age();
    },
};

pub static VALIDATING_POLICY: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        integer("Validations", "The number of validations"),
        PARAM_KIND,
        AGE,
    ],
    paths: "spec.validations spec.paramKind",
    fill: |row| {
        let kind = param_kind(row.object);
        row.name().count("/spec/validations").cell(kind).age();
    },
};

fn param_kind(object: &Object) -> String {
    match object.at("/spec/paramKind").filter(|kind| kind.is_object()) {
        Some(kind) => format!("{}/{}", str_at(kind, "/apiVersion"), str_at(kind, "/kind")),
        None => UNSET.to_owned(),
    }
}

pub static POLICY_BINDING: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("PolicyName", "The policy that is bound"),
        text("ParamRef", "The parameters that it gets"),
        AGE,
    ],
    paths: "spec.policyName spec.paramRef",
    fill: |row| {
        let parameters = param_ref(row.object);
        row.name().text("/spec/policyName").cell(parameters).age();
    },
};

fn param_ref(object: &Object) -> String {
    let Some(reference) = object
        .at("/spec/paramRef")
        .filter(|reference| reference.is_object())
    else {
        return UNSET.to_owned();
    };
    match (
        str_at(reference, "/name"),
        str_at(reference, "/namespace"),
        reference.get("selector"),
    ) {
        ("", _, Some(selector)) if selector.is_object() => {
            labels::selector_as_go_prints_it(selector)
        }
        ("", _, _) => UNSET.to_owned(),
        // Nothing here says whether the kind is namespaced.
        (name, "", _) => format!("*/{name}"),
        (name, namespace, _) => format!("{namespace}/{name}"),
    }
}
