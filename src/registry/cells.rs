//! The cells of a Table's row: values, and ages, which are filled in when the row is shown.

use std::ops::Range;

use jiff::Timestamp;

use super::duration;
use super::table::RowCondition;
use crate::codec::json;
use crate::meta::{Value, json};

/// What stands in one column of one row.
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

    /// What is shown at `now`.
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
    text: Vec<u8>,
    /// Where ages go, and since when they count.
    ages: Vec<(usize, Timestamp)>,
}

impl Cells {
    /// Cells with what is to be said of the row as a whole.
    pub fn new(cells: &[Cell], condition: Option<&RowCondition>) -> Self {
        let mut out = Self {
            text: b"\"cells\":[".to_vec(),
            ages: Vec::new(),
        };
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                out.text.push(b',');
            }
            match cell {
                Cell::Value(value) => json::encode_value(value, &mut out.text),
                Cell::Since {
                    before,
                    since,
                    after,
                } => {
                    json::write_string(before, &mut out.text);
                    out.text.pop();
                    out.ages.push((out.text.len(), *since));
                    let open = out.text.len();
                    json::write_string(after, &mut out.text);
                    out.text.remove(open);
                }
            }
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

    /// Appends the members of the row that they are, as of `now`.
    pub fn write(&self, now: Timestamp, out: &mut Vec<u8>) {
        let mut done = 0;
        for (place, since) in &self.ages {
            self.copy(done..*place, out);
            let open = out.len();
            json::write_string(&duration::human(now.duration_since(*since)), out);
            out.pop();
            out.remove(open);
            done = *place;
        }
        self.copy(done..self.text.len(), out);
    }

    fn copy(&self, part: Range<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text.get(part).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_the_moment_when_the_row_is_shown() {
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
        row.write(now, &mut out);
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
