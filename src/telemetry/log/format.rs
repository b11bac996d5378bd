//! The lines of the log: klog's text, and the JSON of component-base (`logs/json`), so that the
//! parsers of both read them.

use std::fmt::{self, Write};

use jiff::Zoned;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `I1124 08:13:55.000001    7 file.rs:12] "text" key="value"`.
    Text,
    /// `{"ts":1764000000000.1,"caller":"server/run.rs:12","msg":"text","v":0}`.
    Json,
}

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = match self {
            Self::Text => text(event.metadata(), &fields, &Zoned::now(), std::process::id()),
            Self::Json => json(event.metadata(), &fields, &Zoned::now()),
        };
        writeln!(writer, "{line}")
    }
}

/// The message of an event and its other fields, in the order in which they were given.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    /// The place of an event of the `log` crate, which arrives as fields.
    file: Option<String>,
    line: Option<u64>,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    /// The file and the line that an event comes from.
    fn place<'a>(&'a self, metadata: &'a Metadata<'_>) -> (&'a str, u64) {
        let file = self.file.as_deref().or(metadata.file()).unwrap_or("???");
        let line = self.line.or(metadata.line().map(u64::from)).unwrap_or(1);
        (file, line)
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("log.file", Value::String(file)) => self.file = Some(file),
            ("log.line", line) => self.line = line.as_u64(),
            (name, _) if name.starts_with("log.") => {}
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // A text that was given to be quoted arrives quoted; each format quotes by itself.
        let text = serde_json::from_str::<String>(&text).unwrap_or(text);
        self.add(field, text.into());
    }
}

/// klog's letter for a level.
fn severity(level: Level) -> char {
    match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    }
}

/// The verbosity from which on there is a line.
fn verbosity(metadata: &Metadata<'_>) -> i64 {
    match *metadata.level() {
        Level::DEBUG | Level::TRACE => super::DEBUG,
        _ if metadata.target() == super::REQUEST_TARGET => super::REQUESTS,
        _ => 0,
    }
}

/// klog's header (`formatHeader`), then the message; with fields, the message is quoted (`InfoS`).
/// A line break within it would begin a line without a header; only traces have them.
fn text(metadata: &Metadata<'_>, fields: &Fields, now: &Zoned, process: u32) -> String {
    let (file, at) = fields.place(metadata);
    let file = file.rsplit('/').next().unwrap_or(file);
    let mut line = format!(
        "{}{} {process:7} {file}:{at}] ",
        severity(*metadata.level()),
        now.strftime("%m%d %H:%M:%S%.6f"),
    );
    let is_structured = !fields.others.is_empty();
    let breaks = fields.message.contains(|c: char| c.is_control());
    if is_structured || breaks && metadata.target() != super::TRACE_TARGET {
        let _ = write!(line, "{}", Value::from(fields.message.as_str()));
    } else {
        line.push_str(&fields.message);
    }
    for (name, value) in &fields.others {
        let _ = write!(line, " {name}={value}");
    }
    line
}

/// The line of component-base's zap encoder: milliseconds, caller, message, verbosity where it is
/// no error, then the fields.
fn json(metadata: &Metadata<'_>, fields: &Fields, now: &Zoned) -> String {
    let mut line = Map::new();
    let micros = now.timestamp().as_microsecond();
    line.insert("ts".to_owned(), (micros as f64 / 1000.0).into());
    let (file, at) = fields.place(metadata);
    // The last folder and the file, as zap's short caller.
    let short = file
        .rmatch_indices('/')
        .nth(1)
        .map_or(file, |(slash, _)| &file[slash + 1..]);
    let caller = format!("{short}:{at}");
    line.insert("caller".to_owned(), caller.into());
    line.insert("msg".to_owned(), fields.message.as_str().into());
    if *metadata.level() != Level::ERROR {
        line.insert("v".to_owned(), verbosity(metadata).into());
    }
    for (name, value) in &fields.others {
        line.insert((*name).to_owned(), value.clone());
    }
    Value::Object(line).to_string()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// A writer whose lines the test reads.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that are written while `events` runs.
    fn written(format: Format, events: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(format)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
        let bytes = lines.0.lock();
        String::from_utf8_lossy(&bytes)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn some_events() {
        tracing::info!("it is\u{20}plain");
        tracing::warn!(ip = %"10.0.0.1", count = 3, "with \"fields\"");
        tracing::error!(path = ?"/a b", "two\nlines");
    }

    #[test]
    fn lines_of_text_are_klogs() {
        let lines = written(Format::Text, some_events);
        let header =
            regex::Regex::new(r"^([IWE])\d{4} \d{2}:\d{2}:\d{2}\.\d{6} +\d+ ([^:\]]+):\d+\] (.*)$")
                .expect("a pattern");
        let parts: Vec<[&str; 3]> = lines
            .iter()
            .map(|line| header.captures(line).expect(line).extract().1)
            .collect();
        assert_eq!(
            parts,
            [
                ["I", "format.rs", "it is plain"],
                [
                    "W",
                    "format.rs",
                    r#""with \"fields\"" ip="10.0.0.1" count=3"#
                ],
                ["E", "format.rs", r#""two\nlines" path="/a b""#],
            ]
        );
    }

    #[test]
    fn lines_of_json_are_those_of_component_base() {
        let lines = written(Format::Json, || {
            some_events();
            tracing::debug!("it is for developers");
            tracing::info!(target: super::super::REQUEST_TARGET, resp = 200, "HTTP");
        });
        let lines: Vec<Value> = lines
            .iter()
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).expect(line);
                assert!(line["ts"].as_f64().is_some_and(|millis| millis > 1e12));
                let caller = line["caller"].as_str().map(str::to_owned);
                assert!(caller.is_some_and(|at| at.starts_with("log/format.rs:")));
                line["ts"] = 0.into();
                line["caller"] = "".into();
                line
            })
            .collect();
        assert_eq!(
            lines,
            [
                serde_json::json!({"ts": 0, "caller": "", "msg": "it is plain", "v": 0}),
                serde_json::json!({"ts": 0, "caller": "", "msg": "with \"fields\"", "v": 0,
                    "ip": "10.0.0.1", "count": 3}),
                serde_json::json!({"ts": 0, "caller": "", "msg": "two\nlines", "path": "/a b"}),
                serde_json::json!({"ts": 0, "caller": "", "msg": "it is for developers", "v": 4}),
                serde_json::json!({"ts": 0, "caller": "", "msg": "HTTP", "v": 3, "resp": 200}),
            ]
        );
    }
}
