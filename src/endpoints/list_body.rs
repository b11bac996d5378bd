//! The body of a list, rendered as the client takes it: nothing the size of the list is ever in
//! memory.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::codec::json::Indenter;
use crate::meta::status::Result;
use crate::storage::Stored;

use super::body::{self, Body};

/// Bytes rendered and handed on at once, about: what one slow reader costs.
const CHUNK: usize = 64 * 1024;

/// What a list has besides its items.
pub struct Outline {
    pub head: Vec<u8>,
    /// Stands between items.
    pub separator: &'static [u8],
    pub tail: Vec<u8>,
    /// What is rendered is compact JSON, and is indented before it is sent.
    pub indented: bool,
}

/// A list. The first chunk is rendered at once: what fails in it fails
/// the request, what fails later cuts the answer off.
pub fn stream<I, R>(outline: Outline, items: I, render: R) -> Result<Body>
where
    I: Iterator<Item = Result<Arc<Stored>>> + Send + 'static,
    R: FnMut(&Arc<Stored>, &mut Vec<u8>) -> Result<()> + Send + 'static,
{
    let Outline {
        head,
        separator,
        tail,
        indented,
    } = outline;
    let indenter = indented.then(Indenter::default);
    let mut rest = Rest {
        items,
        separator,
        tail,
        render,
        indenter,
        first: true,
        done: false,
    };
    let mut first = head;
    first.reserve(CHUNK.min(first.len() + 4096));
    rest.chunk(&mut first)?;
    if rest.done {
        return Ok(body::full(first));
    }
    let later = stream::unfold(rest, |mut rest| async move {
        if rest.done {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        let rendered = rest.chunk(&mut chunk).map_err(|status| {
            rest.done = true;
            std::io::Error::other(status.message)
        });
        Some((rendered.map(|()| chunk), rest))
    });
    let chunks = stream::iter([Ok(first)]).chain(later);
    let frames = chunks.map(|chunk| chunk.map(|chunk| Frame::data(Bytes::from(chunk))));
    Ok(StreamBody::new(frames).boxed_unsync())
}

/// What has not been rendered yet.
struct Rest<I, R> {
    items: I,
    separator: &'static [u8],
    tail: Vec<u8>,
    render: R,
    indenter: Option<Indenter>,
    first: bool,
    done: bool,
}

impl<I, R> Rest<I, R>
where
    I: Iterator<Item = Result<Arc<Stored>>>,
    R: FnMut(&Arc<Stored>, &mut Vec<u8>) -> Result<()>,
{
    /// Renders some more items into `out`, which is sent as a whole.
    fn chunk(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.render(out)?;
        if let Some(indenter) = &mut self.indenter {
            let compact = std::mem::take(out);
            indenter.indent(&compact, out);
        }
        Ok(())
    }

    fn render(&mut self, out: &mut Vec<u8>) -> Result<()> {
        while out.len() < CHUNK {
            let Some(stored) = self.items.next() else {
                out.append(&mut self.tail);
                self.done = true;
                return Ok(());
            };
            if !std::mem::take(&mut self.first) {
                out.extend_from_slice(self.separator);
            }
            (self.render)(&stored?, out)?;
        }
        Ok(())
    }
}
