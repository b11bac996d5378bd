//! The way of a command to the store of a data directory: through the server that has it open, or
//! without one.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use super::CommandError;
use crate::server::local_store::control::{self, Request};

/// The stream to a server.
type Stream = Box<dyn ReadWrite>;

/// A stream in both directions.
pub trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

/// A server that has taken a command.
pub struct Server(BufReader<Stream>);

impl Server {
    /// Sends a command to the server that has the store in `folder` open, and waits until it has
    /// taken it. `None` if there is no server.
    ///
    /// # Errors
    /// The server refuses, or goes.
    pub fn ask(folder: &Path, request: Request) -> Result<Option<Self>, CommandError> {
        let Ok(stream) = control::connect(folder) else {
            return Ok(None);
        };
        let mut server = Self(BufReader::with_capacity(256 << 10, Box::new(stream)));
        server.send(request.line())?;
        Ok(Some(server))
    }

    /// Sends another line, and waits for the answer.
    ///
    /// # Errors
    /// The server refuses, or goes.
    pub fn send(&mut self, line: &str) -> Result<(), CommandError> {
        let gone = |_| CommandError::new("the server has ended in the middle");
        self.0
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .map_err(gone)?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).map_err(gone)?;
        match answer.trim_end() {
            "ok" => Ok(()),
            "" => Err(CommandError::new("the server has ended in the middle")),
            other => Err(CommandError::new(
                other.strip_prefix("error: ").unwrap_or(other),
            )),
        }
    }
}

impl Read for Server {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}
