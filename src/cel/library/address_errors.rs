//! The reasons that Go tells why a text is no IP address (`net/netip`).

/// A reason, and where in the text it is seen.
struct Reason<'t>(&'static str, Option<&'t str>);

/// Returns the reason why a text, which is none, is no address.
pub fn reason(text: &str) -> String {
    let found = match text.find(['.', ':', '%']).map(|at| &text[at..=at]) {
        Some(".") => ipv4(text),
        Some(":") => ipv6(text),
        Some(_) => Some(Reason("missing IPv6 address", None)),
        None => None,
    };
    match found {
        Some(Reason(why, None)) => why.to_owned(),
        Some(Reason(why, Some(at))) => format!("{why} (at {at:?})"),
        None => "unable to parse IP".to_owned(),
    }
}

fn ipv4(text: &str) -> Option<Reason<'_>> {
    let (mut value, mut digits, mut fields) = (0_u32, 0, 0);
    for (at, c) in text.char_indices() {
        let here = Some(&text[at..]);
        match c.to_digit(10) {
            Some(_) if digits == 1 && value == 0 => {
                return Some(Reason("IPv4 field has octet with leading zero", None));
            }
            Some(digit) => {
                value = value * 10 + digit;
                digits += 1;
                if value > 255 {
                    return Some(Reason("IPv4 field has value >255", None));
                }
            }
            None if c != '.' => return Some(Reason("unexpected character", here)),
            None if digits == 0 || at + 1 == text.len() => {
                return Some(Reason("IPv4 field must have at least one digit", here));
            }
            None if fields == 3 => return Some(Reason("IPv4 address too long", None)),
            None => (value, digits, fields) = (0, 0, fields + 1),
        }
    }
    (fields < 3).then_some(Reason("IPv4 address too short", None))
}

/// The bytes of an address.
const BYTES: usize = 16;

fn ipv6(text: &str) -> Option<Reason<'_>> {
    let mut rest = text;
    if let Some((address, zone)) = text.split_once('%') {
        if zone.is_empty() {
            return Some(Reason("zone must be a non-empty string", None));
        }
        rest = address;
    }
    let mut bytes = 0;
    let mut has_gap = rest.starts_with("::");
    if has_gap {
        rest = &rest[2..];
    }
    while bytes < BYTES && !(rest.is_empty() && has_gap) {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let after = &rest[digits..];
        match digits {
            0 => {
                let why = "each colon-separated field must have at least one digit";
                return Some(Reason(why, Some(rest)));
            }
            1..=4 => {}
            _ => return Some(Reason("each group must have 4 or less digits", Some(rest))),
        }
        if after.starts_with('.') {
            if !has_gap && bytes != 12 {
                let why = "embedded IPv4 address must replace the final 2 fields of the address";
                return Some(Reason(why, Some(rest)));
            }
            if bytes + 4 > BYTES {
                let why = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Some(Reason(why, Some(rest)));
            }
            if let Some(reason) = ipv4(rest) {
                return Some(reason);
            }
            (bytes, rest) = (bytes + 4, "");
            break;
        }
        bytes += 2;
        rest = after;
        if rest.is_empty() {
            break;
        }
        let Some(next) = rest.strip_prefix(':') else {
            return Some(Reason("unexpected character, want colon", Some(rest)));
        };
        if next.is_empty() {
            let why = "colon must be followed by more characters";
            return Some(Reason(why, Some(rest)));
        }
        rest = next;
        if let Some(next) = rest.strip_prefix(':') {
            if has_gap {
                return Some(Reason("multiple :: in address", Some(rest)));
            }
            (has_gap, rest) = (true, next);
        }
    }
    if !rest.is_empty() {
        return Some(Reason("trailing garbage after address", Some(rest)));
    }
    match (bytes < BYTES, has_gap) {
        (true, false) => Some(Reason("address string too short", None)),
        (false, true) => {
            let why = "the :: must expand to at least one field of zeros";
            Some(Reason(why, None))
        }
        _ => None,
    }
}
