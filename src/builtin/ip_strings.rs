//! Warnings about addresses in forms that can be misread (apimachinery `util/validation`,
//! GetWarningsForIP).

use std::net::IpAddr;

use crate::meta::Path;
use crate::meta::names::{canonical_ip, network_address, parse_cidr_sloppy, parse_ip_sloppy};

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// About an address that is none in its usual form.
pub fn ip_warning(path: &Path, text: &str) -> Option<String> {
    let address = parse_ip_sloppy(text)?;
    let canonical = canonical_ip(address);
    if text.parse::<IpAddr>().is_err() || is_mapped(address) {
        return Some(format!(
            "{path}: non-standard IP address {text:?} is invalid: use {canonical:?}"
        ));
    }
    (address.is_ipv6() && canonical != text).then(|| {
        format!(
            "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})"
        )
    })
}

/// About a network that is none in its usual form.
pub fn cidr_warnings(path: &Path, text: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some((address, length)) = parse_cidr_sloppy(text) else {
        return warnings;
    };
    let network = network_address(address, length);
    let canonical = format!("{}/{length}", canonical_ip(network));
    if network != address {
        let single = format!(
            "{}/{}",
            canonical_ip(address),
            if address.is_ipv4() { 32 } else { 128 }
        );
        warnings.push(format!("{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or {single:?}?)"));
    }
    let (ip_text, length_text) = text.split_once('/').unwrap_or((text, ""));
    if ip_text.parse::<IpAddr>().is_err() || length_text != length.to_string() || is_mapped(address)
    {
        warnings.push(format!(
            "{path}: non-standard CIDR value {text:?} is invalid: use {canonical:?}"
        ));
    }
    if warnings.is_empty() && address.is_ipv6() && canonical != text {
        warnings.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_can_be_misread() {
        let path = Path::new("p");
        let cases = [
            ("1.2.3.4", None),
            (
                "01.2.3.4",
                Some(r#"p: non-standard IP address "01.2.3.4" is invalid: use "1.2.3.4""#),
            ),
            (
                "FD00::1",
                Some(
                    r#"p: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")"#,
                ),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(ip_warning(&path, text).as_deref(), want, "{text}");
        }
        assert_eq!(
            cidr_warnings(&path, "10.0.0.1/8"),
            [
                r#"p: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#
            ]
        );
        assert!(cidr_warnings(&path, "10.0.0.0/8").is_empty());
    }
}
