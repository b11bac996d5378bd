//! The body of a response: whole, empty, or a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// Every response's body. An I/O error ends the connection (HTTP/1.1) or the stream (HTTP/2).
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Full(Full<Bytes>),
    Stream(UnsyncBoxBody<Bytes, io::Error>),
}

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Body(Kind::Full(Full::new(bytes.into())))
}

/// No body at all.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// A body that is made while it is sent.
pub fn stream(body: impl HttpBody<Data = Bytes, Error = io::Error> + Send + 'static) -> Body {
    Body(Kind::Stream(body.boxed_unsync()))
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.0 {
            Kind::Full(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Kind::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(body) => body.is_end_stream(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(body) => body.size_hint(),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}
