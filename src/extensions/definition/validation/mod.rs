//! Validation of CustomResourceDefinitions (apiextensions `validation/validation.go`).
//!
//! Upstream looks at an internal form in which everything that all versions share stands at the
//! top: the paths of errors are those of that form.

mod cel_rules;
pub mod conversion;
mod defaults;
mod limits;
mod schema;

use std::collections::HashSet;

use self::conversion::has_recognized_version;
use self::schema::SchemaRules;
use crate::extensions::definition::approval;
use crate::extensions::definition::go_format;
use crate::extensions::definition::{ESTABLISHED, is_true};
use crate::extensions::schema::field_path;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::meta::Value;
use crate::meta::names;
use crate::meta::{ErrorList, FieldError, Object, Path};
use crate::registry::validation::{Fields, immutable_text, same};

/// The maximum number of fields that objects may be selected by.
const MAX_SELECTABLE_FIELDS: usize = 8;
/// The longest deprecation warning, in bytes.
const MAX_WARNING: usize = 256;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 9] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "name",
    "password",
];

/// The fields that have the same value in all versions.
#[derive(Debug, Default)]
pub struct SharedVersionFields {
    pub schema: bool,
    pub subresources: bool,
    pub columns: bool,
    pub selectable: bool,
}

impl SharedVersionFields {
    fn of(versions: &[Value]) -> Self {
        let Some(first) = versions.first() else {
            return Self::default();
        };
        let shared = |key: &str| {
            versions.iter().all(|one| {
                one.field(key).is_some() == first.field(key).is_some()
                    && same(one.field(key), first.field(key))
            })
        };
        Self {
            schema: shared("schema"),
            subresources: shared("subresources"),
            columns: shared("additionalPrinterColumns"),
            selectable: shared("selectableFields"),
        }
    }

    /// The fields that some versions have for themselves.
    fn not(&self) -> Self {
        Self {
            schema: !self.schema,
            subresources: !self.subresources,
            columns: !self.columns,
            selectable: !self.selectable,
        }
    }
}

/// The rules that apply; an update need not follow those that the old definition broke.
#[derive(Clone, Debug)]
struct Options {
    require_schema: bool,
    immutable_names: bool,
    require_recognized_review: bool,
    allow_invalid_ca: bool,
    rules: SchemaRules,
}

/// Checks a new definition. Its metadata is checked apart.
pub fn create(object: &Object) -> ErrorList {
    let options = Options {
        require_schema: true,
        immutable_names: false,
        require_recognized_review: true,
        allow_invalid_ca: true,
        rules: SchemaRules::strict(),
    };
    let mut errors = spec(object, None, &options);
    errors.extend(rest(object, None));
    if errors.is_empty() {
        limits::check(&mut errors, object, None);
    }
    errors
}

/// Checks a changed definition.
pub fn update(object: &Object, old: &Object) -> ErrorList {
    let old_versions = old.array_at("/spec/versions");
    let schemas: Vec<JsonSchemaProps> = old_versions
        .iter()
        .filter_map(|one| one.pointer("/schema/openAPIV3Schema"))
        .map(JsonSchemaProps::read)
        .collect();
    let established = is_true(old, ESTABLISHED);
    let old_reviews = old.array_at("/spec/conversion/webhook/conversionReviewVersions");
    let options = Options {
        require_schema: old_versions.iter().all(|one| {
            one.pointer("/schema/openAPIV3Schema")
                .is_some_and(Value::is_object)
        }),
        immutable_names: established,
        require_recognized_review: old_reviews.is_empty() || has_recognized_version(old_reviews),
        allow_invalid_ca: !established || conversion::has_invalid_ca(old),
        rules: SchemaRules::no_stricter_than(&schemas),
    };
    let mut errors = spec(object, Some(old), &options);
    errors.extend(rest(object, Some(old)));
    if errors.is_empty() {
        limits::check(&mut errors, object, Some(old));
    }
    errors
}

/// Checks what a write of the status may change.
pub fn update_status(object: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    accepted_names(&mut errors, object);
    errors
}

fn rest(object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    accepted_names(&mut errors, object);
    stored_versions(&mut errors, object);
    errors.extend(approval::validate(object, old));
    let preserved = |object: &Object| object.bool_at("/spec/preserveUnknownFields");
    if preserved(object) && !old.is_some_and(preserved) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&Path::new("spec").child("preserveUnknownFields"), true, why);
    }
    errors
}

fn accepted_names(errors: &mut ErrorList, object: &Object) {
    if let Some(names) = object.at("/status/acceptedNames") {
        names_of(errors, names, &Path::new("status").child("acceptedNames"));
    }
}

fn stored_versions(errors: &mut ErrorList, object: &Object) {
    let path = Path::new("status").child("storedVersions");
    let stored = object.array_at("/status/storedVersions");
    if stored.is_empty() {
        errors.invalid(&path, Value::Null, "must have at least one stored version");
        return;
    }
    let versions = object.array_at("/spec/versions");
    let names: HashSet<&str> = versions.iter().map(|one| one.str("name")).collect();
    let mut left: HashSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions {
        // Of several versions of a name, only the first one is found.
        let is_stored = left.remove(version.str("name"));
        if version.flag("storage") && !is_stored && !errors.is_full() {
            errors.invalid(
                &path,
                stored,
                format!("must have the storage version {}", version.str("name")),
            );
        }
    }
    for (index, name) in stored
        .iter()
        .enumerate()
        .filter_map(|(index, one)| Some((index, one.as_str()?)))
    {
        if !names.contains(name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&path.index(index), name, why);
        }
    }
}

fn spec(object: &Object, old: Option<&Object>, options: &Options) -> ErrorList {
    let (mut errors, path) = (ErrorList::new(), Path::new("spec"));
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let versions = spec.list("versions");
    let hoisted = SharedVersionFields::of(versions);
    group_and_scope(&mut errors, spec, &path);
    let schemas: Vec<Option<JsonSchemaProps>> = versions.iter().map(schema_of).collect();
    let preserve = spec.flag("preserveUnknownFields");
    if options.require_schema || !preserve {
        let every = options.require_schema;
        required_schemas(&mut errors, versions, &hoisted, every, &path);
    }
    let mut rules = options.rules.clone();
    rules.tighten(&schemas, preserve);
    let per_version = hoisted.not();
    for (index, (version, schema)) in versions.iter().zip(&schemas).enumerate() {
        let place = path.child("versions").index(index);
        let name = version.str("name");
        let problems = names::dns1035_label(name);
        invalid_joined(&mut errors, &place.child("name"), name, problems);
        deprecation(&mut errors, version, &place.child("deprecationWarning"));
        let fields = VersionFields {
            version,
            schema: schema.as_ref(),
            has_status: has_status(version),
            schema_path: place.child("schema"),
        };
        fields.validate(&mut errors, &per_version, &rules, &place);
    }
    version_list(&mut errors, spec, &hoisted, &path);
    required_names(&mut errors, spec, &path.child("names"));
    if let Some(version) = versions.first() {
        let fields = VersionFields {
            version,
            schema: schemas.first().and_then(Option::as_ref),
            has_status: versions.iter().any(has_status),
            schema_path: path.child("validation"),
        };
        fields.validate(&mut errors, &hoisted, &rules, &path);
    }
    conversion::validate(
        &mut errors,
        spec,
        options.require_recognized_review,
        options.allow_invalid_ca,
        &path.child("conversion"),
    );
    if let Some(old) = old {
        immutable_fields(&mut errors, object, old, options.immutable_names);
    }
    errors
}

/// The fields that each version has for itself or all have together.
struct VersionFields<'a> {
    version: &'a Value,
    schema: Option<&'a JsonSchemaProps>,
    has_status: bool,
    schema_path: Path,
}

impl VersionFields<'_> {
    /// Checks those of the fields that are marked.
    fn validate(
        &self,
        errors: &mut ErrorList,
        marked: &SharedVersionFields,
        rules: &SchemaRules,
        path: &Path,
    ) {
        let version = self.version;
        if marked.schema {
            let tree = version.field("schema");
            let place = &self.schema_path;
            schema::validation(errors, tree, self.schema, self.has_status, rules, place);
        }
        if marked.subresources {
            let tree = version.field("subresources");
            subresources(errors, tree, &path.child("subresources"));
        }
        if marked.columns {
            let name = "additionalPrinterColumns";
            columns(errors, version.list(name), &path.child(name));
        }
        if marked.selectable {
            let name = "selectableFields";
            selectable(errors, version.list(name), self.schema, &path.child(name));
        }
    }
}

/// Reads the schema of a version.
fn schema_of(version: &Value) -> Option<JsonSchemaProps> {
    let schema = version.pointer("/schema/openAPIV3Schema");
    schema
        .filter(|one| one.is_object())
        .map(JsonSchemaProps::read)
}

/// Reports whether a version has a status subresource.
fn has_status(version: &Value) -> bool {
    version
        .pointer("/subresources/status")
        .is_some_and(Value::is_object)
}

fn group_and_scope(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let group = spec.str("group");
    let place = path.child("group");
    let problems = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&place, "");
    } else if !problems.is_empty() {
        errors.invalid(&place, group, problems.join(","));
    } else if !group.contains('.') {
        errors.invalid(&place, group, "should be a domain with at least one dot");
    }
    match spec.str("scope") {
        "" => errors.required(&path.child("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => errors.not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"]),
    }
}

fn required_schemas(
    errors: &mut ErrorList,
    versions: &[Value],
    hoisted: &SharedVersionFields,
    every: bool,
    path: &Path,
) {
    let given = |one: &Value| {
        one.pointer("/schema/openAPIV3Schema")
            .is_some_and(Value::is_object)
    };
    if hoisted.schema && versions.iter().all(given) {
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if !given(version) && (every || version.flag("served")) {
            let place = path
                .child("versions")
                .index(index)
                .child("schema")
                .child("openAPIV3Schema");
            errors.required(
                &place,
                if every {
                    ""
                } else {
                    "because otherwise all fields are pruned"
                },
            );
        }
    }
}

fn deprecation(errors: &mut ErrorList, version: &Value, path: &Path) {
    let Some(text) = version.opt_str("deprecationWarning") else {
        return;
    };
    let mut problems = Vec::new();
    if !version.flag("deprecated") {
        problems.push("can only be set for deprecated versions".to_owned());
    } else {
        if text.len() > MAX_WARNING {
            problems.push(format!("must be <= {MAX_WARNING} characters long"));
        }
        if text.is_empty() {
            problems.push("must not be an empty string".to_owned());
        }
        if let Some((at, _)) = text
            .char_indices()
            .find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' '))
        {
            problems.push(format!("must only contain printable UTF-8 characters; non-printable character found at index {at}"));
        }
    }
    errors.extend(
        problems
            .into_iter()
            .map(|why| FieldError::invalid(path, text, why)),
    );
}

fn version_list(errors: &mut ErrorList, spec: &Value, hoisted: &SharedVersionFields, path: &Path) {
    let versions = spec.list("versions");
    let place = path.child("versions");
    let shown = || go_format::versions(spec.field("versions"), hoisted);
    let names: std::collections::BTreeSet<&str> =
        versions.iter().map(|one| one.str("name")).collect();
    if names.len() != versions.len() {
        errors.invalid(&place, shown(), "must contain unique version names");
    }
    if versions.iter().filter(|one| one.flag("storage")).count() != 1 {
        errors.invalid(
            &place,
            shown(),
            "must have exactly one version marked as storage version",
        );
    }
    // The internal form names the first version once more.
    if let Some(first) = versions
        .first()
        .map(|one| one.str("name"))
        .filter(|name| !name.is_empty())
    {
        invalid_joined(
            errors,
            &path.child("version"),
            first,
            names::dns1035_label(first),
        );
    }
}

fn required_names(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let empty = Value::Null;
    let names = spec.field("names").unwrap_or(&empty);
    for key in ["plural", "singular", "kind", "listKind"] {
        if names.str(key).is_empty() {
            errors.required(&path.child(key), "");
        }
    }
    names_of(errors, names, path);
}

fn names_of(errors: &mut ErrorList, names: &Value, path: &Path) {
    let unless_empty = |text: &str| {
        if text.is_empty() {
            Vec::new()
        } else {
            names::dns1035_label(text)
        }
    };
    for key in ["plural", "singular"] {
        invalid_joined(
            errors,
            &path.child(key),
            names.str(key),
            unless_empty(names.str(key)),
        );
    }
    for key in ["kind", "listKind"] {
        let problems = unless_empty(&names.str(key).to_lowercase());
        if !problems.is_empty() {
            let why = format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            );
            errors.invalid(&path.child(key), names.str(key), why);
        }
    }
    let each = |errors: &mut ErrorList, key: &str| {
        for (index, name) in names
            .list(key)
            .iter()
            .enumerate()
            .filter_map(|(index, one)| Some((index, one.as_str()?)))
        {
            invalid_joined(
                errors,
                &path.child(key).index(index),
                name,
                names::dns1035_label(name),
            );
        }
    };
    each(errors, "shortNames");
    if !names.str("kind").is_empty() && names.str("kind") == names.str("listKind") {
        errors.invalid(
            &path.child("listKind"),
            names.str("listKind"),
            "kind and listKind may not be the same",
        );
    }
    each(errors, "categories");
}

/// One "Invalid value" for all problems of the string `value` together.
fn invalid_joined(errors: &mut ErrorList, path: &Path, value: &str, problems: Vec<String>) {
    if !problems.is_empty() {
        errors.invalid(path, value, problems.join(","));
    }
}

fn subresources(errors: &mut ErrorList, tree: Option<&Value>, path: &Path) {
    let Some(scale) = tree.and_then(|tree| tree.field("scale")) else {
        return;
    };
    for (key, section) in [
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
    ] {
        let (place, given) = (path.child(&format!("scale.{key}")), scale.str(key));
        if given.is_empty() {
            errors.required(&place, "");
        } else if !given.starts_with('.') {
            errors.invalid(&place, given, "must be a simple json path starting with .");
        } else if !given.starts_with(&format!("{section}.")) {
            errors.invalid(
                &place,
                given,
                format!("should be a json path under {section}"),
            );
        }
    }
    let (place, given) = (
        path.child("scale.labelSelectorPath"),
        scale.str("labelSelectorPath"),
    );
    if !given.is_empty() && !given.starts_with('.') {
        errors.invalid(&place, given, "must be a simple json path starting with .");
    } else if !given.is_empty() && !given.starts_with(".spec.") && !given.starts_with(".status.") {
        errors.invalid(
            &place,
            given,
            "should be a json path under either .spec or .status",
        );
    }
}

fn columns(errors: &mut ErrorList, columns: &[Value], path: &Path) {
    for (index, column) in columns.iter().enumerate() {
        let place = path.index(index);
        if column.str("name").is_empty() {
            errors.required(&place.child("name"), "");
        }
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        match column.str("type") {
            "" => errors.required(&place.child("type"), types),
            kind if !COLUMN_TYPES.contains(&kind) => {
                errors.invalid(&place.child("type"), kind, types)
            }
            _ => {}
        }
        let format = column.str("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&place.child("format"), format, why);
        }
        let json_path = column.str("jsonPath");
        if json_path.is_empty() {
            errors.required(&place.child("JSONPath"), "");
        } else if !json_path.starts_with('.') {
            errors.invalid(
                &place.child("JSONPath"),
                json_path,
                "must be a simple json path starting with .",
            );
        }
    }
}

fn selectable(
    errors: &mut ErrorList,
    fields: &[Value],
    schema: Option<&JsonSchemaProps>,
    path: &Path,
) {
    if fields.is_empty() {
        return;
    }
    let Some(schema) = schema else {
        let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
        errors.invalid(path, "", why);
        return;
    };
    let mut seen = std::collections::BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let (place, text) = (path.index(index).child("jsonPath"), field.str("jsonPath"));
        if text.is_empty() {
            errors.required(&place, "");
            continue;
        }
        let found = match field_path::resolve(text, schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&place, text, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.root == "metadata" {
            errors.invalid(&place, text, "must not point to fields in metadata");
        }
        if !found
            .schema
            .is_some_and(|one| matches!(one.kind.as_str(), "string" | "boolean" | "integer"))
        {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&place, text, why);
        }
        if !seen.insert(found.path.to_string()) {
            errors.duplicate(&place, text);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.too_many(path, seen.len(), MAX_SELECTABLE_FIELDS);
    }
}

fn immutable_fields(errors: &mut ErrorList, object: &Object, old: &Object, names: bool) {
    let fixed = [
        (names, "scope"),
        (names, "names.kind"),
        (true, "group"),
        (true, "names.plural"),
    ];
    for (_, field) in fixed.into_iter().filter(|(is_fixed, _)| *is_fixed) {
        let pointer = format!("/spec/{}", field.replace('.', "/"));
        immutable_text(
            errors,
            &Path::new("spec").child(field),
            object.str_at(&pointer),
            old.str_at(&pointer),
        );
    }
}
