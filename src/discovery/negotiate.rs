//! Negotiation of the form of a document by the Accept header (apiserver `handlers/negotiation`,
//! `discovery/aggregated`).

use http::HeaderValue;

use super::JSON;
use super::accept::{self, Clause};
use crate::meta::Status;
use crate::meta::status::Result;

const PRODUCED: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The treatment of the Accept header by an endpoint. The differences are the Go server's, and
/// clients see them in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Behind go-restful, which checks the media types before the handler does.
    Route,
    /// The handler's own check only.
    Plain,
    /// Behind go-restful, and JSON only.
    JsonRoute,
    /// Always JSON.
    JsonAlways,
}

impl Endpoint {
    /// Reports whether it is behind go-restful, which knows the methods of its routes.
    pub fn is_route(self) -> bool {
        matches!(self, Self::Route | Self::JsonRoute)
    }

    /// Reports whether there are several forms to choose from.
    pub fn negotiates(self) -> bool {
        matches!(self, Self::Route | Self::Plain)
    }
}

/// The encodings of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    Json,
    Yaml,
    Protobuf,
}

impl DocumentFormat {
    pub fn content_type(self, aggregated: bool) -> HeaderValue {
        match (self, aggregated) {
            (Self::Json, false) => JSON,
            (Self::Json, true) => HeaderValue::from_static(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            ),
            (Self::Yaml, _) => HeaderValue::from_static("application/yaml"),
            (Self::Protobuf, _) => HeaderValue::from_static("application/vnd.kubernetes.protobuf"),
        }
    }
}

/// The outcome of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    pub form: DocumentFormat,
    pub aggregated: bool,
}

/// Chooses the form, or refuses with 406. Where there is an aggregated document, any clause that
/// asks for it wins over those that ask for the plain one.
///
/// # Errors
/// 406 if no clause can be satisfied.
pub fn negotiate(accept: &str, endpoint: Endpoint, has_aggregated: bool) -> Result<Negotiated> {
    let produced: &[&str] = match endpoint {
        Endpoint::JsonAlways => {
            return Ok(Negotiated {
                form: DocumentFormat::Json,
                aggregated: false,
            });
        }
        Endpoint::JsonRoute => &PRODUCED[..1],
        Endpoint::Route | Endpoint::Plain => &PRODUCED,
    };
    if endpoint != Endpoint::Plain && !accept::route_produces(accept, produced) {
        return Err(no_route(produced));
    }
    if accept.is_empty() || endpoint == Endpoint::JsonRoute {
        return Ok(Negotiated {
            form: DocumentFormat::Json,
            aggregated: false,
        });
    }
    let clauses = accept::parse(accept);
    let aggregated = clauses
        .iter()
        .filter(|clause| has_aggregated && asks_for_aggregated(clause))
        .find_map(form);
    let plain = || {
        clauses
            .iter()
            .filter(|clause| !clause.converts())
            .find_map(form)
    };
    let mut asked = clauses.iter().filter(|clause| asks_for_aggregated(clause));
    if has_aggregated && asked.any(|clause| clause.param("profile") == "nopeer") {
        super::metrics::asked_without_peers();
    }
    match aggregated {
        Some(DocumentFormat::Json) => Ok(Negotiated {
            form: DocumentFormat::Json,
            aggregated: true,
        }),
        _ => plain()
            .map(|form| Negotiated {
                form,
                aggregated: false,
            })
            .ok_or_else(not_acceptable),
    }
}

fn asks_for_aggregated(clause: &Clause) -> bool {
    (clause.param("g"), clause.param("v"), clause.param("as"))
        == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
}

fn form(clause: &Clause) -> Option<DocumentFormat> {
    let stream = clause.param("stream");
    if !clause.param("sv").is_empty() || !matches!(stream, "" | "watch") {
        return None;
    }
    let forms = PRODUCED.into_iter().zip([
        DocumentFormat::Json,
        DocumentFormat::Yaml,
        DocumentFormat::Protobuf,
    ]);
    // YAML cannot be streamed.
    forms
        .filter(|(_, form)| stream.is_empty() || *form != DocumentFormat::Yaml)
        .find(|(media_type, _)| clause.covers(media_type))
        .map(|(_, form)| form)
}

fn not_acceptable() -> Status {
    Status::not_acceptable(format!(
        "only the following media types are accepted: {}",
        PRODUCED.join(", ")
    ))
}

/// The refusal in go-restful's words.
fn no_route(produced: &[&str]) -> Status {
    let mut status = Status::not_acceptable(format!(
        "406: Not Acceptable\n\nAvailable representations: {}",
        produced.join(", ")
    ));
    status.details_mut();
    status
}
