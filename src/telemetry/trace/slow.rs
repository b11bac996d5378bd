//! The traces of what is slow, in the log (`k8s.io/utils/trace`): the steps that took more than
//! their share of the time.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Zoned;
use opentelemetry::KeyValue;
use parking_lot::Mutex;

use super::super::log::{self, TRACE_TARGET};
use crate::base::random;

/// The most steps and traces below one that are kept: a collection that is deleted has thousands.
const MAX_ITEMS: usize = 500;
/// klog's verbosity from which on every step is written.
const EVERYTHING: i64 = 4;

/// An operation with its steps.
#[derive(Debug)]
pub struct SlowTrace {
    name: &'static str,
    fields: Vec<KeyValue>,
    began: Instant,
    /// Another one lists it.
    is_nested: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The time that it may take, and when it ended.
    ended: Option<(Duration, Instant)>,
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
enum Item {
    Step {
        name: &'static str,
        fields: Vec<KeyValue>,
        at: Instant,
    },
    Nested(Arc<SlowTrace>),
}

impl SlowTrace {
    /// Begins a trace, within another one if there is one.
    pub fn begin(
        parent: Option<&Arc<Self>>,
        name: &'static str,
        fields: Vec<KeyValue>,
    ) -> Arc<Self> {
        let trace = Arc::new(Self {
            name,
            fields,
            began: Instant::now(),
            is_nested: parent.is_some(),
            state: Mutex::default(),
        });
        if let Some(parent) = parent {
            parent.add(Item::Nested(trace.clone()));
        }
        trace
    }

    /// Adds a step that has just been done.
    pub fn step(&self, name: &'static str, fields: Vec<KeyValue>) {
        self.add(Item::Step {
            name,
            fields,
            at: Instant::now(),
        });
    }

    fn add(&self, item: Item) {
        let mut state = self.state.lock();
        if state.items.len() < MAX_ITEMS {
            state.items.push(item);
        }
    }

    /// Ends the trace. One that took as long as the threshold is logged, with those in it; else
    /// those in it that did.
    pub fn end(&self, threshold: Duration) {
        self.state.lock().ended = Some((threshold, Instant::now()));
        if !self.is_nested {
            self.log(&Writer::now(), &mut |text| {
                tracing::info!(target: TRACE_TARGET, "{text}");
            });
        }
    }

    /// Gives its text to `out`, or the texts of those in it that are slow.
    fn log(&self, writer: &Writer, out: &mut dyn FnMut(String)) {
        let Some((_, ended)) = self.slow() else {
            for item in &self.items() {
                if let Item::Nested(nested) = item {
                    nested.log(writer, out);
                }
            }
            return;
        };
        let mut number = [0; 4];
        random::fill(&mut number);
        let number = u32::from_le_bytes(number) >> 1;
        let took = ended.saturating_duration_since(self.began);
        let millis = took.as_millis();
        let mut text = format!("Trace[{number}]: {:?} ", self.name);
        write_fields(&mut text, &self.fields);
        let began = writer
            .wall(self.began)
            .strftime("%d-%b-%Y %H:%M:%S%.3f")
            .to_string();
        // Writing to a String cannot fail.
        let _ = write!(text, "({began}) (total time: {millis}ms):");
        self.write_steps(
            writer,
            &mut text,
            &format!("\nTrace[{number}]: "),
            self.share(),
        );
        let took = go_duration(took);
        let _ = write!(text, "\nTrace[{number}]: [{took}] [{took}] END");
        out(text);
    }

    /// The threshold and the end, if it has reached the threshold.
    fn slow(&self) -> Option<(Duration, Instant)> {
        let ended = self.state.lock().ended;
        ended.filter(|(threshold, ended)| ended.saturating_duration_since(self.began) >= *threshold)
    }

    fn items(&self) -> Vec<Item> {
        self.state.lock().items.clone()
    }

    /// The time from which on a step is written: an equal share of what the traces in it leave
    /// (`calculateStepThreshold`). `None` while it has not ended: then each step is.
    fn share(&self) -> Option<Duration> {
        let (ended, items) = {
            let state = self.state.lock();
            (state.ended, state.items.clone())
        };
        let (threshold, _) = ended?;
        let (mut rest, mut parts) = (threshold, items.len() + 1);
        for item in &items {
            if let Item::Nested(nested) = item
                && let Some((its, _)) = nested.state.lock().ended
            {
                rest = rest.saturating_sub(its);
                parts -= 1;
            }
        }
        if rest < threshold / 4 {
            (rest, parts) = (threshold / 4, items.len() + 1);
        }
        Some(rest / u32::try_from(parts).unwrap_or(u32::MAX))
    }

    fn write_steps(
        &self,
        writer: &Writer,
        text: &mut String,
        prefix: &str,
        share: Option<Duration>,
    ) {
        let mut last = self.began;
        for item in &self.items() {
            match item {
                Item::Step { name, fields, at } => {
                    let took = at.saturating_duration_since(last);
                    if writer.everything || share.is_none_or(|share| took >= share) {
                        let _ = write!(text, "{prefix}---");
                        writer.summary(text, name, fields, took, *at);
                    }
                    last = *at;
                }
                Item::Nested(nested) => {
                    nested.write(writer, text, prefix, share);
                    // One that goes on has taken no time yet.
                    let ended = nested.state.lock().ended;
                    last = ended.map_or(nested.began, |(_, ended)| ended);
                }
            }
        }
    }

    /// Writes it within another one, or those in it that are slow.
    fn write(&self, writer: &Writer, text: &mut String, prefix: &str, share: Option<Duration>) {
        if self.slow().is_none() && !writer.everything {
            for item in &self.items() {
                if let Item::Nested(nested) = item {
                    nested.write(writer, text, prefix, share);
                }
            }
            return;
        }
        let _ = write!(text, "{prefix}[");
        let took = writer.now.saturating_duration_since(self.began);
        writer.summary(text, self.name, &self.fields, took, self.began);
        let share = self.share().or(share);
        self.write_steps(writer, text, &format!("{prefix} "), share);
        text.push(']');
    }
}

/// The moment at which a trace is written, and how much of it.
#[derive(Debug)]
struct Writer {
    now: Instant,
    wall: Zoned,
    everything: bool,
}

impl Writer {
    fn now() -> Self {
        Self {
            now: Instant::now(),
            wall: Zoned::now(),
            everything: log::verbosity() >= EVERYTHING,
        }
    }

    /// The time of day at a moment before now.
    fn wall(&self, at: Instant) -> Zoned {
        let ago = self.now.saturating_duration_since(at);
        self.wall.saturating_sub(ago)
    }

    fn summary(
        &self,
        text: &mut String,
        name: &str,
        fields: &[KeyValue],
        took: Duration,
        at: Instant,
    ) {
        let _ = write!(text, "{name:?} ");
        write_fields(text, fields);
        let at = self.wall(at).strftime("%H:%M:%S%.3f").to_string();
        let _ = write!(text, "{}ms ({at})", took.as_millis());
    }
}

/// Writes `a:b,c:d `. A line break in a value would begin a line that nobody wrote.
fn write_fields(text: &mut String, fields: &[KeyValue]) {
    for (at, field) in fields.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let value = field.value.as_str();
        let _ = write!(text, "{comma}{}:", field.key);
        for part in value.chars() {
            match part.is_control() {
                true => text.extend(part.escape_default()),
                false => text.push(part),
            }
        }
    }
    if !fields.is_empty() {
        text.push(' ');
    }
}

/// A time as Go prints it.
fn go_duration(time: Duration) -> String {
    let (seconds, rest) = (
        time.as_secs(),
        Duration::from_nanos(time.subsec_nanos().into()),
    );
    if time.is_zero() {
        return "0s".to_owned();
    }
    if seconds < 60 {
        return format!("{time:?}");
    }
    let seconds_of_minute = Duration::from_secs(seconds % 60) + rest;
    let text = seconds_of_minute.as_secs_f64();
    match seconds / 3600 {
        0 => format!("{}m{text}s", seconds / 60),
        hours => format!("{hours}h{}m{text}s", seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of some length, with items; it began so long before `writer.now`.
    fn trace(
        writer: &Writer,
        name: &'static str,
        (began, ended, threshold): (u64, u64, u64),
        items: Vec<Item>,
    ) -> Arc<SlowTrace> {
        let at = |ago: u64| writer.now - Duration::from_millis(ago);
        Arc::new(SlowTrace {
            name,
            fields: vec![KeyValue::new("url", "/a\nb"), KeyValue::new("n", 7)],
            began: at(began),
            is_nested: false,
            state: Mutex::new(State {
                ended: Some((Duration::from_millis(threshold), at(ended))),
                items,
            }),
        })
    }

    fn step(writer: &Writer, name: &'static str, ago: u64) -> Item {
        Item::Step {
            name,
            fields: Vec::new(),
            at: writer.now - Duration::from_millis(ago),
        }
    }

    fn writer() -> Writer {
        Writer {
            now: Instant::now() + Duration::from_secs(100),
            wall: "2026-11-24T12:00:10[UTC]".parse().expect("a time"),
            everything: false,
        }
    }

    /// The texts, with their numbers replaced.
    fn texts(trace: &SlowTrace, writer: &Writer) -> Vec<String> {
        let mut all = Vec::new();
        trace.log(writer, &mut |text| all.push(text));
        let number = regex::Regex::new(r"Trace\[\d+\]").expect("a pattern");
        let replaced = |text: String| number.replace_all(&text, "Trace[1]").into_owned();
        all.into_iter().map(replaced).collect()
    }

    #[test]
    fn what_is_slow_is_written_as_utils_trace_does() {
        let writer = writer();
        let quick = trace(&writer, "quick", (900, 890, 500), Vec::new());
        let slow = trace(
            &writer,
            "Create etcd3",
            (800, 200, 500),
            vec![
                step(&writer, "Encode succeeded", 799),
                step(&writer, "Txn call succeeded", 210),
            ],
        );
        let items = vec![
            step(&writer, "limitedReadBody succeeded", 999),
            Item::Nested(quick),
            Item::Nested(slow),
            step(&writer, "Write to database call succeeded", 100),
        ];
        let create = trace(&writer, "Create", (1000, 0, 500), items);
        assert_eq!(
            texts(&create, &writer),
            [concat!(
                "Trace[1]: \"Create\" url:/a\\nb,n:7 (24-Nov-2026 12:00:09.000) (total time: 1000ms):\n",
                "Trace[1]: [\"Create etcd3\" url:/a\\nb,n:7 800ms (12:00:09.200)\n",
                "Trace[1]:  ---\"Txn call succeeded\" 589ms (12:00:09.790)]\n",
                "Trace[1]: ---\"Write to database call succeeded\" 100ms (12:00:09.900)\n",
                "Trace[1]: [1s] [1s] END",
            )]
        );
    }

    #[test]
    fn slow_parts_of_what_is_not_slow_are_written_alone() {
        let writer = writer();
        let slow = trace(&writer, "inner", (700, 100, 500), Vec::new());
        let outer = trace(&writer, "outer", (800, 50, 5_000), vec![Item::Nested(slow)]);
        assert_eq!(
            texts(&outer, &writer),
            [concat!(
                "Trace[1]: \"inner\" url:/a\\nb,n:7 (24-Nov-2026 12:00:09.300) (total time: 600ms):\n",
                "Trace[1]: [600ms] [600ms] END",
            )]
        );
        let quick = trace(&writer, "quick", (10, 0, 500), Vec::new());
        assert_eq!(texts(&quick, &writer), Vec::<String>::new());
    }

    #[test]
    fn durations_are_gos() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1.5s"),
            (61_250, "1m1.25s"),
            (3_723_000, "1h2m3s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }
}
