//! Writes of one connection, gathered until its task has no more to say: a thousand small frames become a few large TLS records
//! and system calls.
//!
//! An HTTP/2 connection writes and flushes frame by frame, each of which would be a record and a call of its own. Here a flush
//! does nothing; [`Flush::serve`] flushes in earnest after each turn of the connection's task.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are gathered, at most; what is larger is not gathered at all.
const MAX_GATHERED: usize = 64 * 1024;

struct Inner<S> {
    stream: S,
    gathered: BytesMut,
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Hands what is gathered to the stream.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.gathered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.advance(written);
        }
        // An idle connection holds no memory.
        self.gathered = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Takes in some of `bytes`; waits while there is no room.
    fn poll_gather(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.gathered.len() >= MAX_GATHERED {
            ready!(self.poll_drain(cx))?;
        }
        if self.gathered.is_empty() && bytes.len() >= MAX_GATHERED {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        }
        let taken = bytes.len().min(MAX_GATHERED - self.gathered.len());
        self.gathered.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }
}

/// A stream whose writes are gathered.
pub struct Coalesced<S>(Arc<Mutex<Inner<S>>>);

/// Flushes what a [`Coalesced`] gathered.
pub struct Flush<S>(Arc<Mutex<Inner<S>>>);

/// Both halves for a stream.
pub fn coalesce<S>(stream: S) -> (Coalesced<S>, Flush<S>) {
    let inner = Arc::new(Mutex::new(Inner { stream, gathered: BytesMut::new() }));
    (Coalesced(inner.clone()), Flush(inner))
}

impl<S: AsyncWrite + Unpin> Flush<S> {
    /// Runs what serves the connection, and flushes whenever it has done what there was to do.
    pub async fn serve<F: Future>(self, serving: F) -> F::Output {
        let mut serving = pin!(serving);
        poll_fn(|cx| {
            let outcome = serving.as_mut().poll(cx);
            // A broken stream shows at the next read or write, to whoever serves.
            let _ = self.0.lock().poll_flush(cx);
            outcome
        })
        .await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_gather(cx, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        let mut taken = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match inner.poll_gather(cx, slice) {
                Poll::Ready(Ok(count)) => {
                    taken += count;
                    if count < slice.len() {
                        break;
                    }
                }
                other if taken == 0 => return other,
                // The next call meets it again.
                _ => break,
            }
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_flush(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn writes_arrive_after_the_turn_and_in_order() {
        let (near, mut far) = tokio::io::duplex(10_000);
        let (mut stream, flush) = coalesce(near);
        let serving = flush.serve(async move {
            for number in 0..50_000_u32 {
                stream.write_all(&number.to_be_bytes()).await.expect("room");
                stream.flush().await.expect("nothing to do");
            }
            let large = vec![7; 3 * MAX_GATHERED];
            let parts = [io::IoSlice::new(&[]), io::IoSlice::new(&large[..1])];
            assert_eq!(stream.write_vectored(&parts).await.expect("room"), 1);
            stream.write_all(&large[1..]).await.expect("room");
            stream.shutdown().await.expect("an end");
        });
        let reading = async {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.expect("everything");
            all
        };
        let ((), all) = tokio::join!(serving, reading);
        let mut want: Vec<u8> = (0..50_000_u32).flat_map(u32::to_be_bytes).collect();
        want.extend(vec![7; 3 * MAX_GATHERED]);
        assert_eq!(all.len(), want.len());
        assert!(all == want);
    }

    #[tokio::test]
    async fn what_is_written_before_waiting_is_sent() {
        let (near, mut far) = tokio::io::duplex(100);
        let (mut stream, flush) = coalesce(near);
        let serving = flush.serve(async move {
            stream.write_all(b"ping").await.expect("room");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.expect("an answer");
            answer
        });
        let answering = async {
            let mut asked = [0; 4];
            far.read_exact(&mut asked).await.expect("a question");
            far.write_all(b"pong").await.expect("room");
            asked
        };
        assert_eq!(tokio::join!(serving, answering), (*b"pong", *b"ping"));
    }
}
