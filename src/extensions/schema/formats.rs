//! The string formats that custom resources are checked against (kube-openapi `strfmt`).

use std::net::IpAddr;
use std::sync::LazyLock;

use regex::Regex;

use crate::meta::go::{self, regexp, url};
use crate::meta::names;

type Check = fn(&str) -> bool;

/// Every format of strings by its name without dashes.
const FORMATS: [(&str, Check); 26] = [
    ("bsonobjectid", |text| {
        text.len() == 24 && text.bytes().all(|c| c.is_ascii_hexdigit())
    }),
    ("uri", is_request_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", |text| {
        names::parse_ip_sloppy(text).is_some() && text.contains('.')
    }),
    ("ipv6", |text| {
        text.parse::<IpAddr>().is_ok() && text.contains(':')
    }),
    ("cidr", |text| names::parse_cidr_sloppy(text).is_some()),
    ("mac", is_mac),
    ("uuid", |text| UUID[0].is_match(text)),
    ("uuid3", |text| UUID[1].is_match(text)),
    ("uuid4", |text| UUID[2].is_match(text)),
    ("uuid5", |text| UUID[3].is_match(text)),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |text| text.len() == 11 && SSN.is_match(text)),
    ("hexcolor", |text| HEX_COLOR.is_match(text)),
    ("rgbcolor", |text| RGB_COLOR.is_match(text)),
    ("byte", |text| BASE64.is_match(text)),
    ("password", |_| true),
    ("date", is_date),
    ("duration", |text| parse_duration(text).is_some()),
    ("datetime", is_date_time),
    ("k8sshortname", |text| names::dns1123_label(text).is_empty()),
    ("k8slongname", is_long_name),
];

fn find(format: &str) -> Option<Check> {
    let name = format.replace('-', "");
    FORMATS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, check)| *check)
}

/// The format as far as it is checked for values of these types; empty where it is not.
pub fn known<'a>(format: &'a str, types: &[&str]) -> &'a str {
    if is_recognized(format, if let [one] = types { one } else { "" }) {
        format
    } else {
        ""
    }
}

/// Reports whether a format means something for a type. The empty format does not.
pub fn is_recognized(format: &str, kind: &str) -> bool {
    match kind {
        "" | "string" => find(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

pub fn is_string_format(format: &str) -> bool {
    find(format).is_some()
}

/// Reports whether a text is of a format; an unknown one takes everything.
pub fn matches(format: &str, text: &str) -> bool {
    find(format).is_none_or(|check| check(text))
}

fn pattern(text: &str) -> Regex {
    regexp::compile(text)
        .expect("a pattern of ours compiles")
        .regex
}

macro_rules! patterns {
    ($($name:ident = $pattern:expr;)*) => { $(static $name: LazyLock<Regex> = LazyLock::new(|| pattern($pattern));)* };
}

patterns! {
    SSN = r"^\d{3}[- ]?\d{2}[- ]?\d{4}$";
    HEX_COLOR = "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$";
    BASE64 = r"^(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})$";
    HOST_CHAR = r"^[a-zA-Z0-9\p{S}\p{L}]$";
    LETTER = r"^\p{L}$";
    CREDIT_CARD = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    SCALA_DURATION = r"((\d+)\s*([A-Za-zµ]+))";
}

static UUID: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    let of = |third: &str, fourth: &str| {
        pattern(&format!(
            "(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}$"
        ))
    };
    let any = "[0-9a-f]{4}";
    let variant = "[89ab][0-9a-f]{3}";
    [
        of(any, any),
        of("3[0-9a-f]{3}", any),
        of("4[0-9a-f]{3}", variant),
        of("5[0-9a-f]{3}", variant),
    ]
});

/// Reports whether Go's `url.ParseRequestURI` takes a text: an absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    url::parse_request_uri(text).is_ok()
}

/// Reports whether Go's `mail.ParseAddress` takes a text, for addresses without comments: an
/// address, alone or in angle brackets behind a name.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        None => text,
        Some(rest) => match rest.rsplit_once('<') {
            Some((name, address)) if is_phrase(name.trim_end()) => address,
            _ => return false,
        },
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let quoted = local.len() > 2
        && local.starts_with('"')
        && local.ends_with('"')
        && !local[1..local.len() - 1].contains('"');
    (quoted || is_dot_atom(local)) && (is_dot_atom(domain) || is_domain_literal(domain))
}

fn is_atom_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.')
        .all(|atom| !atom.is_empty() && atom.chars().all(is_atom_char))
}

fn is_domain_literal(text: &str) -> bool {
    text.strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .is_some_and(|text| text.parse::<IpAddr>().is_ok())
}

fn is_phrase(text: &str) -> bool {
    let quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    quoted
        || text
            .chars()
            .all(|c| is_atom_char(c) || c == ' ' || c == '.')
}

/// A label, or labels and a top-level domain of letters.
fn is_hostname(text: &str) -> bool {
    let is = |regex: &Regex, c: char| regex.is_match(c.encode_utf8(&mut [0; 4]));
    let host_char = |c: char| c.is_ascii_alphanumeric() || is(&HOST_CHAR, c);
    let label = |label: &str| {
        let count = label.chars().count();
        let ends = label.chars().next().is_some_and(host_char)
            && label.chars().next_back().is_some_and(host_char);
        ends && count <= 63 && label.chars().all(|c| c == '-' || host_char(c))
    };
    let well_formed = match text.rsplit_once('.') {
        None => label(text) && !text.chars().skip(2).any(|c| c == '-'),
        Some((labels, top)) => {
            let letters = top
                .chars()
                .all(|c| c.is_ascii_alphabetic() || is(&LETTER, c));
            labels.split('.').all(label) && letters && (2..=63).contains(&top.chars().count())
        }
    };
    well_formed && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

fn is_long_name(text: &str) -> bool {
    names::dns1123_subdomain(text).is_empty()
}

/// Reports whether Go's `net.ParseMAC` takes a text: 6, 8 or 20 bytes with colons, dashes or dots.
fn is_mac(text: &str) -> bool {
    let group = |separator: char, digits: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts
                .iter()
                .all(|part| part.len() == digits && part.bytes().all(|c| c.is_ascii_hexdigit()))
    };
    group(':', 2, &[6, 8, 20]) || group('-', 2, &[6, 8, 20]) || group('.', 4, &[3, 4, 10])
}

fn digits_of(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

fn without_spaces_and_dashes(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, '\t' | '\n' | '\u{c}' | '\r' | ' ' | '-'))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = without_spaces_and_dashes(text);
    let well_formed = text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(at, c)| c.is_ascii_digit() || (at == 9 && c == b'X'));
    let sum: u32 = (1..)
        .zip(text.chars())
        .map(|(factor, c)| factor * c.to_digit(10).unwrap_or(10))
        .sum();
    well_formed && sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let text = without_spaces_and_dashes(text);
    let digits = digits_of(&text);
    if text.len() != 13 || digits.len() != 13 {
        return false;
    }
    let sum: u32 = digits[..12]
        .iter()
        .zip([1, 3].into_iter().cycle())
        .map(|(digit, factor)| digit * factor)
        .sum();
    digits[12] == (10 - sum % 10) % 10
}

fn is_credit_card(text: &str) -> bool {
    let digits = digits_of(text);
    let text: String = digits
        .iter()
        .filter_map(|digit| char::from_digit(*digit, 10))
        .collect();
    let doubled = |digit: u32| {
        if digit > 4 {
            digit * 2 % 10 + 1
        } else {
            digit * 2
        }
    };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| if at % 2 == 1 { doubled(*digit) } else { *digit })
        .sum();
    CREDIT_CARD.is_match(&text) && sum.is_multiple_of(10)
}

/// `2006-01-02`, a day that there is.
pub fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, c)| {
            if at == 4 || at == 7 {
                c == b'-'
            } else {
                c.is_ascii_digit()
            }
        });
    shape && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date)
        && TIME
            .captures(time)
            .is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// The units of Scala's durations: names, of which the last is also a prefix, and nanoseconds.
const SCALA_UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// A duration in nanoseconds, as Go or Scala write them.
pub fn parse_duration(text: &str) -> Option<i64> {
    go::parse_duration(text)
        .ok()
        .or_else(|| parse_scala_duration(text))
}

fn parse_scala_duration(text: &str) -> Option<i64> {
    let mut total = None;
    for found in SCALA_DURATION.captures_iter(text) {
        let factor: i64 = found[2].parse().ok()?;
        let unit = found[3].to_lowercase();
        for (names, scale) in SCALA_UNITS {
            for (at, name) in names.iter().enumerate() {
                if unit == *name || (at + 1 == names.len() && unit.starts_with(name)) {
                    total = Some(
                        total
                            .unwrap_or(0_i64)
                            .wrapping_add(factor.wrapping_mul(scale)),
                    );
                }
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_match_their_texts() {
        let right = [
            ("ipv4", "1.2.3.4"),
            ("date", "2020-02-29"),
            ("date-time", "2020-01-01T00:00:00.5z"),
            ("duration", "1h2m"),
            ("duration", "22 ns"),
            ("duration", "3 days"),
            ("email", "A <a@b>"),
            ("hostname", "a"),
            ("mac", "01:23:45:67:89:ab"),
            ("isbn10", "0321751043"),
            ("isbn13", "978-0321751041"),
            ("creditcard", "4111 1111 1111 1111"),
            ("uri", "/a/b"),
            ("uuid", "00000000000000000000000000000000"),
        ];
        let wrong = [
            ("ipv4", "::1"),
            ("date", "2021-02-29"),
            ("date", "20200101"),
            ("date-time", "2020-01-01 00:00:00"),
            ("date-time", "2020-01-01T24:00:00Z"),
            ("duration", "1x"),
            ("email", "a@"),
            ("hostname", "a.b"),
            ("isbn10", "0321751044"),
            ("creditcard", "4111111111111112"),
            ("uri", "a b"),
            ("byte", ""),
        ];
        for (format, text) in right {
            assert!(matches(format, text), "{format} {text}");
        }
        for (format, text) in wrong {
            assert!(!matches(format, text), "{format} {text}");
        }
    }
}
