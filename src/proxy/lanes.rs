//! Clients of a server, each with an HTTP/2 connection of its own: as many as its streams need.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use super::inbound::ResponseBody;

/// The clients. The first has what it can take, the next one the rest.
pub struct Lanes<C> {
    /// The highest number of streams of a client.
    streams: usize,
    make: Box<dyn Fn() -> C + Send + Sync>,
    lanes: Mutex<Vec<Lane<C>>>,
}

struct Lane<C> {
    client: C,
    /// Shared with each of the client's streams.
    seats: Arc<()>,
}

impl<C> Lane<C> {
    fn streams(&self) -> usize {
        Arc::strong_count(&self.seats) - 1
    }
}

/// A stream's place in the count of its client's streams.
pub struct Seat(Arc<()>);

impl<C: Clone> Lanes<C> {
    pub fn new(streams: usize, make: impl Fn() -> C + Send + Sync + 'static) -> Self {
        Self {
            streams,
            make: Box::new(make),
            lanes: Mutex::default(),
        }
    }

    /// Returns a client that can take one more stream. Clients that have none are dropped where the
    /// ones before them have room.
    pub fn take(&self) -> (C, Seat) {
        let mut lanes = self.lanes.lock();
        let free = lanes.iter().position(|lane| lane.streams() < self.streams);
        let at = free.unwrap_or(lanes.len());
        if free.is_none() {
            let (client, seats) = ((self.make)(), Arc::default());
            lanes.push(Lane { client, seats });
        }
        while lanes.len() > at + 1 && lanes.last().is_some_and(|lane| lane.streams() == 0) {
            lanes.pop();
        }
        let lane = &lanes[at];
        (lane.client.clone(), Seat(lane.seats.clone()))
    }
}

impl Seat {
    /// Returns a body that has the place until its end.
    pub fn hold(self, body: Incoming) -> ResponseBody {
        let held = Held {
            body,
            seat: Some(self),
        };
        held.boxed_unsync()
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({})", Arc::strong_count(&self.0))
    }
}

/// A body with its place.
struct Held {
    body: Incoming,
    seat: Option<Seat>,
}

impl Body for Held {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.seat = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn clients_are_made_as_streams_need_them() {
        let made = AtomicUsize::new(0);
        let lanes = Lanes::new(2, move || made.fetch_add(1, Ordering::Relaxed));
        let (mut clients, mut seats): (Vec<_>, Vec<_>) = (0..5).map(|_| lanes.take()).unzip();
        assert_eq!(clients, [0, 0, 1, 1, 2]);
        // The first client has room again: those without streams go.
        drop(seats.drain(1..));
        clients.push(lanes.take().0);
        assert_eq!((clients.pop(), lanes.lanes.lock().len()), (Some(0), 1));
    }
}
