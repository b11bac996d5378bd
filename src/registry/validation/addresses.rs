//! Warnings about addresses in a form that only old fields still accept.

use std::net::IpAddr;

use crate::meta::go;
use crate::meta::{Path, names};

/// The warning about an address that is valid in an old field, if it deserves one (apimachinery
/// `GetWarningsForIP`).
pub fn ip_warning(path: impl FnOnce() -> Path, value: &str) -> Option<String> {
    let address = names::parse_ip_sloppy(value)?;
    let canonical = names::canonical_ip(address);
    if canonical == value {
        return None;
    }
    let path = path();
    let (shown, canonical) = (go::quote(value), go::quote(&canonical));
    Some(if address.is_ipv4() || address.to_canonical().is_ipv4() {
        format!("{path}: non-standard IP address {shown} is invalid: use {canonical}")
    } else {
        format!("{path}: IPv6 address {shown} should be in RFC 5952 canonical format ({canonical})")
    })
}

/// The warnings about a CIDR that is valid in an old field (apimachinery `GetWarningsForCIDR`).
pub fn cidr_warnings(path: &Path, value: &str) -> Vec<String> {
    let Some((address, length)) = names::parse_cidr_sloppy(value) else {
        return Vec::new();
    };
    let mapped = address.is_ipv6() && address.to_canonical().is_ipv4();
    let length = if mapped {
        length.saturating_sub(96)
    } else {
        length
    };
    let address = address.to_canonical();
    let network = names::network_address(address, length);
    let shown = go::quote(value);
    let canonical = go::quote(&format!("{}/{length}", names::canonical_ip(network)));
    let mut warnings = Vec::new();
    if network != address {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let single = go::quote(&format!("{}/{bits}", names::canonical_ip(address)));
        warnings.push(format!("{path}: CIDR value {shown} is ambiguous in this context (should be {canonical} or {single}?)"));
    }
    let strict = value.split_once('/').is_some_and(|(ip, bits)| {
        ip.parse::<IpAddr>().is_ok() && (bits == "0" || !bits.starts_with('0'))
    });
    if mapped || !strict {
        warnings.push(format!(
            "{path}: non-standard CIDR value {shown} is invalid: use {canonical}"
        ));
    } else if warnings.is_empty() && canonical != shown {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({canonical})"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_written_as_they_should_be() {
        let table = [
            ("1.2.3.4", None),
            ("2001:db8::1", None),
            (
                "01.2.3.4",
                Some("p: non-standard IP address \"01.2.3.4\" is invalid: use \"1.2.3.4\""),
            ),
            (
                "::ffff:1.2.3.4",
                Some("p: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\""),
            ),
            (
                "2001:DB8::1",
                Some(
                    "p: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
                ),
            ),
        ];
        for (value, want) in table {
            assert_eq!(
                ip_warning(|| Path::new("p"), value).as_deref(),
                want,
                "{value}"
            );
        }
    }

    #[test]
    fn networks_that_are_not_written_as_they_should_be() {
        let table: [(&str, &[&str]); 6] = [
            ("10.0.0.0/8", &[]),
            ("::/0", &[]),
            (
                "10.1.0.0/8",
                &[
                    "p: CIDR value \"10.1.0.0/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.1.0.0/32\"?)",
                ],
            ),
            (
                "10.0.0.0/08",
                &["p: non-standard CIDR value \"10.0.0.0/08\" is invalid: use \"10.0.0.0/8\""],
            ),
            (
                "::ffff:10.0.0.0/104",
                &[
                    "p: non-standard CIDR value \"::ffff:10.0.0.0/104\" is invalid: use \"10.0.0.0/8\"",
                ],
            ),
            (
                "2001:DB8::/32",
                &[
                    "p: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")",
                ],
            ),
        ];
        for (value, want) in table {
            assert_eq!(cidr_warnings(&Path::new("p"), value), want, "{value}");
        }
    }
}
