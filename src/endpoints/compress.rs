//! Compression of large responses for clients that accept it (apiserver `responsewriters`: gzip,
//! level 1, above 128 KiB).

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{self, Stream, StreamExt};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, VARY};
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};

use super::body::{self, Body};

/// Answers up to this size go as they are.
const THRESHOLD: usize = 128 * 1024;
/// The size of a compressed chunk, about.
const CHUNK: usize = 16 * 1024;

/// Reports whether a client takes gzip. Upstream reads names alone, without quality values.
pub fn accepted(headers: &HeaderMap) -> bool {
    let values = headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    values.split(',').any(|coding| coding.trim() == "gzip")
}

/// The response, compressed if it is large.
pub async fn compress(response: Response<Body>) -> Response<Body> {
    if response
        .body()
        .size_hint()
        .exact()
        .is_some_and(|len| len <= THRESHOLD as u64)
        || response.headers().contains_key(CONTENT_ENCODING)
    {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    let (mut begun, mut len) = (Vec::new(), 0);
    while len <= THRESHOLD {
        let Some(frame) = body.frame().await else {
            // A body is not asked again once it has ended.
            return Response::from_parts(parts, body::stream(StreamBody::new(stream::iter(begun))));
        };
        len += frame
            .as_ref()
            .ok()
            .and_then(Frame::data_ref)
            .map_or(0, Bytes::len);
        begun.push(frame);
    }
    let frames = stream::iter(begun).chain(BodyStream::new(body));
    parts.headers.remove(CONTENT_LENGTH);
    parts
        .headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts
        .headers
        .append(VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, body::stream(StreamBody::new(gzip(frames))))
}

/// The frames' data, compressed. An error ends it.
fn gzip(
    frames: impl Stream<Item = std::io::Result<Frame<Bytes>>> + Send + Unpin + 'static,
) -> impl Stream<Item = std::io::Result<Frame<Bytes>>> {
    let encoder = GzEncoder::new(Vec::with_capacity(2 * CHUNK), Compression::fast());
    stream::unfold(Some((frames, encoder)), |state| async move {
        let (mut frames, mut encoder) = state?;
        while encoder.get_ref().len() < CHUNK {
            let done = match frames.next().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => encoder.write_all(&data).map(|()| None),
                    Err(_) => Ok(None),
                },
                Some(Err(why)) => Err(why),
                None => encoder
                    .try_finish()
                    .map(|()| Some(std::mem::take(encoder.get_mut()))),
            };
            match done {
                Ok(None) => {}
                Ok(Some(last)) => return Some((Ok(Frame::data(last.into())), None)),
                Err(why) => return Some((Err(why), None)),
            }
        }
        let chunk = std::mem::replace(encoder.get_mut(), Vec::with_capacity(2 * CHUNK));
        Some((Ok(Frame::data(chunk.into())), Some((frames, encoder))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::body;
    use flate2::read::GzDecoder;
    use std::io::Read;

    /// The coding and the text of an answer that was sent in pieces of 10 000 bytes.
    async fn seen(len: usize) -> (String, Vec<u8>) {
        let text = text(len);
        let pieces: Vec<_> = text
            .chunks(10_000)
            .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        // Like the body of a list, it panics if it is asked after its end.
        let frames = stream::unfold(pieces.into_iter(), |mut rest| async move {
            rest.next().map(|piece| (piece, rest))
        });
        let response = compress(Response::new(body::stream(StreamBody::new(frames)))).await;
        let coding = response
            .headers()
            .get(CONTENT_ENCODING)
            .map_or("", |coding| coding.to_str().expect("text"))
            .to_owned();
        assert_eq!(response.headers().get(VARY).is_some(), !coding.is_empty());
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let mut out = Vec::new();
        match coding.as_str() {
            "" => out = bytes.to_vec(),
            _ => {
                assert!(bytes.len() < len / 2, "{}", bytes.len());
                GzDecoder::new(&bytes[..])
                    .read_to_end(&mut out)
                    .map(drop)
                    .expect("gzip");
            }
        }
        (coding, out)
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|at| b"abcdefgh"[at * at / 7 % 8]).collect()
    }

    #[tokio::test]
    async fn large_answers_are_compressed_without_loss() {
        for (len, coding) in [
            (0, ""),
            (THRESHOLD, ""),
            (THRESHOLD + 1, "gzip"),
            (3_000_000, "gzip"),
        ] {
            let (got, out) = seen(len).await;
            assert_eq!((got.as_str(), out.len()), (coding, len));
            assert!(out == text(len), "{len}");
        }
    }

    #[tokio::test]
    async fn an_error_in_the_body_ends_the_compressed_body() {
        let frames = [
            Ok(Frame::data(Bytes::from(vec![0; 2 * THRESHOLD]))),
            Err(std::io::Error::other("it broke")),
        ];
        let response = compress(Response::new(body::stream(StreamBody::new(stream::iter(
            frames,
        )))))
        .await;
        assert!(response.into_body().collect().await.is_err());
        assert!(
            compress(Response::new(body::empty()))
                .await
                .into_body()
                .collect()
                .await
                .is_ok()
        );
    }

    #[test]
    fn gzip_is_accepted_by_name_without_quality() {
        let taken = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                ACCEPT_ENCODING,
                HeaderValue::from_str(value).expect("a value"),
            );
            accepted(&headers)
        };
        assert!(taken("gzip") && taken("br, gzip"));
        assert!(!taken("identity") && !taken("") && !taken("gzip;q=1"));
    }
}
