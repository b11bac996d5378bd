//! The body of a response while it is sent, with the resources that its request holds until then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::deadline;
use super::filters::{self, RequestLog};
use super::request_guard::RequestGuard;
use crate::audit::Audit;
use crate::endpoints::body::Body;
use crate::telemetry::requests::{LongRunning, RequestSeries};
use crate::telemetry::trace::Span;

/// The bytes of a whole body that are handed to the connection at once: the rest waits here,
/// where it has a deadline.
pub const SLICE: usize = 64 * 1024;

/// The state of an answer until it has been sent.
#[derive(Debug)]
pub struct ResponseState {
    _guard: Arc<RequestGuard>,
    /// The time at which the client must have read it all.
    pub deadline: Option<Instant>,
    /// The longest that the client of a watch or stream may leave data unread.
    pub stall: Option<Duration>,
    /// The series that it is counted in, unless it is a watch or stream.
    pub series: Option<Arc<RequestSeries>>,
    /// One of the watches and streams that are open.
    pub long_running: Option<LongRunning>,
    /// The event of a watch or stream, to be told that it is complete.
    pub audit: Option<Arc<Audit>>,
    /// The line to write when it is over.
    pub log: Option<Box<RequestLog>>,
    /// The span, which ends when it has been sent.
    pub span: Option<Box<Span>>,
    pending: Bytes,
    sent: u64,
    ended: bool,
}

impl ResponseState {
    pub fn new(guard: Arc<RequestGuard>) -> Self {
        Self {
            _guard: guard,
            deadline: None,
            stall: None,
            series: None,
            long_running: None,
            log: None,
            span: None,
            audit: None,
            pending: Bytes::new(),
            sent: 0,
            ended: false,
        }
    }
}

impl Drop for ResponseState {
    fn drop(&mut self) {
        deadline::set_deadline(None);
        if let Some(audit) = &self.audit {
            audit.complete_in_background();
        }
        if let Some(series) = &self.series {
            if self.ended {
                series.sized(self.sent);
            } else if self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
            {
                series.aborted();
            }
        }
    }
}

/// The body of a response, and the guard of the request until it has been sent.
pub struct ResponseBody {
    body: Body,
    // Apart: there are many watches.
    state: Box<ResponseState>,
}

impl ResponseBody {
    /// Begins to send; the client has until the deadline.
    pub fn new(body: Body, state: ResponseState) -> Self {
        deadline::set_deadline(state.deadline);
        Self {
            body,
            state: Box::new(state),
        }
    }

    /// An answer for which nothing is state but a part of the connection.
    pub fn plain(body: Body, guard: Arc<RequestGuard>) -> Self {
        Self::new(body, ResponseState::new(guard))
    }

    /// Waits for the client of a watch or stream to take what comes next.
    fn restart_stall_timer(&self) {
        if let Some(stall) = self.state.stall {
            deadline::set_timeout(stall);
        }
    }

    fn slice(&mut self) -> Bytes {
        let slice = self
            .state
            .pending
            .split_to(SLICE.min(self.state.pending.len()));
        self.state.sent += slice.len() as u64;
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
        if !self.state.pending.is_empty() {
            self.restart_stall_timer();
            return Poll::Ready(Some(Ok(Frame::data(self.slice()))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.restart_stall_timer();
                Poll::Ready(Some(Ok(match frame.into_data() {
                    Ok(data) if data.len() > SLICE => {
                        self.state.pending = data;
                        Frame::data(self.slice())
                    }
                    Ok(data) => {
                        self.state.sent += data.len() as u64;
                        Frame::data(data)
                    }
                    Err(other) => other,
                })))
            }
            // It has taken all that there was.
            Poll::Pending if self.state.stall.is_some() => {
                deadline::set_deadline(None);
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.state.ended = true;
                Poll::Ready(None)
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state.pending.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, pending) = (self.body.size_hint(), self.state.pending.len() as u64);
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
        // A body that reports its end is not polled for it.
        self.state.ended |= self.is_end_stream();
        if let Some(log) = self.state.log.take() {
            log.write(self.state.sent);
        }
        if let Some(span) = self.state.span.take() {
            filters::end_span(&span, self.state.sent);
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
        .expect("an open connection")
    }

    #[tokio::test]
    async fn response_body_is_sliced() {
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
}
