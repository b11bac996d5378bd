//! Validation of values against schemas, with the messages of kube-openapi's validator
//! (`validation/validate`).

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;

use serde_json::Number;

use crate::base::blocking::run_blocking;
use crate::extensions::schema::enumeration::sorted_json;
use crate::extensions::schema::formats;
use crate::extensions::schema::json_schema_props::{JsonSchemaProps, ValueValidation};
use crate::extensions::schema::lazy_path::LazyPath;
use crate::extensions::schema::metrics;
use crate::extensions::schema::numeric;
use crate::extensions::schema::old_value::CorrelatedValue;
use crate::extensions::schema::pattern;
use crate::meta::field::shown_bytes;
use crate::meta::go;
use crate::meta::{ErrorList, FieldError, Key, Path, Value};

/// Checks `value` against `schema`. Where there was an old value, what did not change is not held
/// against the new one. Paths start at `path`.
pub fn validate(
    schema: &JsonSchemaProps,
    value: &Value,
    old: Option<CorrelatedValue<'_>>,
    path: &Path,
) -> ErrorList {
    let few = Budget(Cell::new(LARGE_STEPS));
    let outcome = check(&few, schema, value, old);
    if few.is_spent() {
        run_blocking(|| validate_within(&Budget::default(), schema, value, old, path))
    } else {
        outcome.into_errors(path)
    }
}

/// As [`validate`], with what is left of a budget. An object for which it does not suffice is
/// refused.
pub fn validate_within(
    budget: &Budget,
    schema: &JsonSchemaProps,
    value: &Value,
    old: Option<CorrelatedValue<'_>>,
    path: &Path,
) -> ErrorList {
    let outcome = check(budget, schema, value, old);
    if budget.is_spent() {
        let why = format!("takes more than {MAX_STEPS} steps to validate against its schema");
        return ErrorList::from([FieldError::forbidden(path, why)]);
    }
    outcome.into_errors(path)
}

fn check(
    budget: &Budget,
    schema: &JsonSchemaProps,
    value: &Value,
    old: Option<CorrelatedValue<'_>>,
) -> Outcome {
    SchemaValidator {
        budget,
        schema,
        path: LazyPath::EMPTY,
        old,
        ratchets: old.is_some(),
    }
    .run(value)
}

/// The maximum number of steps that the validation of one object may take: some seconds. A step is
/// a value held against a schema, some bytes that a small pattern is matched with, or the like.
/// Objects and schemas that the store has room for take that many only where the one is multiplied
/// by the other, as by thousands of alternatives for each of a million items.
const MAX_STEPS: usize = 10_000_000;

/// The steps beyond which a validation begins anew beside other tasks: some milliseconds.
const LARGE_STEPS: usize = 50_000;

/// The bytes of text that are written in one step.
const BYTES_PER_STEP: usize = 32;
/// The bytes of a program that are compiled in one step.
const COMPILED_PER_STEP: usize = 8;
/// The bytes of text that are matched in one step, by a program of [`PROGRAM_PER_STEP`] bytes.
const MATCHED_PER_STEP: usize = 8;
const PROGRAM_PER_STEP: usize = 4 << 10;

/// The steps that a validation may still take.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(MAX_STEPS))
    }
}

impl Budget {
    fn spend(&self, steps: usize) {
        self.0.set(self.0.get().saturating_sub(steps));
    }

    /// Reports whether there are no steps left. Nothing more is looked at then.
    fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}

/// A violation of the schema at one path.
#[derive(Clone, Debug)]
struct Violation {
    /// The path as the validator spells it, such as `spec.ports[0]` or `.spec`.
    name: String,
    text: Rc<str>,
    kind: ViolationKind,
    value: Value,
}

/// The form in which a violation is reported.
#[derive(Clone, Debug)]
enum ViolationKind {
    /// A value with a message.
    Plain,
    Type,
    Required,
    Enum(Vec<String>),
    TooLong(i64),
    TooMany(i64),
    /// A message without a place.
    Nowhere,
}

/// The maximum number of violations reported for one object, and about the maximum bytes of their
/// texts: a body may have a million.
const MAX_VIOLATIONS: usize = 1_000;
const MAX_VIOLATION_BYTES: usize = 4 * 1024 * 1024;

/// The result of a check. Matches decide which alternative of several came closest.
#[derive(Clone, Debug, Default)]
struct Outcome {
    violations: Vec<Violation>,
    /// The messages of the violations, and their total bytes.
    texts: HashSet<Rc<str>>,
    bytes: usize,
    matches: usize,
}

impl Outcome {
    fn matched() -> Self {
        Self {
            matches: 1,
            ..Self::default()
        }
    }

    fn one(violation: Violation) -> Self {
        let mut out = Self::default();
        out.add(violation);
        out
    }

    fn valid(&self) -> bool {
        self.violations.is_empty()
    }

    /// Reports whether there are so many violations that no more are looked for.
    fn is_full(&self) -> bool {
        self.violations.len() >= MAX_VIOLATIONS || self.bytes >= MAX_VIOLATION_BYTES
    }

    /// Each message counts once.
    fn add(&mut self, violation: Violation) {
        if !self.is_full() && self.texts.insert(violation.text.clone()) {
            self.bytes += violation.weight();
            self.violations.push(violation);
        }
    }

    fn merge(&mut self, other: Self) {
        let matches = self.matches + other.matches;
        if self.violations.is_empty() {
            *self = other;
        } else {
            other.violations.into_iter().for_each(|one| self.add(one));
        }
        self.matches = matches;
    }

    fn into_errors(self, base: &Path) -> ErrorList {
        self.violations
            .into_iter()
            .map(|one| one.into_error(base))
            .collect()
    }
}

impl Violation {
    /// About as many bytes as it takes.
    fn weight(&self) -> usize {
        let listed = if let ViolationKind::Enum(values) = &self.kind {
            values.iter().map(String::len).sum()
        } else {
            0
        };
        self.name.len() + self.text.len() + listed + shown_bytes(&self.value, MAX_VIOLATION_BYTES)
    }

    fn into_error(self, base: &Path) -> FieldError {
        let path = match self.name.as_str() {
            "" | "." => base.clone(),
            name => base.child(name.strip_prefix('.').unwrap_or(name)),
        };
        match self.kind {
            ViolationKind::Plain => {
                FieldError::invalid(&path, null_as_empty(self.value), &*self.text)
            }
            ViolationKind::Type => {
                FieldError::type_invalid(&path, null_as_empty(self.value), &*self.text)
            }
            ViolationKind::Required => FieldError::required(&path, ""),
            ViolationKind::Enum(values) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                FieldError::not_supported(&path, self.value, &values)
            }
            ViolationKind::TooLong(max) => {
                FieldError::too_long(&path, usize::try_from(max).unwrap_or(0))
            }
            ViolationKind::TooMany(max) => {
                let actual = usize::try_from(self.value.as_i64().unwrap_or(0)).unwrap_or(0);
                FieldError::too_many(&path, actual, usize::try_from(max).unwrap_or(0))
            }
            ViolationKind::Nowhere => FieldError::invalid(base, "", &*self.text),
        }
    }
}

fn null_as_empty(value: Value) -> Value {
    if value.is_null() { "".into() } else { value }
}

/// One value against one schema.
struct SchemaValidator<'a, 'p> {
    budget: &'p Budget,
    schema: &'a JsonSchemaProps,
    path: LazyPath<'p>,
    old: Option<CorrelatedValue<'a>>,
    /// This very check forgives what did not change (those of alternatives do not, those of
    /// children do).
    ratchets: bool,
}

impl<'a, 'p> SchemaValidator<'a, 'p> {
    /// The types that the schema allows.
    fn types(&self) -> Vec<&'a str> {
        if self.schema.int_or_string {
            return vec!["integer", "string"];
        }
        if self.schema.kind.is_empty() {
            Vec::new()
        } else {
            vec![self.schema.kind.as_str()]
        }
    }

    fn violation(&self, kind: ViolationKind, value: Value, text: String) -> Violation {
        let violation = Violation {
            name: self.path.to_string(),
            text: text.into(),
            kind,
            value,
        };
        // Also those of alternatives take time that do not come to anything.
        self.budget.spend(violation.weight() / BYTES_PER_STEP);
        violation
    }

    fn message(&self, what: impl std::fmt::Display) -> String {
        format!("{} in body {what}", self.path)
    }

    fn nowhere(&self, text: String) -> Violation {
        self.violation(ViolationKind::Nowhere, Value::Null, text)
    }

    /// Reports whether the value is the one that was there before.
    fn is_unchanged(&self) -> bool {
        let begun = Instant::now();
        let is_unchanged = self.old.is_some_and(|old| old.unchanged());
        metrics::compared(begun.elapsed());
        is_unchanged
    }

    fn run(&self, value: &Value) -> Outcome {
        self.budget.spend(1);
        if self.budget.is_spent() {
            return Outcome::default();
        }
        let outcome = self.check(value);
        if !outcome.valid() && self.ratchets && self.is_unchanged() {
            return Outcome {
                matches: outcome.matches,
                ..Outcome::default()
            };
        }
        outcome
    }

    fn check(&self, value: &Value) -> Outcome {
        let mut out = Outcome::default();
        if value.is_null() {
            out.merge(self.of_type(value));
            out.merge(self.of_enum(value));
            return out;
        }
        let mut step = |one: Outcome| {
            out.merge(one);
            out.matches += 1;
        };
        let format = formats::known(&self.schema.format, &self.types());
        if !self.types().is_empty() || !format.is_empty() {
            step(self.of_type(value));
        }
        step(self.of_alternatives(value));
        if let Value::String(text) = value {
            step(self.of_string(text));
            if formats::is_string_format(format) {
                step(self.of_format(text, format));
            }
        }
        if let Value::Number(number) = value {
            step(self.of_number(number, format));
        }
        if let Value::Array(items) = value {
            step(self.of_list(items));
        }
        step(self.of_enum(value));
        if let Value::Object(entries) = value {
            step(self.of_object(entries));
        }
        out.matches += 1;
        out
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> Outcome {
        let text = self.message(format_args!(
            "must be of type {wanted}: {}",
            go::quote(found)
        ));
        Outcome::one(self.violation(ViolationKind::Type, found.into(), text))
    }

    fn of_type(&self, value: &Value) -> Outcome {
        let types = self.types();
        let format = formats::known(&self.schema.format, &types);
        let has = |name: &str| types.contains(&name);
        let (found, found_format) = match value {
            Value::Null if !types.is_empty() && !has("null") && !self.schema.nullable => {
                return self.wrong_type(&types.join(","), "null");
            }
            Value::Null => return Outcome::matched(),
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Number(number) if number.is_f64() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
        };
        let whole = found == "number"
            && has("integer")
            && value.as_f64().is_some_and(numeric::is_json_integer);
        let widened = found == "integer" && has("number");
        let textual = matches!(value, Value::String(_) | Value::Array(_));
        let (formatted, numeric) = (!format.is_empty(), has("number") || has("integer"));
        let fits = has(found) || format == found_format || whole || widened;
        if !textual && formatted && !fits {
            return self.wrong_type(format, found_format);
        }
        if !numeric && formatted && textual {
            return Outcome::matched();
        }
        if has(found) || whole || widened {
            Outcome::matched()
        } else {
            self.wrong_type(&types.join(","), found)
        }
    }

    fn of_enum(&self, value: &Value) -> Outcome {
        let allowed = &self.schema.values.enumeration;
        if allowed.allows(value) {
            return Outcome::default();
        }
        let allowed = &allowed.values;
        let shown = allowed.iter().map(|one| match one {
            Value::String(text) => text.clone(),
            other => sorted_json(other),
        });
        let text = self.message(format_args!("should be one of {allowed:?}"));
        Outcome::one(self.violation(ViolationKind::Enum(shown.collect()), value.clone(), text))
    }

    fn of_string(&self, text: &str) -> Outcome {
        let ValueValidation {
            max_length,
            min_length,
            pattern,
            ..
        } = &self.schema.values;
        let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = max_length.filter(|max| count > *max) {
            let what = self.message(format_args!("should be at most {max} chars long"));
            return Outcome::one(self.violation(ViolationKind::TooLong(max), text.into(), what));
        }
        if let Some(min) = min_length.filter(|min| count < *min) {
            let what = self.message(format_args!("should be at least {min} chars long"));
            return Outcome::one(self.violation(ViolationKind::Plain, text.into(), what));
        }
        if pattern.is_empty() {
            return Outcome::default();
        }
        let what = match self.matches(text, pattern) {
            Ok(true) => return Outcome::default(),
            Ok(false) => self.message(format_args!("should match '{pattern}'")),
            Err(why) => self.message(format_args!(
                "should match '{pattern}, but pattern is invalid: {why}'"
            )),
        };
        Outcome::one(self.violation(ViolationKind::Plain, text.into(), what))
    }

    /// Reports whether a text matches a pattern, or why the pattern does not compile. A text for
    /// which the budget does not suffice does.
    fn matches(&self, text: &str, pattern: &str) -> Result<bool, String> {
        let (compiled, bytes) = pattern::compile(pattern);
        self.budget.spend(bytes / COMPILED_PER_STEP);
        let program = compiled.as_ref().as_ref().map_err(Clone::clone)?;
        let factor = program.bytes.div_ceil(PROGRAM_PER_STEP);
        self.budget
            .spend(text.len().saturating_mul(factor) / MATCHED_PER_STEP);
        Ok(self.budget.is_spent() || program.regex.is_match(text))
    }

    fn of_format(&self, text: &str, format: &str) -> Outcome {
        if formats::matches(format, text) {
            return Outcome::default();
        }
        let what = self.message(format_args!(
            "must be of type {format}: {}",
            go::quote(text)
        ));
        Outcome::one(self.violation(ViolationKind::Type, text.into(), what))
    }

    fn of_number(&self, number: &Number, format: &str) -> Outcome {
        let mut out = Outcome::default();
        let limits = numeric::Limits {
            values: &self.schema.values,
            types: &self.types(),
            format,
            path: self.path,
        };
        for problem in limits.check(number) {
            out.add(match problem {
                numeric::Problem::Range(text) => self.nowhere(text),
                numeric::Problem::Limit(text) => {
                    self.violation(ViolationKind::Plain, Value::Number(number.clone()), text)
                }
                numeric::Problem::Factor(factor, text) => {
                    self.violation(ViolationKind::Plain, factor, text)
                }
            });
        }
        out.matches += 1;
        out
    }

    fn of_list(&self, items: &[Value]) -> Outcome {
        let mut out = Outcome::default();
        if let Some(schema) = self.schema.items.as_deref() {
            let olds = self.old.and_then(CorrelatedValue::items);
            for (index, item) in items.iter().enumerate() {
                if out.is_full() || self.budget.is_spent() {
                    break;
                }
                let old = olds.as_ref().and_then(|olds| olds.get(index));
                let path = LazyPath::Index(&self.path, index);
                out.merge(
                    SchemaValidator {
                        budget: self.budget,
                        schema,
                        path,
                        old,
                        ratchets: old.is_some(),
                    }
                    .run(item),
                );
            }
        }
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let limits = &self.schema.values;
        if let Some(min) = limits.min_items.filter(|min| count < *min) {
            out.add(self.violation(
                ViolationKind::Plain,
                count.into(),
                self.message(format_args!("should have at least {min} items")),
            ));
        }
        if let Some(max) = limits.max_items.filter(|max| count > *max) {
            out.add(self.violation(
                ViolationKind::TooMany(max),
                count.into(),
                self.message(format_args!("should have at most {max} items")),
            ));
        }
        if limits.unique_items && has_duplicates(items) {
            out.add(self.violation(
                ViolationKind::Plain,
                Value::Null,
                self.message("shouldn't contain duplicates"),
            ));
        }
        out.matches += 1;
        out
    }

    fn child<'c>(
        &self,
        name: &str,
        schema: &'a JsonSchemaProps,
        path: LazyPath<'c>,
    ) -> SchemaValidator<'a, 'c>
    where
        'p: 'c,
    {
        // Changes of the version and kind at the root are not seen: both objects have been brought
        // to the same.
        let meta = self.path.is_empty() && matches!(name, "apiVersion" | "kind");
        let old = self.old.filter(|_| !meta).and_then(|old| old.key(name));
        SchemaValidator {
            budget: self.budget,
            schema,
            path,
            old,
            ratchets: old.is_some(),
        }
    }

    fn of_object(&self, entries: &crate::meta::Map) -> Outcome {
        let mut out = Outcome::default();
        let (schema, path) = (self.schema, &self.path);
        let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.values.min_properties.filter(|min| count < *min) {
            out.add(self.violation(
                ViolationKind::Plain,
                count.into(),
                self.message(format_args!("should have at least {min} properties")),
            ));
        }
        if let Some(max) = schema.values.max_properties.filter(|max| count > *max) {
            out.add(self.violation(
                ViolationKind::TooMany(max),
                count.into(),
                self.message(format_args!("should have at most {max} properties")),
            ));
        }
        let mut names: Vec<&Key> = entries.keys().collect();
        names.sort_unstable();
        for name in names
            .iter()
            .filter(|name| !schema.properties.contains_key(name.as_str()))
        {
            if out.is_full() || self.budget.is_spent() {
                break;
            }
            match &schema.additional {
                Some(additional) if !additional.allows => {
                    let text = format!("{path}.{name} in body is a forbidden property");
                    out.add(self.violation(ViolationKind::Plain, name.as_str().into(), text));
                }
                Some(additional) => {
                    if let Some(schema) = additional.schema.as_deref() {
                        out.merge(
                            self.child(name, schema, LazyPath::Dotted(path, name))
                                .run(&entries[name.as_str()]),
                        );
                    }
                }
                None => {}
            }
        }
        for name in &names {
            if let Some(property) = schema.properties.get(name.as_str())
                && !out.is_full()
            {
                out.merge(
                    self.child(name, property, LazyPath::Field(path, name))
                        .run(&entries[name.as_str()]),
                );
            }
        }
        self.budget.spend(schema.values.required.len());
        for name in schema
            .values
            .required
            .iter()
            .filter(|name| !entries.contains_key(name.as_str()))
        {
            if out.is_full() {
                break;
            }
            let name = format!("{path}.{name}");
            out.add(Violation {
                text: format!("{name} in body is required").into(),
                name,
                kind: ViolationKind::Required,
                value: Value::Null,
            });
        }
        out
    }

    /// Outcomes of the alternatives of `list`. They look at the same value, and forgive nothing
    /// themselves.
    fn each<'b>(
        &'b self,
        list: &'b [JsonSchemaProps],
        value: &'b Value,
    ) -> impl Iterator<Item = Outcome> + 'b {
        let looked_at = list.iter().take_while(|_| !self.budget.is_spent());
        looked_at.map(move |schema| {
            SchemaValidator {
                budget: self.budget,
                schema,
                path: self.path,
                old: self.old,
                ratchets: false,
            }
            .run(value)
        })
    }

    fn of_alternatives(&self, value: &Value) -> Outcome {
        let mut out = Outcome::default();
        let quoted = || go::quote(&self.path.to_string());
        if !self.schema.any_of.is_empty() {
            let (found, best) = self.at_least_one(&self.schema.any_of, value);
            if !found {
                out.add(self.nowhere(format!(
                    "{} must validate at least one schema (anyOf)",
                    quoted()
                )));
            }
            out.merge(best);
        }
        if !self.schema.one_of.is_empty() {
            out.merge(self.exactly_one(value, &quoted));
        }
        if !self.schema.all_of.is_empty() {
            let mut valid = 0;
            for one in self.each(&self.schema.all_of, value) {
                valid += usize::from(one.valid());
                out.merge(one);
            }
            if valid != self.schema.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                out.add(self.nowhere(format!(
                    "{} must validate all the schemas (allOf){none}",
                    quoted()
                )));
            }
        }
        if let Some(not) = &self.schema.not
            && self
                .each(std::slice::from_ref(not), value)
                .all(|one| one.valid())
        {
            out.add(self.nowhere(format!("{} must not validate the schema (not)", quoted())));
        }
        out.matches += 1;
        out
    }

    /// Reports whether an alternative holds; returns the first that does, or the one that comes
    /// closest.
    fn at_least_one(&self, list: &[JsonSchemaProps], value: &Value) -> (bool, Outcome) {
        let mut best: Option<Outcome> = None;
        for one in self.each(list, value) {
            if one.valid() {
                return (true, one);
            }
            if best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        (false, best.unwrap_or_default())
    }

    fn exactly_one(&self, value: &Value, quoted: &dyn Fn() -> String) -> Outcome {
        let (mut valid, mut first, mut best) = (0, None, None::<Outcome>);
        for one in self.each(&self.schema.one_of, value) {
            if one.valid() {
                valid += 1;
                best = None;
                first.get_or_insert(one);
            } else if valid == 0 && best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        if valid == 1 {
            return first.unwrap_or_default();
        }
        let found = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        let mut out = Outcome::one(self.nowhere(format!(
            "{} must validate one and only one schema (oneOf). {found}",
            quoted()
        )));
        if let Some(best) = best {
            out.merge(best);
        }
        out
    }
}

/// Reports whether two items are equal.
fn has_duplicates(items: &[Value]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    !items.iter().all(|item| seen.insert(sorted_json(item)))
}
