//! Brings what differs from run to run (versions, uids, times, generated names, addresses) into a
//! form that can be compared.
//!
//! Equal values stay recognisably equal inside one scenario: the first uid seen is `uid#1` wherever
//! it stands, so a write that must not change a resourceVersion but does is a difference.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// Times this near are of this run (or of the recording); others are part of the scenario.
const RECENT: SignedDuration = SignedDuration::from_hours(400 * 24);
/// The year of the first recording.
const FIRST_YEAR: i16 = 2026;
/// Columns of tables that count from now.
const AGES: [&str; 5] = [
    "Age",
    "Last Seen",
    "First Seen",
    "Last Schedule",
    "Duration",
];
/// Length of the part of `generateName` that is kept in a generated name.
const PREFIX: usize = 58;

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("a pattern"));
    };
}
pattern!(
    UID,
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
);
pattern!(TIME, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z");
pattern!(TOKEN, r"^ey[\w-]+\.ey[\w-]+\.[\w-]+$");
pattern!(CLUSTER_IP, r"^10\.96\.\d+\.\d+$|^fd");

/// Parts of messages that hold a number of this run, and what stands for them.
static NUMBERS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = [
        (r"current: \d+", "current: N"),
        (r#"(\\?"resourceVersion\\?": ?\\?")\d+"#, "${1}N"),
        (r"((?:precondition|record) \()\d+\)", "${1}N)"),
        (r"(too old resource version: \d+ \()\d+\)", "${1}N)"),
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<gen>"),
        (r"\(\d+ (vs|>) \d+\)", "(N vs N)"),
    ];
    rules
        .map(|(pattern, stand_in)| (Regex::new(pattern).expect("a pattern"), stand_in))
        .into()
});

/// Placeholders and values that one scenario has seen so far.
#[derive(Debug)]
pub struct Normalizer {
    ns: String,
    id: String,
    tags: BTreeMap<(&'static str, String), usize>,
    counts: BTreeMap<&'static str, usize>,
    /// The `generateName` prefixes that were sent, with what finds a name made from them and what
    /// follows it.
    generated: BTreeMap<String, Regex>,
    /// Columns with ages in the last table that had column definitions; the later events of a watch
    /// have none.
    ages: Vec<usize>,
}

impl Normalizer {
    pub fn new(ns: String, id: String) -> Self {
        Self {
            ns,
            id,
            tags: BTreeMap::new(),
            counts: BTreeMap::new(),
            generated: BTreeMap::new(),
            ages: Vec::new(),
        }
    }

    /// Announces that names with this prefix will be generated.
    pub fn generates(&mut self, prefix: &str) {
        let prefix: String = prefix.chars().take(PREFIX).collect();
        let pattern = format!(
            "{}[bcdfghjklmnpqrstvwxz2456789]{{5}}([^a-z0-9]|$)",
            regex::escape(&prefix)
        );
        self.generated
            .entry(prefix)
            .or_insert_with(|| Regex::new(&pattern).expect("a pattern"));
    }

    /// A text with what varies in it replaced.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.ns, "<ns>").replace(&self.id, "<id>");
        for (prefix, pattern) in &self.generated {
            text = pattern
                .replace_all(&text, |found: &Captures<'_>| {
                    format!("{prefix}<gen>{}", &found[1])
                })
                .into_owned();
        }
        text = UID
            .replace_all(&text, |found: &Captures<'_>| {
                format!("<{}>", self.tag("uid", &found[0]))
            })
            .into_owned();
        for (pattern, stand_in) in NUMBERS.iter() {
            text = pattern.replace_all(&text, *stand_in).into_owned();
        }
        let time = |found: &Captures<'_>| {
            if recent(&found[0]) {
                "<time>".to_owned()
            } else {
                found[0].to_owned()
            }
        };
        TIME.replace_all(&text, time).into_owned()
    }

    /// A whole answer with what varies in it replaced.
    pub fn normalize(&mut self, value: &Value) -> Value {
        self.value(value, "", None)
    }

    fn value(&mut self, value: &Value, key: &str, parent: Option<&Map<String, Value>>) -> Value {
        match value {
            Value::Object(members) => Value::Object(self.object(members)),
            Value::Array(items) => items
                .iter()
                .filter(|item| !foreign(key, item))
                .map(|item| self.value(item, key, parent))
                .collect(),
            Value::String(text) => json!(self.string(text, key, parent)),
            Value::Number(number) if matches!(key, "nodePort" | "healthCheckNodePort") => {
                match number.as_i64() {
                    Some(30000..=32767) => json!(self.tag("port", &number.to_string())),
                    _ => value.clone(),
                }
            }
            other => other.clone(),
        }
    }

    fn object(&mut self, members: &Map<String, Value>) -> Map<String, Value> {
        let kind = members
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let list =
            members.contains_key("items") || members.contains_key("rows") || kind.ends_with("List");
        let mut out = Map::new();
        for (key, value) in members {
            match value {
                Value::Object(metadata) if list && key == "metadata" => {
                    out.insert(key.clone(), json!(list_metadata(metadata)))
                }
                _ => {
                    let name = if key == "continue" {
                        key.clone()
                    } else {
                        self.text(key)
                    };
                    let value = self.value(value, key, Some(members));
                    out.insert(name, value)
                }
            };
        }
        sort_the_unordered(&mut out);
        if members.get("type").and_then(Value::as_str) == Some("BOOKMARK")
            && let Some(metadata) = out
                .get_mut("object")
                .and_then(|object| object.get_mut("metadata"))
                .and_then(Value::as_object_mut)
        {
            metadata.insert("resourceVersion".to_owned(), json!("<rv>"));
        }
        if kind == "Table" && members.contains_key("columnDefinitions") {
            self.table(&mut out);
        }
        out
    }

    /// Drops the prose of columns and the ages of rows.
    fn table(&mut self, table: &mut Map<String, Value>) {
        if let Some(columns) = table
            .get_mut("columnDefinitions")
            .and_then(Value::as_array_mut)
            .filter(|columns| !columns.is_empty())
        {
            let age = |column: &Value| {
                column
                    .get("name")
                    .and_then(Value::as_str)
                    .is_some_and(|name| AGES.contains(&name))
            };
            self.ages = columns
                .iter()
                .enumerate()
                .filter(|(_, column)| age(column))
                .map(|(index, _)| index)
                .collect();
            for column in columns.iter_mut().filter_map(Value::as_object_mut) {
                column.shift_remove("description");
            }
        }
        for row in table
            .get_mut("rows")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let Some(cells) = row.get_mut("cells").and_then(Value::as_array_mut) else {
                continue;
            };
            for age in &self.ages {
                if let Some(cell) = cells.get_mut(*age) {
                    *cell = json!("<age>");
                }
            }
        }
    }

    fn string(&mut self, text: &str, key: &str, parent: Option<&Map<String, Value>>) -> String {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match key {
            "resourceVersion" if digits => return self.tag("rv", text),
            "clusterIP" | "clusterIPs" if CLUSTER_IP.is_match(text) => return self.tag("ip", text),
            "continue" if !text.is_empty() => return "<continue>".to_owned(),
            _ => {}
        }
        if TOKEN.is_match(text) {
            return "<jwt>".to_owned();
        }
        let prefix = parent
            .and_then(|parent| parent.get("generateName"))
            .and_then(Value::as_str)
            .filter(|prefix| !prefix.is_empty());
        match prefix {
            Some(prefix) if matches!(key, "name" | "metadata") && text.starts_with(prefix) => {
                format!("{prefix}<gen>")
            }
            _ => self.text(text),
        }
    }

    fn tag(&mut self, class: &'static str, value: &str) -> String {
        let next = self.counts.entry(class).or_default();
        let number = *self
            .tags
            .entry((class, value.to_owned()))
            .or_insert_with(|| {
                *next += 1;
                *next
            });
        format!("{class}#{number}")
    }
}

/// Reports whether a time is of this run or the recording.
fn recent(text: &str) -> bool {
    let Ok(time) = text.parse::<Timestamp>() else {
        return false;
    };
    Timestamp::now().duration_since(time).abs() < RECENT
        && time.to_zoned(jiff::tz::TimeZone::UTC).year() >= FIRST_YEAR
}

/// A source of token volumes that only the recorded server's distribution has.
fn foreign(key: &str, item: &Value) -> bool {
    key == "sources" && item.to_string().contains("openshift-service-ca.crt")
}

fn list_metadata(metadata: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = metadata.clone();
    if metadata.contains_key("resourceVersion") {
        metadata.insert("resourceVersion".to_owned(), json!("<listrv>"));
    }
    if metadata
        .get("continue")
        .and_then(Value::as_str)
        .is_some_and(|token| !token.is_empty())
    {
        metadata.insert("continue".to_owned(), json!("<continue>"));
    }
    metadata
}

/// Sorts the lists whose order says nothing: managed fields, rules of a review, the causes of an
/// apply conflict.
fn sort_the_unordered(members: &mut Map<String, Value>) {
    if let Some(Value::Array(entries)) = members.get_mut("managedFields") {
        let part = |entry: &Value, name: &str| {
            entry
                .get(name)
                .map_or_else(|| "null".to_owned(), Value::to_string)
        };
        entries.sort_by_cached_key(|entry| {
            ["operation", "manager", "apiVersion", "subresource"].map(|name| part(entry, name))
        });
    }
    for name in ["resourceRules", "nonResourceRules"] {
        if let Some(Value::Array(rules)) = members.get_mut(name) {
            rules.sort_by_cached_key(Value::to_string);
        }
    }
    if let Some(Value::Array(causes)) = members.get_mut("causes") {
        let conflict = |cause: &Value| {
            cause.get("reason").and_then(Value::as_str) == Some("FieldManagerConflict")
        };
        if causes.iter().all(conflict) {
            causes.sort_by_cached_key(Value::to_string);
        }
    }
}

mod tests {
    use super::*;

    fn normalizer() -> Normalizer {
        Normalizer::new("ns-abc".to_owned(), "idcba".to_owned())
    }

    #[test]
    fn texts() {
        let mut normalizer = normalizer();
        normalizer.generates("web-");
        let now = Timestamp::now();
        let uid = "0a1b2c3d-0000-1111-2222-333344445555";
        let cases = [
            ("a ns-abc b idcba".to_owned(), "a <ns> b <id>"),
            (format!("{uid} {uid}"), "<uid#1> <uid#1>"),
            (
                format!("at {now:.0}, since 2001-01-01T00:00:00Z"),
                "at <time>, since 2001-01-01T00:00:00Z",
            ),
            (
                "\"web-x2x4z\" web-x2x4zz web-aaaaa".to_owned(),
                "\"web-<gen>\" web-x2x4zz web-aaaaa",
            ),
            (
                "too old resource version: 1 (12345)".to_owned(),
                "too old resource version: 1 (N)",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(normalizer.text(&text), want);
        }
    }

    #[test]
    fn equal_versions_stay_equal() {
        let mut normalizer = normalizer();
        let object = |version: &str| json!({"kind": "Pod", "metadata": {"name": "a", "resourceVersion": version}});
        let version = |value: Value| value["metadata"]["resourceVersion"].clone();
        assert_eq!(version(normalizer.normalize(&object("7"))), "rv#1");
        assert_eq!(version(normalizer.normalize(&object("9"))), "rv#2");
        assert_eq!(version(normalizer.normalize(&object("7"))), "rv#1");
        assert_eq!(
            version(
                normalizer.normalize(&json!({"items": [], "metadata": {"resourceVersion": "9"}}))
            ),
            "<listrv>"
        );
    }

    #[test]
    fn ages_of_a_table() {
        let table = json!({"kind": "Table", "columnDefinitions": [{"name": "Name", "description": "x"}, {"name": "Age"}],
            "rows": [{"cells": ["a", "5s"]}]});
        let want = json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Age"}], "rows": [{"cells": ["a", "<age>"]}]});
        assert_eq!(normalizer().normalize(&table), want);
    }
}
