//! The query and path parameters of each operation, with their descriptions.

use super::definitions::Dialect;
use crate::meta::{Map, Value, json};

/// A parameter of an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameter {
    pub name: &'static str,
    /// `path` or `query`.
    pub place: &'static str,
    /// string, integer or boolean.
    pub kind: &'static str,
    pub description: String,
}

impl Parameter {
    fn query(name: &'static str, kind: &'static str, description: &str) -> Self {
        Self {
            name,
            place: "query",
            kind,
            description: description.to_owned(),
        }
    }

    fn path(name: &'static str, description: String) -> Self {
        Self {
            name,
            place: "path",
            kind: "string",
            description,
        }
    }

    /// The Parameter Object.
    pub fn render(&self, dialect: Dialect) -> Value {
        let mut out = Map::new();
        let unique = json!({"type": self.kind, "uniqueItems": true});
        if let (Dialect::V2, Value::Object(flat)) = (dialect, &unique) {
            out.extend(flat.clone());
        }
        out.insert("description", self.description.as_str().into());
        out.insert("name", self.name.into());
        out.insert("in", self.place.into());
        if self.place == "path" {
            out.insert("required", true.into());
        }
        if dialect == Dialect::V3 {
            out.insert("schema", unique);
        }
        Value::Object(out)
    }
}

/// `{name}` of an object of `kind`.
pub fn name(kind: &str) -> Parameter {
    Parameter::path("name", format!("The name of the {kind}."))
}

/// `{namespace}`.
pub fn namespace() -> Parameter {
    Parameter::path("namespace", "The namespace of the object.".to_owned())
}

/// `{path}` of a proxied request.
pub fn proxied_path() -> Parameter {
    Parameter::path("path", "The path of the proxied request.".to_owned())
}

pub fn pretty() -> Parameter {
    Parameter::query(
        "pretty",
        "string",
        "Indents JSON if 'true'. Browsers, curl and wget get indented JSON unless they say 'false'.",
    )
}

/// Of create and update.
pub fn write() -> Vec<Parameter> {
    vec![dry_run(), field_manager(""), field_validation()]
}

/// Of patch.
pub fn patch() -> Vec<Parameter> {
    let force = "Takes over fields that other managers own. Only for server-side apply.";
    vec![
        dry_run(),
        field_manager(" Server-side apply requires it."),
        field_validation(),
        Parameter::query("force", "boolean", force),
    ]
}

/// Of delete.
pub fn delete() -> Vec<Parameter> {
    let grace = "The seconds that the object is given to end by itself. Zero deletes it at once; the kind's default applies if absent.";
    let unsafe_delete = "Deletes an object that cannot be read from the storage any more, without finalizers and preconditions.";
    let orphan = "Deprecated: use propagationPolicy. Whether dependents stay.";
    let policy = "What happens to dependents: 'Orphan' leaves them, 'Background' deletes them later, 'Foreground' deletes them first.";
    vec![
        dry_run(),
        Parameter::query("gracePeriodSeconds", "integer", grace),
        Parameter::query(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            "boolean",
            unsafe_delete,
        ),
        Parameter::query("orphanDependents", "boolean", orphan),
        Parameter::query("propagationPolicy", "string", policy),
    ]
}

/// Of get, if it is documented.
pub fn resource_version() -> Parameter {
    Parameter::query(
        "resourceVersion",
        "string",
        "The resource version to answer from; resourceVersionMatch says how exactly.",
    )
}

/// The parameters that select the objects of a list, a watch or a deletion.
pub fn select() -> Vec<Parameter> {
    let query = Parameter::query;
    vec![
        query(
            "continue",
            "string",
            "Where the last page ended: the token of its metadata.continue.",
        ),
        query(
            "fieldSelector",
            "string",
            "Only objects whose fields match this selector.",
        ),
        query(
            "labelSelector",
            "string",
            "Only objects whose labels match this selector.",
        ),
        query(
            "limit",
            "integer",
            "The greatest number of objects of a page. The rest follows with the token in metadata.continue.",
        ),
        resource_version(),
        query(
            "resourceVersionMatch",
            "string",
            "How resourceVersion is meant: 'Exact' or 'NotOlderThan'.",
        ),
        query(
            "sendInitialEvents",
            "boolean",
            "Starts a watch with an ADDED event for each object there is, and a bookmark after them. Needs resourceVersionMatch.",
        ),
        query(
            "shardSelector",
            "string",
            "Only objects whose hash lies in the ranges of this expression.",
        ),
        query(
            "timeoutSeconds",
            "integer",
            "The seconds after which a list or watch ends.",
        ),
    ]
}

/// Of list and watch, beyond [`select`].
pub fn watch() -> Vec<Parameter> {
    let bookmarks = "Asks for BOOKMARK events, which say how far a watch has come.";
    vec![
        Parameter::query("allowWatchBookmarks", "boolean", bookmarks),
        Parameter::query(
            "watch",
            "boolean",
            "Streams changes instead of listing objects.",
        ),
    ]
}

/// The options of subresources that are not objects, by their kind.
pub fn connect(options: &str) -> Vec<Parameter> {
    let query = Parameter::query;
    let stream = |name, what| query(name, "boolean", what);
    let streams = || {
        vec![
            query(
                "container",
                "string",
                "The container; may be left out if there is only one.",
            ),
            stream("stderr", "Connects the standard error stream."),
            stream("stdin", "Connects the standard input stream."),
            stream("stdout", "Connects the standard output stream."),
            stream("tty", "Gives the process a terminal."),
        ]
    };
    match options {
        "PodAttachOptions" => streams(),
        "PodExecOptions" => {
            let mut all = streams();
            all.push(query(
                "command",
                "string",
                "The command and its arguments, one parameter each. No shell is involved.",
            ));
            all
        }
        "PodPortForwardOptions" => vec![query(
            "ports",
            "integer",
            "The ports to forward; WebSockets need them.",
        )],
        "PodLogOptions" => vec![
            query(
                "container",
                "string",
                "The container; may be left out if there is only one.",
            ),
            query(
                "follow",
                "boolean",
                "Goes on with what the container writes from now on.",
            ),
            query(
                "insecureSkipTLSVerifyBackend",
                "boolean",
                "Does not verify the certificate of the kubelet.",
            ),
            query(
                "limitBytes",
                "integer",
                "The greatest number of bytes to return.",
            ),
            pretty(),
            query(
                "previous",
                "boolean",
                "The logs of the container before its last restart.",
            ),
            query(
                "sinceSeconds",
                "integer",
                "Only what was written in these last seconds.",
            ),
            query("stream", "string", "'All', 'Stdout' or 'Stderr'."),
            query("tailLines", "integer", "Only this many lines from the end."),
            query(
                "timestamps",
                "boolean",
                "Puts the time in front of each line.",
            ),
        ],
        _ => vec![query("path", "string", "The path of the proxied request.")],
    }
}

fn dry_run() -> Parameter {
    Parameter::query(
        "dryRun",
        "string",
        "'All' goes through every stage but stores nothing.",
    )
}

fn field_manager(more: &str) -> Parameter {
    let text =
        format!("The name of who makes this change, at most 128 printable characters.{more}");
    Parameter {
        name: "fieldManager",
        place: "query",
        kind: "string",
        description: text,
    }
}

fn field_validation() -> Parameter {
    let text = "What unknown and duplicate fields lead to: 'Ignore' nothing, 'Warn' a warning (the default), 'Strict' an error.";
    Parameter::query("fieldValidation", "string", text)
}
