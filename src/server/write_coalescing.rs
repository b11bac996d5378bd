//! Write coalescing: what the task of an HTTP/2 connection writes in one turn leaves in full TLS
//! records and few system calls.
//!
//! hyper writes and flushes frame by frame. Each event of a watch would be a record and a system
//! call of its own, and each frame of a list two records, since it is a little larger than one.
//! Here a flush does nothing; [`TurnFlusher::run`] flushes after each turn of the connection's
//! task. Frames that fill records are encrypted where they lie. The rest waits for the next frame.

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::tls::RECORD;

/// The encrypted bytes that a connection buffers, about: two of the kernel's largest segments, of
/// four records each.
const MAX_ENCRYPTED: usize = 8 * RECORD;

struct Inner<S> {
    stream: TlsStream<S>,
    /// Bytes that are not encrypted yet: less than a record.
    partial: Vec<u8>,
    /// The number of bytes that were encrypted since the stream was last flushed.
    encrypted: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    /// Takes in some of the slices; pending while the buffer is full and the client does not read.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.encrypted >= MAX_ENCRYPTED {
            ready!(self.poll_send(cx))?;
        }
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let available = self.partial.len() + len;
        if available < RECORD {
            if self.partial.capacity() == 0 {
                self.partial.reserve_exact(RECORD);
            }
            for slice in slices {
                self.partial.extend_from_slice(slice);
            }
            return Poll::Ready(Ok(len));
        }
        let taken = available - available % RECORD - self.partial.len();
        let mut parts = Vec::with_capacity(1 + slices.len());
        parts.push(IoSlice::new(&self.partial));
        let mut left = taken;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            parts.push(IoSlice::new(part));
            left -= part.len();
        }
        self.encrypted += self.stream.get_mut().1.writer().write_vectored(&parts)?;
        self.partial.clear();
        Poll::Ready(Ok(taken))
    }

    /// Hands what is encrypted to the socket.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.encrypted = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.partial.is_empty() {
            // An idle connection holds no memory.
            let partial = std::mem::take(&mut self.partial);
            self.stream.get_mut().1.writer().write_all(&partial)?;
            self.encrypted += partial.len();
        }
        self.poll_send(cx)
    }
}

/// A TLS stream whose writes are sent by its [`TurnFlusher`].
pub struct CoalescedStream<S>(Arc<Mutex<Inner<S>>>);

/// Sends what was written to a [`CoalescedStream`].
pub struct TurnFlusher<S>(Arc<Mutex<Inner<S>>>);

/// Returns both halves for a stream.
pub fn coalesce<S>(mut stream: TlsStream<S>) -> (CoalescedStream<S>, TurnFlusher<S>) {
    // The limit is `MAX_ENCRYPTED`.
    stream.get_mut().1.set_buffer_limit(None);
    let inner = Arc::new(Mutex::new(Inner {
        stream,
        partial: Vec::new(),
        encrypted: 0,
    }));
    (CoalescedStream(inner.clone()), TurnFlusher(inner))
}

impl<S: AsyncRead + AsyncWrite + Unpin> TurnFlusher<S> {
    /// Runs what serves the connection, and flushes after each of its turns. Before a turn, the
    /// tasks that are ready go first: the frames that they have for this connection go with it, and
    /// the connection is not woken for each of them.
    pub async fn run<F: Future>(self, serving: F) -> F::Output {
        let mut serving = pin!(serving);
        let mut has_yielded = false;
        poll_fn(|cx| {
            has_yielded = !has_yielded;
            if has_yielded {
                // A task that wakes itself runs after those that are ready.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let outcome = serving.as_mut().poll(cx);
            // A broken stream shows at the next read or write of what serves the connection.
            let _ = self.0.lock().poll_flush(cx);
            outcome
        })
        .await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CoalescedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, slices)
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
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::{Barrier, mpsc};
    use tokio_rustls::{TlsAcceptor, TlsConnector, client};

    /// Both ends of a TLS connection over a pipe that holds `room` bytes.
    async fn pair(room: usize) -> (TlsStream<DuplexStream>, client::TlsStream<DuplexStream>) {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (cert, key) = (
            made.cert.der().clone(),
            made.signing_key.serialize_der().try_into().expect("a key"),
        );
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let mut server = server
            .with_no_client_auth()
            .with_single_cert(vec![cert.clone()], key)
            .expect("a configuration");
        // Nobody would read them.
        server.send_tls13_tickets = 0;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert).expect("a root");
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions");
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let (near, far) = tokio::io::duplex(room);
        let name = "localhost".try_into().expect("a name");
        let (server, client) = tokio::join!(
            TlsAcceptor::from(Arc::new(server)).accept(near),
            TlsConnector::from(Arc::new(client)).connect(name, far)
        );
        (server.expect("a handshake"), client.expect("a handshake"))
    }

    #[tokio::test]
    async fn writes_arrive_after_the_turn_and_in_order() {
        let (near, mut far) = pair(10_000).await;
        let (mut stream, flusher) = coalesce(near);
        let serving = flusher.run(async move {
            for number in 0..50_000_u32 {
                stream.write_all(&number.to_be_bytes()).await.expect("room");
                stream.flush().await.expect("nothing to do");
            }
            let large = vec![7; 3 * MAX_ENCRYPTED];
            let mut sent = 0;
            while sent < large.len() {
                let parts = [
                    IoSlice::new(&[]),
                    IoSlice::new(&large[sent..]),
                    IoSlice::new(&[]),
                ];
                sent += stream.write_vectored(&parts).await.expect("room");
            }
            stream.write_all(&[8]).await.expect("room");
            stream.shutdown().await.expect("an end");
        });
        let reading = async {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.expect("everything");
            all
        };
        let ((), all) = tokio::join!(serving, reading);
        let mut want: Vec<u8> = (0..50_000_u32).flat_map(u32::to_be_bytes).collect();
        want.extend(vec![7; 3 * MAX_ENCRYPTED]);
        want.push(8);
        assert_eq!(all.len(), want.len());
        assert!(all == want);
    }

    #[tokio::test]
    async fn frames_of_one_turn_share_records() {
        let (near, mut far) = pair(1 << 20).await;
        let (mut stream, flusher) = coalesce(near);
        let serving = flusher.run(async move {
            for _ in 0..1000 {
                stream.write_all(&[0; 100]).await.expect("room");
                stream.flush().await.expect("nothing to do");
            }
        });
        serving.await;
        let mut bytes = Vec::new();
        let raw = far.get_mut().0;
        raw.read_to_end(&mut bytes).await.expect("everything");
        let (mut rest, mut records) = (&bytes[..], 0);
        while let [_, _, _, high, low, after @ ..] = rest {
            rest = &after[usize::from(u16::from_be_bytes([*high, *low]))..];
            records += 1;
        }
        assert_eq!(records, (1000_usize * 100).div_ceil(RECORD));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn tasks_that_are_ready_run_before_the_turn() {
        const TASKS: usize = 20;
        let (near, _far) = pair(1000).await;
        let (_stream, flusher) = coalesce(near);
        let (frames, mut queue) = mpsc::unbounded_channel();
        let begin = Arc::new(Barrier::new(TASKS + 1));
        for _ in 0..TASKS {
            let (frames, begin) = (frames.clone(), begin.clone());
            tokio::spawn(async move {
                begin.wait().await;
                frames.send(()).expect("it is served");
            });
        }
        let (mut taken, mut turns) = (0, 0);
        let serving = tokio::spawn(flusher.run(poll_fn(move |cx| {
            turns += 1;
            while let Poll::Ready(Some(())) = queue.poll_recv(cx) {
                taken += 1;
            }
            if taken < TASKS {
                return Poll::Pending;
            }
            Poll::Ready(turns)
        })));
        // On the worker, whose tasks all become ready at once.
        tokio::spawn(async move { begin.wait().await });
        let turns = serving.await.expect("a result");
        assert!(turns <= 2, "one at first, one for all frames: {turns}");
    }

    #[tokio::test]
    async fn writes_are_sent_when_the_task_waits() {
        let (near, mut far) = pair(100).await;
        let (mut stream, flusher) = coalesce(near);
        let serving = flusher.run(async move {
            stream.write_all(b"ping").await.expect("room");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.expect("an answer");
            answer
        });
        let answering = async {
            let mut asked = [0; 4];
            far.read_exact(&mut asked).await.expect("a question");
            far.write_all(b"pong").await.expect("room");
            far.flush().await.expect("room");
            asked
        };
        assert_eq!(tokio::join!(serving, answering), (*b"pong", *b"ping"));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_wait_for_a_client_that_does_not_read() {
        let (near, _far) = pair(1000).await;
        let (mut stream, flusher) = coalesce(near);
        let serving = flusher.run(async move {
            let mut taken = 0;
            while let Ok(more) =
                tokio::time::timeout(Duration::from_secs(1), stream.write(&[0; 1000])).await
            {
                taken += more.expect("an open pipe");
            }
            taken
        });
        let taken = serving.await;
        assert!(
            (MAX_ENCRYPTED..=MAX_ENCRYPTED + RECORD).contains(&taken),
            "{taken}"
        );
    }
}
