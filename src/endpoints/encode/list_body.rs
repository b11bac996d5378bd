//! A list body that is encoded while the client reads it, so that memory does not grow with the
//! list.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body::Frame;
use http_body_util::StreamBody;

use crate::cacher::CachedObject;
use crate::codec::json::Indenter;
use crate::endpoints::body::{self, Body};
use crate::meta::status::Result;
use crate::registry::store::Items;

/// Bytes encoded and handed on at once, about: what one slow reader costs.
const CHUNK: usize = 64 * 1024;
/// The least room for the first chunk: most lists are short.
const FIRST_CHUNK: usize = 4096;

/// The parts of a list besides its items.
pub struct ListFraming {
    pub head: Vec<u8>,
    /// Stands between items.
    pub separator: &'static [u8],
    pub tail: Vec<u8>,
    /// The list is compact JSON, to be indented before it is sent.
    pub is_indented: bool,
}

/// A list of these items, each of which `encode` appends.
///
/// # Errors
/// The first chunk, which is encoded at once, cannot be encoded. An error in a later chunk cuts the
/// body off.
pub async fn stream<E>(framing: ListFraming, items: Items, encode: E) -> Result<Body>
where
    E: FnMut(&Arc<CachedObject>, &mut Vec<u8>) -> Result<()> + Send + 'static,
{
    let ListFraming {
        head,
        separator,
        tail,
        is_indented,
    } = framing;
    let mut rest = ListStream {
        items,
        separator,
        tail,
        encode,
        indenter: is_indented.then(Indenter::default),
        is_first: true,
        is_done: false,
    };
    let mut first = head;
    first.reserve(FIRST_CHUNK);
    rest.next_chunk(&mut first).await?;
    if rest.is_done {
        return Ok(body::full(first));
    }
    let later = stream::unfold(rest, |mut rest| async move {
        if rest.is_done {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        let encoded = rest.next_chunk(&mut chunk).await.map_err(|status| {
            rest.is_done = true;
            std::io::Error::other(status.message)
        });
        Some((encoded.map(|()| chunk), rest))
    });
    let chunks = stream::iter([Ok(first)]).chain(later);
    let frames = chunks.map(|chunk| chunk.map(|chunk| Frame::data(Bytes::from(chunk))));
    Ok(body::stream(StreamBody::new(frames)))
}

/// The part of a list that has not been encoded yet.
struct ListStream<E> {
    items: Items,
    separator: &'static [u8],
    tail: Vec<u8>,
    encode: E,
    indenter: Option<Indenter>,
    is_first: bool,
    is_done: bool,
}

impl<E> ListStream<E>
where
    E: FnMut(&Arc<CachedObject>, &mut Vec<u8>) -> Result<()>,
{
    /// Encodes some more items into `out`, which is sent as a whole.
    async fn next_chunk(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.encode_items(out).await?;
        if let Some(indenter) = &mut self.indenter {
            let compact = std::mem::take(out);
            indenter.indent(&compact, out);
        }
        Ok(())
    }

    async fn encode_items(&mut self, out: &mut Vec<u8>) -> Result<()> {
        while out.len() < CHUNK {
            let Some(stored) = self.items.next_item().await else {
                out.append(&mut self.tail);
                self.is_done = true;
                return Ok(());
            };
            let begun = out.len();
            if !self.is_first {
                out.extend_from_slice(self.separator);
            }
            (self.encode)(&stored?, out)?;
            if std::mem::take(&mut self.is_first) {
                // The others are about as long as the first one.
                let rest = (out.len() - begun).saturating_mul(self.items.ready());
                out.reserve(rest.min(CHUNK + CHUNK / 4));
            }
        }
        Ok(())
    }
}
