//! Semantic versions (apiserver `cel/library/semverlib.go`, `blang/semver`).

use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

use super::super::extension::Extension;
use super::super::value::{Error, Result, Value};
use super::Declaration;
use super::operators::declare;

pub const DECLARATIONS: &[Declaration] = &[
    declare!("semver", |args| {
        let parsed = parsed(args)?;
        Some(parsed.map(|version| Value::Extension(Arc::new(version))).map_err(Error::new))
    },
        "string_to_semver": "(string) -> kubernetes.Semver",
        "string_bool_to_semver": "(string, bool) -> kubernetes.Semver",
    ),
    declare!("isSemver", |args| Some(Ok(Value::Bool(parsed(args)?.is_ok()))),
        "is_semver_string": "(string) -> bool",
        "is_semver_string_bool": "(string, bool) -> bool",
    ),
    declare!("isGreaterThan", |args| compare(args, |order| Value::Bool(order.is_gt())),
        "semver_is_greater_than": "kubernetes.Semver(kubernetes.Semver) -> bool"),
    declare!("isLessThan", |args| compare(args, |order| Value::Bool(order.is_lt())),
        "semver_is_less_than": "kubernetes.Semver(kubernetes.Semver) -> bool"),
    declare!("compareTo", |args| compare(args, |order| Value::Int(order as i64)),
        "semver_compare_to": "kubernetes.Semver(kubernetes.Semver) -> int"),
    declare!("major", |args| number(args, |version| version.numbers[0]),
        "semver_major": "kubernetes.Semver() -> int"),
    declare!("minor", |args| number(args, |version| version.numbers[1]),
        "semver_minor": "kubernetes.Semver() -> int"),
    declare!("patch", |args| number(args, |version| version.numbers[2]),
        "semver_patch": "kubernetes.Semver() -> int"),
];

/// A version. Its build does not count when it is compared.
#[derive(Clone, Debug)]
struct Version {
    numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

/// A part of a pre-release: numbers come before texts.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Version {
    fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.pre_release.cmp(&other.pre_release),
            }
        })
    }
}

impl Extension for Version {
    fn type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.compare(other).is_eq())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn version<'v>(value: &'v Value<'_>) -> Option<&'v Version> {
    match value {
        Value::Extension(value) => value.as_any().downcast_ref(),
        _ => None,
    }
}

fn compare<'a>(
    args: &[Value<'a>],
    then: fn(Ordering) -> Value<'static>,
) -> Option<Result<Value<'a>>> {
    let [a, b] = args else { return None };
    Some(Ok(then(version(a)?.compare(version(b)?))))
}

fn number<'a>(args: &[Value<'a>], of: fn(&Version) -> u64) -> Option<Result<Value<'a>>> {
    let number = of(version(args.first()?)?);
    Some(Ok(Value::Int(number.cast_signed())))
}

/// Reads the version that the arguments give, after bringing it into form if they say so.
fn parsed(args: &[Value<'_>]) -> Option<std::result::Result<Version, String>> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Some(parse(text.as_str()))
        }
        [Value::String(text), Value::Bool(true)] => {
            Some(normalized(text.as_str()).and_then(|text| parse(&text)))
        }
        _ => None,
    }
}

/// A version without `v` and leading zeros, and with all three numbers.
fn normalized(text: &str) -> std::result::Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() <= 1 {
                return part.to_owned();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            let message = "short version cannot contain PreRelease/Build meta data";
            return Err(message.to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn parse(text: &str) -> std::result::Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (*rest, None),
    };
    let (patch, pre_release) = match rest.split_once('-') {
        Some((patch, pre_release)) => (patch, Some(pre_release)),
        None => (rest, None),
    };
    let numbers = [
        parse_number(major, "Major")?,
        parse_number(minor, "Minor")?,
        parse_number(patch, "Patch")?,
    ];
    let pre_release = pre_release.map_or(Ok(Vec::new()), |text| {
        text.split('.').map(parse_identifier).collect()
    })?;
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !part.bytes().all(is_identifier) {
            return Err(format!(
                "Invalid character(s) found in build meta data {part:?}"
            ));
        }
    }
    Ok(Version {
        numbers,
        pre_release,
    })
}

fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn parse_number(text: &str, name: &str) -> std::result::Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let lower = name.to_ascii_lowercase();
        return Err(format!(
            "Invalid character(s) found in {lower} number {text:?}"
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "{name} number must not contain leading zeroes {text:?}"
        ));
    }
    let why = match text {
        "" => "invalid syntax",
        _ => "value out of range",
    };
    let refused = |_| format!("strconv.ParseUint: parsing {text:?}: {why}");
    text.parse().map_err(refused)
}

fn parse_identifier(text: &str) -> std::result::Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {text:?}"
            ));
        }
        let out_of_range = |_| format!("strconv.ParseUint: parsing {text:?}: value out of range");
        return text.parse().map(Identifier::Number).map_err(out_of_range);
    }
    if !text.bytes().all(is_identifier) {
        return Err(format!("Invalid character(s) found in prerelease {text:?}"));
    }
    Ok(Identifier::Text(text.to_owned()))
}
