//! The log of events, a line each (apiserver `plugin/pkg/audit/log`).

use std::io::{self, Write};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

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

/// The bytes of lines that wait for a pipe that is not read. Further ones are lost, and their
/// requests refused in strict mode.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// A log, in a file or on standard output.
pub struct LogBackend {
    target: Arc<Target>,
    /// `None` for a file, which takes lines at once.
    pipe: Option<Pipe>,
    format: Format,
}

/// The end of a log: a file, or standard output.
struct Target(Option<Mutex<LogFile>>);

/// The queue in front of what may be written to only as fast as somebody reads it: the threads of
/// other requests must not wait for that.
struct Pipe {
    /// Held while lines are written.
    turn: Arc<tokio::sync::Mutex<()>>,
    room: Arc<Semaphore>,
}

impl Target {
    fn write(&self, line: &str) -> io::Result<()> {
        match &self.0 {
            Some(file) => file.lock().write_line(line.as_bytes()),
            None => io::stdout().write_all(line.as_bytes()),
        }
    }
}

impl Pipe {
    fn new() -> Self {
        Self {
            turn: Arc::default(),
            room: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
        }
    }

    /// Writes lines, one call after the other, whatever becomes of who waits for it.
    async fn write(&self, target: &Arc<Target>, lines: Vec<String>) -> io::Result<()> {
        let bytes = lines.iter().map(String::len).sum::<usize>();
        let permits = u32::try_from(bytes.min(MAX_WAITING_BYTES)).unwrap_or(u32::MAX);
        let room = self.room.clone().try_acquire_many_owned(permits);
        let room = room.map_err(|_| io::Error::other("nobody reads the audit log"))?;
        let (turn, target) = (self.turn.clone().lock_owned().await, target.clone());
        let written = spawn_blocking(move || {
            let _held = (room, turn);
            lines.iter().try_for_each(|line| target.write(line))
        });
        written.await.map_err(io::Error::other)?
    }
}

impl LogBackend {
    /// A log in a file, or on standard output.
    pub fn new(file: Option<LogFile>, format: Format) -> Self {
        let is_regular = file.as_ref().is_some_and(LogFile::is_regular);
        Self {
            target: Arc::new(Target(file.map(Mutex::new))),
            pipe: (!is_regular).then(Pipe::new),
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
        let written = self.target.write(&self.line(event));
        is_stored(&written, std::slice::from_ref(event))
    }
}

/// Counts and logs events that could not be written.
fn is_stored(written: &io::Result<()>, events: &[Event]) -> bool {
    if let Err(why) = written {
        record_failure(PLUGIN, &why.to_string(), events);
    }
    written.is_ok()
}

#[async_trait]
impl Exporter for LogBackend {
    async fn export(&self, events: Vec<Event>) -> bool {
        if let Some(pipe) = &self.pipe {
            let lines = events.iter().map(|event| self.line(event)).collect();
            let written = pipe.write(&self.target, lines).await;
            return is_stored(&written, &events);
        }
        run_blocking(|| {
            let mut stored = true;
            for event in &events {
                stored &= self.write(event);
            }
            stored
        })
    }

    fn export_now(&self, event: &Event) -> Option<bool> {
        self.pipe.is_none().then(|| self.write(event))
    }

    fn name(&self) -> &'static str {
        PLUGIN
    }
}
