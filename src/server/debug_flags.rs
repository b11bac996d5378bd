//! `/debug/flags`: the flags that can be changed while the server runs (apiserver
//! `server/routes/flags.go`); `v`, the verbosity of the log, is the only one.

use http::{HeaderValue, Method, Response, header};

use crate::endpoints::body::Body;
use crate::endpoints::request_body::BodyBudget;
use crate::endpoints::{Request, respond};
use crate::meta::go;
use crate::telemetry::log;

/// The path of the list.
pub const INDEX: &str = "/debug/flags";
/// The path of the verbosity.
const VERBOSITY: &str = "/debug/flags/v";
const PAGE: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

/// Answers a request for the list or a flag.
pub async fn answer(request: &Request, path: &str, bodies: &BodyBudget) -> Response<Body> {
    if path != VERBOSITY {
        let mut page = respond::text(200, PAGE);
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        page.headers_mut().insert(header::CONTENT_TYPE, html);
        return page;
    }
    let (code, text) = if request.method != Method::PUT {
        (406, "unsupported http method".to_owned())
    } else {
        match request.body.read(bodies, &request.user).await {
            Ok(body) => set_verbosity(&String::from_utf8_lossy(&body)),
            Err(status) => return respond::status(&status, request.status_output()),
        }
    };
    let mut response = respond::text(code, text);
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// Sets the verbosity that a text gives; returns the code and the text of the answer.
fn set_verbosity(text: &str) -> (u16, String) {
    let parsed = match text.parse::<u32>() {
        Ok(verbosity) if !text.starts_with('+') => Ok(verbosity),
        Err(why) if *why.kind() == std::num::IntErrorKind::PosOverflow => Err("value out of range"),
        _ => Err("invalid syntax"),
    };
    let verbosity = match parsed {
        Ok(verbosity) => verbosity,
        Err(why) => {
            let quoted = go::quote(text);
            return (400, format!("strconv.ParseUint: parsing {quoted}: {why}"));
        }
    };
    // klog's level has 32 bits with a sign.
    if i32::try_from(verbosity).is_err() {
        let why = format!("strconv.ParseInt: parsing \"{text}\": value out of range");
        return (
            400,
            format!("failed set klog.logging.verbosity {text}: {why}"),
        );
    }
    match log::set_verbosity(i64::from(verbosity)) {
        Ok(()) => {
            tracing::info!("the verbosity of the log is {verbosity}");
            (
                200,
                format!("successfully set klog.logging.verbosity to {text}"),
            )
        }
        Err(why) => (
            400,
            format!("failed set klog.logging.verbosity {text}: {why}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_verbosity_is_refused_in_gos_words() {
        for (text, wanted) in [
            ("", "strconv.ParseUint: parsing \"\": invalid syntax"),
            ("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
            ("+1", "strconv.ParseUint: parsing \"+1\": invalid syntax"),
            ("4\n", "strconv.ParseUint: parsing \"4\\n\": invalid syntax"),
            (
                "99999999999",
                "strconv.ParseUint: parsing \"99999999999\": value out of range",
            ),
            (
                "4294967295",
                "failed set klog.logging.verbosity 4294967295: strconv.ParseInt: parsing \"4294967295\": value out of range",
            ),
        ] {
            assert_eq!(set_verbosity(text), (400, wanted.to_owned()));
        }
    }
}
