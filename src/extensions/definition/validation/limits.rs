//! Limits on the memory that a definition takes, beyond the rules of kube-apiserver.

use std::collections::BTreeSet;

use crate::extensions::definition::{MAX_NAMES_BYTES, Names};
use crate::extensions::schema::pattern;
use crate::meta::go::regexp::TOO_LARGE;
use crate::meta::{ErrorList, Object, Path, Value};
use crate::registry::validation::Fields;

/// The maximum number of bytes that the patterns of a definition may take when they are compiled.
const MAX_COMPILED_BYTES: usize = 16 << 20;
/// The maximum number of bytes of the patterns themselves.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Checks the limits of a definition that is valid otherwise. An update is not refused for what the
/// old definition had.
pub fn check(errors: &mut ErrorList, object: &Object, old: Option<&Object>) {
    let names_bytes = |object: &Object| {
        let names = object.at("/spec/names").map(Names::read);
        let versions = object.array_at("/spec/versions").len();
        names.map_or(0, |names| names.list_bytes().saturating_mul(versions))
    };
    if names_bytes(object) > old.map_or(0, names_bytes).max(MAX_NAMES_BYTES) {
        let why = format!(
            "short names and categories, repeated for every version, may not take more than {MAX_NAMES_BYTES} bytes"
        );
        errors.forbidden(&Path::new("spec").child("names"), why);
    }
    let patterns = patterns_of(object);
    if old.is_none_or(|old| !patterns.is_subset(&patterns_of(old))) {
        patterns_fit(errors, &patterns);
    }
}

fn patterns_fit(errors: &mut ErrorList, patterns: &BTreeSet<&str>) {
    let path = Path::new("spec").child("versions");
    if patterns.iter().map(|one| one.len()).sum::<usize>() > MAX_PATTERN_BYTES {
        let why = format!("patterns may not take more than {MAX_PATTERN_BYTES} bytes");
        return errors.forbidden(&path, why);
    }
    let mut bytes = 0;
    for pattern in patterns {
        let (compiled, _) = pattern::compile(pattern);
        if let Err(why) = &*compiled {
            // Where a schema need not be structural, patterns need not be valid.
            if !why.contains(TOO_LARGE) {
                continue;
            }
            let detail = format!("must be a valid regular expression, but isn't: {why}");
            errors.invalid(&path, *pattern, detail);
        }
        bytes += pattern::program_bytes(&compiled);
        if bytes > MAX_COMPILED_BYTES {
            let why =
                format!("patterns may not take more than {MAX_COMPILED_BYTES} bytes when compiled");
            return errors.forbidden(&path, why);
        }
    }
}

/// The patterns in all schemas of a definition.
fn patterns_of(object: &Object) -> BTreeSet<&str> {
    let mut patterns = BTreeSet::new();
    let versions = object.array_at("/spec/versions").iter();
    for schema in versions.filter_map(|one| one.pointer("/schema/openAPIV3Schema")) {
        add_patterns(&mut patterns, schema);
    }
    patterns
}

fn add_patterns<'a>(patterns: &mut BTreeSet<&'a str>, schema: &'a Value) {
    let pattern = schema.str("pattern");
    if !pattern.is_empty() {
        patterns.insert(pattern);
    }
    for key in ["items", "not", "additionalProperties"] {
        if let Some(below) = schema.field(key) {
            add_patterns(patterns, below);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let below = schema.list(key).iter();
        below.for_each(|below| add_patterns(patterns, below));
    }
    if let Some(properties) = schema.map("properties") {
        let below = properties.values();
        below.for_each(|below| add_patterns(patterns, below));
    }
}
