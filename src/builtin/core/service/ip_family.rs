//! IP families.

use std::net::IpAddr;

pub const IPV4: &str = "IPv4";
pub const IPV6: &str = "IPv6";

/// The family of an address.
pub fn family_of(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { IPV4 } else { IPV6 }
}
