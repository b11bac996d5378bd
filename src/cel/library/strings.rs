//! Functions of texts (cel-go `common/stdlib/standard.go`, `ext/strings.go` of version 2).

use super::super::value::{Error, List, Result, Text, Value};
use super::super::work;
use super::Declaration;
use super::operators::declare;

pub const DECLARATIONS: &[Declaration] = &[
    declare!("contains", |args| test(args, |text, part| text.contains(part)),
        "contains_string": "string(string) -> bool"),
    declare!("endsWith", |args| test(args, |text, part| text.ends_with(part)),
        "ends_with_string": "string(string) -> bool"),
    declare!("startsWith", |args| test(args, |text, part| text.starts_with(part)),
        "starts_with_string": "string(string) -> bool"),
    declare!("charAt", char_at, "string_char_at_int": "string(int) -> string"),
    declare!("indexOf", index_of,
        "string_index_of_string": "string(string) -> int",
        "string_index_of_string_int": "string(string, int) -> int",
    ),
    declare!("lastIndexOf", last_index_of,
        "string_last_index_of_string": "string(string) -> int",
        "string_last_index_of_string_int": "string(string, int) -> int",
    ),
    declare!("lowerAscii", |args| mapped(args, |text| text.to_ascii_lowercase()),
        "string_lower_ascii": "string() -> string"),
    declare!("upperAscii", |args| mapped(args, |text| text.to_ascii_uppercase()),
        "string_upper_ascii": "string() -> string"),
    declare!("trim", |args| mapped(args, |text| text.trim().to_owned()),
        "string_trim": "string() -> string"),
    declare!("replace", replace,
        "string_replace_string_string": "string(string, string) -> string",
        "string_replace_string_string_int": "string(string, string, int) -> string",
    ),
    declare!("split", split,
        "string_split_string": "string(string) -> list(string)",
        "string_split_string_int": "string(string, int) -> list(string)",
    ),
    declare!("substring", substring,
        "string_substring_int": "string(int) -> string",
        "string_substring_int_int": "string(int, int) -> string",
    ),
    declare!("join", join,
        "list_join": "list(string)() -> string",
        "list_join_string": "list(string)(string) -> string",
    ),
    declare!("strings.quote", |args| mapped(args, quoted),
        "strings_quote": "(string) -> string"),
];

/// The maximum number of bytes that one call makes of a text.
const MAX_BYTES: usize = 16 << 20;

fn out_of_range<'a>(index: i64) -> Result<Value<'a>> {
    Err(Error::new(format!("index out of range: {index}")))
}

fn too_large<'a>() -> Result<Value<'a>> {
    Err(Error::new(format!("the result has over {MAX_BYTES} bytes")))
}

fn test<'a>(args: &[Value<'a>], holds: fn(&str, &str) -> bool) -> Option<Result<Value<'a>>> {
    let [Value::String(text), Value::String(part)] = args else {
        return None;
    };
    Some(Ok(Value::Bool(holds(text.as_str(), part.as_str()))))
}

fn mapped<'a>(args: &[Value<'a>], map: fn(&str) -> String) -> Option<Result<Value<'a>>> {
    let [Value::String(text)] = args else {
        return None;
    };
    Some(Ok(Value::text(map(text.as_str()))))
}

fn char_at<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::String(text), Value::Int(index)] = args else {
        return None;
    };
    work::read(text.as_str().len());
    let position = usize::try_from(*index).ok();
    let found = position.and_then(|position| text.as_str().chars().nth(position));
    Some(match (found, position) {
        (Some(found), _) => Ok(Value::text(found.to_string())),
        (None, Some(position)) if position == text.as_str().chars().count() => Ok(Value::text("")),
        _ => out_of_range(*index),
    })
}

/// The offset in bytes of a code point; the end of the text for the one behind the last.
fn offset(text: &str, position: usize) -> Option<usize> {
    work::read(text.len());
    let ends = std::iter::once(text.len());
    text.char_indices()
        .map(|(at, _)| at)
        .chain(ends)
        .nth(position)
}

/// The position in code points of an offset in bytes.
fn position(text: &str, offset: usize) -> i64 {
    let before = text
        .get(..offset)
        .map_or(0, |before| before.chars().count());
    i64::try_from(before).unwrap_or(i64::MAX)
}

fn index_of<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return None,
    };
    let (text, part) = (text.as_str(), part.as_str());
    if part.is_empty() {
        return Some(Ok(Value::Int(from)));
    }
    let Ok(first) = usize::try_from(from) else {
        return Some(out_of_range(from));
    };
    let found = offset(text, first).and_then(|start| {
        let found = text.get(start..)?.find(part)?;
        Some(position(text, start + found))
    });
    Some(Ok(Value::Int(found.unwrap_or(-1))))
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return None,
    };
    let (text, part) = (text.as_str(), part.as_str());
    let count = text.chars().count();
    let length = i64::try_from(count).unwrap_or(i64::MAX);
    let from = match from {
        None if part.is_empty() => length,
        None => length - 1,
        Some(from) => from,
    };
    if part.is_empty() {
        return Some(Ok(Value::Int(from)));
    }
    let Ok(last) = usize::try_from(from) else {
        // The empty text has no last code point; a position that was given must be one.
        let found = if args.len() == 2 {
            Ok(Value::Int(-1))
        } else {
            out_of_range(from)
        };
        return Some(found);
    };
    if last >= count {
        return Some(Ok(Value::Int(-1)));
    }
    // A match that begins there at the latest ends so far behind at the latest, where a code point
    // does.
    let last = offset(text, last).unwrap_or(text.len());
    let end = text.floor_char_boundary(last.saturating_add(part.len()));
    let found = text.get(..end).and_then(|head| head.rfind(part));
    Some(Ok(Value::Int(
        found.map_or(-1, |found| position(text, found)),
    )))
}

fn replace<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (text, old, new, limit) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(limit),
        ] => (text, old, new, *limit),
        _ => return None,
    };
    let (text, old, new) = (text.as_str(), old.as_str(), new.as_str());
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(old).take(limit).count();
    let most = text.len().saturating_add(count.saturating_mul(new.len()));
    if most > MAX_BYTES {
        return Some(too_large());
    }
    if !work::write(most) {
        return Some(Err(Error::CostLimit));
    }
    Some(Ok(Value::text(text.replacen(old, new, limit))))
}

/// Splits a text as Go does: an empty separator splits it into code points.
fn split<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [
            Value::String(text),
            Value::String(separator),
            Value::Int(limit),
        ] => (text, separator, *limit),
        _ => return None,
    };
    let (text, separator) = (text.as_str(), separator.as_str());
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<&str> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        code_points(text, limit)
    } else {
        text.splitn(limit, separator).collect()
    };
    if !work::copy(parts.len()) {
        return Some(Err(Error::CostLimit));
    }
    Some(Ok(Value::list(
        parts.into_iter().map(Value::text).collect(),
    )))
}

/// The code points of a text, the last part of which is all that is beyond a limit.
fn code_points(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            return parts;
        }
        let (head, tail) = rest.split_at(first.len_utf8());
        parts.push(head);
        rest = tail;
    }
    parts
}

fn substring<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return None,
    };
    let text = text.as_str();
    if let Some(end) = end.filter(|end| start > *end) {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Some(Err(Error::new(message)));
    }
    let place = |position: i64| offset(text, usize::try_from(position).ok()?);
    let Some(from) = place(start) else {
        return Some(out_of_range(start));
    };
    let to = match end {
        None => text.len(),
        Some(end) => match place(end) {
            Some(to) => to,
            None => return Some(out_of_range(end)),
        },
    };
    Some(Ok(Value::text(text.get(from..to).unwrap_or(""))))
}

fn join<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator.as_str()),
        _ => return None,
    };
    Some(joined(list, separator))
}

fn joined<'a>(list: &List<'a>, separator: &str) -> Result<Value<'a>> {
    let mut out = String::new();
    for (i, item) in list.iter().enumerate() {
        if !work::take(1) {
            return Err(Error::CostLimit);
        }
        let item = item?;
        let Value::String(text) = &item else {
            let shown = super::conversions::shown(&item);
            return Err(Error::new(format!("join: invalid input: {shown}")));
        };
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(text.as_str());
        if out.len() > MAX_BYTES {
            return too_large();
        }
        work::write(separator.len() + text.as_str().len());
    }
    Ok(Value::String(Text::Shared(out.into())))
}

/// A text in quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
