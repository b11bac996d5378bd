//! The messages of pprof's `profile.proto`, and what they are made of.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::process::{self, MappedFile};
use super::symbols;

/// A kind of values, and their unit.
type Unit<'a> = (&'a str, &'a str);

/// A stack that was seen, with the values that belong to it.
#[derive(Debug)]
pub struct Sampled {
    /// The addresses of its frames, the innermost first.
    pub addresses: Vec<u64>,
    /// Frames that are no functions, which come after the addresses.
    pub names: Vec<String>,
    pub values: Vec<i64>,
    pub thread: String,
}

/// A profile.
#[derive(Debug)]
pub struct Profile {
    message: ProfileMessage,
    texts: HashMap<String, i64>,
    /// The locations by address, and those that have a name alone.
    locations: HashMap<u64, u64>,
    named: HashMap<String, u64>,
    functions: HashMap<(i64, i64), u64>,
    files: Vec<MappedFile>,
}

impl Profile {
    /// Returns a profile of samples that have values of these kinds.
    pub fn new(kinds: &[Unit<'_>]) -> Self {
        let mut profile = Self {
            message: ProfileMessage::default(),
            texts: HashMap::new(),
            locations: HashMap::new(),
            named: HashMap::new(),
            functions: HashMap::new(),
            files: process::mapped_files(),
        };
        // The first text is the empty one.
        profile.text("");
        let kinds: Vec<ValueType> = kinds.iter().map(|kind| profile.unit(*kind)).collect();
        profile.message.sample_type = kinds;
        for (number, file) in profile.files.clone().into_iter().enumerate() {
            let mapping = Mapping {
                id: number as u64 + 1,
                memory_start: file.start,
                memory_limit: file.end,
                file_offset: file.offset,
                filename: profile.text(&file.path),
                has_functions: true,
            };
            profile.message.mapping.push(mapping);
        }
        profile
    }

    /// Sets the time that it covers, and that between two samples.
    pub fn set_time(&mut self, begun: SystemTime, length: Duration, kind: Unit<'_>, period: i64) {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let begun = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.message.time_nanos = nanos(begun);
        self.message.duration_nanos = nanos(length);
        self.message.period_type = Some(self.unit(kind));
        self.message.period = period;
    }

    /// Adds a stack.
    pub fn add(&mut self, sampled: Sampled) {
        let mut location_id: Vec<u64> = Vec::new();
        for address in sampled.addresses {
            location_id.push(self.location(address));
        }
        for name in sampled.names {
            location_id.push(self.named_location(&name));
        }
        let label = match sampled.thread.as_str() {
            "" => Vec::new(),
            thread => vec![Label {
                key: self.text("thread"),
                str: self.text(thread),
            }],
        };
        self.message.sample.push(Sample {
            location_id,
            value: sampled.values,
            label,
        });
    }

    /// Looks the names of all addresses up.
    pub fn resolve(&mut self) {
        let mut locations = std::mem::take(&mut self.message.location);
        for location in locations
            .iter_mut()
            .filter(|location| location.address != 0)
        {
            location.line = symbols::resolve(location.address)
                .into_iter()
                .map(|symbol| Line {
                    function_id: self.function(&symbol.function, &symbol.file),
                    line: symbol.line.into(),
                })
                .collect();
        }
        self.message.location = locations;
    }

    /// Returns the compressed message.
    ///
    /// # Errors
    /// That of the compression.
    pub fn encode(self) -> Result<Vec<u8>, String> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        let written = out.write_all(&self.message.encode_to_vec());
        written
            .and_then(|()| out.finish())
            .map_err(|why| why.to_string())
    }

    fn location(&mut self, address: u64) -> u64 {
        let next = self.message.location.len() as u64 + 1;
        let id = *self.locations.entry(address).or_insert(next);
        if id == next {
            let within = |file: &MappedFile| (file.start..file.end).contains(&address);
            let mapping = self.files.iter().position(within);
            self.message.location.push(Location {
                id,
                mapping_id: mapping.map_or(0, |at| at as u64 + 1),
                address,
                line: Vec::new(),
            });
        }
        id
    }

    fn named_location(&mut self, name: &str) -> u64 {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let function_id = self.function(name, "");
        let id = self.message.location.len() as u64 + 1;
        self.message.location.push(Location {
            id,
            mapping_id: 0,
            address: 0,
            line: vec![Line {
                function_id,
                line: 0,
            }],
        });
        self.named.insert(name.to_owned(), id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (self.text(name), self.text(file));
        let next = self.message.function.len() as u64 + 1;
        let id = *self.functions.entry(key).or_insert(next);
        if id == next {
            self.message.function.push(Function {
                id,
                name: key.0,
                system_name: key.0,
                filename: key.1,
            });
        }
        id
    }

    fn unit(&mut self, (kind, unit): Unit<'_>) -> ValueType {
        ValueType {
            r#type: self.text(kind),
            unit: self.text(unit),
        }
    }

    /// The number of a text in the table of texts.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.message.string_table.len() as i64;
        self.message.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }

    #[cfg(test)]
    pub fn has_thread(&self, name: &str) -> bool {
        self.texts.contains_key("thread") && self.texts.contains_key(name)
    }

    #[cfg(test)]
    pub fn has_function(&self, name: &str) -> bool {
        self.texts
            .keys()
            .any(|text| text.ends_with(&format!("::{name}")))
    }
}

#[derive(Clone, PartialEq, Message)]
struct ProfileMessage {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}
