//! Writes run to their end. Once its body has been read, a write is not cut off by a client that
//! hangs up or resets its stream, nor by the timeout of its request: what it has taken and what it
//! has written would not go together.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;

use super::answer;
use crate::endpoints::body::Body;
use crate::endpoints::negotiate::Output;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::{Api, Request, respond};
use crate::meta::Status;
use crate::telemetry::panics;

/// The subresources behind which are streams: they end with whoever uses them.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Whether a request may write.
pub fn is_write(info: &RequestInfo) -> bool {
    let writes = matches!(
        info.verb.as_str(),
        "create" | "update" | "patch" | "delete" | "deletecollection"
    );
    writes && !STREAMS.contains(&info.subresource.as_str())
}

/// Answers a request that writes, in a task of its own. Where whoever waits for the answer goes
/// away first, the task ends if it is still reading the body, and goes on if it is not.
pub async fn run<B>(api: &Api, request: Request, body: B) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (waiting, left) = oneshot::channel();
    let (api, body) = (
        api.clone(),
        Awaited {
            body: Box::pin(body),
            left: Some(left),
        },
    );
    let task = api
        .tasks
        .clone()
        .spawn(async move { panics::guard(answer(&api, &request, body)).await });
    let done = task.await;
    drop(waiting);
    match done {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => panics::resume(panic),
        Err(_) => respond::status(&Status::internal("the server is ending"), Output::default()),
    }
}

/// A body that is read only as long as somebody waits for the answer.
pub struct Awaited<B> {
    body: Pin<Box<B>>,
    /// Closed when nobody waits any more.
    left: Option<oneshot::Receiver<Infallible>>,
}

impl<B> Awaited<B> {
    /// A body that is read by whoever answers.
    pub fn here(body: B) -> Self {
        Self {
            body: Box::pin(body),
            left: None,
        }
    }
}

impl<B> HttpBody for Awaited<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self
            .left
            .as_mut()
            .is_some_and(|left| Pin::new(left).poll(cx).is_ready())
        {
            return Poll::Ready(Some(Err("nobody waits for the answer".into())));
        }
        self.body.as_mut().poll_frame(cx).map_err(Into::into)
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
    use std::future::poll_fn;

    use http_body_util::Empty;

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_no_longer_than_somebody_waits() {
        /// A body of which nothing comes.
        struct Silent;
        impl HttpBody for Silent {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                Poll::Pending
            }
        }
        let (waiting, left) = oneshot::channel();
        let mut body = Awaited {
            body: Box::pin(Silent),
            left: Some(left),
        };
        assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await);
        drop(waiting);
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(frame.is_some_and(|frame| frame.is_err()));
        assert!(
            poll_fn(|cx| Pin::new(&mut Awaited::here(Empty::<Bytes>::new())).poll_frame(cx))
                .await
                .is_none()
        );
    }
}
