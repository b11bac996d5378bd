//! Frames for the other side.

use std::io;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{FIN, VERSION, kind};

/// The head of a stream of zlib, without a dictionary.
const ZLIB_HEAD: [u8; 2] = [0x78, 0x01];
/// The end of what is written at once: an empty block. Go's zlib hands on what it has read when it
/// meets one, or fails for good at the end of the input (`compress/flate`).
const SYNC: [u8; 5] = [0, 0, 0, 0xff, 0xff];
/// The longest data frame.
const MAX_LENGTH: usize = (1 << 24) - 1;

/// Writes frames.
pub struct FrameWriter<W> {
    writer: W,
    /// The first header block is still to be written: the head of zlib goes before it.
    is_first_block: bool,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub fn new(writer: W) -> Self {
        Self {
            writer,
            is_first_block: true,
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut body = BytesMut::new();
        body.put_u32(stream);
        // No associated stream, no priority, no slot.
        body.put_bytes(0, 6);
        self.put_headers(headers, &mut body);
        self.control(kind::SYN_STREAM, &body).await
    }

    /// Accepts a stream.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn reply(&mut self, stream: u32) -> io::Result<()> {
        let mut body = BytesMut::new();
        body.put_u32(stream);
        self.put_headers(&[], &mut body);
        self.control(kind::SYN_REPLY, &body).await
    }

    /// Sends bytes on a stream, and its end.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        let mut chunks = bytes.chunks(MAX_LENGTH).peekable();
        loop {
            let chunk = chunks.next().unwrap_or_default();
            let ends = chunks.peek().is_none();
            let mut head = BytesMut::with_capacity(8);
            head.put_u32(stream);
            head.put_u32(chunk.len() as u32);
            if let Some(flags) = head.get_mut(4).filter(|_| is_last && ends) {
                *flags = FIN;
            }
            self.writer.write_all(&head).await?;
            self.writer.write_all(chunk).await?;
            if ends {
                return self.writer.flush().await;
            }
        }
    }

    /// Breaks a stream off.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        let mut body = BytesMut::new();
        body.put_u32(stream);
        body.put_u32(code);
        self.control(kind::RST_STREAM, &body).await
    }

    /// Asks the other side to send the same, or does so.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn ping(&mut self, id: u32) -> io::Result<()> {
        self.control(kind::PING, &id.to_be_bytes()).await
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.writer.shutdown().await
    }

    fn put_headers(&mut self, headers: &[(&str, &str)], body: &mut BytesMut) {
        if std::mem::take(&mut self.is_first_block) {
            body.put_slice(&ZLIB_HEAD);
        }
        // A block that is stored as it is, and is not the last one.
        let block = header_block(headers);
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        body.put_u8(0);
        body.put_u16_le(len);
        body.put_u16_le(!len);
        body.put_slice(block.get(..usize::from(len)).unwrap_or_default());
        body.put_slice(&SYNC);
    }

    async fn control(&mut self, kind: u16, body: &[u8]) -> io::Result<()> {
        let mut frame = BytesMut::with_capacity(8 + body.len());
        frame.put_u16(0x8000 | VERSION);
        frame.put_u16(kind);
        frame.put_u32(body.len() as u32);
        frame.put_slice(body);
        self.writer.write_all(&frame).await?;
        self.writer.flush().await
    }
}

/// The names and values of a header block before it is packed.
pub fn header_block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    block.put_u32(headers.len() as u32);
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.put_u32(text.len() as u32);
        block.put_slice(text.as_bytes());
    }
    block
}
