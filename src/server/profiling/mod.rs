//! `/debug/pprof`: profiles of the process in pprof's format (apiserver
//! `server/routes/profiling.go`, Go's `net/http/pprof`).
//!
//! A profile of the CPU has the stacks of all threads. The allocator keeps none, so `heap` tells
//! the resident memory by what it is mapped for, and `goroutine` the threads by their names.
//! Execution traces, blocking and contention are Go's runtime's, which is not there.

mod cpu;
mod encode;
mod process;
mod symbols;

use std::time::Duration;

use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use tokio::sync::Mutex;

use crate::endpoints::body::Body;
use crate::endpoints::request_body::BodyBudget;
use crate::endpoints::{Request, respond};
use encode::Profile;

/// The path of the list.
pub const INDEX: &str = "/debug/pprof";
/// The header by which `go tool pprof` knows that the text is an error.
const GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");
/// The length of a profile where the request says none (`net/http/pprof`).
const DEFAULT_SECONDS: u64 = 30;
/// The addresses of which the names are told at once.
const MAX_SYMBOLS: usize = 10_000;

/// The profiles, with what they hold.
const PROFILES: [(&str, &str); 4] = [
    (
        "goroutine",
        "The threads of the process, by their names. With debug=1: their states and times.",
    ),
    (
        "heap",
        "The resident memory, by what it is mapped for. The allocator keeps no stacks.",
    ),
    (
        "profile",
        "The CPU time, by stacks. The parameter seconds is how long to look.",
    ),
    ("symbol", "The names of the functions at addresses."),
];

/// Answers a request for a profile, which may take until `limit`.
pub async fn answer(
    request: &Request,
    path: &str,
    limit: Duration,
    bodies: &BodyBudget,
) -> Response<Body> {
    let Some(name) = path
        .strip_prefix(INDEX)
        .and_then(|rest| rest.strip_prefix('/'))
    else {
        let mut moved = match request.method {
            Method::GET => {
                let link = "<a href=\"/debug/pprof/\">Found</a>.\n\n";
                typed("text/html; charset=utf-8", link)
            }
            _ => Response::new(crate::endpoints::body::full("")),
        };
        *moved.status_mut() = StatusCode::FOUND;
        let headers = moved.headers_mut();
        headers.remove(X_CONTENT_TYPE_OPTIONS);
        headers.insert(LOCATION, HeaderValue::from_static("/debug/pprof/"));
        return moved;
    };
    match name {
        "" => typed("text/html; charset=utf-8", index()),
        "profile" => match cpu::length(request.query.get("seconds"), limit) {
            Some(length) => sent("profile", cpu::profile(length).await),
            None => error(400, "profile duration exceeds server's WriteTimeout"),
        },
        "symbol" => symbol(request, bodies).await,
        "heap" | "goroutine"
            if request
                .query
                .get("seconds")
                .is_some_and(|text| !text.is_empty()) =>
        {
            error(
                400,
                "\"seconds\" parameter is not supported for this profile type",
            )
        }
        "heap" => snapshot(Kind::Memory, request).await,
        "goroutine" => snapshot(Kind::Threads, request).await,
        "trace" => error(
            501,
            "there are no execution traces: they are those of Go's scheduler",
        ),
        _ => error(404, "Unknown profile"),
    }
}

/// A part of the state of the process.
#[derive(Clone, Copy)]
enum Kind {
    Memory,
    Threads,
}

/// The state of the process as it is now, as a profile or as text. While the kernel gathers it the
/// process cannot map memory, so that one at a time asks for it, and beside the other requests.
async fn snapshot(kind: Kind, request: &Request) -> Response<Body> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let debug = request.query.get("debug").unwrap_or_default();
    let as_text = debug.parse::<i64>().is_ok_and(|debug| debug != 0);
    let only = ONE_AT_A_TIME.lock().await;
    let made = tokio::task::spawn_blocking(move || match (kind, as_text) {
        (Kind::Memory, false) => sent("heap", process::memory_profile()),
        (Kind::Memory, true) => typed("text/plain; charset=utf-8", process::memory_text()),
        (Kind::Threads, false) => sent("goroutine", process::thread_profile()),
        (Kind::Threads, true) => typed("text/plain; charset=utf-8", process::thread_text()),
    });
    let made = made.await;
    drop(only);
    made.unwrap_or_else(|why| error(500, &why.to_string()))
}

async fn symbol(request: &Request, bodies: &BodyBudget) -> Response<Body> {
    let given = if request.method == Method::POST {
        match request.body.read(bodies, &request.user).await {
            Ok(body) => String::from_utf8_lossy(&body).into_owned(),
            Err(status) => return respond::status(&status, request.status_output()),
        }
    } else {
        request.uri.query().unwrap_or("").to_owned()
    };
    let addresses: Vec<u64> = given
        .split('+')
        .take(MAX_SYMBOLS)
        .filter_map(address)
        .collect();
    let names = tokio::task::spawn_blocking(move || symbols::text(&addresses)).await;
    typed("text/plain; charset=utf-8", names.unwrap_or_default())
}

/// An address as Go reads it: with a prefix where it is not decimal.
fn address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
    .filter(|address| *address != 0)
}

fn index() -> String {
    let rows: String = PROFILES
        .iter()
        .map(|(name, what)| {
            format!("<tr><td><a href='{name}?debug=1'>{name}</a></td><td>{what}</td></tr>\n")
        })
        .collect();
    format!(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<br>\n\
         Types of profiles available:\n<table>\n{rows}</table>\n</body>\n</html>\n"
    )
}

fn sent(name: &'static str, profile: Result<Profile, String>) -> Response<Body> {
    let profile = match profile.and_then(|profile| profile.encode()) {
        Ok(profile) => profile,
        Err(why) => return error(500, &why),
    };
    let mut response = typed("application/octet-stream", profile);
    let attached = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    if let Ok(attached) = attached {
        response.headers_mut().insert(CONTENT_DISPOSITION, attached);
    }
    response
}

fn typed(media: &'static str, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(crate::endpoints::body::full(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn error(code: u16, why: &str) -> Response<Body> {
    let mut response = typed("text/plain; charset=utf-8", format!("{why}\n"));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(GO_PPROF, HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_does() {
        for (text, wanted) in [
            ("0x10", Some(16)),
            ("0XfF", Some(255)),
            ("7", Some(7)),
            ("0", None),
            ("-1", None),
            ("ff", None),
            ("", None),
        ] {
            assert_eq!(address(text), wanted, "{text}");
        }
    }
}
