//! The configuration of traces (`--tracing-config-file`): a TracingConfiguration (apiserver
//! `server/options/tracing.go`, component-base `tracing/api/v1`).

use std::fs;
use std::io::ErrorKind;

use crate::codec::configuration::FileType;
use crate::meta::{Value, go};
use crate::telemetry::trace::{Collector, Settings};

const TYPE: FileType = FileType::of_server("TracingConfiguration");
const MAX_RATE: i64 = 1_000_000;
/// The port of gRPC where an address has none.
const DEFAULT_PORT: u16 = 443;

/// Reads the file of the flag.
///
/// # Errors
/// The file cannot be read, or holds something else or values that cannot be.
pub fn read_file(path: &std::path::Path) -> Result<Settings, String> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|why| match why.kind() {
        ErrorKind::NotFound => format!("tracing-config-file {shown} does not exist"),
        _ => format!(
            "failed to read tracing config: unable to read tracing configuration from {}: {why}",
            go::quote(&shown.to_string())
        ),
    })?;
    read(&bytes)
}

fn read(bytes: &[u8]) -> Result<Settings, String> {
    let (endpoint, rate) = decode(bytes).map_err(|why| {
        format!("failed to read tracing config: unable to decode tracing configuration data: {why}")
    })?;
    let mut wrong = Vec::new();
    let per_million = rate.unwrap_or(0);
    if per_million < 0 {
        wrong.push(format!(
            "samplingRatePerMillion: Invalid value: {per_million}: sampling rate must be positive"
        ));
    }
    if per_million > MAX_RATE {
        wrong.push(format!(
            "samplingRatePerMillion: Invalid value: {per_million}: sampling rate per million must be less than or equal to one million"
        ));
    }
    let collector = match endpoint.map(|endpoint| collector(&endpoint)).transpose() {
        Ok(collector) => collector,
        Err(why) => {
            wrong.push(format!("endpoint: Invalid value: {why}"));
            None
        }
    };
    let text = match wrong.as_slice() {
        [] => {
            return Ok(Settings {
                collector,
                per_million: u32::try_from(per_million).unwrap_or(0),
            });
        }
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    };
    Err(format!("failed to validate tracing configuration: {text}"))
}

/// The fields of a TracingConfiguration.
fn decode(bytes: &[u8]) -> Result<(Option<String>, Option<i64>), String> {
    let object = TYPE.decode(bytes)?;
    let endpoint = object.get("endpoint").and_then(Value::as_str);
    let rate = object.get("samplingRatePerMillion").and_then(Value::as_i64);
    Ok((endpoint.map(str::to_owned), rate))
}

/// Reads the place of a collector, in the syntax of gRPC's names.
fn collector(endpoint: &str) -> Result<Collector, String> {
    let full = match endpoint.contains("//") {
        true => endpoint.to_owned(),
        false => format!("dns://{endpoint}"),
    };
    let wrong = |why: &str| format!("{}: {why}", go::quote(&full));
    let (scheme, rest) = full.split_once("://").unwrap_or(("", &full));
    match scheme {
        // `dns://server/host:port` names the DNS server to ask, which is the system's here.
        "dns" => {
            let address = match endpoint.contains("//") {
                true => rest.split_once('/').map_or(rest, |(_, address)| address),
                false => rest,
            };
            address_of(address).map_err(|why| wrong(&why))
        }
        "unix" => match rest.starts_with('/') && rest.len() > 1 {
            true => Ok(Collector::Socket(rest.into())),
            false => Err(wrong("the path of a socket must be absolute")),
        },
        "unix-abstract" if !rest.is_empty() => Ok(Collector::AbstractSocket(rest.to_owned())),
        "unix-abstract" => Err(wrong("it has no name")),
        other => Err(wrong(&format!(
            "unsupported scheme: {other}.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
        ))),
    }
}

fn address_of(address: &str) -> Result<Collector, String> {
    let parsed = address.parse::<http::uri::Authority>();
    let authority = parsed.map_err(|why| format!("{address:?}: {why}"))?;
    if authority.host().is_empty() || address.contains('@') {
        return Err("it has no host".to_owned());
    }
    // What follows a host is a port, or it has none.
    let has_port = authority.as_str().len() > authority.host().len();
    if has_port && authority.port_u16().is_none() {
        return Err("it has no port that there is".to_owned());
    }
    let port = authority.port_u16().unwrap_or(DEFAULT_PORT);
    Ok(Collector::Address(format!("{}:{port}", authority.host())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(version: &str, rest: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/{version}\nkind: TracingConfiguration\n{rest}")
    }

    #[test]
    fn configurations_name_a_collector_and_a_rate() {
        let settings = |collector, per_million| Settings {
            collector,
            per_million,
        };
        let address = |text: &str| Some(Collector::Address(text.to_owned()));
        for (version, rest, wanted) in [
            ("v1", "", settings(None, 0)),
            (
                "v1alpha1",
                "endpoint: localhost:4317",
                settings(address("localhost:4317"), 0),
            ),
            (
                "v1beta1",
                "endpoint: dns:///collector.example:4317\nsamplingRatePerMillion: 1000000",
                settings(address("collector.example:4317"), 1_000_000),
            ),
            (
                "v1",
                "endpoint: '[::1]:4317'",
                settings(address("[::1]:4317"), 0),
            ),
            (
                "v1",
                "endpoint: collector",
                settings(address("collector:443"), 0),
            ),
            (
                "v1",
                "endpoint: unix:///run/otel.sock",
                settings(Some(Collector::Socket("/run/otel.sock".into())), 0),
            ),
            (
                "v1",
                "endpoint: unix-abstract://otel",
                settings(Some(Collector::AbstractSocket("otel".to_owned())), 0),
            ),
        ] {
            assert_eq!(
                read(configuration(version, rest).as_bytes()),
                Ok(wanted),
                "{rest}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_upstreams_words() {
        for (text, why) in [
            (
                configuration("v1", "samplingRatePerMillion: -1"),
                "failed to validate tracing configuration: samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
            ),
            (
                configuration("v1", "samplingRatePerMillion: 1000001"),
                "sampling rate per million must be less than or equal to one million",
            ),
            (
                configuration(
                    "v1",
                    "endpoint: https://collector:4317\nsamplingRatePerMillion: -1",
                ),
                "sampling rate must be positive, endpoint: Invalid value: \"https://collector:4317\": unsupported scheme: https.  Options",
            ),
            (
                configuration("v1", "endpoint: a:b:c"),
                "endpoint: Invalid value: ",
            ),
            (
                configuration("v1", "samplingRatePerMillion: 5000000000"),
                "cannot unmarshal",
            ),
            (configuration("v1", "rate: 1"), "unknown field \"rate\""),
            (
                configuration("v2", ""),
                "no kind \"TracingConfiguration\" is registered",
            ),
            (
                "kind: A\napiVersion: v1".to_owned(),
                "unable to decode tracing configuration data",
            ),
        ] {
            let error = read(text.as_bytes()).expect_err(&text);
            assert!(error.contains(why), "{error}");
        }
    }
}
