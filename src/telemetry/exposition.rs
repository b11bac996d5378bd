//! The pages of metrics as Prometheus reads them: the text format and OpenMetrics
//! (`prometheus/common` `expfmt`).
//!
//! The `prometheus` crate gathers the metrics. Its own encoder knows one format, and writes numbers
//! otherwise than Go, which makes other series of the buckets of histograms (`le="1000000"` for
//! `le="1e+06"`).

use std::collections::HashSet;
use std::fmt::Write as _;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::{metric_options, process};

/// The prefix of the names of the service level indicators, which have a page of their own
/// (component-base `metrics/prometheus/slis`).
const SLI_PREFIX: &str = "kubernetes_healthcheck";
/// The end of the names of counters.
const TOTAL: &str = "_total";
/// Numbers with more digits before the point have an exponent.
const PLAIN_DIGITS: i32 = 6;

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    /// OpenMetrics of version 1.0.0, or that of its draft.
    OpenMetrics {
        is_final: bool,
    },
}

/// The format that a client gets, and the way in which names that are not in the format's alphabet
/// would be written. There are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    pub format: Format,
    escaping: &'static str,
}

/// The ways in which names may be written; the first is that of clients who name none.
const ESCAPINGS: [&str; 4] = ["underscores", "allow-utf-8", "dots", "values"];

/// A range of an `Accept` header.
struct Range<'a> {
    media: &'a str,
    version: &'a str,
    escaping: &'a str,
    quality: f32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            media: parts.next().unwrap_or(""),
            version: "",
            escaping: "",
            quality: 1.0,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "version" => range.version = value,
                "escaping" => range.escaping = value,
                "q" => range.quality = value.parse().unwrap_or(1.0),
                _ => {}
            }
        }
        range
    }

    fn format(&self) -> Option<Format> {
        Some(match (self.media, self.version) {
            ("text/plain", "" | "0.0.4") => Format::Text,
            ("application/openmetrics-text", "1.0.0") => Format::OpenMetrics { is_final: true },
            ("application/openmetrics-text", "" | "0.0.1") => {
                Format::OpenMetrics { is_final: false }
            }
            _ => return None,
        })
    }
}

impl Negotiated {
    /// Returns what a client prefers (`expfmt.NegotiateIncludingOpenMetrics`).
    pub fn of(accept: &str) -> Self {
        let mut ranges: Vec<Range<'_>> = accept.split(',').map(Range::parse).collect();
        ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let mut escaping = ESCAPINGS[0];
        for range in &ranges {
            let known = ESCAPINGS.into_iter().find(|known| *known == range.escaping);
            escaping = known.unwrap_or(escaping);
            if let Some(format) = range.format() {
                return Self { format, escaping };
            }
        }
        Self {
            format: Format::Text,
            escaping,
        }
    }

    /// The media type of the page.
    pub fn content_type(self) -> String {
        let media = match self.format {
            Format::Text => "text/plain; version=0.0.4",
            Format::OpenMetrics { is_final: true } => "application/openmetrics-text; version=1.0.0",
            Format::OpenMetrics { is_final: false } => {
                "application/openmetrics-text; version=0.0.1"
            }
        };
        format!("{media}; charset=utf-8; escaping={}", self.escaping)
    }
}

/// Returns every metric that is exposed and those of the process, sorted by name.
pub fn render(format: Format) -> String {
    let mut families = prometheus::gather();
    let is_shown = |name: &str| !name.starts_with(SLI_PREFIX) && !metric_options::is_disabled(name);
    families.retain(|family| is_shown(family.name()));
    families.extend(process::families());
    families.extend(metric_options::families());
    families.sort_by(|a, b| a.name().cmp(b.name()));
    encode(&families, format)
}

/// Returns the service level indicators that have been used, sorted by name.
pub fn render_slis(format: Format) -> String {
    let mut families = prometheus::gather();
    families.retain(|family| family.name().starts_with(SLI_PREFIX));
    encode(&families, format)
}

fn encode(families: &[MetricFamily], format: Format) -> String {
    let mut page = Page {
        out: String::with_capacity(64 * 1024),
        is_open: format != Format::Text,
    };
    let names: HashSet<&str> = families.iter().map(MetricFamily::name).collect();
    for family in families {
        page.family(family, &names);
    }
    if page.is_open {
        page.out.push_str("# EOF\n");
    }
    page.out
}

/// A page as it is written.
struct Page {
    out: String,
    is_open: bool,
}

impl Page {
    fn family(&mut self, family: &MetricFamily, names: &HashSet<&str>) {
        let name = family.name();
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            MetricType::SUMMARY => "summary",
            MetricType::UNTYPED => "untyped",
        };
        // The family of a counter is named without `_total` in OpenMetrics. What has no such name
        // that it shares with nobody is of no known type.
        let (title, kind) = match (self.is_open, kind, name.strip_suffix(TOTAL)) {
            (true, "counter", Some(base)) if !names.contains(base) => (base, kind),
            (true, "counter", _) | (true, "untyped", _) => (name, "unknown"),
            _ => (name, kind),
        };
        let help = escape(family.help(), self.is_open);
        let _ = writeln!(self.out, "# HELP {title} {help}\n# TYPE {title} {kind}");
        for metric in family.get_metric() {
            self.metric(name, family.get_field_type(), metric);
        }
    }

    fn metric(&mut self, name: &str, kind: MetricType, metric: &Metric) {
        let labels = metric.get_label();
        match kind {
            MetricType::COUNTER => {
                self.sample(name, "", labels, None, metric.get_counter().get_value());
            }
            MetricType::GAUGE | MetricType::UNTYPED => {
                self.sample(name, "", labels, None, metric.get_gauge().get_value());
            }
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                for bucket in histogram.get_bucket() {
                    let (bound, count) = (bucket.upper_bound(), bucket.cumulative_count());
                    self.sample(name, "_bucket", labels, Some(("le", bound)), count as f64);
                }
                let count = histogram.get_sample_count() as f64;
                self.sample(name, "_bucket", labels, Some(("le", f64::INFINITY)), count);
                self.sample(name, "_sum", labels, None, histogram.get_sample_sum());
                self.sample(name, "_count", labels, None, count);
            }
            MetricType::SUMMARY => {
                let summary = metric.get_summary();
                for one in summary.get_quantile() {
                    let quantile = Some(("quantile", one.quantile()));
                    self.sample(name, "", labels, quantile, one.value());
                }
                self.sample(name, "_sum", labels, None, summary.sample_sum());
                let count = summary.sample_count() as f64;
                self.sample(name, "_count", labels, None, count);
            }
        }
    }

    fn sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[LabelPair],
        more: Option<(&str, f64)>,
        value: f64,
    ) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        let mut open = '{';
        for label in labels {
            let value = escape(label.value(), true);
            let _ = write!(self.out, "{open}{}=\"{value}\"", label.name());
            open = ',';
        }
        if let Some((label, value)) = more {
            // In either format the same, so that the series are.
            let _ = write!(self.out, "{open}{label}=\"{}\"", float(value));
            open = ',';
        }
        if open == ',' {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {}", float(value));
    }
}

/// Escapes a help text, or the value of a label, which stands between quotation marks.
fn escape(text: &str, quoted: bool) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted {
        escaped.replace('"', "\\\"")
    } else {
        escaped
    }
}

/// A number as Go writes it (`strconv.FormatFloat(value, 'g', -1, 64)`).
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..PLAIN_DIGITS).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{Counter, Gauge, Histogram};

    static SIZES: Histogram = Histogram::new(
        "test_page_sizes",
        "[ALPHA] Sizes \"of\" pages.",
        &["verb"],
        &[1.0, 1e6],
    );
    static SEEN: Counter = Counter::new("test_page_seen_total", "[ALPHA] Seen.", &[]);
    static SAME: Gauge = Gauge::new("test_page_same", "[ALPHA] Same.", &[]);
    static SAME_TOTAL: Counter = Counter::new("test_page_same_total", "[ALPHA] Same.", &[]);
    static COUNT: Counter = Counter::new("test_page_count", "[ALPHA] Other.", &[]);

    #[test]
    fn numbers_are_written_as_go_does() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (1e-4, "0.0001"),
            (1e-8, "1e-08"),
            (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
            (100_000.0, "100000"),
            (123_456.789, "123456.789"),
            (1e6, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (1e21, "1e+21"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn clients_get_the_format_that_they_prefer() {
        let open = |is_final| Format::OpenMetrics { is_final };
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html, application/json;q=0.9", Format::Text),
            ("application/openmetrics-text", open(false)),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                open(true),
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.6",
                Format::Text,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3",
                Format::Text,
            ),
            ("text/plain;version=9;q=x,;;=,q", Format::Text),
        ] {
            assert_eq!(Negotiated::of(accept).format, format, "{accept}");
        }
        let of_prometheus_3 = "application/openmetrics-text;version=2;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        for (accept, media) in [
            (
                of_prometheus_3,
                "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8",
            ),
            (
                "text/plain;escaping=none",
                "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            ),
        ] {
            assert_eq!(Negotiated::of(accept).content_type(), media);
        }
    }

    #[test]
    fn both_formats_have_the_same_series() {
        SIZES.observe(&["a\"\\\n"], 2.0);
        SEEN.inc(&[]);
        SAME.set(&[], 2);
        SAME_TOTAL.inc(&[]);
        COUNT.inc(&[]);
        let buckets = "test_page_sizes_bucket{verb=\"a\\\"\\\\\\n\",le=\"1\"} 0\ntest_page_sizes_bucket{verb=\"a\\\"\\\\\\n\",le=\"1e+06\"} 1\ntest_page_sizes_bucket{verb=\"a\\\"\\\\\\n\",le=\"+Inf\"} 1\ntest_page_sizes_sum{verb=\"a\\\"\\\\\\n\"} 2\n";
        let text = render(Format::Text);
        for part in [
            "# HELP test_page_sizes [ALPHA] Sizes \"of\" pages.\n# TYPE test_page_sizes histogram\n",
            buckets,
            "# TYPE test_page_seen_total counter\ntest_page_seen_total 1\n",
            "# TYPE test_page_count counter\ntest_page_count 1\n",
            "# TYPE registered_metrics_total counter\nregistered_metrics_total{deprecated_version=\"\",stability_level=\"ALPHA\"} ",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert!(!text.contains("# EOF"), "{text}");
        let open = render(Format::OpenMetrics { is_final: true });
        for part in [
            "# HELP test_page_sizes [ALPHA] Sizes \\\"of\\\" pages.\n",
            buckets,
            "# TYPE test_page_seen counter\ntest_page_seen_total 1\n",
            "# TYPE test_page_same gauge\ntest_page_same 2\n",
            "# TYPE test_page_same_total unknown\ntest_page_same_total 1\n",
            "# TYPE test_page_count unknown\ntest_page_count 1\n",
        ] {
            assert!(open.contains(part), "{part}\nis not in\n{open}");
        }
        assert!(open.ends_with("\n# EOF\n"), "{open}");
    }
}
