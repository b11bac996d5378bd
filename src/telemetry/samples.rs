//! Metrics in the form in which they are gathered.

use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

/// Returns a metric family for the encoder.
pub fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    series: Vec<proto::Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(series);
    family
}

/// Returns a sample of a counter or gauge for the encoder; the labels are in the order of their
/// names.
pub fn float_metric(kind: MetricType, labels: &[(&str, &str)], value: f64) -> proto::Metric {
    let mut metric = if kind == MetricType::COUNTER {
        let mut counter = proto::Counter::default();
        counter.set_value(value);
        let mut metric = proto::Metric::default();
        metric.set_counter(counter);
        metric
    } else {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        proto::Metric::from_gauge(gauge)
    };
    let pairs = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    metric.set_label(pairs.collect());
    metric
}
