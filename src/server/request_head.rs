//! Requests that Go's HTTP server answers before any handler sees them (`net/http`,
//! `conn.readRequest` and `conn.serve`), and hyper does not.

use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode, Version};

use crate::endpoints::body::{self, Body};
use crate::meta::go::url::has_valid_escapes;

/// The answer to a request that no handler may see; `None` for others. After it the connection of
/// an HTTP/1.1 client ends: where the next request begins is not certain.
pub fn refusal<B>(request: &Request<B>) -> Option<Response<Body>> {
    let (code, text) = problem(request)?;
    let mut response = Response::new(body::full(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    if !text.is_empty() {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, plain);
    }
    if request.version() < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

fn problem<B>(request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    if !has_valid_escapes(request.uri().path()) {
        return Some((StatusCode::BAD_REQUEST, "400 Bad Request"));
    }
    if request.version() >= Version::HTTP_2 {
        return None;
    }
    let headers = request.headers();
    let mut codings = headers.get_all(TRANSFER_ENCODING).into_iter();
    let coding = codings.next();
    if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
    {
        let text = "Unsupported transfer encoding";
        return Some((StatusCode::NOT_IMPLEMENTED, text));
    }
    let mut hosts = headers.get_all(HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() >= Version::HTTP_11 => {
            let text = "400 Bad Request: missing required Host header";
            return Some((StatusCode::BAD_REQUEST, text));
        }
        (_, Some(_)) => return Some((StatusCode::BAD_REQUEST, "400 Bad Request")),
        (Some(host), None) if !host.as_bytes().iter().all(is_host_byte) => {
            let text = "400 Bad Request: malformed Host header";
            return Some((StatusCode::BAD_REQUEST, text));
        }
        _ => {}
    }
    let expects = headers.get(EXPECT)?.as_bytes();
    let known = expects.is_empty() || expects.eq_ignore_ascii_case(b"100-continue");
    (!known).then_some((StatusCode::EXPECTATION_FAILED, ""))
}

/// Reports whether a Host header may have the byte (`x/net/http/httpguts.ValidHostHeader`).
fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(
        version: Version,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Option<(u16, &'static str)> {
        let mut request = Request::get(path).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        problem(&request).map(|(code, text)| (code.as_u16(), text))
    }

    #[test]
    fn malformed_heads_are_refused_as_go_refuses_them() {
        let host = ("host", "localhost:6443");
        for (path, headers, want) in [
            ("/version", &[host][..], None),
            ("/version", &[("host", "[::1]:1")], None),
            ("/version", &[("host", "")], None),
            ("/a%2fb", &[host], None),
            ("/version?%zz", &[host], None),
            ("/%zz", &[host], Some((400, "400 Bad Request"))),
            ("/a%2", &[host], Some((400, "400 Bad Request"))),
            (
                "/version",
                &[],
                Some((400, "400 Bad Request: missing required Host header")),
            ),
            (
                "/version",
                &[("host", "a b")],
                Some((400, "400 Bad Request: malformed Host header")),
            ),
            ("/version", &[host, host], Some((400, "400 Bad Request"))),
            ("/version", &[host, ("expect", "100-Continue")], None),
            ("/version", &[host, ("expect", "200-ok")], Some((417, ""))),
            ("/version", &[host, ("transfer-encoding", "Chunked")], None),
            (
                "/version",
                &[host, ("transfer-encoding", "gzip, chunked")],
                Some((501, "Unsupported transfer encoding")),
            ),
            (
                "/version",
                &[
                    host,
                    ("transfer-encoding", "gzip"),
                    ("transfer-encoding", "chunked"),
                ],
                Some((501, "Unsupported transfer encoding")),
            ),
        ] {
            assert_eq!(
                refused(Version::HTTP_11, path, headers),
                want,
                "{path} {headers:?}"
            );
        }
        assert_eq!(refused(Version::HTTP_10, "/version", &[]), None);
        assert_eq!(refused(Version::HTTP_2, "/version", &[]), None);
        assert_eq!(
            refused(Version::HTTP_2, "/%", &[]).map(|(code, _)| code),
            Some(400)
        );
    }
}
