//! The formats of object names, labels, keys, ports and addresses, and the messages for those that
//! do not conform (apimachinery `util/validation`, `api/validate/content`).
//!
//! Every check returns the messages of what is wrong: none where the value is fine. The messages
//! are what clients see and so are fixed; the regular expressions in them are shown, not run: the
//! checks are scanners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Messages about a value; empty if it is valid.
pub type Problems = Vec<String>;

/// The longest DNS label, and the longest label value and name part of a label key.
pub const LABEL_MAX: usize = 63;
/// The longest DNS subdomain: the limit of most object names.
pub const SUBDOMAIN_MAX: usize = 253;
/// The longest name of a container port.
pub const PORT_NAME_MAX: usize = 15;
/// Unix user and group ids end here.
pub const ID_MAX: i64 = i32::MAX as i64;

const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
     an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_1123: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
     and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SUBDOMAIN_UNDERSCORE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
     and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower \
     case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is \
     '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
     (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for \
     validation is '[0-9]+%')";
const HEADER_NAME: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
     validation is '[-A-Za-z0-9]+')";
const RELAXED_ENV_NAME: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
     or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters \
     or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";

/// "must be no more than N characters".
pub fn max_len_error(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The same for label keys and values, which upstream counts in bytes.
fn max_bytes_error(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// "must be between LOW and HIGH, inclusive".
pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// Too long, and then the message where the form is wrong.
fn problems(value: &str, max: usize, well_formed: bool, message: &str) -> Problems {
    let mut out = Vec::new();
    if value.len() > max {
        out.push(max_len_error(max));
    }
    if !well_formed {
        out.push(message.to_owned());
    }
    out
}

fn lower_alnum(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Reports whether both ends satisfy `end` and everything between satisfies `middle`. Empty fails.
fn framed(text: &str, end: impl Fn(u8) -> bool, middle: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match bytes {
        [] => false,
        [only] => end(*only),
        [first, between @ .., last] => {
            end(*first) && end(*last) && between.iter().all(|&c| middle(c))
        }
    }
}

fn is_label_form(text: &str) -> bool {
    framed(text, lower_alnum, |c| lower_alnum(c) || c == b'-')
}

fn is_subdomain_form(text: &str) -> bool {
    text.split('.').all(is_label_form)
}

fn is_name_part(text: &str) -> bool {
    framed(
        text,
        |c| c.is_ascii_alphanumeric(),
        |c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'),
    )
}

/// An RFC 1123 label: at most 63 lower case letters, digits and inner dashes.
pub fn dns1123_label(value: &str) -> Problems {
    let message = if is_subdomain_form(value) {
        "must not contain dots"
    } else {
        LABEL_1123
    };
    problems(value, LABEL_MAX, is_label_form(value), message)
}

/// An RFC 1123 subdomain: labels joined by dots, 253 characters.
pub fn dns1123_subdomain(value: &str) -> Problems {
    problems(
        value,
        SUBDOMAIN_MAX,
        is_subdomain_form(value),
        SUBDOMAIN_1123,
    )
}

/// A subdomain whose labels may hold underscores, also at their start.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Problems {
    let label = |text: &str| {
        let text = text.strip_prefix('_').unwrap_or(text);
        framed(text, lower_alnum, |c| {
            lower_alnum(c) || matches!(c, b'-' | b'_')
        })
    };
    problems(
        value,
        SUBDOMAIN_MAX,
        value.split('.').all(label),
        SUBDOMAIN_UNDERSCORE,
    )
}

/// An RFC 1035 label: like an RFC 1123 one, but starting with a letter.
pub fn dns1035_label(value: &str) -> Problems {
    let well_formed = is_label_form(value) && value.starts_with(|c: char| c.is_ascii_lowercase());
    problems(value, LABEL_MAX, well_formed, LABEL_1035)
}

/// `*.` and a subdomain.
pub fn wildcard_dns1123_subdomain(value: &str) -> Problems {
    problems(
        value,
        SUBDOMAIN_MAX,
        value.strip_prefix("*.").is_some_and(is_subdomain_form),
        WILDCARD,
    )
}

/// A label key, annotation key, finalizer, taint key...: an optional subdomain with a slash, and a
/// name.
pub fn qualified_name(value: &str) -> Problems {
    let mut out = Vec::new();
    let mut parts = value.split('/');
    let (first, second, third) = (parts.next().unwrap_or(""), parts.next(), parts.next());
    let name = match (second, third) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                out.push("prefix part must be non-empty".to_owned());
            } else {
                if first.len() > SUBDOMAIN_MAX {
                    out.push(format!("prefix part {}", max_bytes_error(SUBDOMAIN_MAX)));
                }
                if !is_subdomain_form(first) {
                    out.push(format!("prefix part {SUBDOMAIN_1123}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {LABEL_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        out.push(format!("name part {}", max_bytes_error(LABEL_MAX)));
    }
    if !is_name_part(name) {
        out.push(format!("name part {LABEL_KEY}"));
    }
    out
}

/// A label value: empty, or at most 63 letters, digits, and inner dashes, underscores and dots.
/// What is wrong with the key of a label selector (apimachinery `content.IsLabelKey`).
pub fn label_key(value: &str) -> Problems {
    qualified_name(value)
}

pub fn label_value(value: &str) -> Problems {
    let mut out = Vec::new();
    if value.len() > LABEL_MAX {
        out.push(max_bytes_error(LABEL_MAX));
    }
    if !value.is_empty() && !is_name_part(value) {
        out.push(LABEL_VALUE.to_owned());
    }
    out
}

/// A name that stands alone as a segment of a URL path. Empty and long names pass.
pub fn path_segment_name(value: &str) -> Problems {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

/// The start of a name that stands alone as a segment of a URL path.
pub fn path_segment_prefix(value: &str) -> Problems {
    ["/", "%"]
        .iter()
        .filter(|bad| value.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// A port from 1 to 65535.
pub fn port_number(port: i64) -> Problems {
    in_range(port, 1, 65535)
}

/// A number within bounds, both included.
pub fn in_range(value: i64, low: i64, high: i64) -> Problems {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![range_error(low, high)]
    }
}

/// A Unix user or group id.
pub fn unix_id(id: i64) -> Problems {
    in_range(id, 0, ID_MAX)
}

/// The name of a port (an IANA service name in lower case).
pub fn port_name(value: &str) -> Problems {
    let mut out = Vec::new();
    if value.len() > PORT_NAME_MAX {
        out.push(max_len_error(PORT_NAME_MAX));
    }
    if value.is_empty() || !value.bytes().all(|c| lower_alnum(c) || c == b'-') {
        out.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !value.bytes().any(|c| c.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        out.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        out.push("must not begin or end with a hyphen".to_owned());
    }
    out
}

/// Digits and a percent sign.
pub fn percent(value: &str) -> Problems {
    let digits = value.strip_suffix('%').unwrap_or("");
    problems(
        value,
        usize::MAX,
        !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()),
        PERCENT,
    )
}

/// The name of an HTTP header.
pub fn http_header_name(value: &str) -> Problems {
    let well_formed = !value.is_empty()
        && value
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || c == b'-');
    problems(value, usize::MAX, well_formed, HEADER_NAME)
}

/// The name of an environment variable as containers may have it: printable ASCII without `=`.
pub fn relaxed_env_var_name(value: &str) -> Problems {
    let mut out = Vec::new();
    if value.is_empty() {
        out.push("environment variable name must be non-empty".to_owned());
    }
    if !value
        .bytes()
        .all(|c| (b' '..=b'~').contains(&c) && c != b'=')
    {
        out.push(RELAXED_ENV_NAME.to_owned());
    }
    out
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Problems {
    let well_formed = !value.is_empty()
        && value
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_'));
    let mut out = problems(value, SUBDOMAIN_MAX, well_formed, CONFIG_KEY);
    out.extend(parent_directory(value));
    out
}

/// A name that a file system would take for a way up.
fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// A name as programs in C have them.
pub fn c_identifier(value: &str) -> Problems {
    let mut bytes = value.bytes();
    let well_formed = bytes
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && bytes.all(|c| c.is_ascii_alphanumeric() || c == b'_');
    problems(value, usize::MAX, well_formed, C_IDENTIFIER)
}

/// An address in the lenient form of old fields: leading zeros in IPv4 are read as decimal. No
/// zones.
pub fn parse_ip_sloppy(value: &str) -> Option<IpAddr> {
    if value.contains(':') {
        value.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    } else {
        parse_ipv4_sloppy(value).map(IpAddr::V4)
    }
}

fn parse_ipv4_sloppy(value: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        *octet = decimal(parts.next()?, 0xff)? as u8;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Digits, leading zeros allowed, up to `max`.
fn decimal(text: &str, max: u32) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits {
        return None;
    }
    let text = text.trim_start_matches('0');
    if text.is_empty() {
        Some(0)
    } else {
        text.parse().ok().filter(|&value| value <= max)
    }
}

fn is_v4_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// An address as Go prints it: mapped IPv4 in dotted form.
pub fn canonical_ip(ip: IpAddr) -> String {
    ip.to_canonical().to_string()
}

/// An address for a field that predates strict parsing: not canonical perhaps, but unambiguous.
pub fn legacy_ip(value: &str) -> Problems {
    let Some(ip) = parse_ip_sloppy(value) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    let mut out = Vec::new();
    if value.parse::<IpAddr>().is_err() {
        out.push("must not have leading 0s".to_owned());
    }
    if is_v4_mapped(&ip) {
        out.push("must not be an IPv4-mapped IPv6 address".to_owned());
    }
    out
}

/// An address in canonical form.
pub fn ip(value: &str) -> Problems {
    let mut out = legacy_ip(value);
    if let (true, Some(ip)) = (out.is_empty(), parse_ip_sloppy(value)) {
        let canonical = canonical_ip(ip);
        if canonical != value {
            out.push(format!("must be in canonical form ({canonical:?})"));
        }
    }
    out
}

/// A CIDR in the lenient form of old fields: the address and the length of its prefix.
pub fn parse_cidr_sloppy(value: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = value.split_once('/')?;
    let address = parse_ip_sloppy(address)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    Some((address, decimal(length, max)? as u8))
}

/// The first address of the network that `address/length` lies in.
pub fn network_address(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(length.min(32)))
                .unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(length.min(128)))
                .unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

/// A CIDR for a field that predates strict parsing.
pub fn legacy_cidr(value: &str) -> Problems {
    let Some((address, length)) = parse_cidr_sloppy(value) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let (ip_text, length_text) = value.split_once('/').unwrap_or((value, ""));
    let problem = if ip_text.parse::<IpAddr>().is_err() || length_text != length.to_string() {
        "must not have leading 0s in IP or prefix length"
    } else if is_v4_mapped(&address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if network_address(address, length) != address {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![problem.to_owned()]
}

/// An address with the length of its network's prefix, in canonical form.
pub fn interface_address(value: &str) -> Problems {
    let Some((address, length)) = parse_cidr_sloppy(value) else {
        let form = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![form.to_owned()];
    };
    let length = match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() && length > 32 => length.saturating_sub(96),
        _ => length,
    };
    let canonical = format!("{}/{length}", canonical_ip(address));
    if canonical == value {
        return Vec::new();
    }
    vec![format!("must be in canonical form ({canonical:?})")]
}

/// A CIDR in canonical form.
pub fn cidr(value: &str) -> Problems {
    let mut out = legacy_cidr(value);
    if let (true, Some((address, length))) = (out.is_empty(), parse_cidr_sloppy(value)) {
        let canonical = format!("{}/{length}", canonical_ip(address));
        if canonical != value {
            out.push(format!("must be in canonical form ({canonical:?})"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine(check: fn(&str) -> Problems, values: &[&str]) {
        for value in values {
            assert_eq!(check(value), Problems::new(), "{value:?}");
        }
    }

    fn wrong(check: fn(&str) -> Problems, values: &[&str]) {
        for value in values {
            assert!(!check(value).is_empty(), "{value:?}");
        }
    }

    #[test]
    fn dns_names() {
        fine(dns1123_label, &["a", "a-b", "0", "a--b", &"a".repeat(63)]);
        wrong(
            dns1123_label,
            &["", "-", "a-", "-a", "A", "a_b", "a.b", &"a".repeat(64)],
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        fine(dns1123_subdomain, &["a", "a.b", "0.1", &"a".repeat(253)]);
        wrong(
            dns1123_subdomain,
            &["", ".", "a.", ".a", "a..b", "a.-b", "A.b", "a\n"],
        );
        fine(dns1123_subdomain_with_underscore, &["_http._tcp.a", "a_b"]);
        wrong(dns1123_subdomain_with_underscore, &["_", "__a", "a_"]);
        fine(dns1035_label, &["a", "a1"]);
        wrong(dns1035_label, &["1a", "a.b"]);
        fine(wildcard_dns1123_subdomain, &["*.bar.com"]);
        wrong(
            wildcard_dns1123_subdomain,
            &["*", "*.*.bar.com", "*bar.com", "f*.bar.com"],
        );
    }

    #[test]
    fn keys_and_values() {
        fine(
            qualified_name,
            &[
                "simple",
                "now-with-dashes",
                "1-starts",
                "example.com/Name_x.y",
                "a",
            ],
        );
        wrong(
            qualified_name,
            &[
                "",
                "/a",
                "a/",
                "a/b/c",
                "-a",
                "nospace allowed",
                "Cap.com/x",
                &"a".repeat(64),
            ],
        );
        assert_eq!(qualified_name("x/").len(), 2, "empty, and not of the form");
        fine(label_value, &["", "a", "A.b_c-9"]);
        wrong(label_value, &["-", "a ", "a/b", &"a".repeat(64)]);
        fine(config_map_key, &[".a", "a.b_c-D"]);
        wrong(config_map_key, &["", ".", "..", "..a", "a/b"]);
        assert_eq!(config_map_key("..").len(), 1);
        fine(relaxed_env_var_name, &["1 !"]);
        wrong(relaxed_env_var_name, &["", "a=b", "é", "\n"]);
        fine(path_segment_name, &["", "a:b", "..."]);
        wrong(path_segment_name, &[".", "..", "a/b", "a%b"]);
    }

    #[test]
    fn ports_and_percents() {
        fine(port_name, &["http", "a-1"]);
        wrong(
            port_name,
            &["", "80", "-a", "a-", "a--b", "A", "sixteen-letters-"],
        );
        fine(percent, &["0%", "101%"]);
        wrong(percent, &["%", "1", "-1%", "1.5%"]);
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
    }

    #[test]
    fn addresses() {
        fine(legacy_ip, &["1.2.3.4", "::1", "FE80::1"]);
        wrong(
            legacy_ip,
            &[
                "",
                "1.2.3",
                "1.2.3.4.5",
                "256.1.1.1",
                "01.2.3.4",
                "::ffff:1.2.3.4",
                "fe80::1%eth0",
                "1.2.3.+4",
            ],
        );
        assert_eq!(legacy_ip("01.2.3.4"), ["must not have leading 0s"]);
        assert_eq!(ip("FE80:0::1"), ["must be in canonical form (\"fe80::1\")"]);
        fine(
            legacy_cidr,
            &["10.0.0.0/8", "::/0", "0.0.0.0/0", "1.2.3.4/32"],
        );
        assert_eq!(
            legacy_cidr("10.0.0.1/8"),
            ["must not have bits set beyond the prefix length"]
        );
        assert_eq!(
            legacy_cidr("10.0.0.0/08"),
            ["must not have leading 0s in IP or prefix length"]
        );
        wrong(
            legacy_cidr,
            &[
                "10.0.0.0",
                "10.0.0.0/33",
                "10.0.0.0/",
                "10.0.0.0/-1",
                "::/129",
            ],
        );
    }

    #[test]
    fn messages_are_the_ones_clients_know() {
        let want = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
                    alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        assert_eq!(dns1123_label("A"), [want]);
    }
}
