//! `format`, which writes values into a text (cel-go `ext/formatting.go`).

use super::super::ast::ExprId;
use super::super::number;
use super::super::time;
use super::super::types::Type;
use super::super::value::{Error, List, Map, Result, Value};
use super::super::work;
use super::Declaration;
use super::operators::declare;

pub const DECLARATIONS: &[Declaration] =
    &[declare!("format", format, "string_format": "string(list(dyn)) -> string")];

/// The digits behind the point where nothing else is said.
const PRECISION: usize = 6;
/// The maximum number of digits that may be asked for.
const MAX_PRECISION: usize = 1_000;
/// The longest text that is made.
const MAX_BYTES: usize = 16 << 20;

fn format<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::String(text), Value::List(values)] = args else {
        return None;
    };
    Some(formatted(text.as_str(), values).map(Value::text))
}

fn formatted(text: &str, values: &List<'_>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut next) = (text, 0);
    while let Some((plain, clause)) = rest.split_once('%') {
        out.push_str(plain);
        if let Some(after) = clause.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (clause, after) = Clause::parse(clause)?;
        let value = values
            .get(next)
            .ok_or_else(|| Error::new(format!("index {next} out of range")))??;
        next += 1;
        let before = out.len();
        clause.write(&value, &mut out).map_err(Error::new)?;
        work::write(out.len() - before);
        if out.len() > MAX_BYTES {
            return Err(Error::new(format!("the result has over {MAX_BYTES} bytes")));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Checks a text with the types of the values that it is to take, each with those of what is in it
/// if it is a literal.
///
/// # Errors
/// A clause is none or does not take its value, at whose node that is told; or there are too few or
/// too many of them.
pub fn check(
    text: &str,
    args: &[Vec<(ExprId, Type)>],
) -> std::result::Result<(), (Option<ExprId>, String)> {
    let (mut rest, mut next) = (text, 0);
    while let Some((_, clause)) = rest.split_once('%') {
        if let Some(after) = clause.strip_prefix('%') {
            rest = after;
            continue;
        }
        let (clause, after) = Clause::parse(clause).map_err(|why| (None, why.to_string()))?;
        let Some(parts) = args.get(next) else {
            return Err((None, format!("index {next} out of range")));
        };
        let parts = match clause.kind {
            's' => parts.as_slice(),
            _ => parts.get(..1).unwrap_or(&[]),
        };
        for (id, ty) in parts {
            if let Some(why) = clause.refuses(ty) {
                return Err((Some(*id), format!("error during formatting: {why}")));
            }
        }
        next += 1;
        rest = after;
    }
    if args.len() > next {
        let given = args.len();
        let message =
            format!("too many arguments supplied to string.format (expected {next}, got {given})");
        return Err((None, message));
    }
    Ok(())
}

/// A formatting clause: the part behind a percent sign.
struct Clause {
    kind: char,
    precision: usize,
}

impl Clause {
    /// Reads a clause; what is behind it comes, too.
    fn parse(text: &str) -> Result<(Self, &str)> {
        let unparsable =
            |why: &str| Error::new(format!("could not parse formatting clause: {why}"));
        let (precision, rest) = match text.strip_prefix('.') {
            None => (PRECISION, text),
            Some(rest) => {
                let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                let number = &rest[..rest.len() - digits.len()];
                let precision = number.parse().map_err(|_| {
                    unparsable(&format!(
                        "error while parsing precision: error while converting precision to \
                         integer: strconv.Atoi: parsing \"{number}\": invalid syntax"
                    ))
                })?;
                (precision, digits)
            }
        };
        if precision > MAX_PRECISION {
            return Err(unparsable(&format!("precision over {MAX_PRECISION}")));
        }
        let mut chars = rest.chars();
        let kind = chars
            .next()
            .ok_or_else(|| Error::new("unexpected end of string"))?;
        if !matches!(kind, 's' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o') {
            return Err(unparsable(&format!(
                "unrecognized formatting clause \"{kind}\""
            )));
        }
        Ok((Self { kind, precision }, chars.as_str()))
    }

    /// The reason why values of a type are not taken.
    fn refuses(&self, ty: &Type) -> Option<String> {
        let (takes, what) = match self.kind {
            'd' => (
                matches!(ty, Type::Int | Type::Uint),
                "decimal clause can only be used on integers",
            ),
            'f' => (
                matches!(ty, Type::Double | Type::String),
                "fixed-point clause can only be used on doubles",
            ),
            'e' => (
                matches!(ty, Type::Double | Type::String),
                "scientific clause can only be used on doubles",
            ),
            'b' => (
                matches!(ty, Type::Int | Type::Uint | Type::Bool),
                "only integers and bools can be formatted as binary",
            ),
            'o' => (
                matches!(ty, Type::Int | Type::Uint),
                "octal clause can only be used on integers",
            ),
            's' => (
                !matches!(ty, Type::Struct(_) | Type::Opaque(..)),
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps",
            ),
            _ => (
                matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
                "only integers, byte buffers, and strings can be formatted as hex",
            ),
        };
        let name = ty.runtime_name();
        (!takes && !ty.is_dyn()).then(|| format!("{what}, was given {name}"))
    }

    /// Writes a value.
    ///
    /// # Errors
    /// The clause does not take values of its type.
    fn write(&self, value: &Value<'_>, out: &mut String) -> std::result::Result<(), String> {
        let wrong = |what: &str| {
            let name = value.type_name();
            Err(format!("error during formatting: {what}, was given {name}"))
        };
        match (self.kind, value) {
            ('s', value) => return write_text(value, out),
            ('d', Value::Int(number)) => out.push_str(&number.to_string()),
            ('d', Value::Uint(number)) => out.push_str(&number.to_string()),
            ('d', _) => return wrong("decimal clause can only be used on integers"),
            // A zero has no sign.
            ('f', Value::Double(number)) => {
                let (number, precision) = (number + 0.0, self.precision);
                out.push_str(&special(number).unwrap_or_else(|| grouped(number, precision)));
            }
            ('e', Value::Double(number)) => {
                let (number, precision) = (number + 0.0, self.precision);
                // What is said of the precision is taken for a width.
                let text = special(number).unwrap_or_else(|| scientific(number));
                out.push_str(&format!("{text:>precision$}"));
            }
            ('f' | 'e', Value::String(text))
                if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") =>
            {
                let sign = text.as_str().replace("Infinity", "\u{221e}");
                out.push_str(&sign);
            }
            ('f', _) => return wrong("fixed-point clause can only be used on doubles"),
            ('e', _) => return wrong("scientific clause can only be used on doubles"),
            ('b', Value::Int(number)) => out.push_str(&signed(*number, |n| format!("{n:b}"))),
            ('b', Value::Uint(number)) => out.push_str(&format!("{number:b}")),
            ('b', Value::Bool(value)) => out.push(if *value { '1' } else { '0' }),
            ('b', _) => return wrong("only integers and bools can be formatted as binary"),
            ('o', Value::Int(number)) => out.push_str(&signed(*number, |n| format!("{n:o}"))),
            ('o', Value::Uint(number)) => out.push_str(&format!("{number:o}")),
            ('o', _) => {
                return wrong("octal clause can only be used on integers");
            }
            (case, value) => match hex(value) {
                Some(text) if case == 'X' => out.push_str(&text.to_ascii_uppercase()),
                Some(text) => out.push_str(&text),
                None => {
                    return wrong(
                        "only integers, byte buffers, and strings can be formatted as hex",
                    );
                }
            },
        }
        Ok(())
    }
}

/// The text of what is no number, or has no end.
fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        return Some("NaN".to_owned());
    }
    let sign = if number < 0.0 { "-" } else { "" };
    number.is_infinite().then(|| format!("{sign}\u{221e}"))
}

/// A number with commas between its thousands, as the printer of English writes it.
fn grouped(number: f64, precision: usize) -> String {
    let plain = format!("{number:.precision$}");
    let start = usize::from(plain.starts_with('-'));
    let end = plain.find('.').unwrap_or(plain.len());
    let mut out = String::with_capacity(plain.len() + plain.len() / 3);
    for (at, c) in plain.char_indices() {
        if at > start && at < end && (end - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn signed(number: i64, write: fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", write(number.unsigned_abs()))
}

fn hex(value: &Value<'_>) -> Option<String> {
    let bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match value {
        Value::Int(number) => Some(signed(*number, |n| format!("{n:x}"))),
        Value::Uint(number) => Some(format!("{number:x}")),
        Value::String(text) => Some(bytes(text.as_str().as_bytes())),
        Value::Bytes(content) => Some(bytes(content)),
        _ => None,
    }
}

/// A number with one digit before the point and a power of ten as the printer of English writes it.
fn scientific(number: f64) -> String {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}',
        '\u{2078}', '\u{2079}',
    ];
    let text = format!("{number:.PRECISION$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised: String = format!("{:02}", exponent.abs())
        .chars()
        .filter_map(|digit| DIGITS.get(digit.to_digit(10)? as usize))
        .collect();
    let sign = if exponent < 0 { "\u{207b}" } else { "" };
    format!("{mantissa}\u{d7}10{sign}{raised}")
}

/// Writes a value as `%s` does.
fn write_text(value: &Value<'_>, out: &mut String) -> std::result::Result<(), String> {
    match value {
        Value::List(list) => write_list(list, out),
        Value::Map(map) => write_map(map, out),
        Value::Optional(_) | Value::Extension(_) => Err(format!(
            "error during formatting: string clause can only be used on strings, bools, bytes, \
             ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
            value.type_name()
        )),
        Value::Bytes(bytes) => {
            out.push_str(plain(bytes)?);
            Ok(())
        }
        other => {
            out.push_str(&super::conversions::shown(other));
            Ok(())
        }
    }
}

/// The text that bytes are.
fn plain(bytes: &[u8]) -> std::result::Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| {
        "error during formatting: could not convert argument \"invalid UTF-8 in bytes, cannot \
         convert to string\" to string"
            .to_owned()
    })
}

/// Writes a value within a list or map, as a literal.
fn write_item(value: &Value<'_>, out: &mut String) -> std::result::Result<(), String> {
    if !work::take(1) {
        return Err(Error::CostLimit.to_string());
    }
    match value {
        Value::String(text) => out.push_str(&super::strings::quoted(text.as_str())),
        Value::Bytes(bytes) => {
            out.push('b');
            out.push_str(&super::strings::quoted(plain(bytes)?));
        }
        Value::Timestamp(at) => {
            out.push_str(&format!("timestamp(\"{}\")", time::format_timestamp(*at)));
        }
        Value::Duration(by) => {
            out.push_str(&format!("duration(\"{}\")", time::format_duration(*by)));
        }
        Value::Double(number) if number.is_finite() => {
            out.push_str(&format!("{number:.PRECISION$}"));
        }
        Value::Double(number) => {
            out.push_str(&format!("\"{}\"", number::format_double(*number)));
        }
        Value::Optional(_) | Value::Extension(_) => {
            let ty = value.type_name();
            return Err(format!(
                "error during formatting: no formatting function for {ty}"
            ));
        }
        other => return write_text(other, out),
    }
    if out.len() > MAX_BYTES {
        return Err(format!("the result has over {MAX_BYTES} bytes"));
    }
    Ok(())
}

fn write_list(list: &List<'_>, out: &mut String) -> std::result::Result<(), String> {
    out.push('[');
    for (i, item) in list.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        write_item(&item.map_err(|error| error.to_string())?, out)?;
    }
    out.push(']');
    Ok(())
}

fn write_map(map: &Map<'_>, out: &mut String) -> std::result::Result<(), String> {
    let mut entries = Vec::new();
    for (key, value) in map.entries() {
        if !matches!(
            key,
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_)
        ) {
            let ty = key.type_name();
            return Err(format!(
                "error during formatting: no formatting function for map key of type {ty}"
            ));
        }
        let (mut shown, mut text) = (String::new(), String::new());
        write_item(&key, &mut shown)?;
        write_item(&value.map_err(|error| error.to_string())?, &mut text)?;
        entries.push((shown, text));
    }
    entries.sort();
    out.push('{');
    for (i, (key, value)) in entries.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        out.push_str(&format!("{key}:{value}"));
    }
    out.push('}');
    Ok(())
}
