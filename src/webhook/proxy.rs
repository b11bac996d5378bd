//! The proxies of the environment: `HTTPS_PROXY` and `NO_PROXY` as Go's `http.ProxyFromEnvironment`
//! reads them (`golang.org/x/net/http/httpproxy`).

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use ipnet::IpNet;

/// The proxy for HTTPS, and the hosts that are reached without it.
pub struct Proxies {
    matcher: Matcher,
    direct: Vec<Direct>,
}

/// Hosts that are reached without a proxy, on one port or on all.
#[derive(Debug, PartialEq, Eq)]
enum Direct {
    All,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    /// A suffix with its dot, and true if the name without the dot counts too.
    Domain(String, bool, Option<u16>),
}

impl Proxies {
    /// Reads the environment.
    pub fn from_env() -> Self {
        let read = |names: [&str; 2]| {
            let values = names
                .into_iter()
                .filter_map(|name| std::env::var(name).ok());
            values
                .into_iter()
                .find(|value| !value.is_empty())
                .unwrap_or_default()
        };
        Self::new(
            &read(["HTTPS_PROXY", "https_proxy"]),
            &read(["NO_PROXY", "no_proxy"]),
        )
    }

    /// Returns the rules of a proxy and a list of hosts without one.
    pub fn new(proxy: &str, direct: &str) -> Self {
        Self {
            matcher: Matcher::builder().https(proxy).build(),
            direct: direct.split(',').filter_map(Direct::parse).collect(),
        }
    }

    /// Returns the proxy for an address; `None` where it is reached without one.
    pub fn of(&self, uri: &Uri) -> Option<Intercept> {
        let host = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(443);
        let direct = is_local(&host) || self.direct.iter().any(|rule| rule.matches(&host, port));
        self.matcher.intercept(uri).filter(|_| !direct)
    }
}

/// Reports whether a host is this machine by its name or address.
pub fn is_local(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

impl Direct {
    fn parse(rule: &str) -> Option<Self> {
        let rule = rule.trim().to_ascii_lowercase();
        if rule == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = rule.parse() {
            return Some(Self::Network(network));
        }
        let (host, port) = split_port(&rule);
        if let Ok(address) = host.parse() {
            return Some(Self::Address(address, port));
        }
        let host = host
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(host);
        match host {
            "" => None,
            host if host.starts_with('.') => Some(Self::Domain(host.to_owned(), false, port)),
            host => Some(Self::Domain(format!(".{host}"), true, port)),
        }
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let of = |own: Option<u16>| own.is_none_or(|own| own == port);
        match self {
            Self::All => true,
            Self::Network(network) => host.parse().is_ok_and(|ip: IpAddr| network.contains(&ip)),
            Self::Address(address, own) => {
                host.parse().is_ok_and(|ip: IpAddr| ip == *address) && of(*own)
            }
            Self::Domain(suffix, with_itself, own) => {
                let is_itself = *with_itself && suffix.strip_prefix('.') == Some(host);
                (host.ends_with(suffix.as_str()) || is_itself) && of(*own)
            }
        }
    }
}

/// The host and the port of `host:port` or `[address]:port`; anything else is a host.
fn split_port(rule: &str) -> (&str, Option<u16>) {
    let split = rule.rsplit_once(':').and_then(|(host, port)| {
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        Some((host, Some(port.parse().ok()?)))
    });
    split.unwrap_or((rule, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_reached_by_the_rules_of_go() {
        let rules = "  example.com, .inner.org,*.star.net, a.example.net:8443,10.0.0.0/8,\
                     192.0.2.1, 192.0.2.2:444,[2001:db8::1]:443,fd00::/8,,:80";
        let proxies = Proxies::new("http://proxy:3128", rules);
        let by_proxy = |url: &str| proxies.of(&url.parse().expect("a URL")).is_some();
        for url in [
            "https://localhost",
            "https://LocalHost:1",
            "https://127.0.0.3",
            "https://[::1]:8443",
            "https://example.com",
            "https://a.EXAMPLE.com:9",
            "https://a.inner.org",
            "https://a.star.net",
            "https://a.example.net:8443",
            "https://10.1.2.3",
            "https://192.0.2.1:7",
            "https://192.0.2.2:444",
            "https://[2001:db8::1]",
            "https://[fd00::5]",
        ] {
            assert!(!by_proxy(url), "{url}");
        }
        for url in [
            "https://example.org",
            "https://notexample.com",
            "https://inner.org",
            "https://star.net",
            "https://a.example.net",
            "https://11.1.2.3",
            "https://192.0.2.2",
            "https://[2001:db8::2]",
            "https://a.b.svc",
        ] {
            assert!(by_proxy(url), "{url}");
        }
        assert!(
            Proxies::new("", "")
                .of(&"https://a".parse().expect("a URL"))
                .is_none()
        );
        assert!(
            Proxies::new("proxy", "*")
                .of(&"https://a".parse().expect("a URL"))
                .is_none()
        );
        let bare = Proxies::new("u:p@proxy:1", "").of(&"https://a".parse().expect("a URL"));
        let bare = bare.expect("a proxy");
        assert_eq!(
            bare.uri().authority().map(|it| it.as_str()),
            Some("proxy:1")
        );
        assert!(bare.basic_auth().is_some());
    }
}
