//! The links of HTML pages of proxied servers (apimachinery `util/proxy/transport.go`). Pages are
//! rewritten while they pass: of a page, no more than a tag is held.

use std::io::{self, Write};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder, GzDecoder, GzEncoder};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::{Body, Frame};
use http_body_util::BodyExt;

use super::inbound::ResponseBody;
use super::rewrite::Rewriter;

/// The attributes that hold URLs, by tag.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// The tags whose content is text, whatever it looks like.
const RAW: [&str; 10] = [
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "style",
    "title",
    "textarea",
    "xmp",
];
/// The longest tag whose links are rewritten.
const MAX_TAG: usize = 8 * 1024;
/// The compressed bytes that are unpacked at once.
const PACKED_SLICE: usize = 512;

/// Returns a page with its links rewritten; what is in a coding that is not known stays as it is.
pub fn rewrite(headers: &mut HeaderMap, body: ResponseBody, rewriter: Rewriter) -> ResponseBody {
    let coding = headers
        .get(CONTENT_ENCODING)
        .map(|coding| coding.as_bytes());
    let coding = match coding {
        None | Some(b"") => Coding::Plain,
        Some(b"gzip") => Coding::Gzip(
            GzDecoder::new(Vec::new()),
            GzEncoder::new(Vec::new(), Compression::default()),
        ),
        Some(b"deflate") => Coding::Deflate(
            DeflateDecoder::new(Vec::new()),
            DeflateEncoder::new(Vec::new(), Compression::best()),
        ),
        Some(_) => return body,
    };
    headers.remove(CONTENT_LENGTH);
    let page = Page {
        body,
        rest: Bytes::new(),
        pauses: false,
        coding,
        links: Links::new(rewriter),
        ended: false,
    };
    page.boxed_unsync()
}

/// The coding of a page: what unpacks and what packs it.
enum Coding {
    Plain,
    Gzip(GzDecoder<Vec<u8>>, GzEncoder<Vec<u8>>),
    Deflate(DeflateDecoder<Vec<u8>>, DeflateEncoder<Vec<u8>>),
}

impl Coding {
    /// Rewrites the next bytes of a page, or its last ones.
    fn pass(&mut self, links: &mut Links, bytes: Option<&[u8]>) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain => {
                let mut out = Vec::new();
                links.push(bytes.unwrap_or_default(), &mut out);
                if bytes.is_none() {
                    links.finish(&mut out);
                }
                Ok(out)
            }
            Self::Gzip(decoder, encoder) => {
                recode(decoder, GzDecoder::get_mut, encoder, links, bytes)?;
                match bytes {
                    Some(_) => encoder.flush()?,
                    None => encoder.try_finish()?,
                }
                Ok(std::mem::take(encoder.get_mut()))
            }
            Self::Deflate(decoder, encoder) => {
                recode(decoder, DeflateDecoder::get_mut, encoder, links, bytes)?;
                match bytes {
                    Some(_) => encoder.flush()?,
                    None => encoder.try_finish()?,
                }
                Ok(std::mem::take(encoder.get_mut()))
            }
        }
    }
}

/// Unpacks bytes, rewrites them and packs them again, a slice at a time.
fn recode<D: Write>(
    decoder: &mut D,
    unpacked: fn(&mut D) -> &mut Vec<u8>,
    encoder: &mut impl Write,
    links: &mut Links,
    bytes: Option<&[u8]>,
) -> io::Result<()> {
    for slice in bytes.unwrap_or_default().chunks(PACKED_SLICE) {
        decoder.write_all(slice)?;
        decoder.flush()?;
        let mut out = Vec::new();
        links.push(&std::mem::take(unpacked(decoder)), &mut out);
        encoder.write_all(&out)?;
    }
    if bytes.is_none() {
        let mut out = Vec::new();
        links.finish(&mut out);
        encoder.write_all(&out)?;
    }
    Ok(())
}

/// A page on its way to the client.
struct Page {
    body: ResponseBody,
    /// The bytes of a frame that have not been passed on yet.
    rest: Bytes,
    /// Others run before the next slice is unpacked.
    pauses: bool,
    coding: Coding,
    links: Links,
    ended: bool,
}

impl Page {
    /// Returns the next slice of the body; of a packed one, so little that it is unpacked soon.
    fn poll_slice(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                Some(Err(why)) => return Poll::Ready(Some(Err(why))),
                None => return Poll::Ready(None),
            }
        }
        let size = match self.coding {
            Coding::Plain => self.rest.len(),
            _ => PACKED_SLICE.min(self.rest.len()),
        };
        let slice = self.rest.split_to(size);
        self.pauses = !self.rest.is_empty();
        Poll::Ready(Some(Ok(slice)))
    }
}

impl Body for Page {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        while !this.ended {
            if std::mem::take(&mut this.pauses) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let data = match ready!(this.poll_slice(cx)) {
                Some(Ok(data)) if data.is_empty() => continue,
                Some(Ok(data)) => Some(data),
                Some(Err(why)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(why)));
                }
                None => None,
            };
            this.ended = data.is_none();
            let out = match this.coding.pass(&mut this.links, data.as_deref()) {
                Ok(out) => out,
                Err(why) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(why)));
                }
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
        Poll::Ready(None)
    }
}

/// The part of a page that is being read.
enum State {
    Text,
    Comment,
    /// The content of a tag of [`RAW`].
    Raw(String),
    /// A tag that is too long.
    LongTag,
}

/// Rewrites the links of a page that comes in pieces.
struct Links {
    rewriter: Rewriter,
    state: State,
    /// The bytes that cannot be told what they are without the next ones.
    pending: Vec<u8>,
}

impl Links {
    fn new(rewriter: Rewriter) -> Self {
        Self {
            rewriter,
            state: State::Text,
            pending: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while let Some(taken) = self.step(rest, out) {
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.pending = rest.to_vec();
    }

    /// Passes on what is left at the end of a page.
    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.pending);
    }

    /// Handles the next part of a page; returns its length, or `None` where more is needed.
    fn step(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if bytes.is_empty() {
            return None;
        }
        match &self.state {
            State::Text => self.text(bytes, out),
            State::Comment => self.until(bytes, b"-->", out),
            State::LongTag => self.until(bytes, b">", out),
            State::Raw(name) => {
                let end = format!("</{name}");
                self.until(bytes, end.as_bytes(), out)
            }
        }
    }

    /// Passes bytes on up to the end of what is no text; where that is not there, all but what may
    /// be its beginning.
    fn until(&mut self, bytes: &[u8], end: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let found = bytes
            .windows(end.len())
            .position(|part| part.eq_ignore_ascii_case(end));
        let taken = match found {
            Some(at) => {
                self.state = State::Text;
                at + end.len()
            }
            None => bytes.len().saturating_sub(end.len() - 1),
        };
        out.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        (taken > 0).then_some(taken)
    }

    fn text(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let open = bytes
            .iter()
            .position(|byte| *byte == b'<')
            .unwrap_or(bytes.len());
        if open > 0 {
            out.extend_from_slice(bytes.get(..open).unwrap_or_default());
            return Some(open);
        }
        if b"<!--".starts_with(bytes) {
            return None;
        }
        if bytes.starts_with(b"<!--") {
            out.extend_from_slice(b"<!--");
            self.state = State::Comment;
            return Some(4);
        }
        if !bytes.get(1).is_some_and(u8::is_ascii_alphabetic) {
            out.push(b'<');
            return Some(1);
        }
        match Tag::parse(bytes) {
            Some(tag) => {
                self.tag(bytes, &tag, out);
                Some(tag.end)
            }
            None if bytes.len() > MAX_TAG => {
                self.state = State::LongTag;
                Some(0)
            }
            None => None,
        }
    }

    fn tag(&mut self, bytes: &[u8], tag: &Tag, out: &mut Vec<u8>) {
        let text = |range: &Range<usize>| {
            let bytes = bytes.get(range.clone()).unwrap_or_default();
            String::from_utf8_lossy(bytes).to_ascii_lowercase()
        };
        let name = text(&tag.name);
        let links = LINKS.iter().find(|(tag, _)| *tag == name);
        let links = links.map_or(&[][..], |(_, links)| links);
        let mut copied = 0;
        for attribute in &tag.attributes {
            if !links.contains(&text(&attribute.key).as_str()) {
                continue;
            }
            let value = bytes.get(attribute.value.clone()).unwrap_or_default();
            let Some(value) = std::str::from_utf8(value).ok().and_then(unescape) else {
                continue;
            };
            // What is no URL stays as it is.
            let Ok(rewritten) = self.rewriter.rewrite(&value) else {
                continue;
            };
            if rewritten != value {
                let before = bytes.get(copied..attribute.whole.start);
                out.extend_from_slice(before.unwrap_or_default());
                out.extend_from_slice(format!("\"{}\"", escape(&rewritten)).as_bytes());
                copied = attribute.whole.end;
            }
        }
        out.extend_from_slice(bytes.get(copied..tag.end).unwrap_or_default());
        if RAW.contains(&name.as_str()) && !tag.closes_itself {
            self.state = State::Raw(name);
        }
    }
}

/// A tag that opens an element, by the places of its parts.
struct Tag {
    name: Range<usize>,
    attributes: Vec<Attribute>,
    closes_itself: bool,
    end: usize,
}

struct Attribute {
    key: Range<usize>,
    /// Without quotes.
    value: Range<usize>,
    /// With quotes.
    whole: Range<usize>,
}

impl Tag {
    /// Reads the tag at the start of some bytes; `None` where its end is missing.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let ends = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>');
        let mut at = 1;
        let name = at..span(bytes, &mut at, |byte| !ends(byte))?;
        let (mut attributes, mut closes_itself) = (Vec::new(), false);
        loop {
            span(bytes, &mut at, |byte| byte.is_ascii_whitespace())?;
            match bytes.get(at)? {
                b'>' => break,
                b'/' => {
                    closes_itself = bytes.get(at + 1)? == &b'>';
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let begin = at;
            // An equals sign at the start is part of the name.
            at += 1;
            let key = begin..span(bytes, &mut at, |byte| !ends(byte) && byte != b'=')?;
            span(bytes, &mut at, |byte| byte.is_ascii_whitespace())?;
            if bytes.get(at)? != &b'=' {
                continue;
            }
            at += 1;
            span(bytes, &mut at, |byte| byte.is_ascii_whitespace())?;
            let begin = at;
            let value = match *bytes.get(at)? {
                quote @ (b'"' | b'\'') => {
                    at += 1;
                    let value = at..span(bytes, &mut at, |byte| byte != quote)?;
                    at += 1;
                    value
                }
                _ => {
                    at..span(bytes, &mut at, |byte| {
                        !byte.is_ascii_whitespace() && byte != b'>'
                    })?
                }
            };
            attributes.push(Attribute {
                key,
                value,
                whole: begin..at,
            });
        }
        Some(Self {
            name,
            attributes,
            closes_itself,
            end: at + 1,
        })
    }
}

/// Moves on while bytes are of a kind; returns the place of the first other one.
fn span(bytes: &[u8], at: &mut usize, matches: impl Fn(u8) -> bool) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    *at += rest.iter().position(|byte| !matches(*byte))?;
    Some(*at)
}

/// The text that the references of an attribute's value stand for; `None` where it has others than
/// are usual in URLs.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let name = after.split_once(';').map_or("", |(name, _)| name);
        let code = match name.strip_prefix('#') {
            Some(hex) if hex.starts_with(['x', 'X']) => u32::from_str_radix(&hex[1..], 16).ok(),
            Some(digits) => digits.parse().ok(),
            None => None,
        };
        let known = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => code.and_then(char::from_u32),
        };
        match known {
            Some(known) => {
                out.push(known);
                rest = after.get(name.len() + 1..).unwrap_or_default();
            }
            // Between parameters there is an ampersand that is meant as such.
            None if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) || name.is_empty() => {
                out.push('&');
                rest = after;
            }
            None => return None,
        }
    }
    out.push_str(rest);
    Some(out)
}

/// Escapes an attribute's value (Go's `html.EscapeString`).
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&#39;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\r' => out.push_str("&#13;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::inbound;
    use super::super::rewrite::Front;
    use super::*;
    use std::io::Read;

    fn rewriter() -> Rewriter {
        Rewriter {
            front: Front::default(),
            path_prepend: "/proxy/node/node1".to_owned(),
            source: "10.0.0.1:80".to_owned(),
            host: "foo.com".to_owned(),
        }
    }

    /// Rewrites a page that comes in pieces of some bytes.
    fn rewritten(page: &str, piece: usize) -> String {
        let mut links = Links::new(rewriter());
        let mut out = Vec::new();
        for piece in page.as_bytes().chunks(piece) {
            links.push(piece, &mut out);
        }
        links.finish(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn links_are_rewritten_wherever_a_page_is_cut() {
        for (page, want) in [
            (
                r#"<pre><a href="kubelet.log">x</a><a href="/google.log">y</a></pre>"#,
                r#"<pre><a href="kubelet.log">x</a><a href="/proxy/node/node1/google.log">y</a></pre>"#,
            ),
            (
                "<IMG alt='a>b' SRC=/a?x=1&y=2><p href=/a>",
                "<IMG alt='a>b' SRC=\"/proxy/node/node1/a?x=1&amp;y=2\"><p href=/a>",
            ),
            (
                "<script>if (a<b) '<a href=\"/x\">'</script>",
                "<script>if (a<b) '<a href=\"/x\">'</script>",
            ),
            (
                "<!-- <a href=\"/x\"> --> a < b",
                "<!-- <a href=\"/x\"> --> a < b",
            ),
            (
                "<link href='/a&amp;b'/>",
                "<link href=\"/proxy/node/node1/a&amp;b\"/>",
            ),
            ("<a href=\"/unended", "<a href=\"/unended"),
            (
                "<a href='http://evil.example/'>",
                "<a href='http://evil.example/'>",
            ),
        ] {
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(rewritten(page, piece), want, "{piece}");
            }
        }
    }

    #[test]
    fn tags_are_held_up_to_a_limit() {
        let page = format!("<a title=\"{}\" href=\"/x\">", "x".repeat(2 * MAX_TAG));
        assert!(rewritten(&page, 1000) == page);
    }

    #[tokio::test]
    async fn packed_pages_are_packed_again() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(b"<a href='/x'>").expect("room");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "gzip".parse().expect("a value"));
        let body = inbound::full(packed.finish().expect("bytes"));
        let body = rewrite(&mut headers, body, rewriter());
        let bytes = body.collect().await.expect("a body").to_bytes();
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
        decoder.read_to_string(&mut text).expect("text");
        assert_eq!(text, "<a href=\"/proxy/node/node1/x\">");
    }

    /// A page that unpacks to a thousand times its size is passed on a slice at a time, and other
    /// tasks run in between.
    #[tokio::test]
    async fn packed_pages_are_unpacked_in_slices() {
        const BYTES: usize = 8 << 20;
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&vec![b' '; BYTES]).expect("room");
        let packed = packed.finish().expect("bytes");
        let slices = packed.len().div_ceil(PACKED_SLICE);
        assert!(slices > 8, "{slices}");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "gzip".parse().expect("a value"));
        let mut body = rewrite(&mut headers, inbound::full(packed), rewriter());
        let (mut pauses, mut unpacked) = (0, flate2::write::GzDecoder::new(Vec::new()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        loop {
            match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Pending => pauses += 1,
                Poll::Ready(None) => break,
                Poll::Ready(Some(frame)) => {
                    let data = frame.expect("a frame").into_data().expect("data");
                    let before = unpacked.get_ref().len();
                    unpacked.write_all(&data).expect("room");
                    unpacked.flush().expect("room");
                    // Deflate packs to a 1032nd at best.
                    let more = unpacked.get_ref().len() - before;
                    assert!(more <= 1032 * PACKED_SLICE, "{more}");
                }
            }
        }
        assert_eq!(unpacked.finish().expect("a page").len(), BYTES);
        assert!(pauses >= slices - 1, "{pauses} of {slices}");
    }
}
