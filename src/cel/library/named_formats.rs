//! Formats of names and of other texts (apiserver `cel/library/format.go`).

use std::any::Any;
use std::sync::Arc;

use jiff::civil::Date;
use uuid::Uuid;

use super::super::extension::Extension;
use super::super::time;
use super::super::value::{Result, Value};
use super::Declaration;
use super::operators::declare;
use crate::meta::go::url;
use crate::meta::names;

/// A function that gives the format of its name.
macro_rules! format {
    ($name:literal) => {
        Declaration {
            name: concat!("format.", $name),
            overloads: &[(concat!("format.", $name), "() -> kubernetes.NamedFormat")],
            call: |args| {
                let format = args.is_empty().then(|| named($name))??;
                Some(Ok(Value::Extension(Arc::new(format))))
            },
        }
    };
}

pub const DECLARATIONS: &[Declaration] = &[
    declare!("validate", validate,
        "format-validate": "kubernetes.NamedFormat(string) -> optional_type(list(string))"),
    declare!("format.named", |args| match args {
        [Value::String(name)] => Some(Ok(match named(name.as_str()) {
            Some(format) => Value::some(Value::Extension(Arc::new(format))),
            None => Value::none(),
        })),
        _ => None,
    }, "format-named": "(string) -> optional_type(kubernetes.NamedFormat)"),
    format!("dns1123Label"),
    format!("dns1123Subdomain"),
    format!("dns1035Label"),
    format!("qualifiedName"),
    format!("dns1123LabelPrefix"),
    format!("dns1123SubdomainPrefix"),
    format!("dns1035LabelPrefix"),
    format!("labelValue"),
    format!("uri"),
    format!("uuid"),
    format!("byte"),
    format!("date"),
    format!("datetime"),
];

/// A format: the length that its pattern is taken to have when it costs, and what is wrong with a
/// text.
#[derive(Clone, Copy, Debug)]
struct NamedFormat {
    name: &'static str,
    pattern_length: usize,
    problems: fn(&str) -> Vec<String>,
}

impl Extension for NamedFormat {
    fn type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| other.name == self.name)
    }

    fn size(&self) -> Option<usize> {
        Some(self.pattern_length)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A prefix of names may end with a dash, as if something followed.
fn prefix(text: &str, problems: fn(&str) -> Vec<String>) -> Vec<String> {
    match text.strip_suffix('-') {
        Some(head) if !head.is_empty() => problems(&std::format!("{head}a")),
        _ => problems(text),
    }
}

/// The problem of a text, unless a condition holds.
fn unless(holds: bool, problem: &str) -> Vec<String> {
    if holds {
        Vec::new()
    } else {
        vec![problem.to_owned()]
    }
}

/// Reports whether a text has the form of base64. An empty one has not.
fn is_base64(text: &str) -> bool {
    let digits = text
        .strip_suffix("==")
        .or(text.strip_suffix('='))
        .unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !digits.is_empty() && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

fn named(name: &str) -> Option<NamedFormat> {
    let (name, pattern_length, problems): (_, _, fn(&str) -> Vec<String>) = match name {
        "dns1123Label" => ("DNS1123Label", 30, names::dns1123_label),
        "dns1123Subdomain" => ("DNS1123Subdomain", 60, names::dns1123_subdomain),
        "dns1035Label" => ("DNS1035Label", 30, names::dns1035_label),
        "qualifiedName" => ("QualifiedName", 60, names::qualified_name),
        "dns1123LabelPrefix" => ("DNS1123LabelPrefix", 30, |text| {
            prefix(text, names::dns1123_label)
        }),
        "dns1123SubdomainPrefix" => ("DNS1123SubdomainPrefix", 60, |text| {
            prefix(text, names::dns1123_subdomain)
        }),
        "dns1035LabelPrefix" => ("DNS1035LabelPrefix", 30, |text| {
            prefix(text, names::dns1035_label)
        }),
        "labelValue" => ("LabelValue", 40, names::label_value),
        "uri" => ("URI", 1103, |text| {
            url::parse_request_uri(text).err().into_iter().collect()
        }),
        "uuid" => ("uuid", 70, |text| {
            let plain = text.len() == 36 || text.len() == 32;
            let parsed = Uuid::try_parse(text).is_ok();
            unless(plain && parsed, "does not match the UUID format")
        }),
        "byte" => ("byte", 84, |text| unless(is_base64(text), "invalid base64")),
        "date" => ("date", 71, |text| {
            unless(
                text.len() == 10 && text.parse::<Date>().is_ok(),
                "invalid date",
            )
        }),
        "datetime" => ("datetime", 71, |text| {
            let parsed = time::parse_timestamp(&text.to_ascii_uppercase());
            unless(parsed.is_some(), "invalid datetime")
        }),
        _ => return None,
    };
    Some(NamedFormat {
        name,
        pattern_length,
        problems,
    })
}

fn validate<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::Extension(format), Value::String(text)] = args else {
        return None;
    };
    let format: &NamedFormat = format.as_any().downcast_ref()?;
    let problems = (format.problems)(text.as_str());
    if problems.is_empty() {
        return Some(Ok(Value::none()));
    }
    let problems = problems.into_iter().map(Value::text).collect();
    Some(Ok(Value::some(Value::list(problems))))
}
