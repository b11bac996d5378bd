//! Field paths and field errors (apimachinery `util/validation/field`).

use std::fmt;

use crate::meta::{Value, go, names};

/// A path to a field, such as `spec.ports[0].name`. Cheap to extend; rendered only for errors.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Path(String);

impl Path {
    /// A path that starts at `name`. [`Path::default`] is the root.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        // A field without a name reads like a key without one, as upstream prints it.
        Self(if name.is_empty() {
            "[]".to_owned()
        } else {
            name
        })
    }

    /// The field `name` below this path.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            self.with(".", name, "")
        }
    }

    /// The list item `index` below this path.
    pub fn index(&self, index: usize) -> Self {
        self.with("[", &index.to_string(), "]")
    }

    /// The map entry `key` below this path.
    pub fn key(&self, key: &str) -> Self {
        self.with("[", key, "]")
    }

    /// Validation makes many paths and shows few: they are put together without formatting.
    fn with(&self, open: &str, step: &str, close: &str) -> Self {
        let mut path = String::with_capacity(self.0.len() + open.len() + step.len() + close.len());
        path.push_str(&self.0);
        path.push_str(open);
        path.push_str(step);
        path.push_str(close);
        Self(path)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The class of a field error. The names are those of `Status.details.causes[].reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    TypeInvalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    Internal,
}

impl ErrorType {
    /// The machine-readable reason of a cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    /// Reports whether the message shows the offending value.
    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal
        )
    }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: ErrorType,
    pub field: String,
    /// The offending value; `None` leaves it out of the message.
    pub value: Option<Value>,
    pub detail: String,
}

/// The maximum number of errors reported for one object.
const MAX_ERRORS: usize = 1_000;
/// About as many bytes as the texts of these errors may have together; the first error may be
/// longer.
const MAX_ERRORS_BYTES: usize = 4 * 1024 * 1024;

/// The errors of an object, in the order of the checks. A body may hold a million mistakes, so once
/// the list is full it takes no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorList {
    errors: Vec<FieldError>,
    /// The bytes of their texts, about.
    bytes: usize,
}

impl ErrorList {
    pub const fn new() -> Self {
        Self {
            errors: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an error, unless the list is full.
    pub fn push(&mut self, error: FieldError) {
        if self.is_full() {
            return;
        }
        self.bytes += error.weight(MAX_ERRORS_BYTES);
        self.errors.push(error);
    }

    /// Adds [`FieldError::invalid`].
    pub fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(path, value, detail));
    }

    /// Adds [`FieldError::required`].
    pub fn required(&mut self, path: &Path, detail: impl Into<String>) {
        self.push(FieldError::required(path, detail));
    }

    /// Adds [`FieldError::forbidden`].
    pub fn forbidden(&mut self, path: &Path, detail: impl Into<String>) {
        self.push(FieldError::forbidden(path, detail));
    }

    /// Adds [`FieldError::not_supported`].
    pub fn not_supported(&mut self, path: &Path, value: impl Into<Value>, supported: &[&str]) {
        self.push(FieldError::not_supported(path, value, supported));
    }

    /// Adds [`FieldError::duplicate`].
    pub fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.push(FieldError::duplicate(path, value));
    }

    /// Adds [`FieldError::not_found`].
    pub fn not_found(&mut self, path: &Path, value: impl Into<Value>) {
        self.push(FieldError::not_found(path, value));
    }

    /// Adds [`FieldError::too_long`].
    pub fn too_long(&mut self, path: &Path, max: usize) {
        self.push(FieldError::too_long(path, max));
    }

    /// Adds [`FieldError::too_many`].
    pub fn too_many(&mut self, path: &Path, actual: usize, max: usize) {
        self.push(FieldError::too_many(path, actual, max));
    }

    /// Adds [`FieldError::internal`].
    pub fn internal(&mut self, path: &Path, detail: impl Into<String>) {
        self.push(FieldError::internal(path, detail));
    }

    /// Reports whether there are so many errors that no more are taken. What is costly to check or
    /// to describe need not be then.
    pub fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS || self.bytes >= MAX_ERRORS_BYTES
    }
}

impl std::ops::Deref for ErrorList {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.errors
    }
}

impl std::ops::DerefMut for ErrorList {
    fn deref_mut(&mut self) -> &mut [FieldError] {
        &mut self.errors
    }
}

impl Extend<FieldError> for ErrorList {
    fn extend<T: IntoIterator<Item = FieldError>>(&mut self, errors: T) {
        for error in errors {
            if self.is_full() {
                break;
            }
            self.push(error);
        }
    }
}

impl FromIterator<FieldError> for ErrorList {
    fn from_iter<T: IntoIterator<Item = FieldError>>(errors: T) -> Self {
        let mut list = Self::new();
        list.extend(errors);
        list
    }
}

impl<const N: usize> From<[FieldError; N]> for ErrorList {
    fn from(errors: [FieldError; N]) -> Self {
        errors.into_iter().collect()
    }
}

impl IntoIterator for ErrorList {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

impl<'a> IntoIterator for &'a ErrorList {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.iter()
    }
}

/// About as many bytes as a value takes when it is shown, or `limit` if that is less.
pub fn shown_bytes(value: &Value, limit: usize) -> usize {
    let bytes = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => sum_up_to(limit, items.iter().map(|item| (0, item))),
        Value::Object(map) => {
            sum_up_to(limit, map.iter().map(|(key, value)| (key.len() + 4, value)))
        }
    };
    bytes.min(limit)
}

fn sum_up_to<'v>(limit: usize, parts: impl Iterator<Item = (usize, &'v Value)>) -> usize {
    let mut sum = 2;
    for (key_bytes, value) in parts {
        if sum >= limit {
            break;
        }
        sum += key_bytes + shown_bytes(value, limit - sum) + 1;
    }
    sum
}

impl FieldError {
    fn new(kind: ErrorType, path: &Path, value: Option<Value>, detail: impl Into<String>) -> Self {
        let field = if path.0.is_empty() {
            "<nil>".to_owned()
        } else {
            path.0.clone()
        };
        Self {
            kind,
            field,
            value,
            detail: detail.into(),
        }
    }

    /// About as many bytes as the error takes, or somewhat more than `limit`.
    fn weight(&self, limit: usize) -> usize {
        self.field.len()
            + self.detail.len()
            + self
                .value
                .as_ref()
                .map_or(0, |value| shown_bytes(value, limit))
    }

    /// A malformed value.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, Some(value.into()), detail)
    }

    /// A malformed value that is not shown.
    pub fn invalid_without_value(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, None, detail)
    }

    /// A value that must be unique, is not, and is not shown.
    pub fn duplicate_without_value(path: &Path) -> Self {
        Self::new(ErrorType::Duplicate, path, None, "")
    }

    /// A value of the wrong type.
    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::TypeInvalid, path, Some(value.into()), detail)
    }

    /// A value that must be given and is not.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, path, None, detail)
    }

    /// A value that must be unique and is not.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorType::Duplicate, path, Some(value.into()), "")
    }

    /// A reference to something that does not exist.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorType::NotFound, path, Some(value.into()), "")
    }

    /// A value outside an enumeration; `supported` is shown in the order given.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(ErrorType::NotSupported, path, Some(value.into()), detail)
    }

    /// A value that is well formed but not allowed here.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, path, None, detail)
    }

    /// A string over `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(
            ErrorType::TooLong,
            path,
            None,
            format!("may not be more than {max} {unit}"),
        )
    }

    /// A list or map of `actual` items where `max` are allowed.
    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(
            ErrorType::TooMany,
            path,
            Some(actual.into()),
            format!("must have at most {max} {unit}"),
        )
    }

    /// A fault of the server, not of the value.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Internal, path, None, detail)
    }

    /// The message without the field's name, as a cause shows it.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if let (true, Some(value)) = (self.kind.shows_value(), &self.value) {
            let shown = match value {
                Value::String(string) => go::quote(string),
                other => go_json(other),
            };
            text = format!("{text}: {shown}");
        }
        if self.detail.is_empty() {
            text
        } else {
            format!("{text}: {}", self.detail)
        }
    }
}

/// JSON as Go's `json.Marshal` writes it: nothing in it is HTML.
fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['&', '<', '>', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            other => out.push(other),
        }
    }
    out
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// The form of the path after the domain in [`domain_prefixed_path`].
const HTTP_PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";

/// A domain, a slash and a path, as in `acme.io/foo` (apimachinery `IsDomainPrefixedPath`).
pub fn domain_prefixed_path(errors: &mut ErrorList, path: &Path, value: &str) {
    if value.is_empty() {
        errors.required(path, "");
        return;
    }
    let Some((host, rest)) = value
        .split_once('/')
        .filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        errors.invalid(
            path,
            value,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        );
        return;
    };
    for problem in names::dns1123_subdomain(host) {
        errors.invalid(path, host, problem);
    }
    if !rest
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c))
    {
        errors.invalid(
            path,
            rest,
            format!("Invalid path (regex used for validation is '{HTTP_PATH}')"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_structs_are_escaped_as_go_escapes_them() {
        let value = crate::meta::json!({"a": "x && <y>"});
        let error = FieldError::invalid(&Path::new("p"), value, "bad");
        let want = r#"p: Invalid value: {"a":"x \u0026\u0026 \u003cy\u003e"}: bad"#;
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn lists_of_errors_are_bounded() {
        let path = Path::new("spec");
        let many: ErrorList = (0..MAX_ERRORS * 2)
            .map(|_| FieldError::required(&path, ""))
            .collect();
        assert_eq!(many.len(), MAX_ERRORS);
        assert!(many.is_full());
        let long = Value::Array(vec!["x".repeat(1000).into(); 1000]);
        let heavy: ErrorList = (0..MAX_ERRORS)
            .map(|_| FieldError::invalid(&path, long.clone(), ""))
            .collect();
        assert_eq!(heavy.len(), 5);
        let mut one: ErrorList =
            [FieldError::invalid(&path, "x".repeat(MAX_ERRORS_BYTES), "")].into();
        one.extend(many);
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn errors_read_as_clients_know_them() {
        let path = Path::new("spec").child("ports").index(0).child("protocol");
        let checks = [
            (
                FieldError::invalid(&path, "x\ny", "must be short"),
                r#"spec.ports[0].protocol: Invalid value: "x\ny": must be short"#,
            ),
            (
                FieldError::not_supported(&path, "FOO", &["SCTP", "TCP"]),
                r#"spec.ports[0].protocol: Unsupported value: "FOO": supported values: "SCTP", "TCP""#,
            ),
            (
                FieldError::required(&path, ""),
                "spec.ports[0].protocol: Required value",
            ),
            (
                FieldError::too_many(&path, 3, 1),
                "spec.ports[0].protocol: Too many: 3: must have at most 1 item",
            ),
            (
                FieldError::too_long(&path, 63),
                "spec.ports[0].protocol: Too long: may not be more than 63 bytes",
            ),
        ];
        for (error, want) in checks {
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn domain_prefixed_paths() {
        let path = Path::new("p");
        for (value, wrong) in [
            ("", 1),
            ("a", 1),
            ("a/", 1),
            ("a.io/b", 0),
            ("A/b", 1),
            ("a/b c", 1),
            ("a/b/c", 0),
        ] {
            let mut errors = ErrorList::new();
            domain_prefixed_path(&mut errors, &path, value);
            assert_eq!(errors.iter().count(), wrong, "{value}");
        }
    }
}
