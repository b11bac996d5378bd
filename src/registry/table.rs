//! Tables: columns and rows, as `kubectl get` asks for them (meta.k8s.io/v1 Table).

use jiff::Timestamp;
use serde_json::Value;

use crate::meta::Object;

/// A column of a Table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// OpenAPI type: string, integer, number, boolean, date.
    pub kind: &'static str,
    /// `name` for the column that identifies the row, else empty.
    pub format: &'static str,
    pub description: &'static str,
    /// 0 is shown always, 1 only with `-o wide`.
    pub priority: i32,
}

/// The columns of a kind and the cells of its objects.
pub trait TablePrinter: Send + Sync {
    fn columns(&self) -> &'static [Column];

    /// One cell for each column, and nothing else. Ages are relative to `now`.
    fn cells(&self, object: &Object, now: Timestamp) -> Vec<Value>;
}
