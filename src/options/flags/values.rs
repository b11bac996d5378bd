//! Parsing of flag values as in Go: booleans, durations, comma-separated lists.

use std::time::Duration;

use crate::meta::go;

/// A boolean as Go's `strconv.ParseBool` reads it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a duration as [`go::parse_duration`] does; a negative one becomes zero.
///
/// # Errors
/// Go's message for a text that is none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let nanos = go::parse_duration(text)?;
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

/// The elements of a comma-separated list. An element in double quotes may hold commas (pflag reads
/// it as CSV).
pub fn split_list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut items = vec![String::new()];
    let (mut quoted, mut letters) = (false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        let last = items.len() - 1;
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                items[last].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => items.push(String::new()),
            letter => items[last].push(letter),
        }
    }
    items
}

/// The pairs of a map. One pair is not split, so that its value may hold commas (pflag
/// `stringToStringValue.Set`).
pub fn split_map(text: &str) -> Vec<String> {
    match text.matches('=').count() {
        0 | 1 => vec![text.trim_matches('"').to_owned()],
        _ => split_list(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        for (text, want) in [
            ("1m30s", Ok(Duration::from_secs(90))),
            ("1.5h", Ok(Duration::from_secs(5400))),
            ("300ms", Ok(Duration::from_millis(300))),
            ("0", Ok(Duration::ZERO)),
            ("-5s", Ok(Duration::ZERO)),
            ("5", Err("time: missing unit in duration \"5\"".to_owned())),
            (
                "5x",
                Err("time: unknown unit \"x\" in duration \"5x\"".to_owned()),
            ),
            ("", Err("time: invalid duration \"\"".to_owned())),
            ("s", Err("time: invalid duration \"s\"".to_owned())),
        ] {
            assert_eq!(parse_duration(text), want, "{text}");
        }
    }

    #[test]
    fn quotes_protect_commas() {
        assert_eq!(split_list(r#"a,"b,c",d"#), ["a", "b,c", "d"]);
        assert_eq!(split_list(r#""say ""hi""""#), [r#"say "hi""#]);
        assert_eq!(split_list(""), [""; 0]);
    }
}
