//! Addresses and networks (apiserver `cel/library/ip.go`, `cidr.go`).

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::super::extension::Extension;
use super::super::value::{Error, Result, Value};
use super::Declaration;
use super::address_errors;
use super::operators::declare;
use crate::meta::names::network_address;

pub const DECLARATIONS: &[Declaration] = &[
    declare!("ip", to_ip,
        "string_to_ip": "(string) -> net.IP",
        "cidr_ip": "net.CIDR() -> net.IP",
    ),
    declare!("ip.isCanonical", is_canonical, "ip_is_canonical": "(string) -> bool"),
    declare!("isIP", |args| parses(args, |text| parse_ip(text).is_ok()),
        "is_ip": "(string) -> bool"),
    declare!("family", |args| {
        Some(Ok(Value::Int(if address(args.first()?)?.is_ipv4() { 4 } else { 6 })))
    }, "ip_family": "net.IP() -> int"),
    declare!("isUnspecified", |args| test(args, |ip| ip.is_unspecified()),
        "ip_is_unspecified": "net.IP() -> bool"),
    declare!("isLoopback", |args| test(args, |ip| ip.is_loopback()),
        "ip_is_loopback": "net.IP() -> bool"),
    declare!("isLinkLocalMulticast", |args| test(args, is_link_local_multicast),
        "ip_is_link_local_multicast": "net.IP() -> bool"),
    declare!("isLinkLocalUnicast", |args| test(args, is_link_local_unicast),
        "ip_is_link_local_unicast": "net.IP() -> bool"),
    declare!("isGlobalUnicast", |args| test(args, is_global_unicast),
        "ip_is_global_unicast": "net.IP() -> bool"),
    declare!("cidr", |args| match args {
        [Value::String(text)] => Some(parse_network(text.as_str()).map(of_network)),
        _ => None,
    }, "string_to_cidr": "(string) -> net.CIDR"),
    declare!("isCIDR", |args| parses(args, |text| parse_network(text).is_ok()),
        "is_cidr": "(string) -> bool"),
    declare!("containsIP", contains_ip,
        "cidr_contains_ip_string": "net.CIDR(string) -> bool",
        "cidr_contains_ip_ip": "net.CIDR(net.IP) -> bool",
    ),
    declare!("containsCIDR", contains_network,
        "cidr_contains_cidr_string": "net.CIDR(string) -> bool",
        "cidr_contains_cidr": "net.CIDR(net.CIDR) -> bool",
    ),
    declare!("prefixLength", |args| {
        Some(Ok(Value::Int(i64::from(network(args.first()?)?.prefix))))
    }, "cidr_prefix_length": "net.CIDR() -> int"),
    declare!("masked", |args| {
        let network = network(args.first()?)?;
        let address = network_address(network.address, network.prefix);
        Some(Ok(of_network(Network { address, ..*network })))
    }, "cidr_masked": "net.CIDR() -> net.CIDR"),
    declare!("string", |args| match args {
        [value] => {
            let shown = address(value).map(ToString::to_string);
            let shown = shown.or_else(|| network(value).map(Network::shown));
            shown.map(|shown| Ok(Value::text(shown)))
        }
        _ => None,
    },
        "ip_to_string": "(net.IP) -> string",
        "cidr_to_string": "(net.CIDR) -> string",
    ),
];

/// An address and how many bits of it are a network's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    fn shown(&self) -> String {
        format!("{}/{}", self.address, self.prefix)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && network_address(self.address, self.prefix) == network_address(address, self.prefix)
    }
}

impl Extension for IpAddr {
    fn type_name(&self) -> &'static str {
        "net.IP"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn size(&self) -> Option<usize> {
        Some(if self.is_ipv4() { 4 } else { 16 })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Extension for Network {
    fn type_name(&self) -> &'static str {
        "net.CIDR"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn size(&self) -> Option<usize> {
        Some(usize::from(self.prefix).div_ceil(8))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn address<'v>(value: &'v Value<'_>) -> Option<&'v IpAddr> {
    match value {
        Value::Extension(value) => value.as_any().downcast_ref(),
        _ => None,
    }
}

fn network<'v>(value: &'v Value<'_>) -> Option<&'v Network> {
    match value {
        Value::Extension(value) => value.as_any().downcast_ref(),
        _ => None,
    }
}

fn of_network<'a>(network: Network) -> Value<'a> {
    Value::Extension(Arc::new(network))
}

/// Reads an address; one with a zone or an IPv4 address as IPv6 is none.
fn parse_ip(text: &str) -> Result<IpAddr> {
    if text.contains('%') && text.contains(':') {
        let message = format!("IP address {text:?} with zone value is not allowed");
        return Err(Error::new(message));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        let why = address_errors::reason(text);
        Error::new(format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): \
             {why}"
        ))
    })?;
    refuse_mapped(address, text)?;
    Ok(address)
}

fn refuse_mapped(address: IpAddr, text: &str) -> Result<()> {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            let message = format!("IPv4-mapped IPv6 address {text:?} is not allowed");
            Err(Error::new(message))
        }
        _ => Ok(()),
    }
}

fn parse_network(text: &str) -> Result<Network> {
    let refused = |why: &str| {
        Error::new(format!(
            "network address parse error during conversion from string: network address parse \
             error during conversion from string: netip.ParsePrefix({text:?}): {why}"
        ))
    };
    let (address, prefix) = text.rsplit_once('/').ok_or_else(|| refused("no '/'"))?;
    let parsed: IpAddr = address.parse().map_err(|_| {
        refused(&format!(
            "ParseAddr({address:?}): {}",
            address_errors::reason(address)
        ))
    })?;
    let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = prefix.len() > 1 && prefix.starts_with('0');
    let length: Option<i64> = prefix.parse().ok().filter(|_| digits && !leading_zero);
    let length = length.ok_or_else(|| refused(&format!("bad bits after slash: {prefix:?}")))?;
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    let length = u8::try_from(length).ok().filter(|length| *length <= most);
    let length = length.ok_or_else(|| refused("prefix length out of range"))?;
    refuse_mapped(parsed, text).map_err(|error| {
        Error::new(format!(
            "network address parse error during conversion from string: {error}"
        ))
    })?;
    Ok(Network {
        address: parsed,
        prefix: length,
    })
}

fn parses<'a>(args: &[Value<'a>], holds: fn(&str) -> bool) -> Option<Result<Value<'a>>> {
    match args {
        [Value::String(text)] => Some(Ok(Value::Bool(holds(text.as_str())))),
        _ => None,
    }
}

fn test<'a>(args: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> Option<Result<Value<'a>>> {
    Some(Ok(Value::Bool(holds(address(args.first()?)?))))
}

fn to_ip<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let of = |address: IpAddr| Value::Extension(Arc::new(address));
    match args {
        [Value::String(text)] => Some(parse_ip(text.as_str()).map(of)),
        [value] => Some(Ok(of(network(value)?.address))),
        _ => None,
    }
}

fn is_canonical<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::String(text)] = args else {
        return None;
    };
    let parsed = parse_ip(text.as_str());
    Some(parsed.map(|address| Value::Bool(address.to_string() == text.as_str())))
}

fn contains_ip<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [outer, other] = args else { return None };
    let outer = network(outer)?;
    let inner = match other {
        // What is no address is not told more of.
        Value::String(text) => parse_ip(text.as_str()).map_err(|_| Error::no_such_overload()),
        other => Ok(*address(other)?),
    };
    Some(inner.map(|inner| Value::Bool(outer.contains(inner))))
}

fn contains_network<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [outer, other] = args else { return None };
    let outer = network(outer)?;
    let inner = match other {
        Value::String(text) => parse_network(text.as_str()),
        other => Ok(*network(other)?),
    };
    Some(
        inner.map(|inner| {
            Value::Bool(outer.prefix <= inner.prefix && outer.contains(inner.address))
        }),
    )
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(ip: &IpAddr) -> bool {
    let special = match ip {
        IpAddr::V4(v4) => *v4 == Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => *v6 == Ipv6Addr::UNSPECIFIED,
    };
    !special
        && !ip.is_unspecified()
        && !ip.is_loopback()
        && !ip.is_multicast()
        && !is_link_local_unicast(ip)
}
