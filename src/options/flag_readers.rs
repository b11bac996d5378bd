//! Flags as values of the configuration.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::flags::{FlagError, Flags};

/// An IP address; `None` where it is empty.
///
/// # Errors
/// The text is no address.
pub fn address(flags: &Flags, name: &str) -> Result<Option<IpAddr>, FlagError> {
    let text = flags.text(name);
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |_| {
        FlagError::invalid(
            name,
            text,
            &format!("failed to parse IP: {}", crate::meta::go::quote(text)),
        )
    };
    text.parse().map(Some).map_err(wrong)
}

/// An integer that fits the field it is for.
///
/// # Errors
/// It does not fit.
pub fn number<T: TryFrom<i64>>(flags: &Flags, name: &str) -> Result<T, FlagError> {
    T::try_from(flags.int(name))
        .map_err(|_| FlagError::new(format!("--{name}={} is out of range", flags.int(name))))
}

/// A range of ports: `FIRST-LAST`, `FIRST+MORE` or one port (apimachinery `util/net`).
///
/// # Errors
/// The text is no range.
pub fn port_range(text: &str) -> Result<RangeInclusive<u16>, FlagError> {
    let wrong = || {
        FlagError::invalid(
            "service-node-port-range",
            text,
            &format!("unable to parse port range: {text}"),
        )
    };
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (port(first)?, port(last)?)
    } else if let Some((first, more)) = text.split_once('+') {
        let first = port(first)?;
        (first, first.saturating_add(port(more)?))
    } else {
        (port(text)?, port(text)?)
    };
    if first > last || first == 0 {
        return Err(wrong());
    }
    Ok(first..=last)
}
