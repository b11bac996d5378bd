//! The headers that a proxy takes away and adds (Go's `net/http/httputil`, apimachinery
//! `util/net`).

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{
    CONNECTION, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

/// The headers that are about one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// The addresses that a request has come by.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Reports whether a request asks for another protocol on its connection (`httpstream`
/// `IsUpgradeRequest`).
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).into_iter();
    values.any(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.windows(7).any(|part| part == b"upgrade")
    })
}

/// Reports whether a request asks for WebSocket (`wsstream` `IsWebSocketRequest`).
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let asked = headers.get(UPGRADE);
    asked.is_some_and(|asked| asked.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && is_upgrade(headers)
}

/// Removes the headers of a request that are about its connection. The client's wish for trailers
/// stays.
pub fn remove_hop_by_hop_of_request(headers: &mut HeaderMap) {
    let takes_trailers = headers.get_all(TE).into_iter().any(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value
            .split(|byte| *byte == b',')
            .any(|one| one.trim_ascii() == b"trailers")
    });
    remove_hop_by_hop(headers);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes the headers that are about one connection, and those that it names as such.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in HOP_BY_HOP.into_iter().chain(named) {
        headers.remove(name);
    }
}

/// Takes from the Connection header of a client what it says of others: they are removed, or, of an
/// upgrade, not named any more. To be called before headers are set that a client must not be able
/// to name there.
pub fn settle_connection(headers: &mut HeaderMap) {
    if is_upgrade(headers) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else {
        remove_hop_by_hop_of_request(headers);
    }
}

/// Adds the client to the addresses that a request has come by.
pub fn append_forwarded_for(headers: &mut HeaderMap, client: Option<IpAddr>) {
    let Some(client) = client else { return };
    let mut all: Vec<u8> = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        all.extend_from_slice(value.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(client.to_canonical().to_string().as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Removes the headers by which a server lets the pages of others read it: the server here decides
/// that for itself.
pub fn remove_cors(headers: &mut HeaderMap) {
    for name in ["credentials", "headers", "methods", "origin"] {
        headers.remove(format!("access-control-allow-{name}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        pairs.collect()
    }

    #[test]
    fn headers_of_one_connection_are_removed() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Mine"),
            ("x-mine", "1"),
            ("te", "gzip, Trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "secret"),
            ("accept", "*/*"),
        ]);
        let mut of_answer = headers.clone();
        remove_hop_by_hop_of_request(&mut headers);
        assert_eq!(headers, map(&[("accept", "*/*"), ("te", "trailers")]));
        remove_hop_by_hop(&mut of_answer);
        assert_eq!(of_answer, map(&[("accept", "*/*")]));
    }

    #[test]
    fn clients_are_added_to_those_that_a_request_came_by() {
        let mut headers = map(&[("x-forwarded-for", "1.2.3.4")]);
        headers.append("x-forwarded-for", HeaderValue::from_static("5.6.7.8"));
        append_forwarded_for(&mut headers, "::ffff:10.0.0.1".parse().ok());
        let want = map(&[("x-forwarded-for", "1.2.3.4, 5.6.7.8, 10.0.0.1")]);
        assert_eq!(headers, want);
    }

    #[test]
    fn upgrades_are_asked_for_by_the_connection_header() {
        assert!(is_upgrade(&map(&[("connection", "keep-alive, Upgrade")])));
        assert!(!is_upgrade(&map(&[("upgrade", "websocket")])));
        let both = map(&[("connection", "Upgrade"), ("upgrade", "WebSocket")]);
        assert!(is_websocket(&both));
    }
}
