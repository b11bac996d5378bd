//! The values of constants (cel-go `parser/unescape.go`).

/// Parses an integer, decimal or with `0x`.
///
/// # Errors
/// The message for a number out of range.
pub fn int(text: &str) -> Result<i64, String> {
    let invalid = |_| "invalid int literal".to_owned();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).map_err(invalid),
        None => text.parse().map_err(invalid),
    }
}

/// Parses an unsigned integer with its `u`.
///
/// # Errors
/// The message for a number out of range.
pub fn uint(text: &str) -> Result<u64, String> {
    let invalid = |_| "invalid uint literal".to_owned();
    let digits = text.trim_end_matches(['u', 'U']);
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map_err(invalid),
        None => digits.parse().map_err(invalid),
    }
}

/// Parses a double; one that is too large is an error, as it is in Go.
///
/// # Errors
/// The message for a number out of range.
pub fn double(text: &str) -> Result<f64, String> {
    let number: Result<f64, _> = text.parse();
    number
        .ok()
        .filter(|number| number.is_finite())
        .ok_or_else(|| "invalid double literal".to_owned())
}

/// Takes the quotes from a string or bytes literal and resolves its escape sequences.
///
/// # Errors
/// The sequence is none, or no code point.
pub fn unescape(literal: &str, is_bytes: bool) -> Result<Vec<u8>, String> {
    let unable = || "unable to unescape string".to_owned();
    let literal = literal.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match literal.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, literal.as_str()),
    };
    let inner = ["'''", "\"\"\"", "'", "\""].iter().find_map(|quote| {
        let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(inner)
    });
    let inner = inner.ok_or_else(unable)?;
    if raw {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            escape(&mut chars, is_bytes, &mut out)?;
        } else {
            push(c, &mut out);
        }
    }
    Ok(out)
}

fn push(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Resolves the sequence behind a backslash.
fn escape(
    chars: &mut std::str::Chars<'_>,
    is_bytes: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let unable = || "unable to unescape string".to_owned();
    let kind = chars
        .next()
        .ok_or("unable to unescape string, found '\\' as last character")?;
    let plain = match kind {
        'a' => Some('\u{7}'),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\u{b}'),
        '\\' | '\'' | '"' | '`' | '?' => Some(kind),
        _ => None,
    };
    if let Some(plain) = plain {
        push(plain, out);
        return Ok(());
    }
    let (radix, count, first) = match kind {
        'x' | 'X' => (16, 2, 0),
        'u' if !is_bytes => (16, 4, 0),
        'U' if !is_bytes => (16, 8, 0),
        '0'..='3' => (8, 2, u32::from(kind) - u32::from('0')),
        _ => return Err(unable()),
    };
    let mut code = first;
    for _ in 0..count {
        let digit = chars.next().and_then(|c| c.to_digit(radix));
        code = digit
            .and_then(|digit| code.checked_mul(radix)?.checked_add(digit))
            .ok_or_else(unable)?;
    }
    if is_bytes {
        // Two hexadecimal or three octal digits, the first up to 3, are one byte.
        out.push(u8::try_from(code).map_err(|_| unable())?);
    } else {
        let c = char::from_u32(code).ok_or("invalid unicode code point")?;
        push(c, out);
    }
    Ok(())
}
