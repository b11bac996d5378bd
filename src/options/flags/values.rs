//! The texts that flags take, as Go reads them: booleans, durations, comma-separated lists.

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

/// A duration as Go's `time.ParseDuration` reads it (`1h2m3.5s`, `300ms`, `0`); a negative one
/// becomes zero.
///
/// # Errors
/// Go's message for a text that is none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", go::quote(text));
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let end = tail
            .find(|letter: char| letter.is_ascii_digit() || letter == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        seconds += number
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                "ns" => 1e-9,
                "" => {
                    return Err(format!(
                        "time: missing unit in duration {}",
                        go::quote(text)
                    ));
                }
                unknown => {
                    return Err(format!(
                        "time: unknown unit {} in duration {}",
                        go::quote(unknown),
                        go::quote(text)
                    ));
                }
            };
        rest = tail;
    }
    if negative {
        Ok(Duration::ZERO)
    } else {
        Duration::try_from_secs_f64(seconds).map_err(|_| invalid())
    }
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
