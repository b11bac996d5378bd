//! What a request holds of the server while it is being answered: its place among the requests in
//! flight, room for its body, and its part of the connection; and the body of its answer, with
//! which it gives them back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::connections::Life;
use super::deadline;
use super::filters::{Counted, Permit, RequestLog};
use crate::endpoints::body::Body;
use crate::telemetry::metrics::GaugeGuard;
use crate::telemetry::requests;

/// What is handed to the connection at once of a body that is whole: the rest waits here, where it
/// has a deadline.
pub const SLICE: usize = 64 * 1024;

/// What a request holds. Whoever works on a request keeps it, also after its client has gone.
#[derive(Debug)]
pub struct RequestGuard {
    connection: Arc<Life>,
    permit: Mutex<Option<Permit>>,
    room: Mutex<Option<OwnedSemaphorePermit>>,
}

impl RequestGuard {
    pub fn new(connection: Arc<Life>) -> Arc<Self> {
        connection.request_began();
        Arc::new(Self {
            connection,
            permit: Mutex::default(),
            room: Mutex::default(),
        })
    }

    /// Keeps a place among the requests in flight.
    pub fn hold(&self, permit: Permit) {
        *self.permit.lock() = Some(permit);
    }

    /// Gives the place back before the answer has been read, if nobody works on the request any
    /// more. A client may take its time to read even a refusal; what it holds meanwhile is a short
    /// answer and no more.
    pub fn give_place_back(self: &Arc<Self>) {
        if Arc::strong_count(self) == 1 {
            *self.permit.lock() = None;
        }
    }

    /// Keeps room for the body of the request.
    pub fn hold_room(&self, room: OwnedSemaphorePermit) {
        *self.room.lock() = Some(room);
    }

    /// Gives the room of the body back, if nobody works on the request any more.
    pub fn give_room_back(self: &Arc<Self>) {
        if Arc::strong_count(self) == 1 {
            *self.room.lock() = None;
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.connection.request_ended();
    }
}

/// What goes with an answer until it has been sent.
#[derive(Debug)]
pub struct Held {
    _guard: Arc<RequestGuard>,
    /// When the client must have read it all.
    pub deadline: Option<Instant>,
    /// How long the client of a watch or stream may take nothing of what there is for it.
    pub stall: Option<Duration>,
    /// What it is counted as, unless it is a watch or stream.
    pub counted: Option<Box<Counted>>,
    /// One of the watches and streams that are open.
    pub long_running: Option<GaugeGuard>,
    /// The line to write when it is over.
    pub log: Option<Box<RequestLog>>,
    pending: Bytes,
    sent: u64,
    ended: bool,
}

impl Held {
    pub fn new(guard: Arc<RequestGuard>) -> Self {
        Self {
            _guard: guard,
            deadline: None,
            stall: None,
            counted: None,
            long_running: None,
            log: None,
            pending: Bytes::new(),
            sent: 0,
            ended: false,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        deadline::set(None);
        if let Some(counted) = &self.counted {
            if self.ended {
                requests::sized(&counted.labels(), self.sent);
            } else if self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
            {
                requests::aborted(&counted.labels());
            }
        }
    }
}

/// The body of an answer, and what the request holds until it has been sent.
pub struct ResponseBody {
    body: Body,
    // Apart: there are many watches.
    held: Box<Held>,
}

impl ResponseBody {
    /// Begins to send; the client has until the deadline.
    pub fn new(body: Body, held: Held) -> Self {
        deadline::set(held.deadline);
        Self {
            body,
            held: Box::new(held),
        }
    }

    /// An answer for which nothing is held but a part of the connection.
    #[cfg(test)]
    pub fn plain(body: Body, guard: Arc<RequestGuard>) -> Self {
        Self::new(body, Held::new(guard))
    }

    /// Waits for the client of a watch or stream to take what comes next.
    fn offers(&self) {
        if let Some(stall) = self.held.stall {
            deadline::set_within(stall);
        }
    }

    fn slice(&mut self) -> Bytes {
        let slice = self
            .held
            .pending
            .split_to(SLICE.min(self.held.pending.len()));
        self.held.sent += slice.len() as u64;
        slice
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if !self.held.pending.is_empty() {
            self.offers();
            return Poll::Ready(Some(Ok(Frame::data(self.slice()))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.offers();
                Poll::Ready(Some(Ok(match frame.into_data() {
                    Ok(data) if data.len() > SLICE => {
                        self.held.pending = data;
                        Frame::data(self.slice())
                    }
                    Ok(data) => {
                        self.held.sent += data.len() as u64;
                        Frame::data(data)
                    }
                    Err(other) => other,
                })))
            }
            // It has taken all that there was.
            Poll::Pending if self.held.stall.is_some() => {
                deadline::set(None);
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.held.ended = true;
                Poll::Ready(None)
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.pending.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, pending) = (self.body.size_hint(), self.held.pending.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + pending);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + pending);
        }
        hint
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Of a body that says itself that it ends, the end is not asked for.
        self.held.ended |= self.is_end_stream();
        if let Some(log) = self.held.log.take() {
            log.write(self.held.sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::body;
    use crate::server::connections::Connections;
    use crate::server::limits::Limits;
    use http_body_util::BodyExt;

    fn guard() -> Arc<RequestGuard> {
        RequestGuard::new(
            Connections::new(Limits::of_descriptors(1024))
                .admit()
                .expect("room"),
        )
    }

    #[tokio::test]
    async fn a_large_body_is_handed_on_bit_by_bit() {
        let bytes: Vec<u8> = (0..3 * SLICE + 7).map(|at| at as u8).collect();
        let mut body = ResponseBody::plain(body::full(bytes.clone()), guard());
        let (mut sent, mut frames) = (Vec::new(), 0);
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        while !body.is_end_stream() {
            let frame = body
                .frame()
                .await
                .expect("more")
                .expect("bytes")
                .into_data()
                .expect("data");
            assert!(frame.len() <= SLICE);
            sent.extend_from_slice(&frame);
            frames += 1;
            assert_eq!(
                body.size_hint().exact(),
                Some((bytes.len() - sent.len()) as u64)
            );
        }
        assert_eq!((sent == bytes, frames), (true, 4));
    }

    #[tokio::test]
    async fn room_is_kept_while_somebody_works_on_the_request() {
        let (room, guard) = (Arc::new(tokio::sync::Semaphore::new(1)), guard());
        guard.hold_room(room.clone().try_acquire_owned().expect("room"));
        let worker = guard.clone();
        guard.give_room_back();
        assert_eq!(room.available_permits(), 0);
        drop(worker);
        guard.give_room_back();
        assert_eq!(room.available_permits(), 1);
    }
}
