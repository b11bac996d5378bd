//! Redirects and links of proxied servers, which are made to lead through the proxy (apimachinery
//! `util/proxy/transport.go`).

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};

use super::error::ProxyError;
use super::headers::remove_cors;
use crate::meta::go::{self, url};

const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The URL under which a client finds a proxied server.
#[derive(Clone, Debug, Default)]
pub struct Front {
    /// Empty for that of the request.
    pub scheme: String,
    /// Empty for that of the request.
    pub host: String,
    /// Decoded.
    pub path: String,
}

impl Front {
    /// The part of the path that stands for the server, before a path of the server's own.
    pub fn path_before(&self, path: &str) -> String {
        let mut suffix = path.to_owned();
        if self.path.ends_with('/') && !suffix.ends_with('/') {
            suffix.push('/');
        }
        let before = self.path.strip_suffix(suffix.as_str());
        before.unwrap_or(&self.path).to_owned()
    }
}

/// Rewrites what a server answers to one request.
#[derive(Clone, Debug)]
pub struct Rewriter {
    pub front: Front,
    /// The part of the front's path that stands for the server.
    pub path_prepend: String,
    /// The host and port of the server.
    pub source: String,
    /// The host that the client asked.
    pub host: String,
}

impl Rewriter {
    /// Adds the headers by which the server knows under which URL the client finds it.
    pub fn announce(&self, headers: &mut HeaderMap, path: &str) {
        let escaped = url::escape_path(path);
        let mut uri = join(&self.path_prepend, &escaped);
        if path.ends_with('/') {
            uri.push('/');
        }
        for (name, value) in [
            (FORWARDED_URI, &uri),
            (FORWARDED_HOST, &self.front.host),
            (FORWARDED_PROTO, &self.front.scheme),
        ] {
            let value = HeaderValue::from_str(value).ok();
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                headers.insert(name, value);
            }
        }
    }

    /// Rewrites the head of an answer; reports whether its body has links to be rewritten.
    ///
    /// # Errors
    /// The server redirects to what is no URL.
    pub fn rewrite_head(&self, headers: &mut HeaderMap) -> Result<bool, ProxyError> {
        remove_cors(headers);
        let text = |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes);
        let redirect = text(LOCATION).filter(|to| !to.is_empty());
        if let Some(redirect) = redirect {
            let to = self
                .rewrite(&String::from_utf8_lossy(redirect))
                .map_err(ProxyError::Redirect)?;
            let to =
                HeaderValue::try_from(to).map_err(|why| ProxyError::Redirect(why.to_string()))?;
            headers.insert(LOCATION, to);
            return Ok(false);
        }
        let media = text(CONTENT_TYPE).and_then(|media| media.split(|byte| *byte == b';').next());
        Ok(media.is_some_and(|media| media.trim_ascii() == b"text/html"))
    }

    /// Returns the URL that leads through the proxy to where a URL on a page of the server leads.
    ///
    /// # Errors
    /// It is no URL; with Go's text.
    pub fn rewrite(&self, text: &str) -> Result<String, String> {
        let reference = Reference::parse(text)?;
        let leads_away = !reference.host.is_empty()
            && reference.host != self.source
            && reference.host != self.host;
        if leads_away || !reference.path.starts_with('/') {
            return Ok(text.to_owned());
        }
        let Front { scheme, host, .. } = &self.front;
        let keeps_host = reference.host == self.host && scheme.is_empty() && host.is_empty();
        let (scheme, host) = match keeps_host {
            true => (reference.scheme.to_owned(), reference.host.clone()),
            false => (scheme.clone(), host.clone()),
        };
        let decoded = &reference.decoded;
        let path = match decoded.starts_with(&self.path_prepend) {
            true => reference.path.to_owned(),
            false => {
                let mut path = join(&self.path_prepend, decoded);
                if decoded.ends_with('/') {
                    path.push('/');
                }
                url::escape_path(&path)
            }
        };
        let mut out = String::new();
        if !scheme.is_empty() {
            out.push_str(&format!("{scheme}:"));
        }
        if !scheme.is_empty() || !host.is_empty() {
            out.push_str(&format!("//{host}"));
        }
        Ok(out + &path + reference.rest)
    }
}

/// Go's `path.Join` of two paths that are not both empty.
fn join(base: &str, path: &str) -> String {
    url::clean_path(&format!("{base}/{path}"))
}

/// The parts of a URL or of a reference to one.
struct Reference<'a> {
    scheme: &'a str,
    host: String,
    path: &'a str,
    /// The path without escapes.
    decoded: String,
    /// Query and fragment.
    rest: &'a str,
}

impl<'a> Reference<'a> {
    /// Reads what Go's `url.Parse` reads.
    fn parse(text: &'a str) -> Result<Self, String> {
        let wrong = |why: &str| format!("parse {}: {why}", go::quote(text));
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(wrong("net/url: invalid control character in URL"));
        }
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let (front, rest) = text.split_at(end);
        let (scheme, after) = match front.split_once(':') {
            Some(("", _)) => return Err(wrong("missing protocol scheme")),
            Some((scheme, after)) if is_scheme(scheme) => (scheme, after),
            Some((segment, _)) if !segment.contains('/') => {
                return Err(wrong("first path segment in URL cannot contain colon"));
            }
            _ => ("", front),
        };
        let (authority, path) = match after.strip_prefix("//") {
            Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
            None => ("", after),
        };
        let host = url::host_and_port(authority).map_err(|why| wrong(&why))?;
        let decoded = url::decode_path(path).map_err(|why| wrong(&why))?;
        Ok(Self {
            scheme,
            host,
            path,
            decoded,
            rest,
        })
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriter(scheme: &str, host: &str) -> Rewriter {
        Rewriter {
            front: Front {
                scheme: scheme.to_owned(),
                host: host.to_owned(),
                path: "/proxy/node/node1/logs/".to_owned(),
            },
            path_prepend: "/proxy/node/node1".to_owned(),
            source: "10.0.0.1:10250".to_owned(),
            host: "foo.com".to_owned(),
        }
    }

    #[test]
    fn links_to_the_server_lead_through_the_proxy() {
        for (scheme, host, text, want) in [
            ("http", "foo.com", "kubelet.log", "kubelet.log"),
            (
                "http",
                "foo.com",
                "/google.log",
                "http://foo.com/proxy/node/node1/google.log",
            ),
            (
                "",
                "",
                "/google.log?x=1#y",
                "/proxy/node/node1/google.log?x=1#y",
            ),
            ("", "", "http://10.0.0.1:10250/a/", "/proxy/node/node1/a/"),
            (
                "",
                "",
                "https://foo.com/a",
                "https://foo.com/proxy/node/node1/a",
            ),
            ("", "", "http://evil.example/a", "http://evil.example/a"),
            ("", "", "//evil.example/a", "//evil.example/a"),
            ("", "", "/proxy/node/node1/a%20b", "/proxy/node/node1/a%20b"),
            ("", "", "/a%20b/../c d", "/proxy/node/node1/c%20d"),
            ("", "", "mailto:a@b", "mailto:a@b"),
            ("", "", "", ""),
        ] {
            let rewritten = rewriter(scheme, host).rewrite(text);
            assert_eq!(rewritten.as_deref(), Ok(want), "{text}");
        }
        for (text, why) in [
            ("a:b/%", "invalid URL escape \"%\""),
            ("http://[::1/x", "missing ']' in host"),
            ("//h:port/x", "invalid port \":port\" after host"),
            ("//a b/x", "invalid character \" \" in host name"),
        ] {
            let told = rewriter("", "").rewrite(text);
            assert_eq!(told, Err(format!("parse \"{text}\": {why}")));
        }
    }

    #[test]
    fn fronts_tell_the_servers_part_from_their_own() {
        let front = |path: &str| Front {
            path: path.to_owned(),
            ..Front::default()
        };
        for (path, own, want) in [
            (
                "/api/v1/nodes/n/proxy/logs/a",
                "/logs/a",
                "/api/v1/nodes/n/proxy",
            ),
            (
                "/api/v1/nodes/n/proxy/logs/",
                "/logs/",
                "/api/v1/nodes/n/proxy",
            ),
            ("/api/v1/nodes/n/proxy/", "", "/api/v1/nodes/n/proxy"),
            ("/api/v1/nodes/n/proxy", "", "/api/v1/nodes/n/proxy"),
        ] {
            assert_eq!(front(path).path_before(own), want, "{path}");
        }
    }
}
