//! The Tables of a custom kind: its additionalPrinterColumns, or its age.

pub mod jsonpath;

use std::borrow::Cow;

use self::jsonpath::{Budget, JsonPath};
use crate::meta::{Object, Value, json, time};
use crate::registry::cells::Cell;
use crate::registry::table::{Column, TablePrinter};
use crate::registry::validation::Fields;

/// The columns of one version of a kind.
pub struct CustomPrinter {
    columns: Vec<Column>,
    paths: Vec<JsonPath>,
}

impl CustomPrinter {
    /// Columns as the definition gives them; from the first that cannot be read on they are left
    /// out.
    pub fn new(columns: &[Value]) -> Self {
        let age = [
            json!({"name": "Age", "type": "date", "description": "When the object was created", "jsonPath": ".metadata.creationTimestamp"}),
        ];
        let given = if columns.is_empty() {
            &age[..]
        } else {
            columns
        };
        let name = Column {
            name: Cow::Borrowed("Name"),
            kind: Cow::Borrowed("string"),
            format: Cow::Borrowed("name"),
            description: Cow::Borrowed("The name of the object, unique within its namespace"),
            priority: 0,
        };
        let mut printer = Self {
            columns: vec![name],
            paths: Vec::new(),
        };
        for column in given {
            let path = column.str("jsonPath");
            let Some(compiled) = JsonPath::parse(path) else {
                break;
            };
            let text = |key: &str| Cow::Owned(column.str(key).to_owned());
            let description = match column.str("description") {
                "" => format!("The value at the JSON path {path}"),
                given => given.to_owned(),
            };
            printer.paths.push(compiled);
            printer.columns.push(Column {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                description: Cow::Owned(description),
                priority: column
                    .int("priority")
                    .and_then(|priority| i32::try_from(priority).ok())
                    .unwrap_or(0),
            });
        }
        printer
    }
}

impl TablePrinter for CustomPrinter {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        let (root, budget) = (Value::Object(object.0.clone()), Budget::default());
        let mut cells: Vec<Cell> = vec![object.name().into()];
        cells.extend(
            self.paths
                .iter()
                .zip(&self.columns[1..])
                .map(|(path, column)| match path.first(&root, &budget) {
                    None => Value::Null.into(),
                    Some(value) if column.kind == "string" => jsonpath::print(value).into(),
                    Some(value) => cell(&column.kind, value),
                }),
        );
        cells
    }

    fn empty_is_null(&self) -> bool {
        false
    }
}

/// A value as a column of a type shows it; null where it is of another type.
fn cell(kind: &str, value: &Value) -> Cell {
    let value = match (kind, value) {
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|float| float as i64))
            .map_or(Value::Null, Value::from),
        ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, whole),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match time::parse(text) {
            Ok(_) => return Cell::since(text),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    };
    value.into()
}

/// A number as Go's JSON writes a float: without a fraction where there is none.
fn whole(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}
