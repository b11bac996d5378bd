//! Frames of the other side.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{FIN, MAX_CONTROL, MAX_DATA, VERSION, kind};

/// A frame, or a part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream, with its header block as it was sent.
    SynStream {
        stream: u32,
        is_last: bool,
        headers: Bytes,
    },
    /// A stream is accepted.
    SynReply {
        stream: u32,
        is_last: bool,
    },
    /// A stream is broken off.
    Reset {
        stream: u32,
        code: u32,
    },
    /// Bytes of a stream; `is_last` where no more follow.
    Data {
        stream: u32,
        is_last: bool,
        bytes: Bytes,
    },
    Ping(u32),
    /// No more streams are accepted.
    GoAway,
    /// One without a meaning here.
    Other,
}

/// Reads frames.
pub struct FrameReader<R> {
    reader: R,
    /// The rest of a data frame.
    data: Option<DataRest>,
}

struct DataRest {
    stream: u32,
    is_last: bool,
    left: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, data: None }
    }

    /// Reads the next frame; `None` at the end of the connection. A call that is dropped loses what
    /// it has read.
    ///
    /// # Errors
    /// The connection fails, or what comes over it is no SPDY.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        if let Some(rest) = self.data.take() {
            return self.data(rest).await.map(Some);
        }
        let mut head = [0; 8];
        if self.reader.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut head[1..]).await?;
        let [a, b, c, d, flags, len @ ..] = head;
        let len = usize::try_from(u32::from_be_bytes([0, len[0], len[1], len[2]]));
        let len = len.unwrap_or(usize::MAX);
        let is_last = flags & FIN != 0;
        if a & 0x80 == 0 {
            let rest = DataRest {
                stream: u32::from_be_bytes([a, b, c, d]),
                is_last,
                left: len,
            };
            return self.data(rest).await.map(Some);
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        if version != VERSION {
            return Err(invalid(format!("SPDY of version {version}")));
        }
        if len > MAX_CONTROL {
            return Err(invalid(format!("a control frame of {len} bytes")));
        }
        let mut body = vec![0; len];
        self.reader.read_exact(&mut body).await?;
        control(u16::from_be_bytes([c, d]), is_last, body.into()).map(Some)
    }

    async fn data(&mut self, mut rest: DataRest) -> io::Result<Frame> {
        let mut bytes = vec![0; rest.left.min(MAX_DATA)];
        let mut read = 0;
        // As much as has come, so that it goes on at once.
        if !bytes.is_empty() {
            read = self.reader.read(&mut bytes).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        bytes.truncate(read);
        rest.left -= read;
        let (stream, is_last) = (rest.stream, rest.is_last && rest.left == 0);
        if rest.left > 0 {
            self.data = Some(rest);
        }
        Ok(Frame::Data {
            stream,
            is_last,
            bytes: bytes.into(),
        })
    }
}

fn control(kind: u16, is_last: bool, body: Bytes) -> io::Result<Frame> {
    let word = |at: usize| {
        let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let short = || invalid(format!("a control frame of type {kind} is too short"));
        bytes.map(u32::from_be_bytes).ok_or_else(short)
    };
    let stream = |at| word(at).map(|word| word & 0x7fff_ffff);
    Ok(match kind {
        kind::SYN_STREAM => {
            let stream = stream(0)?;
            // The associated stream, the priority and the slot.
            word(4)?;
            let headers = body.get(10..).map(|headers| body.slice_ref(headers));
            Frame::SynStream {
                stream,
                is_last,
                headers: headers.unwrap_or_default(),
            }
        }
        kind::SYN_REPLY => Frame::SynReply {
            stream: stream(0)?,
            is_last,
        },
        kind::RST_STREAM => Frame::Reset {
            stream: stream(0)?,
            code: word(4)?,
        },
        kind::PING => Frame::Ping(word(0)?),
        kind::GOAWAY => Frame::GoAway,
        _ => Frame::Other,
    })
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
