//! Responses: bodies and Statuses with the headers of their representation.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use crate::meta::{Object, Status};

use super::body::{self, Body};
use super::encode::fixed_body;
use super::negotiate::{Form, Output};

/// The characters that all warnings of a response may have before they are cut.
const WARNINGS_MAX_CHARS: usize = 4 * 1024;
/// The characters of a warning that is cut.
const WARNING_MAX_CHARS: usize = 256;

/// An answer with a body that is all there.
pub fn bytes(code: u16, output: Output, bytes: impl Into<Bytes>) -> Response<Body> {
    response(code, output, body::full(bytes))
}

/// An answer with the headers that go with its representation.
pub fn response(code: u16, output: Output, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(output.media.name()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// The one place where a Status becomes an answer.
pub fn status(status: &Status, output: Output) -> Response<Body> {
    let object = Object::from_value(status.to_value()).unwrap_or_default();
    let fixed = Output {
        form: Form::Object,
        ..output
    };
    let mut response = bytes(status.code, fixed, fixed_body(&object, fixed));
    // For those who tell of it.
    response.extensions_mut().insert(status.clone());
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Adds Warning headers. Where they are too long together, each is cut, and the last ones are left
/// out (apiserver `endpoints/filters/warning.go`). Texts with control characters cannot be sent.
pub fn add_warnings(response: &mut Response<Body>, warnings: Vec<String>) {
    let texts: Vec<&str> = warnings
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty() && !text.contains(char::is_control))
        .collect();
    for text in shortened(&texts) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Returns the texts that are sent. From the first that is too much, all are cut, those before it
/// too.
fn shortened<'a>(texts: &[&'a str]) -> Vec<&'a str> {
    let mut total = 0;
    let too_much = texts.iter().position(|text| {
        total += text.chars().count();
        total > WARNINGS_MAX_CHARS
    });
    let Some(too_much) = too_much else {
        return texts.to_vec();
    };
    let mut total = 0;
    let mut sent = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        if index > too_much && total >= WARNINGS_MAX_CHARS {
            break;
        }
        let end = text.char_indices().nth(WARNING_MAX_CHARS);
        let cut = end.map_or(*text, |(end, _)| &text[..end]);
        total += cut.chars().count();
        sent.push(cut);
    }
    sent
}

/// A plain text.
pub fn text(code: u16, message: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(message));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The answer for a path without a route.
pub fn page_not_found() -> Response<Body> {
    text(404, "404 page not found\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_cut_when_they_are_too_long_together() {
        let (long, short) = ("ä".repeat(1500), "a".to_owned());
        let lengths = |texts: &[&str]| -> Vec<usize> {
            let sent = shortened(texts);
            sent.iter().map(|text| text.chars().count()).collect()
        };
        assert_eq!(lengths(&[&long, &long, &short]), [1500, 1500, 1]);
        assert_eq!(lengths(&[&long, &long, &short, &long]), [256, 256, 1, 256]);
        let many = vec![long.as_str(); 20];
        assert_eq!(lengths(&many), [256; 16]);
    }
}
