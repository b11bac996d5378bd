//! The log of events, a line each (apiserver `plugin/pkg/audit/log`).

use std::io::{self, Write};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::base::blocking::run_blocking;

use super::backend::Exporter;
use super::event::Event;
use super::metrics::record_failure;
use super::rotation::LogFile;

const PLUGIN: &str = "log";

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Legacy,
}

/// A log, in a file or on standard output.
pub struct LogBackend {
    /// `None` for standard output.
    file: Option<Mutex<LogFile>>,
    format: Format,
}

impl LogBackend {
    /// A log in a file, or on standard output.
    pub fn new(file: Option<LogFile>, format: Format) -> Self {
        Self {
            file: file.map(Mutex::new),
            format,
        }
    }

    fn line(&self, event: &Event) -> String {
        let mut line = String::new();
        match self.format {
            Format::Json => event.write_json(&mut line, true),
            Format::Legacy => line = event.legacy(),
        }
        line.push('\n');
        line
    }

    fn write(&self, event: &Event) -> bool {
        let line = self.line(event);
        let written: io::Result<()> = match &self.file {
            Some(file) => file.lock().write_line(line.as_bytes()),
            None => io::stdout().write_all(line.as_bytes()),
        };
        if let Err(why) = &written {
            record_failure(PLUGIN, &why.to_string(), std::slice::from_ref(event));
        }
        written.is_ok()
    }
}

#[async_trait]
impl Exporter for LogBackend {
    async fn export(&self, events: Vec<Event>) -> bool {
        run_blocking(|| {
            let mut stored = true;
            for event in &events {
                stored &= self.write(event);
            }
            stored
        })
    }

    fn export_now(&self, event: &Event) -> Option<bool> {
        Some(self.write(event))
    }

    fn name(&self) -> &'static str {
        PLUGIN
    }
}
