//! The body of a response: whole, empty, or a stream.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// Every response's body. An I/O error ends the connection (HTTP/1.1) or the stream (HTTP/2).
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// No body at all.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
