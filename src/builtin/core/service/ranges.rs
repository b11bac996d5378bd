//! The ranges that cluster IPs come from: what the ServiceCIDRs of the cluster say
//! (`pkg/registry/core/service/ipallocator`, `pkg/api/servicecidr`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rand::RngExt;

use super::ip_family::{IPV4, family_of};
use crate::meta::{Object, Value};

/// The largest prefix of an IPv6 range that addresses are handed out of.
const MIN_IPV6_PREFIX: u8 = 64;

/// A range that at least one ServiceCIDR names.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub net: IpNet,
    /// New addresses may come from it: one of its ServiceCIDRs is ready and not being deleted.
    pub ready: bool,
}

/// The ranges of these ServiceCIDRs, each once, in the order in which they are named.
pub fn of_cidrs<'a>(cidrs: impl IntoIterator<Item = &'a Object>) -> Vec<Range> {
    let mut all: Vec<Range> = Vec::new();
    for cidr in cidrs {
        let ready = is_ready(cidr) && cidr.deletion_timestamp().is_none();
        for net in nets(cidr) {
            match all.iter_mut().find(|range| range.net == net) {
                Some(range) => range.ready |= ready,
                None => all.push(Range { net, ready }),
            }
        }
    }
    all
}

/// The networks of a ServiceCIDR that addresses can be handed out of.
fn nets(cidr: &Object) -> impl Iterator<Item = IpNet> {
    let nets = cidr
        .array_at("/spec/cidrs")
        .iter()
        .filter_map(|text| text.as_str()?.parse::<IpNet>().ok());
    nets.filter(|net| matches!(net, IpNet::V4(_)) || net.prefix_len() >= MIN_IPV6_PREFIX)
}

/// Without a condition it counts as ready, for where no controller manager sets one.
fn is_ready(cidr: &Object) -> bool {
    let conditions = cidr.array_at("/status/conditions");
    let ready = conditions
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"));
    ready.is_none_or(|condition| condition.get("status").and_then(Value::as_str) == Some("True"))
}

impl Range {
    pub fn family(&self) -> &'static str {
        family_of(self.net.addr())
    }

    /// Reports whether an address can be one of the range: the network's own address and the
    /// broadcast address of IPv4 cannot.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let above = number(ip).checked_sub(number(self.net.network()));
        self.net.contains(&ip) && above.is_some_and(|above| (1..=self.size()).contains(&above))
    }

    /// Returns the number of addresses that can be allocated.
    pub fn size(&self) -> u128 {
        self.above()
            .saturating_sub(u128::from(self.family() == IPV4))
    }

    /// The network's address, which is what a dry run is answered with.
    pub fn network(&self) -> IpAddr {
        self.net.network()
    }

    /// Returns the number of addresses of the network besides its own.
    fn above(&self) -> u128 {
        number(self.net.broadcast()) - number(self.net.network())
    }

    /// Returns the number of the lowest addresses that are left to people while there are others: a
    /// sixteenth of the network, between 16 and 256 (KEP 3070, `calculateRangeOffset`).
    fn offset(&self) -> u128 {
        if self.above() < 16 {
            0
        } else {
            ((self.above() + 1) / 16).clamp(16, 256)
        }
    }

    /// Every address of the range once: first those above the offset, then those below, each part
    /// from somewhere in it.
    pub fn candidates(&self) -> impl Iterator<Item = IpAddr> + Send + use<> {
        let mut rng = rand::rng();
        let (network, like) = (number(self.net.network()), self.net.addr());
        let lower = self.offset().min(self.size());
        let parts = [(lower, self.size() - lower), (0, lower)];
        let parts = parts.map(|(from, size)| {
            (
                from,
                size,
                if size == 0 {
                    0
                } else {
                    rng.random_range(0..size)
                },
            )
        });
        let part = move |(from, size, start): (u128, u128, u128)| {
            (0..size).map(move |step| address(network + 1 + from + (start + step) % size, like))
        };
        parts.into_iter().flat_map(part)
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::meta::json;

    fn range(net: &str) -> Range {
        Range {
            net: net.parse().unwrap(),
            ready: true,
        }
    }

    fn cidr(nets: &[&str], extra: Value) -> Object {
        let mut object =
            Object::from_value(json!({"metadata": {"name": "one"}, "spec": {"cidrs": nets}}))
                .unwrap();
        for (key, value) in extra.as_object().unwrap().iter() {
            object.insert(key.clone(), value.clone());
        }
        object
    }

    #[test]
    fn candidates_are_all_addresses_once_the_upper_part_first() {
        let candidates: Vec<IpAddr> = range("10.0.0.0/24").candidates().collect();
        assert_eq!(
            (
                candidates.len(),
                candidates.iter().collect::<BTreeSet<_>>().len()
            ),
            (254, 254)
        );
        let low: IpAddr = "10.0.0.17".parse().unwrap();
        assert!(
            candidates[..238].iter().all(|ip| *ip >= low)
                && candidates[238..].iter().all(|ip| *ip < low)
        );
    }

    #[test]
    fn small_ranges_have_what_their_size_leaves() {
        let sizes = [
            ("10.0.0.0/32", 0),
            ("255.255.255.254/31", 0),
            ("10.0.0.0/30", 2),
            ("10.0.0.0/28", 14),
            ("fd00::/126", 3),
        ];
        for (net, size) in sizes
            .into_iter()
            .chain([("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", 0)])
        {
            assert_eq!(
                (range(net).size(), range(net).candidates().count()),
                (size, size as usize),
                "{net}"
            );
        }
        let last: IpAddr = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        assert!(range("ffff:ffff:ffff:ffff::/64").contains(last));
        assert!(
            !range("10.0.0.0/30").contains("10.0.0.0".parse().unwrap())
                && !range("10.0.0.0/30").contains("10.0.0.3".parse().unwrap())
        );
        assert!(
            range("fd00::/126").contains("fd00::3".parse().unwrap())
                && range("255.255.255.252/30").contains("255.255.255.254".parse().unwrap())
        );
        assert!(
            range("fd00::/64")
                .candidates()
                .take(3)
                .all(|ip| range("fd00::/64").contains(ip))
        );
    }

    #[test]
    fn a_range_is_ready_while_one_of_its_cidrs_is() {
        let condition =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let deleted =
            json!({"metadata": {"name": "one", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let ready = |cidrs: &[Object]| {
            of_cidrs(cidrs)
                .iter()
                .map(|range| range.ready)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ready(&[cidr(&["10.0.0.0/24", "fd00::/112"], json!({}))]),
            [true, true]
        );
        assert_eq!(
            ready(&[cidr(&["10.0.0.0/24"], condition("False"))]),
            [false]
        );
        assert_eq!(
            ready(&[
                cidr(&["10.0.0.0/24"], condition("Unknown")),
                cidr(&["10.0.0.0/24"], condition("True"))
            ]),
            [true]
        );
        assert_eq!(
            ready(&[
                cidr(&["10.0.0.0/24"], deleted),
                cidr(&["10.0.0.0/16"], json!({}))
            ]),
            [false, true]
        );
        assert!(ready(&[cidr(&["fd00::/48", "nonsense"], json!({}))]).is_empty());
    }
}
