//! The writing of metrics: of each its description, then a line for each time series.

use crate::metric::{Kind, Metric, Unit, Value};
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;
use std::fmt;

pub struct Families<'e>(pub DescriptorEncoder<'e>);

impl Families<'_> {
    /// Writes the metrics of a table, whose numbers come from `source`.
    pub fn write<S>(&mut self, metrics: &[Metric<S>], source: &S) -> fmt::Result {
        metrics.iter().try_for_each(|metric| self.family(metric, source))
    }

    fn family<S>(&mut self, metric: &Metric<S>, source: &S) -> fmt::Result {
        // The encoder appends the unit, and the suffix of the kind.
        let (name, unit) = metric.parts();
        let unit = unit.map(|unit| match unit {
            Unit::Bytes => registry::Unit::Bytes,
            Unit::Seconds => registry::Unit::Seconds,
        });
        let kind = match metric.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let mut encoder = self.0.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
        let mut written = Ok(());
        (metric.read)(source, &mut |values, value| {
            if written.is_ok() {
                let labels = Labels { names: metric.labels, values };
                written = line(&mut encoder, metric.kind, &labels, value);
            }
        });
        written
    }
}

fn line(
    encoder: &mut MetricEncoder<'_>,
    kind: Kind,
    labels: &Labels<'_>,
    value: Value<'_>,
) -> fmt::Result {
    if kind == Kind::Info {
        return encoder.encode_info(labels);
    }
    let mut encoder = encoder.encode_family(labels)?;
    match (value, kind == Kind::Counter) {
        (Value::Whole(count), true) => encoder.encode_counter::<NoLabelSet, _, f64>(&count, None),
        (Value::Whole(value), false) => encoder.encode_gauge(&value),
        (Value::Seconds(sum), true) => encoder.encode_counter::<NoLabelSet, _, f64>(&sum, None),
        (Value::Seconds(value), false) => encoder.encode_gauge(&value),
        (Value::Durations(durations), _) => {
            let (sum, count) = (durations.sum().as_secs_f64(), durations.count());
            let buckets: Vec<_> = durations.buckets().collect();
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

/// The labels of one line.
struct Labels<'l> {
    names: &'l [&'static str],
    values: &'l [&'l str],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in self.names.iter().zip(self.values) {
            (*name, *value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}
