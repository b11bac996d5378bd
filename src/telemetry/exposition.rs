//! The pages of metrics in Prometheus' text format.

use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;

use super::process;

/// The media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The prefix of the names of the service level indicators, which have a page of their own
/// (component-base `metrics/prometheus/slis`).
const SLI_PREFIX: &str = "kubernetes_healthcheck";

/// Returns every metric that has been used and those of the process, sorted by name.
pub fn render() -> String {
    let mut families = prometheus::gather();
    families.retain(|family| !family.name().starts_with(SLI_PREFIX));
    families.extend(process::families());
    families.sort_by(|a, b| a.name().cmp(b.name()));
    encode(&families)
}

/// Returns the service level indicators that have been used, sorted by name.
pub fn render_slis() -> String {
    let mut families = prometheus::gather();
    families.retain(|family| family.name().starts_with(SLI_PREFIX));
    encode(&families)
}

fn encode(families: &[MetricFamily]) -> String {
    let mut out = String::with_capacity(16 * 1024);
    if let Err(why) = TextEncoder::new().encode_utf8(families, &mut out) {
        tracing::error!("encoding the metrics: {why}");
    }
    out
}
