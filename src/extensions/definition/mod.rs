//! A CustomResourceDefinition, read from its object.

pub mod approval;
mod go_format;
pub mod naming;
pub mod strategy;
pub mod validation;
pub mod version_order;

use std::sync::Arc;

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::prune_and_default;
use crate::extensions::schema::structural;
use crate::meta::Value;
use crate::meta::{Object, Path, str_at};
use crate::registry::scale::ScalePaths;
use crate::registry::validation::Fields;
use crate::webhook::ClientConfig;

/// The condition that the names are the definition's own.
pub const NAMES_ACCEPTED: &str = "NamesAccepted";
/// The condition that the resource is served.
pub const ESTABLISHED: &str = "Established";
/// The condition that the definition is on its way out.
pub const TERMINATING: &str = "Terminating";
/// The finalizer that waits until the objects of the kind are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The maximum number of bytes that short names and categories may come to if every version repeats
/// them, as its resource does. Those of a stored definition beyond are not served.
pub const MAX_NAMES_BYTES: usize = 16 << 20;

/// The parts of a definition that serving its resource needs.
#[derive(Debug)]
pub struct Definition {
    pub name: String,
    pub uid: String,
    pub generation: i64,
    pub group: String,
    pub names: Names,
    pub namespaced: bool,
    /// `spec.preserveUnknownFields`, of definitions from before v1.
    pub preserve: bool,
    /// `spec.conversion`, if a webhook is to convert between versions.
    pub conversion: Option<WebhookConversion>,
    pub versions: Vec<Version>,
    pub established: bool,
    pub names_accepted: bool,
    pub terminating: bool,
}

/// `spec.names`, or those of them that were accepted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

/// The webhook that converts between the versions of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConversion {
    pub client: ClientConfig,
    /// `conversionReviewVersions`, the one that it likes best first.
    pub review_versions: Vec<String>,
}

impl WebhookConversion {
    fn read(webhook: Option<&Value>) -> Self {
        let empty = Value::Null;
        let webhook = webhook.unwrap_or(&empty);
        let mut client = ClientConfig::read(webhook.pointer("/clientConfig").unwrap_or(&empty));
        // A bundle of white space counts as none.
        if client.ca_bundle.trim_ascii().is_empty() {
            client.ca_bundle.clear();
        }
        let review_versions = webhook.list("conversionReviewVersions").iter();
        Self {
            client,
            review_versions: review_versions
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// One version of the kind.
#[derive(Debug)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    /// The warning for clients that use it.
    pub deprecation: Option<String>,
    pub schema: Option<Arc<JsonSchemaProps>>,
    /// The schema as it was given, for documents.
    pub raw_schema: Option<Value>,
    /// True if the schema may be relied on to be structural.
    pub structural: bool,
    pub status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Vec<Value>,
    /// The paths that objects may be selected by, without their leading dots.
    pub selectable: Vec<String>,
}

impl Names {
    pub fn read(tree: &Value) -> Self {
        let strings = |key: &str| {
            tree.list(key)
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self {
            plural: tree.str("plural").to_owned(),
            singular: tree.str("singular").to_owned(),
            short_names: strings("shortNames"),
            kind: tree.str("kind").to_owned(),
            list_kind: tree.str("listKind").to_owned(),
            categories: strings("categories"),
        }
    }

    /// The bytes of short names and categories, with what each takes besides.
    pub fn list_bytes(&self) -> usize {
        let lists = self.short_names.iter().chain(&self.categories);
        lists.map(|name| name.len() + size_of::<String>()).sum()
    }

    /// The tree of the names, without those that are empty (but for plural and kind, which are
    /// always shown).
    pub fn write(&self) -> Value {
        let mut out = crate::meta::Map::new();
        let mut put = |key: &str, value: Value| {
            let is_empty =
                value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
            if !is_empty || matches!(key, "plural" | "kind") {
                out.insert(key.to_owned(), value);
            }
        };
        put("plural", self.plural.as_str().into());
        put("singular", self.singular.as_str().into());
        put("shortNames", self.short_names.as_slice().into());
        put("kind", self.kind.as_str().into());
        put("listKind", self.list_kind.as_str().into());
        put("categories", self.categories.as_slice().into());
        Value::Object(out)
    }
}

impl Definition {
    pub fn read(object: &Object) -> Self {
        let empty = Value::Null;
        let spec = object.get("spec").unwrap_or(&empty);
        let (group, preserve) = (
            spec.str("group").to_owned(),
            spec.flag("preserveUnknownFields"),
        );
        let mut versions: Vec<Version> = spec
            .list("versions")
            .iter()
            .map(|one| Version::read(one, preserve))
            .collect();
        let mut names = Names::read(object.at("/status/acceptedNames").unwrap_or(&empty));
        if names.list_bytes().saturating_mul(versions.len()) > MAX_NAMES_BYTES {
            names.short_names.clear();
            names.categories.clear();
        }
        let kind = str_at(spec, "/names/kind");
        warn_of_deprecated(&mut versions, spec.list("versions"), &group, kind);
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            generation: object.generation(),
            group,
            names,
            namespaced: spec.str("scope") == "Namespaced",
            preserve,
            conversion: (str_at(spec, "/conversion/strategy") == "Webhook")
                .then(|| WebhookConversion::read(spec.pointer("/conversion/webhook"))),
            versions,
            established: is_true(object, ESTABLISHED),
            names_accepted: is_true(object, NAMES_ACCEPTED),
            terminating: is_true(object, TERMINATING),
        }
    }

    /// The version that objects are stored in.
    pub fn storage_version(&self) -> &str {
        self.versions
            .iter()
            .find(|version| version.storage)
            .map_or("", |version| version.name.as_str())
    }

    /// Reports whether requests are answered: the names are accepted, or have been once.
    pub fn is_served(&self) -> bool {
        let names = &self.names;
        let named = ![
            &names.plural,
            &names.singular,
            &names.kind,
            &names.list_kind,
        ]
        .into_iter()
        .any(String::is_empty);
        (self.names_accepted || self.established) && named
    }
}

impl Version {
    fn read(tree: &Value, preserve: bool) -> Self {
        let raw_schema = tree
            .pointer("/schema/openAPIV3Schema")
            .filter(|one| one.is_object())
            .cloned();
        let mut schema = raw_schema.as_ref().map(JsonSchemaProps::read);
        let is_structural = |schema: &JsonSchemaProps| {
            structural::conversion_error(schema).is_none()
                && structural::validate(&Path::default(), schema).is_empty()
        };
        let structural = schema.as_ref().is_some_and(is_structural);
        if let (Some(schema), false) = (&mut schema, preserve) {
            prune_and_default::prune_defaults(schema);
        }
        let scale = tree
            .pointer("/subresources/scale")
            .filter(|one| one.is_object());
        Self {
            name: tree.str("name").to_owned(),
            served: tree.flag("served"),
            storage: tree.flag("storage"),
            deprecation: None,
            schema: schema.map(Arc::new),
            raw_schema,
            structural,
            status: tree
                .pointer("/subresources/status")
                .is_some_and(Value::is_object),
            scale: scale.map(|one| ScalePaths {
                spec_replicas: one.str("specReplicasPath").to_owned(),
                status_replicas: one.str("statusReplicasPath").to_owned(),
                label_selector: one
                    .opt_str("labelSelectorPath")
                    .filter(|path| !path.is_empty())
                    .map(str::to_owned),
            }),
            columns: tree.list("additionalPrinterColumns").to_vec(),
            selectable: tree
                .list("selectableFields")
                .iter()
                .map(|one| one.str("jsonPath").trim_start_matches('.').to_owned())
                .collect(),
        }
    }
}

/// Gives deprecated versions their warnings: their own, or one that names the newest version that
/// is not.
fn warn_of_deprecated(versions: &mut [Version], trees: &[Value], group: &str, kind: &str) {
    let newest = versions
        .iter()
        .zip(trees)
        .filter(|(version, tree)| version.served && !tree.flag("deprecated"))
        .map(|(version, _)| version.name.clone())
        .max_by(|a, b| version_order::compare(a, b));
    let deprecated = versions.iter_mut().zip(trees);
    for (version, tree) in deprecated.filter(|(_, tree)| tree.flag("deprecated")) {
        let best = newest
            .as_ref()
            .filter(|name| version_order::compare(&version.name, name).is_lt());
        let mut text = format!("{group}/{} {kind} is deprecated", version.name);
        if let Some(best) = best {
            text.push_str(&format!("; use {group}/{best} {kind}"));
        }
        version.deprecation = Some(
            tree.opt_str("deprecationWarning")
                .map_or(text, str::to_owned),
        );
    }
}

/// The condition of a type.
pub fn condition<'a>(object: &'a Object, kind: &str) -> Option<&'a Value> {
    object
        .array_at("/status/conditions")
        .iter()
        .find(|one| one.str("type") == kind)
}

/// Reports whether a condition holds.
pub fn is_true(object: &Object, kind: &str) -> bool {
    condition(object, kind).is_some_and(|one| one.str("status") == "True")
}

/// A condition with its status, reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: String,
    pub message: String,
}

impl Condition {
    pub fn new(
        kind: &'static str,
        status: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// Reports whether the object has this condition already.
    pub fn is_set_on(&self, object: &Object) -> bool {
        condition(object, self.kind).is_some_and(|one| {
            one.str("status") == self.status
                && one.str("reason") == self.reason
                && one.str("message") == self.message
        })
    }

    /// Puts the condition into the status; its time changes with its status only.
    pub fn set(&self, object: &mut Object, now: &str) {
        let before = condition(object, self.kind)
            .filter(|one| one.str("status") == self.status)
            .map(|one| one.str("lastTransitionTime").to_owned());
        let time = before
            .filter(|time| !time.is_empty())
            .unwrap_or_else(|| now.to_owned());
        let value = crate::meta::json!({
            "type": self.kind,
            "status": self.status,
            "lastTransitionTime": time,
            "reason": self.reason,
            "message": self.message,
        });
        let slot = object
            .section_mut("status")
            .entry("conditions")
            .or_insert_with(|| Value::Array(Vec::new()));
        if !slot.is_array() {
            *slot = Value::Array(Vec::new());
        }
        let Value::Array(list) = slot else { return };
        match list.iter_mut().find(|one| one.str("type") == self.kind) {
            Some(one) => *one = value,
            None => list.push(value),
        }
    }
}
