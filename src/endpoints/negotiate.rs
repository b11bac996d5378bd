//! Negotiation of the representations that a client accepts and sends (apiserver
//! `handlers/negotiation`).

use std::collections::BTreeSet;

use crate::discovery::accept;
use crate::meta::Status;
use crate::meta::options::Query;
use crate::meta::status::Result;

/// A media type that objects are read and written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaType {
    Json,
    Yaml,
    Protobuf,
}

impl MediaType {
    pub const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];
    /// The media types of objects of custom kinds. Tables of them have all.
    pub const TEXT: [Self; 2] = [Self::Json, Self::Yaml];

    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|media| media.name() == name)
    }
}

/// The kind of object that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The object itself.
    Object,
    /// A `meta.k8s.io` Table in this version (v1 or v1beta1).
    Table(&'static str),
    /// PartialObjectMetadata (or its list), likewise.
    Metadata(&'static str),
    /// This kind of metadata, which the answer cannot be: of one object where it is a list, or the
    /// other way round. What was asked for is done all the same.
    NotAcceptable(&'static str),
}

/// The outcome of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Output {
    pub media: MediaType,
    pub form: Form,
    /// Indented JSON.
    pub pretty: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            media: MediaType::Json,
            form: Form::Object,
            pretty: false,
        }
    }
}

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The media types of events.
const STREAMED: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The use of an answer, which decides which transformations make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Object,
    /// An object that is not stored: no Tables.
    Ephemeral,
    List,
    /// The objects of a collection that are deleted: a list, but on a route that is not watched.
    Deleted,
    Watch,
    /// Status and other fixed kinds: no transformation.
    Fixed,
}

/// Picks the representation of the answer, 406 where there is none. Objects themselves come in one
/// of `media`.
///
/// # Errors
/// 406 if no clause can be satisfied.
pub fn output(
    header: &str,
    user_agent: &str,
    query: &Query,
    purpose: Purpose,
    media: &[MediaType],
) -> Result<Output> {
    if !accept::route_produces(header, &MediaType::ALL.map(MediaType::name)) {
        let watched = matches!(purpose, Purpose::List | Purpose::Watch);
        let produced = if watched {
            format!("{ACCEPTED}, {STREAMED}")
        } else {
            ACCEPTED.to_owned()
        };
        let mut status = Status::not_acceptable(format!(
            "406: Not Acceptable\n\nAvailable representations: {produced}"
        ));
        status.details_mut();
        return Err(status);
    }
    let mut output = pick(header, purpose, media).ok_or_else(|| only(ACCEPTED))?;
    output.pretty |= wants_pretty(user_agent, query);
    Ok(output)
}

/// Refuses to stream events in a type without framing: YAML documents cannot be told apart.
///
/// # Errors
/// 406 for YAML.
pub fn check_streamable(output: Output) -> Result<()> {
    if output.media == MediaType::Yaml {
        Err(only(STREAMED))
    } else {
        Ok(())
    }
}

fn only(accepted: &str) -> Status {
    Status::not_acceptable(format!(
        "only the following media types are accepted: {accepted}"
    ))
}

/// The representation for an answer that must come in some form: indented JSON where the client
/// accepts none.
pub fn fallback_output(header: &str, user_agent: &str, query: &Query) -> Output {
    let raw = Output {
        pretty: true,
        ..Output::default()
    };
    let mut output = pick(header, Purpose::Fixed, &MediaType::ALL).unwrap_or(raw);
    output.pretty |= wants_pretty(user_agent, query);
    output
}

fn pick(header: &str, purpose: Purpose, objects: &[MediaType]) -> Option<Output> {
    if header.is_empty() {
        return Some(Output::default());
    }
    for clause in accept::parse(header) {
        for media in MediaType::ALL {
            if clause.covers(media.name())
                && let Some(output) = accept_params(&clause.params, media, purpose)
                && (output.form != Form::Object || objects.contains(&media))
            {
                return Some(output);
            }
        }
    }
    None
}

fn accept_params(params: &[(&str, &str)], media: MediaType, purpose: Purpose) -> Option<Output> {
    let (mut kind, mut group, mut version) = (None, "", "");
    let (mut converts, mut pretty) = (false, false);
    for (key, value) in params {
        match *key {
            "as" => (kind, converts) = (Some(*value), true),
            "g" => (group, converts) = (value, true),
            "v" => (version, converts) = (value, true),
            "stream" if *value != "watch" => return None,
            "sv" => return None,
            "pretty" => pretty = *value == "1",
            _ => {}
        }
    }
    if !converts {
        return Some(Output {
            media,
            form: Form::Object,
            pretty,
        });
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => "v1",
        ("meta.k8s.io", "v1beta1") => "v1beta1",
        _ => return None,
    };
    let form = match (kind?, purpose) {
        (_, Purpose::Fixed) | ("Table", Purpose::Ephemeral) => return None,
        // Tables are text (apiserver `RequestScope.AllowsMediaTypeTransform`).
        ("Table", _) if media == MediaType::Protobuf => return None,
        ("Table", _) => Form::Table(version),
        ("PartialObjectMetadata", Purpose::List | Purpose::Deleted) => {
            Form::NotAcceptable("PartialObjectMetadata")
        }
        ("PartialObjectMetadata", _) => Form::Metadata(version),
        ("PartialObjectMetadataList", Purpose::List | Purpose::Deleted) => Form::Metadata(version),
        ("PartialObjectMetadataList", _) => Form::NotAcceptable("PartialObjectMetadataList"),
        _ => return None,
    };
    Some(Output {
        media,
        form,
        pretty,
    })
}

/// Indents for people: with `?pretty`, or for user agents that people use.
fn wants_pretty(user_agent: &str, query: &Query) -> bool {
    match query.get("pretty") {
        Some(value) if !value.is_empty() => {
            matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }
        _ => ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|agent| user_agent.starts_with(agent)),
    }
}

/// The type of a request's body: JSON by default, 415 for unknown types.
///
/// # Errors
/// 415 for a type that cannot be read.
pub fn body_media_type(content_type: &str) -> Result<MediaType> {
    if content_type.is_empty() {
        return Ok(MediaType::Json);
    }
    let (name, parameters) = match content_type.split_once(';') {
        Some((name, parameters)) => (name, Some(parameters)),
        None => (content_type, None),
    };
    let name = name.trim().to_ascii_lowercase();
    let is_well_formed = parameters.is_none_or(are_parameters);
    MediaType::from_name(&name)
        .filter(|_| is_well_formed)
        .ok_or_else(|| unsupported(ACCEPTED))
}

/// Reports whether a text is parameters of a media type, `name=value` after `name="value"`, all of
/// other names (Go's `mime.ParseMediaType`).
fn are_parameters(mut text: &str) -> bool {
    let mut names = BTreeSet::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return true;
        }
        let Some((name, value)) = text.split_once('=') else {
            return false;
        };
        let name = name.trim_end();
        if !is_token(name) || !names.insert(name.to_ascii_lowercase()) {
            return false;
        }
        let Some(rest) = after_value(value.trim_start()) else {
            return false;
        };
        match rest.trim_start().strip_prefix(';') {
            Some(rest) => text = rest,
            None => return rest.trim_start().is_empty(),
        }
    }
}

/// Returns what follows a parameter's value, a token or a quoted string; `None` where neither
/// comes.
fn after_value(text: &str) -> Option<&str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c| !is_token_char(c)).unwrap_or(text.len());
        return text
            .split_at_checked(end)
            .filter(|_| end > 0)
            .map(|(_, rest)| rest);
    };
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return quoted.get(at + 1..),
            '\r' | '\n' => return None,
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_token_char)
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c)
}

/// 415 with the types that would do.
pub fn unsupported(accepted: &str) -> Status {
    Status::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(accept: &str, purpose: Purpose) -> String {
        match output(
            accept,
            "kubectl/v1.36",
            &Query::default(),
            purpose,
            &MediaType::ALL,
        ) {
            Ok(output) => format!("{} {:?}", output.media.name(), output.form),
            Err(status) => format!("{}", status.code),
        }
    }

    #[test]
    fn negotiation_picks_the_best_acceptable_type() {
        let checks = [
            ("", Purpose::Object, "application/json Object"),
            ("*/*", Purpose::Object, "application/json Object"),
            (
                "application/json;q=0.2, application/yaml;q=0.9",
                Purpose::Object,
                "application/yaml Object",
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Purpose::List,
                "application/vnd.kubernetes.protobuf Object",
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Purpose::List,
                "application/json Table(\"v1\")",
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Purpose::List,
                "application/json Metadata(\"v1\")",
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Purpose::List,
                "application/json NotAcceptable(\"PartialObjectMetadata\")",
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Purpose::Watch,
                "application/json Metadata(\"v1\")",
            ),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v1",
                Purpose::Ephemeral,
                "406",
            ),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v9",
                Purpose::Object,
                "406",
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
                Purpose::List,
                "406",
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/vnd.kubernetes.protobuf",
                Purpose::List,
                "application/vnd.kubernetes.protobuf Object",
            ),
            ("application/json;g=x", Purpose::Object, "406"),
            ("application/*", Purpose::Object, "406"),
            ("text/html", Purpose::Object, "406"),
        ];
        for (accept, purpose, want) in checks {
            assert_eq!(read(accept, purpose), want, "{accept}");
        }
    }

    #[test]
    fn unknown_body_media_types_are_refused() {
        for (text, read) in [
            ("", true),
            ("application/json", true),
            (" Application/JSON ; charset=utf-8 ", true),
            ("application/json;", true),
            ("application/json; a=\"b;\\\"c\"; d=e;", true),
            ("application/json;;", false),
            ("application/json; charset", false),
            ("application/json; charset=", false),
            ("application/json; a=\"b", false),
            ("application/json; a=1; A=2", false),
            ("application/json, application/json", false),
            ("text/yaml", false),
            (" ", false),
            ("\u{fffd}", false),
        ] {
            let read = if read { Ok(MediaType::Json) } else { Err(415) };
            assert_eq!(
                body_media_type(text).map_err(|status| status.code),
                read,
                "{text:?}"
            );
        }
    }
}
