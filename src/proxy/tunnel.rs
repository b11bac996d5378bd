//! Bytes between two connections, both ways.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, split};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The silence after which a tunnel is closed (the kubelet's
/// `--streaming-connection-idle-timeout`).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);
/// The silence after which it is closed when one side has nothing more to say.
pub const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(60);
/// The bytes that are read at once from a side that is silent at most times, and from one that
/// sends much.
const QUIET_BUFFER: usize = 1024;
const BUSY_BUFFER: usize = 64 * 1024;

/// Copies bytes both ways until both sides have ended, one of them fails, or nothing has moved for
/// too long. The end of one side is passed on, and the other goes on for a while.
pub async fn tunnel(near: impl AsyncRead + AsyncWrite, far: impl AsyncRead + AsyncWrite) {
    let ((near_reader, near_writer), (far_reader, far_writer)) = (split(near), split(far));
    let movement = Movement::new();
    let copied = async {
        tokio::try_join!(
            copy(near_reader, far_writer, &movement),
            copy(far_reader, near_writer, &movement)
        )
    };
    tokio::select! {
        result = copied => if let Err(why) = result {
            tracing::debug!("a tunnel ended: {why}");
        },
        () = movement.ceased() => tracing::debug!("a tunnel ended: nothing moved"),
    }
}

/// Watches whether a tunnel is used.
pub struct Movement {
    begun: Instant,
    /// The time of the last bytes, in milliseconds since it began.
    last: AtomicU64,
    /// One side has ended.
    half_closed: AtomicBool,
    closing: Notify,
}

impl Movement {
    pub fn new() -> Self {
        Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            half_closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    /// Notes that something has moved.
    pub fn note(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    fn end(&self) {
        self.note();
        self.half_closed.store(true, Ordering::Relaxed);
        self.closing.notify_one();
    }

    /// Waits until nothing has moved for too long.
    pub async fn ceased(&self) {
        loop {
            let limit = match self.half_closed.load(Ordering::Relaxed) {
                true => HALF_CLOSED_TIMEOUT,
                false => IDLE_TIMEOUT,
            };
            let last = self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed));
            if last.elapsed() >= limit {
                return;
            }
            tokio::select! {
                () = sleep_until(last + limit) => {}
                () = self.closing.notified() => {}
            }
        }
    }
}

/// Copies what one side says, and its end.
async fn copy(
    reader: impl AsyncRead,
    writer: impl AsyncWrite,
    movement: &Movement,
) -> io::Result<()> {
    tokio::pin!(reader, writer);
    let mut buffer = Buffer::new();
    loop {
        let bytes = buffer.read(reader.as_mut()).await?;
        if bytes.is_empty() {
            break;
        }
        movement.note();
        writer.write_all(bytes).await?;
        writer.flush().await?;
        movement.note();
    }
    movement.end();
    writer.shutdown().await
}

/// A buffer that is small while nothing is said: most tunnels are silent at most times.
pub struct Buffer(Vec<u8>);

impl Buffer {
    pub fn new() -> Self {
        Self(vec![0; QUIET_BUFFER])
    }

    /// Reads what there is; nothing at the end.
    ///
    /// # Errors
    /// Those of the reader.
    pub async fn read(&mut self, mut reader: Pin<&mut impl AsyncRead>) -> io::Result<&[u8]> {
        let buffer = &mut self.0;
        let read = poll_fn(|cx| {
            loop {
                let mut filled = ReadBuf::new(buffer);
                match reader.as_mut().poll_read(cx, &mut filled) {
                    Poll::Ready(result) => {
                        return Poll::Ready(result.map(|()| filled.filled().len()));
                    }
                    Poll::Pending if buffer.len() > QUIET_BUFFER => {
                        *buffer = vec![0; QUIET_BUFFER];
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        let read = read.await?;
        if read == buffer.len() && read < BUSY_BUFFER {
            // More will come.
            buffer.resize(BUSY_BUFFER, 0);
        }
        Ok(buffer.get(..read).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, duplex};

    #[tokio::test]
    async fn bytes_and_ends_pass_both_ways() {
        let ((mut client, near), (far, mut server)) = (duplex(64), duplex(64));
        let sent: Vec<u8> = (0..300_000).map(|at| at as u8).collect();
        let talk = async {
            let write = async {
                client.write_all(b"question").await?;
                client.shutdown().await
            };
            write.await.expect("written");
            let mut question = String::new();
            server.read_to_string(&mut question).await.expect("read");
            assert_eq!(question, "question");
            // One side has ended, the other goes on.
            let (reader, writer) = (&mut client, &mut server);
            let mut answer = Vec::new();
            let write = async {
                writer.write_all(&sent).await?;
                writer.shutdown().await
            };
            let (written, read) = tokio::join!(write, reader.read_to_end(&mut answer));
            written.expect("written");
            read.expect("read");
            assert!(answer == sent);
        };
        tokio::join!(tunnel(near, far), talk);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_tunnels_are_closed() {
        let ((mut client, near), (far, _server)) = (duplex(64), duplex(64));
        let begun = Instant::now();
        client.write_all(b"x").await.expect("written");
        tunnel(near, far).await;
        assert_eq!(begun.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
        // A side that has ended is waited for less.
        let ((mut client, near), (far, _server)) = (duplex(64), duplex(64));
        client.shutdown().await.expect("an end");
        let begun = Instant::now();
        tunnel(near, far).await;
        assert_eq!(begun.elapsed().as_secs(), HALF_CLOSED_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_reads_nothing_is_no_movement() {
        let ((mut client, near), (far, _server)) = (duplex(64), duplex(64));
        let flood = async { while client.write_all(&[7; 64]).await.is_ok() {} };
        let begun = Instant::now();
        tokio::select! {
            () = flood => {}
            () = tunnel(near, far) => {}
        }
        assert!(begun.elapsed() >= IDLE_TIMEOUT);
    }
}
