//! Frames of WebSocket as a server reads and writes them (RFC 6455). Messages of clients are handed
//! on in parts as they come, so that they may be of any length and take no memory.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// The longest part of a message that is read at once.
const MAX_PART: usize = 32 * 1024;
/// The longest content of a control frame.
const MAX_CONTROL: usize = 125;
/// The bytes that are read ahead of a client that is silent at most times.
const BUFFER: usize = 512;
/// The code of a connection that ends as it should.
const NORMAL: u16 = 1000;

/// The kinds of frames.
mod kind {
    pub const CONTINUATION: u8 = 0;
    pub const TEXT: u8 = 1;
    pub const BINARY: u8 = 2;
    pub const CLOSE: u8 = 8;
    pub const PING: u8 = 9;
    pub const PONG: u8 = 10;
}

/// A thing that a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Bytes of a message, maybe none: its first ones, its last ones, or some between.
    Part {
        begins: bool,
        ends: bool,
        is_text: bool,
        bytes: Bytes,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// Reads what a client says.
pub struct Reader<R> {
    reader: BufReader<R>,
    /// The rest of a frame.
    frame: Option<FrameRest>,
    /// True if the message that has begun is text.
    message: Option<bool>,
}

/// The frame of which a part has been read.
struct FrameRest {
    begins: bool,
    /// It is the message's last one.
    ends: bool,
    is_text: bool,
    left: u64,
    mask: [u8; 4],
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn new(reader: R) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER, reader),
            frame: None,
            message: None,
        }
    }

    /// Reads the next part; `None` at the end of the connection. A call that is dropped loses what
    /// it has read.
    ///
    /// # Errors
    /// The connection fails, or the client breaks the rules.
    pub async fn next(&mut self) -> io::Result<Option<Said>> {
        if let Some(rest) = self.frame.take() {
            return self.part(rest).await.map(Some);
        }
        let mut head = [0; 2];
        if self.reader.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut head[1..]).await?;
        let [first, second] = head;
        if first & 0x70 != 0 {
            return Err(invalid("reserved bits are set"));
        }
        if second & 0x80 == 0 {
            return Err(invalid("a frame has no mask"));
        }
        let left = match second & 0x7f {
            126 => u64::from(self.reader.read_u16().await?),
            127 => self.reader.read_u64().await?,
            short => u64::from(short),
        };
        if left >> 63 != 0 {
            return Err(invalid("a length is out of range"));
        }
        let mut mask = [0; 4];
        self.reader.read_exact(&mut mask).await?;
        self.frame(first & 0x0f, first & 0x80 != 0, left, mask)
            .await
            .map(Some)
    }

    /// Reads the beginning of a frame behind its head.
    async fn frame(&mut self, kind: u8, ends: bool, left: u64, mask: [u8; 4]) -> io::Result<Said> {
        let is_control = kind & 8 != 0;
        if is_control && (!ends || left > MAX_CONTROL as u64) {
            return Err(invalid("a control frame is too long"));
        }
        let (begins, is_text) = match (kind, self.message) {
            (kind::CONTINUATION, Some(is_text)) => (false, is_text),
            (kind::TEXT | kind::BINARY, None) => (true, kind == kind::TEXT),
            (kind::CLOSE | kind::PING | kind::PONG, _) => {
                return self.control(kind, left, mask).await;
            }
            _ => return Err(invalid("a frame is out of place")),
        };
        self.message = (!ends).then_some(is_text);
        self.part(FrameRest {
            begins,
            ends,
            is_text,
            left,
            mask,
        })
        .await
    }

    async fn control(&mut self, kind: u8, left: u64, mask: [u8; 4]) -> io::Result<Said> {
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(MAX_CONTROL)];
        self.reader.read_exact(&mut bytes).await?;
        unmask(&mut bytes, mask);
        match (kind, bytes.len()) {
            (kind::PING, _) => Ok(Said::Ping(bytes.into())),
            (kind::PONG, _) => Ok(Said::Pong),
            (_, 1) => Err(invalid("half a code")),
            _ => Ok(Said::Close),
        }
    }

    /// Reads as much of a frame as has come.
    async fn part(&mut self, mut rest: FrameRest) -> io::Result<Said> {
        let most = usize::try_from(rest.left).unwrap_or(MAX_PART).min(MAX_PART);
        let mut bytes = BytesMut::zeroed(most);
        let mut read = 0;
        if most > 0 {
            read = self.reader.read(&mut bytes).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        bytes.truncate(read);
        unmask(&mut bytes, rest.mask);
        rest.left -= read as u64;
        let said = Said::Part {
            begins: rest.begins,
            ends: rest.ends && rest.left == 0,
            is_text: rest.is_text,
            bytes: bytes.freeze(),
        };
        rest.begins = false;
        rest.mask.rotate_left(read % 4);
        if rest.left > 0 {
            self.frame = Some(rest);
        }
        Ok(said)
    }
}

/// Undoes the mask of bytes that are at its beginning.
fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    for (byte, mask) in bytes.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}

/// Writes to a client, a message at a time.
pub struct Writer<W>(W);

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub fn new(writer: W) -> Self {
        Self(writer)
    }

    /// Sends a message of binary data, whose first bytes come from somewhere else.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn binary(&mut self, first: &[u8], rest: &[u8]) -> io::Result<()> {
        self.frame(kind::BINARY, first, rest).await
    }

    /// Asks the client to say that it is there.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.frame(kind::PING, &[], &[]).await
    }

    /// Answers a ping.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn pong(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame(kind::PONG, bytes, &[]).await
    }

    /// Ends the connection in the way that clients expect.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn close(&mut self) -> io::Result<()> {
        self.frame(kind::CLOSE, &NORMAL.to_be_bytes(), &[]).await
    }

    async fn frame(&mut self, kind: u8, first: &[u8], rest: &[u8]) -> io::Result<()> {
        let len = first.len() + rest.len();
        let mut frame = BytesMut::with_capacity(10 + len);
        frame.put_u8(0x80 | kind);
        match (u8::try_from(len), u16::try_from(len)) {
            (Ok(short), _) if short < 126 => frame.put_u8(short),
            (_, Ok(longer)) => {
                frame.put_u8(126);
                frame.put_u16(longer);
            }
            _ => {
                frame.put_u8(127);
                frame.put_u64(len as u64);
            }
        }
        frame.put_slice(first);
        frame.put_slice(rest);
        self.0.write_all(&frame).await?;
        self.0.flush().await
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all of some bytes; the reason where that cannot be.
    async fn read(bytes: &[u8]) -> Result<Vec<Said>, String> {
        let mut reader = Reader::new(bytes);
        let mut said = Vec::new();
        while let Some(one) = reader.next().await.map_err(|why| why.to_string())? {
            said.push(one);
        }
        Ok(said)
    }

    fn part(begins: bool, ends: bool, is_text: bool, bytes: &'static [u8]) -> Said {
        let bytes = Bytes::from_static(bytes);
        Said::Part {
            begins,
            ends,
            is_text,
            bytes,
        }
    }

    #[tokio::test]
    async fn messages_are_read_in_parts() {
        // "abcde" under the mask 1, 2, 3, 4; a ping between the parts of another message.
        let one = b"\x82\x85\x01\x02\x03\x04\x60\x60\x60\x60\x64";
        let want = vec![part(true, true, false, b"abcde")];
        assert_eq!(read(one).await, Ok(want));
        let parts = b"\x01\x81\0\0\0\0a\x89\x82\0\0\0\0hi\x00\x80\0\0\0\0\x80\x81\0\0\0\0b\x8a\x80\0\0\0\0\x88\x80\0\0\0\0";
        let want = vec![
            part(true, false, true, b"a"),
            Said::Ping(Bytes::from_static(b"hi")),
            part(false, false, true, b""),
            part(false, true, true, b"b"),
            Said::Pong,
            Said::Close,
        ];
        assert_eq!(read(parts).await, Ok(want));
        assert_eq!(read(b"").await, Ok(vec![]));
    }

    /// No more of a long message is held than one part, whose mask goes on.
    #[tokio::test]
    async fn long_messages_are_never_whole() {
        const LEN: usize = 3 * MAX_PART + 5;
        let mut frame = b"\x82\xff".to_vec();
        frame.put_u64(LEN as u64);
        frame.put_slice(&[1, 2, 3, 4]);
        let mut bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
        unmask(&mut bytes, [1, 2, 3, 4]);
        frame.extend_from_slice(&bytes);
        let mut whole = Vec::new();
        for said in read(&frame).await.expect("a message") {
            let Said::Part { begins, bytes, .. } = said else {
                panic!("{said:?}")
            };
            assert!(bytes.len() <= MAX_PART && begins == whole.is_empty());
            whole.extend_from_slice(&bytes);
        }
        let mut at = whole.iter().enumerate();
        assert!(whole.len() == LEN && at.all(|(at, byte)| *byte == (at % 251) as u8));
    }

    #[tokio::test]
    async fn rules_that_are_broken_end_the_connection() {
        for (bytes, why) in [
            (&b"\x82\x01a"[..], "a frame has no mask"),
            (b"\xc2\x80\0\0\0\0", "reserved bits are set"),
            (
                b"\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0",
                "a length is out of range",
            ),
            (b"\x09\x80\0\0\0\0", "a control frame is too long"),
            (b"\x89\xfe\0\x7e\0\0\0\0", "a control frame is too long"),
            (b"\x80\x80\0\0\0\0", "a frame is out of place"),
            (
                b"\x02\x80\0\0\0\0\x82\x80\0\0\0\0",
                "a frame is out of place",
            ),
            (b"\x83\x80\0\0\0\0", "a frame is out of place"),
            (b"\x8b\x80\0\0\0\0", "a frame is out of place"),
            (b"\x88\x81\0\0\0\0\x03", "half a code"),
        ] {
            assert_eq!(read(bytes).await, Err(why.to_owned()), "{bytes:?}");
        }
        for cut in [
            &b"\x82"[..],
            b"\x82\xfe\0",
            b"\x82\x81\0\0",
            b"\x89\x81\0\0\0\0",
            b"\x82\x81\0\0\0\0",
        ] {
            assert!(read(cut).await.is_err(), "{cut:?}");
        }
    }

    #[tokio::test]
    async fn messages_are_written_with_their_length() {
        for (len, head) in [
            (0, &b"\x82\x01"[..]),
            (124, b"\x82\x7d"),
            (125, b"\x82\x7e\0\x7e"),
            (0xffff, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
        ] {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out);
            writer.binary(&[7], &vec![0; len]).await.expect("written");
            assert_eq!(out.len(), head.len() + 1 + len);
            assert!(out.starts_with(head) && out[head.len()] == 7, "{len}");
        }
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.pong(b"hi").await.expect("written");
        writer.close().await.expect("written");
        assert_eq!(out, b"\x8a\x02hi\x88\x02\x03\xe8");
    }
}
