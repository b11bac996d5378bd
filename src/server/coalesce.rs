//! Writes of one connection, gathered until its task has no more to say: a thousand small frames
//! become a few large TLS records and system calls.
//!
//! An HTTP/2 connection writes and flushes frame by frame, each of which would be a record and a
//! call of its own. Here a flush does nothing; [`Flush::serve`] flushes in earnest after each turn
//! of the connection's task. What fills records is encrypted where it lies, what is left over is
//! put together with what comes next: all records but the last of a turn are full.

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::tls::RECORD;

/// Encrypted bytes that wait to be sent, about: whole segments, of four records each.
const MAX_SEALED: usize = 8 * RECORD;

struct Inner<S> {
    stream: TlsStream<S>,
    /// What is not encrypted yet: less than a record.
    gathered: Vec<u8>,
    /// Bytes that were encrypted since the stream was last flushed.
    sealed: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    /// Takes in some of the slices; waits while there is no room.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.sealed >= MAX_SEALED {
            ready!(self.poll_send(cx))?;
        }
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let waiting = self.gathered.len() + len;
        if waiting < RECORD {
            if self.gathered.capacity() == 0 {
                self.gathered.reserve_exact(RECORD);
            }
            slices
                .iter()
                .for_each(|slice| self.gathered.extend_from_slice(slice));
            return Poll::Ready(Ok(len));
        }
        let filling = waiting - waiting % RECORD - self.gathered.len();
        let mut parts = Vec::with_capacity(1 + slices.len());
        parts.push(IoSlice::new(&self.gathered));
        let mut left = filling;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            parts.push(IoSlice::new(part));
            left -= part.len();
        }
        self.sealed += self.stream.get_mut().1.writer().write_vectored(&parts)?;
        self.gathered.clear();
        Poll::Ready(Ok(filling))
    }

    fn seal_gathered(&mut self) -> io::Result<()> {
        self.stream.get_mut().1.writer().write_all(&self.gathered)?;
        self.sealed += self.gathered.len();
        self.gathered.clear();
        Ok(())
    }

    /// Hands what is encrypted to the socket.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.sealed = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() {
            self.seal_gathered()?;
            // An idle connection holds no memory.
            self.gathered = Vec::new();
        }
        self.poll_send(cx)
    }
}

/// A stream whose writes are gathered.
pub struct Coalesced<S>(Arc<Mutex<Inner<S>>>);

/// Flushes what a [`Coalesced`] gathered.
pub struct Flush<S>(Arc<Mutex<Inner<S>>>);

/// Both halves for a stream.
pub fn coalesce<S>(mut stream: TlsStream<S>) -> (Coalesced<S>, Flush<S>) {
    // The limit is here.
    stream.get_mut().1.set_buffer_limit(None);
    let inner = Arc::new(Mutex::new(Inner {
        stream,
        gathered: Vec::new(),
        sealed: 0,
    }));
    (Coalesced(inner.clone()), Flush(inner))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Flush<S> {
    /// Runs what serves the connection, and flushes whenever it has done what there was to do.
    /// Before each turn it lets the tasks go first that are ready to run: what they have for this
    /// connection is then sent with it, and not each for itself.
    pub async fn serve<F: Future>(self, serving: F) -> F::Output {
        let mut serving = pin!(serving);
        let mut waited = false;
        poll_fn(|cx| {
            waited = !waited;
            if waited {
                // A task that wakes itself runs after those that wait.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let outcome = serving.as_mut().poll(cx);
            // A broken stream shows at the next read or write, to whoever serves.
            let _ = self.0.lock().poll_flush(cx);
            outcome
        })
        .await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_take(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_take(cx, slices)
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
    use tokio_rustls::{TlsAcceptor, TlsConnector, client};

    /// Both ends of a TLS connection over a pipe that holds so many bytes.
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
        let (mut stream, flush) = coalesce(near);
        let serving = flush.serve(async move {
            for number in 0..50_000_u32 {
                stream.write_all(&number.to_be_bytes()).await.expect("room");
                stream.flush().await.expect("nothing to do");
            }
            let large = vec![7; 3 * MAX_SEALED];
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
        want.extend(vec![7; 3 * MAX_SEALED]);
        want.push(8);
        assert_eq!(all.len(), want.len());
        assert!(all == want);
    }

    #[tokio::test]
    async fn what_is_written_before_waiting_is_sent() {
        let (near, mut far) = pair(100).await;
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
            far.flush().await.expect("room");
            asked
        };
        assert_eq!(tokio::join!(serving, answering), (*b"pong", *b"ping"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_not_written_for() {
        let (near, _far) = pair(1000).await;
        let (mut stream, flush) = coalesce(near);
        let serving = flush.serve(async move {
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
            (MAX_SEALED..=MAX_SEALED + RECORD).contains(&taken),
            "{taken}"
        );
    }
}
