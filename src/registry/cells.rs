//! The cells of a Table's row: values, and ages, which are filled in when the row is shown.

use jiff::Timestamp;

use super::duration;
use crate::codec::json;
use crate::meta::{Value, json};

/// A condition of a whole row (`TableRowCondition`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCondition {
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: &'static str,
}

/// The value of one column of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Value(Value),
    /// A text with the time since a moment in it.
    Since {
        before: String,
        since: Timestamp,
        after: &'static str,
    },
}

impl<T: Into<Value>> From<T> for Cell {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl Cell {
    /// The time since an RFC 3339 `timestamp`; `<unknown>` where there is none.
    pub fn since(timestamp: &str) -> Self {
        match timestamp.parse() {
            Ok(since) => Self::Since {
                before: String::new(),
                since,
                after: "",
            },
            Err(_) => "<unknown>".into(),
        }
    }

    /// Returns the value as of `now`.
    pub fn at(&self, now: Timestamp) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Since {
                before,
                since,
                after,
            } => format!(
                "{before}{}{after}",
                duration::human(now.duration_since(*since))
            )
            .into(),
        }
    }
}

/// The cells of a row, and its condition, as JSON, with gaps for the ages.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    pub text: Vec<u8>,
    /// Offsets into the text where ages go, and since when they count.
    pub ages: Vec<(u32, Timestamp)>,
}

/// [`Cells`] that lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct CellsRef<'a> {
    pub text: &'a [u8],
    pub ages: &'a [(u32, Timestamp)],
}

impl Cells {
    /// The cells of a row with the condition of the row as a whole.
    pub fn new(cells: &[Cell], condition: Option<&RowCondition>) -> Self {
        let mut out = Self {
            text: b"\"cells\":[".to_vec(),
            ages: Vec::new(),
        };
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                out.text.push(b',');
            }
            out.push(cell);
        }
        out.text.push(b']');
        if let Some(RowCondition {
            kind,
            status,
            reason,
            message,
        }) = condition
        {
            out.text.extend_from_slice(b",\"conditions\":");
            json::encode_value(
                &json!([{"type": kind, "status": status, "reason": reason, "message": message}]),
                &mut out.text,
            );
        }
        out
    }

    fn push(&mut self, cell: &Cell) {
        match cell {
            Cell::Value(value) => json::encode_value(value, &mut self.text),
            Cell::Since {
                before,
                since,
                after,
            } => {
                json::write_string(before, &mut self.text);
                self.text.pop();
                let gap = self.text.len();
                self.ages
                    .push((u32::try_from(gap).unwrap_or(u32::MAX), *since));
                json::write_string(after, &mut self.text);
                self.text.remove(gap);
            }
        }
    }

    pub fn as_ref(&self) -> CellsRef<'_> {
        CellsRef {
            text: &self.text,
            ages: &self.ages,
        }
    }
}

impl CellsRef<'_> {
    /// Appends the members of the row that the cells are, as of `now`.
    pub fn write(self, now: Timestamp, out: &mut Vec<u8>) {
        let mut done = 0;
        for (gap, since) in self.ages {
            let gap = *gap as usize;
            out.extend_from_slice(self.text.get(done..gap).unwrap_or_default());
            let open = out.len();
            json::write_string(&duration::human(now.duration_since(*since)), out);
            out.pop();
            out.remove(open);
            done = gap;
        }
        out.extend_from_slice(self.text.get(done..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_relative_to_the_time_of_the_answer() {
        let since = |before: &str, at: &str, after| match Cell::since(at) {
            Cell::Since { since, .. } => Cell::Since {
                before: before.to_owned(),
                since,
                after,
            },
            other => other,
        };
        let cells = [
            "a\"b".into(),
            since("3 \"(", "2026-01-01T00:00:00Z", " ago)"),
            7.into(),
            since("", "2026-01-01T00:09:59Z", ""),
            since("", "2027-01-01T00:00:00Z", ""),
            since("", "tomorrow", ""),
        ];
        let condition = RowCondition {
            kind: "Completed",
            status: "True",
            reason: "Failed",
            message: "It failed.",
        };
        let row = Cells::new(&cells, Some(&condition));
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let mut out = b"{".to_vec();
        row.as_ref().write(now, &mut out);
        out.push(b'}');
        let shown: Value = serde_json::from_slice(&out).expect("JSON");
        let want = json!(["a\"b", "3 \"(10m ago)", 7, "1s", "<invalid>", "<unknown>"]);
        assert_eq!(shown["cells"], want);
        assert_eq!(
            cells.iter().map(|cell| cell.at(now)).collect::<Value>(),
            want
        );
        assert_eq!(shown["conditions"][0]["reason"], "Failed");
    }
}
