//! Request options: get, list, create, update, patch and delete options from the query or body
//! (apimachinery `apis/meta/v1`, `apis/meta/internalversion/validation`).

use crate::meta::go;
use crate::meta::go::url::query_parameters;
use crate::meta::{Map, Value, json};

use super::field::{ErrorList, FieldError, Path};
use super::gvk::Gvk;
use super::object::Object;
use super::selector::fields::FieldSelector;
use super::selector::labels::LabelSelector;
use super::status::{Result, Status};

/// The longest fieldManager, in bytes.
pub const FIELD_MANAGER_MAX: usize = 128;

/// The parameters of a query, decoded, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    pub fn parse(query: &str) -> Self {
        Self(
            query_parameters(query)
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    fn text(&self, key: &str) -> String {
        self.get(key).unwrap_or("").to_owned()
    }

    /// Anything but `0` and `false` is true.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)
            .map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn int(&self, key: &str) -> Result<Option<i64>> {
        self.get(key).map(parse_int).transpose()
    }

    /// All values of `key`.
    pub fn all(&self, key: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value.clone())
            .collect()
    }
}

/// A number in Go's syntax.
///
/// # Errors
/// 400 with the text of Go's `strconv.ParseInt`.
pub fn parse_int(text: &str) -> Result<i64> {
    use std::num::IntErrorKind;
    text.parse().map_err(|why: std::num::ParseIntError| {
        let what = match why.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Status::bad_request(format!(
            "strconv.ParseInt: parsing {}: {what}",
            go::quote(text)
        ))
    })
}

/// A resourceVersion as a client sends it: the oldest state that will do, or nothing for the
/// latest. The error is the text of upstream's `ParseResourceVersion`.
///
/// # Errors
/// The text of upstream's `ParseResourceVersion`.
pub fn parse_resource_version(text: &str) -> std::result::Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    parse_uint(text).map(Some).map_err(|detail| {
        FieldError::invalid(&Path::new("resourceVersion"), text, detail).to_string()
    })
}

/// An unsigned number; the error is that of Go's `strconv.ParseUint`.
///
/// # Errors
/// The text of Go's `strconv.ParseUint`.
pub fn parse_uint(text: &str) -> std::result::Result<u64, String> {
    use std::num::IntErrorKind;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let what = match text.parse::<u64>() {
        Ok(number) if digits => return Ok(number),
        Err(why) if digits && *why.kind() == IntErrorKind::PosOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Err(format!(
        "strconv.ParseUint: parsing {}: {what}",
        go::quote(text)
    ))
}

/// ListOptions, for list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: LabelSelector,
    pub field_selector: FieldSelector,
    pub watch: bool,
    pub allow_watch_bookmarks: bool,
    pub resource_version: String,
    /// Empty, `Exact` or `NotOlderThan`.
    pub resource_version_match: String,
    pub timeout_seconds: Option<i64>,
    pub limit: i64,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads and validates. `force_watch` is for the deprecated watch paths.
    ///
    /// # Errors
    /// 400 for parameters that cannot be parsed, 422 for invalid ones.
    pub fn from_query(query: &Query, force_watch: bool) -> Result<Self> {
        // Numbers are read before selectors.
        let (timeout_seconds, limit) = (
            query.int("timeoutSeconds")?,
            query.int("limit")?.unwrap_or(0),
        );
        let mut options = Self {
            label_selector: LabelSelector::parse(query.get("labelSelector").unwrap_or(""))
                .map_err(Status::bad_request)?,
            field_selector: FieldSelector::parse(query.get("fieldSelector").unwrap_or(""))
                .map_err(Status::bad_request)?,
            watch: query.flag("watch").unwrap_or(false) || force_watch,
            allow_watch_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            resource_version: query.text("resourceVersion"),
            resource_version_match: query.text("resourceVersionMatch"),
            timeout_seconds,
            limit,
            continue_token: query.text("continue"),
            send_initial_events: query.flag("sendInitialEvents"),
        };
        options.set_defaults();
        let errors = if options.watch {
            options.watch_errors()
        } else {
            options.list_errors()
        };
        reject("ListOptions", errors)?;
        Ok(options)
    }

    /// A watch of "now" or "any" without a word on initial events asks for them, as it always did.
    fn set_defaults(&mut self) {
        if !self.watch
            || self.send_initial_events.is_some()
            || !self.resource_version_match.is_empty()
        {
            return;
        }
        let legacy = self.resource_version.is_empty() || self.resource_version == "0";
        if legacy {
            self.send_initial_events = Some(true);
            self.resource_version_match = "NotOlderThan".to_owned();
        }
    }

    fn list_errors(&self) -> ErrorList {
        let path = Path::new("resourceVersionMatch");
        let mut errors = ErrorList::new();
        let wanted = self.resource_version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                errors.forbidden(
                    &path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            if wanted != "Exact" && wanted != "NotOlderThan" {
                errors.not_supported(&path, wanted, &["Exact", "NotOlderThan", ""]);
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.forbidden(&path, why);
            }
        }
        if self.send_initial_events.is_some() {
            let path = Path::new("sendInitialEvents");
            errors.forbidden(&path, "sendInitialEvents is forbidden for list");
        }
        errors
    }

    fn watch_errors(&self) -> ErrorList {
        let path = Path::new("resourceVersionMatch");
        let mut errors = ErrorList::new();
        let wanted = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            errors.forbidden(
                &path,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.forbidden(&path, why);
            }
            if wanted != "NotOlderThan" {
                errors.not_supported(&path, wanted, &["NotOlderThan"]);
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
        }
        errors
    }
}

/// The treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// CreateOptions, UpdateOptions and PatchOptions: what every write understands.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Set where the client says how to validate fields.
    pub names_validation: bool,
    /// Only for apply.
    pub force: Option<bool>,
}

/// The options of a request, as admission shows them.
#[derive(Clone, Copy, Debug, Default)]
pub enum OperationOptions<'a> {
    #[default]
    None,
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
}

/// The apiVersion of all options.
const OPTIONS_VERSION: &str = "meta.k8s.io/v1";

impl OperationOptions<'_> {
    /// Reports whether the request is to have no effect.
    pub fn dry_run(self) -> bool {
        match self {
            Self::None => false,
            Self::Write(options) => options.dry_run,
            Self::Delete(options) => options.dry_run,
        }
    }

    /// Returns the options as an object; `write` is the kind of those of a write.
    pub fn to_value(self, write: &str) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Write(options) => Some(options.to_value(write)),
            Self::Delete(options) => Some(options.to_value()),
        }
    }
}

/// The kind of write that the options belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Create,
    Update,
    Patch,
    Apply,
}

impl WriteOptions {
    fn to_value(&self, kind: &str) -> Value {
        let mut shown = Map::new();
        shown.insert("kind", kind.into());
        shown.insert("apiVersion", OPTIONS_VERSION.into());
        if self.dry_run {
            shown.insert("dryRun", json!(["All"]));
        }
        if !self.field_manager.is_empty() {
            shown.insert("fieldManager", self.field_manager.as_str().into());
        }
        if self.names_validation {
            let text = match self.field_validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            shown.insert("fieldValidation", text.into());
        }
        Value::Object(shown)
    }

    /// Reads and validates the options of a write.
    ///
    /// # Errors
    /// 400 for parameters that cannot be parsed, 422 for invalid ones.
    pub fn from_query(query: &Query, write: Write) -> Result<Self> {
        let mut errors = ErrorList::new();
        let field_manager = query.text("fieldManager");
        let force = query.flag("force");
        match write {
            Write::Apply if field_manager.is_empty() => {
                errors.required(&Path::new("fieldManager"), "is required for apply patch");
            }
            Write::Patch if force.is_some() => {
                errors.forbidden(
                    &Path::new("force"),
                    "may not be specified for non-apply patch",
                );
            }
            _ => {}
        }
        check_field_manager(&field_manager, &mut errors);
        let dry_run = query.all("dryRun");
        check_dry_run(&dry_run, &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or("") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.not_supported(
                    &Path::new("fieldValidation"),
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                );
                FieldValidation::Warn
            }
        };
        let kind = match write {
            Write::Create => "CreateOptions",
            Write::Update => "UpdateOptions",
            Write::Patch | Write::Apply => "PatchOptions",
        };
        reject(kind, errors)?;
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            field_manager,
            field_validation,
            names_validation: query
                .get("fieldValidation")
                .is_some_and(|text| !text.is_empty()),
            force,
        })
    }
}

fn check_field_manager(manager: &str, errors: &mut ErrorList) {
    let path = Path::new("fieldManager");
    if manager.len() > FIELD_MANAGER_MAX {
        errors.too_long(&path, FIELD_MANAGER_MAX);
    }
    for (at, c) in manager.char_indices() {
        if c.is_control() || (c.is_whitespace() && c != ' ') {
            let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
            errors.invalid(&path, manager, detail);
        }
    }
}

fn check_dry_run(dry_run: &[String], errors: &mut ErrorList) {
    if dry_run.iter().any(|one| one != "All") {
        let shown: Vec<Value> = dry_run.iter().map(|one| one.as_str().into()).collect();
        errors.not_supported(&Path::new("dryRun"), shown, &["All"]);
    }
}

/// The treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Foreground,
    Background,
    Orphan,
}

impl Propagation {
    /// The name in DeleteOptions.
    fn as_str(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }
}

/// DeleteOptions, from the query or a decoded body.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
}

impl DeleteOptions {
    fn to_value(&self) -> Value {
        let mut shown = Map::new();
        shown.insert("kind", "DeleteOptions".into());
        shown.insert("apiVersion", OPTIONS_VERSION.into());
        if let Some(seconds) = self.grace_period_seconds {
            shown.insert("gracePeriodSeconds", seconds.into());
        }
        let mut preconditions = Map::new();
        for (key, wanted) in [
            ("uid", &self.uid),
            ("resourceVersion", &self.resource_version),
        ] {
            if let Some(wanted) = wanted {
                preconditions.insert(key, wanted.as_str().into());
            }
        }
        if !preconditions.is_empty() {
            shown.insert("preconditions", Value::Object(preconditions));
        }
        if let Some(orphan) = self.orphan_dependents {
            shown.insert("orphanDependents", orphan.into());
        }
        if let Some(propagation) = self.propagation {
            shown.insert("propagationPolicy", propagation.as_str().into());
        }
        if self.dry_run {
            shown.insert("dryRun", json!(["All"]));
        }
        Value::Object(shown)
    }

    /// Reads and validates the options of a delete.
    ///
    /// # Errors
    /// 400 for parameters that cannot be parsed, 422 for invalid ones.
    pub fn from_query(query: &Query) -> Result<Self> {
        let options = Self {
            grace_period_seconds: query.int("gracePeriodSeconds")?,
            uid: query
                .get("uid")
                .filter(|uid| !uid.is_empty())
                .map(str::to_owned),
            resource_version: query
                .get("resourceVersion")
                .filter(|version| !version.is_empty())
                .map(str::to_owned),
            orphan_dependents: query.flag("orphanDependents"),
            ..Self::default()
        };
        options.finish(query.get("propagationPolicy"), &query.all("dryRun"))
    }

    /// Reads a decoded DeleteOptions object.
    ///
    /// # Errors
    /// 400 for fields that cannot be converted, 422 for invalid ones.
    pub fn from_object(object: &Object) -> Result<Self> {
        let options = Self {
            grace_period_seconds: object.i64_at("/gracePeriodSeconds"),
            uid: object
                .at("/preconditions/uid")
                .and_then(Value::as_str)
                .map(str::to_owned),
            resource_version: object
                .at("/preconditions/resourceVersion")
                .and_then(Value::as_str)
                .map(str::to_owned),
            orphan_dependents: object.at("/orphanDependents").and_then(Value::as_bool),
            ..Self::default()
        };
        let dry_run: Vec<String> = object
            .array_at("/dryRun")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        options.finish(
            object.at("/propagationPolicy").and_then(Value::as_str),
            &dry_run,
        )
    }

    fn finish(mut self, propagation: Option<&str>, dry_run: &[String]) -> Result<Self> {
        let path = Path::new("propagationPolicy");
        let mut errors = ErrorList::new();
        if let (Some(policy), Some(_)) = (propagation, self.orphan_dependents) {
            errors.invalid(
                &path,
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            );
        }
        self.propagation = match propagation {
            None => None,
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.not_supported(&path, other, &["Foreground", "Background", "Orphan", "nil"]);
                None
            }
        };
        check_dry_run(dry_run, &mut errors);
        self.dry_run = !dry_run.is_empty();
        reject("DeleteOptions", errors)?;
        Ok(self)
    }
}

fn reject(kind: &str, errors: ErrorList) -> Result<()> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(
            &Gvk::new("meta.k8s.io", "v1", kind),
            "",
            errors,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_are_named() {
        let message = |query: &str| {
            ListOptions::from_query(&Query::parse(query), false)
                .map(|_| ())
                .map_err(|status| status.message)
        };
        let checks = [
            (
                "sendInitialEvents=true",
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
            (
                "resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                "watch=1&sendInitialEvents=maybe",
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        ];
        for (query, want) in checks {
            assert_eq!(
                message(query),
                Err(format!("ListOptions.meta.k8s.io \"\" is invalid: {want}")),
                "{query}"
            );
        }
        assert_eq!(
            message("limit=x"),
            Err("strconv.ParseInt: parsing \"x\": invalid syntax".to_owned())
        );
    }

    #[test]
    fn dry_run_takes_only_all() {
        let message = |query: &str| {
            WriteOptions::from_query(&Query::parse(query), Write::Create)
                .map(|o| o.dry_run)
                .map_err(|s| s.message)
        };
        assert_eq!(message("dryRun=All"), Ok(true));
        let want = "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"All\",\"x\"]: supported values: \"All\"";
        assert_eq!(message("dryRun=All&dryRun=x"), Err(want.to_owned()));
    }

    #[test]
    fn resource_versions_are_unsigned_numbers() {
        assert_eq!(parse_resource_version("17"), Ok(Some(17)));
        assert_eq!(parse_resource_version(""), Ok(None));
        let checks = [
            ("-5", "invalid syntax"),
            ("garbage", "invalid syntax"),
            ("99999999999999999999", "value out of range"),
        ];
        for (text, why) in checks {
            let want = format!(
                "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {why}"
            );
            assert_eq!(parse_resource_version(text), Err(want));
        }
    }
}
