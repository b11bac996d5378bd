//! The streams of a command, joined to the channels of a client.

use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::remote::{Remote, Writer};
use super::status::Outcome;
use super::{channel, send};
use crate::proxy::spdy::Frame;
use crate::proxy::tunnel::Movement;
use crate::proxy::websocket::{self, Said};

/// The interval of pings, which keep the connection to a kubelet open where others look for silence
/// (apiserver `streamtranslator.go`).
const PING_PERIOD: Duration = Duration::from_secs(5);
/// The bytes of a command's last message.
const MAX_LAST_MESSAGE: usize = 64 * 1024;
/// The answers to a kubelet that wait to be written. Further ones are left out.
const MAX_WAITING: usize = 16;
/// The reason of a command whose end nobody knows. Upstream tells such a client of success.
const LOST: &str = "the connection to the kubelet broke off before the command ended";

/// An answer to a kubelet.
enum Reply {
    Pong(u32),
    /// The command takes no more input.
    EndStdin,
}

/// Passes bytes both ways until the command or the client ends, or nothing has moved for too long.
pub async fn join(
    mut remote: Remote,
    writer: Writer,
    heard: &Mutex<websocket::Writer>,
    said: &mut websocket::Reader,
) -> Outcome {
    let movement = Movement::new();
    // What is read may have to be answered while something else is being written: then it waits.
    let (replies, mut waiting) = mpsc::channel(MAX_WAITING);
    let inputs = Inputs {
        writer: Mutex::new(writer),
        stdin: Mutex::new(remote.stream(channel::STDIN)),
        resize: remote.stream(channel::RESIZE),
    };
    tokio::select! {
        outcome = outputs(&mut remote, heard, &replies, &movement) => outcome,
        () = inputs.forward(said, heard, &movement) => Outcome::Gone,
        () = inputs.keep_alive(&mut waiting) => Outcome::Failed(LOST.to_owned()),
        () = movement.ceased() => Outcome::Gone,
    }
}

/// Passes on what a command says, until its streams have ended.
async fn outputs(
    remote: &mut Remote,
    heard: &Mutex<websocket::Writer>,
    replies: &mpsc::Sender<Reply>,
    movement: &Movement,
) -> Outcome {
    let outputs = [channel::STDOUT, channel::STDERR, channel::ERROR];
    let mut open: Vec<u8> = outputs
        .into_iter()
        .filter(|channel| remote.stream(*channel).is_some())
        .collect();
    let mut accepted = Accepted::default();
    let mut last_message = Vec::new();
    while !open.is_empty() {
        let frame = match remote.reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Outcome::Failed(LOST.to_owned()),
            Err(why) => return Outcome::Failed(format!("{LOST}: {why}")),
        };
        movement.note();
        let ended = match frame {
            Frame::Data {
                stream,
                is_last,
                bytes,
            } => {
                match remote.channel(stream) {
                    Some(channel::ERROR) => {
                        let room = MAX_LAST_MESSAGE - last_message.len();
                        last_message.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
                    }
                    Some(channel @ (channel::STDOUT | channel::STDERR)) if !bytes.is_empty() => {
                        if send(heard, channel, &bytes).await.is_err() {
                            return Outcome::Gone;
                        }
                        movement.note();
                    }
                    _ => {}
                }
                is_last.then_some(stream)
            }
            Frame::SynReply { stream, is_last } => {
                if remote.channel(stream).is_some() {
                    accepted.note(stream);
                }
                is_last.then_some(stream)
            }
            Frame::Reset { stream, .. } if !accepted.has(stream) => {
                return Outcome::Failed("Stream reset".to_owned());
            }
            Frame::Reset { stream, .. } => Some(stream),
            // The odd ones answer this side's.
            Frame::Ping(id) if id % 2 == 0 => {
                let _ = replies.try_send(Reply::Pong(id));
                None
            }
            _ => None,
        };
        let Some(ended) = ended.and_then(|stream| remote.channel(stream)) else {
            continue;
        };
        if ended == channel::STDIN {
            let _ = replies.try_send(Reply::EndStdin);
        }
        open.retain(|channel| *channel != ended);
    }
    Outcome::read(&remote.protocol, &last_message)
}

/// The streams that a kubelet has accepted. It may say so as often as it likes.
#[derive(Default)]
struct Accepted(Vec<u32>);

impl Accepted {
    fn note(&mut self, stream: u32) {
        if !self.has(stream) {
            self.0.push(stream);
        }
    }

    fn has(&self, stream: u32) -> bool {
        self.0.contains(&stream)
    }
}

/// The channel that a message is of.
#[derive(Debug, PartialEq, Eq)]
enum Of {
    /// Its first byte is yet to come.
    Unknown,
    Channel(u8),
    /// It ends a channel, whose number is yet to come.
    Close,
    /// It has ended a channel.
    Closed(u8),
}

impl Of {
    /// Reads what a message is of from its next bytes, and returns those that are behind that.
    ///
    /// # Errors
    /// It ends a channel that there is not.
    fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], ()> {
        match (&*self, bytes) {
            (Self::Unknown, [channel::CLOSE, rest @ ..]) => {
                *self = Self::Close;
                self.read(rest)
            }
            (Self::Unknown, [channel, rest @ ..]) => {
                *self = Self::Channel(*channel);
                Ok(rest)
            }
            (Self::Close, [channel]) if *channel < channel::COUNT => {
                *self = Self::Closed(*channel);
                Ok(&[])
            }
            (Self::Close | Self::Closed(_), [_, ..]) => Err(()),
            (_, bytes) => Ok(bytes),
        }
    }
}

/// The side that writes to a kubelet.
struct Inputs {
    writer: Mutex<Writer>,
    /// Until it has ended.
    stdin: Mutex<Option<u32>>,
    resize: Option<u32>,
}

impl Inputs {
    /// Passes on what the client says, until it has gone or breaks the protocol.
    async fn forward(
        &self,
        said: &mut websocket::Reader,
        heard: &Mutex<websocket::Writer>,
        movement: &Movement,
    ) {
        // The channel of the message whose parts come, as far as it is known.
        let mut of = Of::Unknown;
        while let Ok(Some(said)) = said.next().await {
            movement.note();
            let written = match said {
                Said::Part {
                    begins,
                    ends,
                    bytes,
                    ..
                } => {
                    if begins {
                        of = Of::Unknown;
                    }
                    let Ok(bytes) = of.read(&bytes) else {
                        return;
                    };
                    if ends && of == Of::Close {
                        return;
                    }
                    self.pass(&of, bytes).await
                }
                Said::Ping(bytes) => {
                    if heard.lock().await.pong(&bytes).await.is_err() {
                        return;
                    }
                    Ok(())
                }
                Said::Pong => Ok(()),
                Said::Close => return,
            };
            // The other side tells why there is no connection any more.
            if written.is_err() {
                std::future::pending::<()>().await;
            }
            movement.note();
        }
    }

    /// Passes on bytes of a channel, or its end.
    async fn pass(&self, of: &Of, bytes: &[u8]) -> std::io::Result<()> {
        match of {
            Of::Channel(channel::STDIN) => {
                // It does not end meanwhile.
                let stdin = self.stdin.lock().await;
                self.write(*stdin, bytes).await
            }
            Of::Channel(channel::RESIZE) => self.write(self.resize, bytes).await,
            Of::Closed(channel::STDIN) => self.end_stdin().await,
            _ => Ok(()),
        }
    }

    async fn write(&self, stream: Option<u32>, bytes: &[u8]) -> std::io::Result<()> {
        match stream {
            Some(stream) if !bytes.is_empty() => {
                self.writer.lock().await.data(stream, bytes, false).await
            }
            _ => Ok(()),
        }
    }

    async fn end_stdin(&self) -> std::io::Result<()> {
        match self.stdin.lock().await.take() {
            Some(stream) => self.writer.lock().await.data(stream, &[], true).await,
            None => Ok(()),
        }
    }

    /// Sends pings and replies, until there is no connection any more.
    async fn keep_alive(&self, replies: &mut mpsc::Receiver<Reply>) {
        let mut ticks = interval(PING_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let mut next: u32 = 1;
        loop {
            let written = tokio::select! {
                _ = ticks.tick() => {
                    let id = next;
                    next = next.wrapping_add(2);
                    self.writer.lock().await.ping(id).await
                }
                reply = replies.recv() => match reply {
                    Some(Reply::Pong(id)) => self.writer.lock().await.ping(id).await,
                    Some(Reply::EndStdin) => self.end_stdin().await,
                    None => return,
                },
            };
            if written.is_err() {
                // What has been said before is still to be read.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_may_come_in_parts_of_any_size() {
        let read = |parts: &[&'static [u8]]| {
            let mut of = Of::Unknown;
            let bytes = parts.iter().map(|part| of.read(part).map(<[u8]>::to_vec));
            let bytes: Result<Vec<_>, ()> = bytes.collect();
            (of, bytes.map(|bytes| bytes.concat()))
        };
        let whole = (Of::Channel(0), Ok(b"ab".to_vec()));
        assert_eq!(read(&[b"\0ab"]), whole);
        assert_eq!(read(&[b"", b"\0", b"a", b"", b"b"]), whole);
        let closed = (Of::Closed(0), Ok(Vec::new()));
        assert_eq!(read(&[b"\xff\0"]), closed);
        assert_eq!(read(&[b"\xff", b"", b"\0"]), closed);
        for parts in [
            &[&b"\xff\x4d"[..]][..],
            &[b"\xff", b"\0", b"x"],
            &[b"\xff\0x"],
        ] {
            assert_eq!(read(parts).1, Err(()), "{parts:?}");
        }
        assert_eq!(read(&[b"\xff"]), (Of::Close, Ok(Vec::new())));
    }

    #[test]
    fn streams_that_are_accepted_again_and_again_take_no_memory() {
        let mut accepted = Accepted::default();
        for round in 0..10_000 {
            accepted.note(1 + 2 * (round % 5));
        }
        assert_eq!(accepted.0, [1, 3, 5, 7, 9]);
        assert!(accepted.has(9) && !accepted.has(11));
    }
}
