//! URLs as Go's `net/url` reads them.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::quote;

/// The characters of a path that are escaped (Go's `URL.EscapedPath`).
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// The parts of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    /// In lower case.
    pub scheme: String,
    /// The part after the scheme where no slash follows it (`mailto:a@b`).
    pub opaque: String,
    /// With the port, and brackets around an IPv6 address; percent-decoded.
    pub host: String,
    /// Percent-decoded.
    pub path: String,
    /// The path as it was written.
    pub raw_path: String,
    /// Without the question mark.
    pub raw_query: String,
    /// There is a question mark with nothing behind it.
    pub force_query: bool,
    pub raw_user: Option<String>,
}

/// Reads an absolute URI or an absolute path.
///
/// # Errors
/// Go's text.
pub fn parse_request_uri(text: &str) -> Result<Url, String> {
    parse(text).map_err(|why| format!("parse {}: {why}", quote(text)))
}

/// Returns the decoded parameters of a raw query in order, without the malformed ones: those with a
/// semicolon or an invalid escape (Go's `URL.Query`).
pub fn query_parameters(raw: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw.split('&')
        .filter(|pair| !pair.contains(';') && has_valid_escapes(pair))
        .flat_map(|pair| form_urlencoded::parse(pair.as_bytes()))
}

/// Reports whether each percent sign has two hexadecimal digits behind it.
pub fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Returns a decoded path as a URL has it (Go's `URL.EscapedPath`).
pub fn escape_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Returns the text that the percent escapes of a path stand for; `None` where one is malformed.
pub fn unescape_path(path: &str) -> Option<String> {
    unescape(path, Mode::Path).ok()
}

/// Returns the text that the percent escapes of a path stand for.
///
/// # Errors
/// Go's text: an escape is malformed.
pub fn decode_path(path: &str) -> Result<String, String> {
    unescape(path, Mode::Path)
}

/// Returns the host and port of the part of a URL between `//` and the path.
///
/// # Errors
/// Go's text.
pub fn host_and_port(authority: &str) -> Result<String, String> {
    let mut url = Url::default();
    authority_of(authority, &mut url)?;
    Ok(url.host)
}

/// Returns the shortest form of a path that begins at the root (Go's `path.Clean`).
pub fn clean_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Joins two paths of which the first begins at the root or is empty, and keeps a slash at the end
/// (apimachinery `util/net.JoinPreservingTrailingSlash`).
pub fn join_paths(base: &str, path: &str) -> String {
    if base.is_empty() && path.is_empty() {
        return String::new();
    }
    let last = if path.is_empty() { base } else { path };
    let mut joined = clean_path(&format!("{base}/{path}"));
    if last.ends_with('/') && !joined.ends_with('/') {
        joined.push('/');
    }
    joined
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Path,
    Host,
    Zone,
    User,
    Query,
}

fn parse(text: &str) -> Result<Url, String> {
    if text.bytes().any(|c| c < 0x20 || c == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = "*".to_owned();
        return Ok(url);
    }
    let (scheme, mut rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        url.force_query = true;
        rest = &rest[..rest.len() - 1];
    } else if let Some((before, query)) = rest.split_once('?') {
        url.raw_query = query.to_owned();
        rest = before;
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        return Err("invalid URI for request".to_owned());
    }
    if (!url.scheme.is_empty() || !rest.starts_with("///"))
        && rest.starts_with("//")
        && !url.scheme.is_empty()
    {
        let authority = &rest[2..];
        let end = authority.find('/').unwrap_or(authority.len());
        rest = &authority[end..];
        authority_of(&authority[..end], &mut url)?;
    }
    url.path = unescape(rest, Mode::Path)?;
    url.raw_path = rest.to_owned();
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at > 0 => return Ok((&text[..at], &text[at + 1..])),
            ':' => return Err("missing protocol scheme".to_owned()),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn authority_of(authority: &str, url: &mut Url) -> Result<(), String> {
    let (user, host) = match authority.rfind('@') {
        Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
        None => (None, authority),
    };
    url.host = host_of(host)?;
    if let Some(user) = user {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&c);
        if !user.bytes().all(allowed) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        unescape(user, Mode::User)?;
        url.raw_user = Some(user.to_owned());
    }
    Ok(())
}

fn host_of(host: &str) -> Result<String, String> {
    if host.rfind('[').is_some_and(|open| open > 0) {
        return Err("invalid IP-literal".to_owned());
    }
    if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        let port = &host[end + 1..];
        if !port.is_empty() && !is_port(port) {
            return Err(format!("invalid port {} after host", quote(port)));
        }
        if let Some(zone) = host[..end].find("%25") {
            return Ok(unescape(&host[..zone], Mode::Host)?
                + &unescape(&host[zone..end], Mode::Zone)?
                + &unescape(&host[end..], Mode::Host)?);
        }
        return unescape(host, Mode::Host);
    }
    if let Some(at) = host.rfind(':')
        && !is_port(&host[at..])
    {
        return Err(format!("invalid port {} after host", quote(&host[at..])));
    }
    unescape(host, Mode::Host)
}

/// A colon and digits, maybe none.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit()))
}

fn unescape(text: &str, mode: Mode) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        if c == b'%' {
            let hex = bytes
                .get(at + 1..at + 3)
                .and_then(|pair| std::str::from_utf8(pair).ok());
            let value = hex
                .filter(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()))
                .and_then(|hex| u8::from_str_radix(hex, 16).ok());
            let shown =
                || String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]).into_owned();
            let Some(value) = value else {
                return Err(format!("invalid URL escape {}", quote(&shown())));
            };
            // In a host only what is not ASCII may be escaped, and the percent sign of a zone.
            if mode == Mode::Host && value < 0x80 && value != b'%' {
                return Err(format!("invalid URL escape {}", quote(&shown())));
            }
            out.push(value);
            at += 3;
            continue;
        }
        if matches!(mode, Mode::Host | Mode::Zone) && c < 0x80 && !is_host_char(c) {
            return Err(format!(
                "invalid character {} in host name",
                quote(&char::from(c).to_string())
            ));
        }
        out.push(if c == b'+' && mode == Mode::Query {
            b' '
        } else {
            c
        });
        at += 1;
    }
    Ok(String::from_utf8(out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn is_host_char(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls() {
        let url = parse_request_uri("HTTPS://u:p@Example.com:80/a%20b?x=1&x=2#f").expect("a URL");
        assert_eq!(
            (url.scheme.as_str(), url.host.as_str()),
            ("https", "Example.com:80")
        );
        assert_eq!(url.path, "/a b");
        assert_eq!(
            parse_request_uri("http://[::1]:80/").expect("a URL").host,
            "[::1]:80"
        );
    }

    #[test]
    fn joined_paths_stay_below_the_root_and_keep_their_last_slash() {
        for (base, path, want) in [
            ("", "", ""),
            ("", "/", "/"),
            ("/a", "", "/a"),
            ("/a", "/b//c/", "/a/b/c/"),
            ("", "/../../b", "/b"),
            ("/a/", "", "/a/"),
        ] {
            assert_eq!(join_paths(base, path), want, "{base} {path}");
        }
        assert_eq!(escape_path("/a b/ü;x=1?"), "/a%20b/%C3%BC;x=1%3F");
        assert_eq!(unescape_path("/a%20b"), Some("/a b".to_owned()));
        assert_eq!(unescape_path("/a%2"), None);
    }

    #[test]
    fn mistakes_read_as_gos() {
        let cases = [
            ("", "parse \"\": empty url"),
            ("a b", "parse \"a b\": invalid URI for request"),
            (":x", "parse \":x\": missing protocol scheme"),
            (
                "http://a:b/",
                "parse \"http://a:b/\": invalid port \":b\" after host",
            ),
            (
                "http://a/%zz",
                "parse \"http://a/%zz\": invalid URL escape \"%zz\"",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(parse_request_uri(text).expect_err("a mistake"), want);
        }
    }
}
