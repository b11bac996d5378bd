//! Bodies of requests, within what all of them may take of memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::request_guard::RequestGuard;
use crate::endpoints::handlers::MAX_BODY_BYTES;

/// What the bodies of all requests that are read or worked on may take together, in bytes.
pub const MAX_ALL_BODIES: usize = 256 * 1024 * 1024;
/// The unit in which room is counted.
const UNIT: usize = 1024;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The part of it that is kept for those without whom the cluster stands still, so that nobody else
/// can hold all of it.
const ESSENTIAL_SHARE: usize = 4;

/// The room for the bodies of all requests.
#[derive(Clone, Debug)]
pub struct Room {
    shared: Arc<Semaphore>,
    essential: Arc<Semaphore>,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        let essential = bytes / ESSENTIAL_SHARE;
        let semaphore =
            |bytes: usize| Arc::new(Semaphore::new((bytes / UNIT).max(MAX_BODY_BYTES / UNIT)));
        Self {
            shared: semaphore(bytes - essential),
            essential: semaphore(essential),
        }
    }

    /// The body, for which there is room when it is first read: as much as it says that it takes,
    /// or the most that one may. Who has to wait for it waits within the time that the request has.
    /// All is taken at once, so nobody waits for others that wait.
    pub fn body<B>(&self, body: B, guard: Arc<RequestGuard>, essential: bool) -> BoundedBody<B> {
        let room = if essential {
            &self.essential
        } else {
            &self.shared
        };
        BoundedBody {
            body,
            room: room.clone(),
            guard,
            waiting: None,
            has_room: false,
        }
    }
}

/// A body that is read when there is room for it.
pub struct BoundedBody<B> {
    body: B,
    room: Arc<Semaphore>,
    guard: Arc<RequestGuard>,
    waiting: Option<BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>>,
    has_room: bool,
}

impl<B: HttpBody> BoundedBody<B> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.has_room || self.body.is_end_stream() {
            return Poll::Ready(Ok(()));
        }
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            None => {
                let bytes = self.body.size_hint().exact().map_or(MAX_BODY_BYTES, |len| {
                    usize::try_from(len).unwrap_or(MAX_BODY_BYTES)
                });
                let units =
                    u32::try_from(bytes.min(MAX_BODY_BYTES).div_ceil(UNIT)).unwrap_or(u32::MAX);
                self.waiting
                    .insert(self.room.clone().acquire_many_owned(units).boxed())
            }
        };
        let room = ready!(waiting.poll_unpin(cx))?;
        self.guard.hold_room(room);
        (self.has_room, self.waiting) = (true, None);
        Poll::Ready(Ok(()))
    }
}

impl<B> HttpBody for BoundedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Err(why) = ready!(self.poll_room(cx)) {
            return Poll::Ready(Some(Err(why)));
        }
        Pin::new(&mut self.body)
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map_err(Into::into)))
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
    use super::*;
    use crate::server::connections::Connections;
    use crate::server::limits::Limits;
    use http_body_util::{BodyExt, Full};

    #[tokio::test]
    async fn bodies_wait_for_room() {
        let (room, connections) = (
            Room::new(MAX_BODY_BYTES),
            Connections::new(Limits::of_descriptors(1024)),
        );
        let life = connections.admit().expect("room");
        let (first, second) = (RequestGuard::new(life.clone()), RequestGuard::new(life));
        let large = || Full::new(Bytes::from(vec![7; MAX_BODY_BYTES]));
        let read = room
            .body(large(), first.clone(), false)
            .collect()
            .await
            .expect("a body");
        assert_eq!(read.to_bytes().len(), MAX_BODY_BYTES);
        let mut waits = Box::pin(
            room.body(Full::new(Bytes::from_static(b"x")), second.clone(), false)
                .collect(),
        );
        assert!(futures::poll!(waits.as_mut()).is_pending());
        let empty = room
            .body(Full::new(Bytes::new()), second.clone(), false)
            .collect()
            .await
            .expect("no body needs no room");
        assert!(empty.to_bytes().is_empty());
        let essential = room
            .body(large(), second, true)
            .collect()
            .await
            .expect("room of its own");
        assert_eq!(essential.to_bytes().len(), MAX_BODY_BYTES);
        first.give_room_back();
        assert_eq!(waits.await.expect("a body").to_bytes(), "x");
    }
}
