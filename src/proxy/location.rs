//! The URL of a server to which requests are handed on.

use std::fmt;

use http::Uri;

use crate::base::dial::bare_host;
use crate::meta::go::url;

/// The ways to talk to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of servers that name none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The URL of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub scheme: Scheme,
    /// Host and maybe port, with brackets around an IPv6 address.
    pub authority: String,
    /// Decoded.
    pub path: String,
    /// Without the question mark.
    pub query: String,
}

impl Location {
    /// The path and query as a request line has them.
    pub fn path_and_query(&self) -> String {
        let path = url::escape_path(&self.path);
        let path = if path.is_empty() { "/" } else { &path };
        match self.query.as_str() {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }

    /// The URL as a request has it.
    ///
    /// # Errors
    /// The host is none.
    pub fn uri(&self) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.scheme.as_str())
            .authority(self.authority.as_str())
            .path_and_query(self.path_and_query())
            .build()
    }

    /// The host without brackets, for certificates and name servers.
    pub fn host(&self) -> &str {
        let (host, _) = split_authority(&self.authority);
        bare_host(host)
    }

    /// The host and the port to connect to.
    pub fn address(&self) -> String {
        let (host, port) = split_authority(&self.authority);
        match port {
            "" => format!("{host}:{}", self.scheme.default_port()),
            port => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.as_str();
        let path = url::escape_path(&self.path);
        write!(f, "{scheme}://{}{path}", self.authority)?;
        match self.query.as_str() {
            "" => Ok(()),
            query => write!(f, "?{query}"),
        }
    }
}

/// Splits a host and its port; the port is empty where there is none.
fn split_authority(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_have_addresses_and_texts() {
        for (scheme, authority, host, address) in [
            (Scheme::Http, "10.0.0.1", "10.0.0.1", "10.0.0.1:80"),
            (
                Scheme::Https,
                "10.0.0.1:10250",
                "10.0.0.1",
                "10.0.0.1:10250",
            ),
            (Scheme::Https, "[fd00::1]", "fd00::1", "[fd00::1]:443"),
            (Scheme::Https, "[fd00::1]:1", "fd00::1", "[fd00::1]:1"),
            (Scheme::Https, "node-1", "node-1", "node-1:443"),
        ] {
            let location = Location {
                scheme,
                authority: authority.to_owned(),
                path: "/a b".to_owned(),
                query: "x=1".to_owned(),
            };
            assert_eq!(location.host(), host);
            assert_eq!(location.address(), address);
            let text = format!("{}://{authority}/a%20b?x=1", scheme.as_str());
            assert_eq!(location.to_string(), text);
            assert_eq!(location.uri().expect("a URI").to_string(), text);
        }
    }
}
