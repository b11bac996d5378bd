//! `/statusz` and `/flagz` (apiserver `server/statusz`, `server/flagz`): what the process is, and
//! what it was started with, for people and programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use http::{HeaderValue, Response, header};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::base::random;
use crate::discovery::accept::{self, Clause};
use crate::discovery::version;
use crate::endpoints::body::Body;
use crate::endpoints::encode::fixed_body;
use crate::endpoints::negotiate::{Form, MediaType, Output};
use crate::endpoints::{Request, respond};
use crate::meta::status::Result;
use crate::meta::{Object, Status, Value, json, time};

/// The name that the documents bear.
const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// The versions of the documents; clients of the first are warned.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];
const DEPRECATED: &str = "v1alpha1";
const ACCEPTED: &str = "application/json, application/yaml, text/plain";
/// The texts between names and values, of which one is taken by chance, so that nobody parses it.
const DELIMITERS: [&str; 4] = [":", ": ", "=", " "];
/// The top folders of paths that are not for debugging.
const NOT_FOR_DEBUGGING: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];

/// One of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Statusz,
    Flagz,
}

impl Page {
    pub const ALL: [Self; 2] = [Self::Flagz, Self::Statusz];

    fn kind(self) -> &'static str {
        match self {
            Self::Statusz => "Statusz",
            Self::Flagz => "Flagz",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Statusz => "statusz",
            Self::Flagz => "flagz",
        }
    }

    /// Returns the path of the page.
    pub fn path(self) -> &'static str {
        match self {
            Self::Statusz => "/statusz",
            Self::Flagz => "/flagz",
        }
    }
}

/// The form of an answer: text for people, or an object of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Text,
    Object(MediaType, &'static str),
}

/// The contents of the pages.
#[derive(Debug)]
pub struct ZPages {
    served: Vec<Page>,
    started: Timestamp,
    /// Every flag with its value.
    flags: BTreeMap<&'static str, String>,
    /// The top folders of paths for debugging.
    paths: Vec<String>,
}

impl ZPages {
    /// Returns the pages that are served of a process that began at `started`, with its flags, and
    /// with the paths that `GET /` lists.
    pub fn new(
        served: Vec<Page>,
        started: Timestamp,
        flags: BTreeMap<&'static str, String>,
        listed: &[String],
    ) -> Self {
        let mut paths: Vec<String> = listed
            .iter()
            .filter_map(|path| path.split('/').nth(1))
            .filter(|top| !top.is_empty())
            .map(|top| format!("/{top}"))
            .filter(|top| !NOT_FOR_DEBUGGING.contains(&top.as_str()))
            .collect();
        paths.sort();
        paths.dedup();
        Self {
            served,
            started,
            flags,
            paths,
        }
    }

    /// Reports whether a page is served.
    pub fn has(&self, page: Page) -> bool {
        self.served.contains(&page)
    }

    /// Answers a request for a page.
    pub fn answer(&self, page: Page, request: &Request, now: Timestamp) -> Response<Body> {
        let answer = match negotiate(page, &request.header(header::ACCEPT)) {
            Ok(answer) => answer,
            Err(status) => return respond::status(&status, Output::default()),
        };
        let Answer::Object(media, version) = answer else {
            return respond::text(200, self.text(page, now));
        };
        let output = Output {
            media,
            form: Form::Object,
            pretty: request.status_output().pretty,
        };
        let object = Object::from_value(self.object(page, version, now)).unwrap_or_default();
        let mut response = respond::bytes(200, output, fixed_body(&object, output));
        if version == DEPRECATED {
            let warning = format!(
                "299 - \"This version of the {} endpoint is deprecated. Please use a newer version.\"",
                page.name()
            );
            if let Ok(warning) = HeaderValue::from_str(&warning) {
                response.headers_mut().insert(header::WARNING, warning);
            }
        }
        response
    }

    fn uptime(&self, now: Timestamp) -> i64 {
        (now.as_second() - self.started.as_second()).max(0)
    }

    fn object(&self, page: Page, version: &str, now: Timestamp) -> Value {
        let mut object = json!({
            "kind": page.kind(),
            "apiVersion": format!("{GROUP}/{version}"),
            "metadata": {"name": COMPONENT},
        });
        let fields = match page {
            Page::Statusz => json!({
                "startTime": time::format(self.started.as_second()),
                "uptimeSeconds": self.uptime(now),
                "goVersion": "",
                "binaryVersion": version::GIT_VERSION.trim_start_matches('v'),
                "emulationVersion": format!("{}.{}", version::MAJOR, version::MINOR),
                "paths": self.paths,
            }),
            Page::Flagz => json!({"flags": self.flags}),
        };
        if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
            object.extend(fields);
        }
        object
    }

    fn text(&self, page: Page, now: Timestamp) -> String {
        let mut delimiters = DELIMITERS;
        random::shuffle(&mut delimiters);
        let delimiter = delimiters[0];
        let mut text = format!(
            "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no \
             formatting compatibility guarantees and is for debugging purposes only.\n",
            page.name()
        );
        // Writing to a String cannot fail.
        let _ = match page {
            Page::Statusz => self.write_status(&mut text, delimiter, now),
            Page::Flagz => self
                .flags
                .iter()
                .try_for_each(|(name, value)| writeln!(text, "{name}{delimiter}{value}")),
        };
        text
    }

    fn write_status(&self, text: &mut String, is: &str, now: Timestamp) -> std::fmt::Result {
        let up = self.uptime(now);
        let started = self.started.to_zoned(TimeZone::UTC);
        writeln!(text)?;
        writeln!(
            text,
            "Started{is} {}",
            started.strftime("%a %b %e %H:%M:%S UTC %Y")
        )?;
        writeln!(
            text,
            "Up{is} {} hr {:02} min {:02} sec",
            up / 3600,
            up / 60 % 60,
            up % 60
        )?;
        writeln!(text, "Go version{is} ")?;
        writeln!(
            text,
            "Binary version{is} {}",
            version::GIT_VERSION.trim_start_matches('v')
        )?;
        writeln!(
            text,
            "Emulation version{is} {}.{}",
            version::MAJOR,
            version::MINOR
        )?;
        writeln!(text, "Paths{is} {}", self.paths.join(" "))
    }
}

/// Chooses the form: text without an Accept header or for `text/plain` and wildcards; an object
/// only for a clause that names its kind (`StatuszEndpointRestrictions`).
fn negotiate(page: Page, header: &str) -> Result<Answer> {
    if header.trim().is_empty() {
        return Ok(Answer::Text);
    }
    let clauses = accept::parse(header);
    let chosen = clauses.iter().find_map(|clause| form(page, clause));
    chosen.ok_or_else(|| {
        Status::not_acceptable(format!(
            "only the following media types are accepted: {ACCEPTED}"
        ))
    })
}

fn form(page: Page, clause: &Clause<'_>) -> Option<Answer> {
    if !clause.param("sv").is_empty() || !clause.param("stream").is_empty() {
        return None;
    }
    if !clause.converts() {
        return clause.covers("text/plain").then_some(Answer::Text);
    }
    if clause.param("g") != GROUP || clause.param("as") != page.kind() {
        return None;
    }
    let version = VERSIONS
        .into_iter()
        .find(|version| *version == clause.param("v"))?;
    [MediaType::Json, MediaType::Yaml]
        .into_iter()
        .find(|media| clause.covers(media.name()))
        .map(|media| Answer::Object(media, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATEST: &str = VERSIONS[1];

    fn pages() -> ZPages {
        ZPages::new(
            vec![Page::Statusz, Page::Flagz],
            Timestamp::from_second(1_764_000_000).expect("a time"),
            BTreeMap::from([("v", "3".to_owned()), ("etcd-servers", "[]".to_owned())]),
            &["/api", "/livez/ping", "/livez", "/flagz", "/"].map(str::to_owned),
        )
    }

    fn later() -> Timestamp {
        Timestamp::from_second(1_764_000_000 + 3_723).expect("a time")
    }

    #[test]
    fn objects_are_for_those_who_name_their_kind() {
        let structured = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
        for (header, wanted) in [
            ("", Some(Answer::Text)),
            ("*/*", Some(Answer::Text)),
            ("text/plain", Some(Answer::Text)),
            (structured, Some(Answer::Object(MediaType::Json, LATEST))),
            (
                "application/yaml;g=config.k8s.io;v=v1alpha1;as=Statusz",
                Some(Answer::Object(MediaType::Yaml, DEPRECATED)),
            ),
            ("application/json", None),
            ("application/json;g=config.k8s.io;v=v2;as=Statusz", None),
            ("application/json;g=config.k8s.io;v=v1beta1;as=Flagz", None),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            assert_eq!(negotiate(Page::Statusz, header).ok(), wanted, "{header}");
        }
    }

    #[test]
    fn status_and_flags_are_told() {
        let pages = pages();
        let status = pages.object(Page::Statusz, LATEST, later());
        assert_eq!(
            status,
            json!({
                "kind": "Statusz", "apiVersion": "config.k8s.io/v1beta1",
                "metadata": {"name": "apiserver"}, "startTime": "2025-11-24T16:00:00Z",
                "uptimeSeconds": 3723, "goVersion": "", "binaryVersion": "1.36.2",
                "emulationVersion": "1.36", "paths": ["/flagz", "/livez"],
            })
        );
        let flags = pages.object(Page::Flagz, DEPRECATED, later());
        assert_eq!(flags["flags"], json!({"etcd-servers": "[]", "v": "3"}));
        let text = pages.text(Page::Statusz, later());
        assert!(text.starts_with("\napiserver statusz\nWarning: "), "{text}");
        assert!(text.contains("1 hr 02 min 03 sec"), "{text}");
        assert!(text.contains("Mon Nov 24 16:00:00 UTC 2025"), "{text}");
        let flags = pages.text(Page::Flagz, later());
        assert!(
            flags.contains("etcd-servers") && flags.ends_with("3\n"),
            "{flags}"
        );
    }
}
