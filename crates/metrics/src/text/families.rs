//! The writing of one family of metrics: its description, then a line for each set of labels.

use ike::durations::Durations;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// The labels of one line. No two lines of a family may have the same.
pub type Labels<'t, const N: usize> = [(&'static str, &'t str); N];

/// The name of a family without the prefix, its unit and its explanation.
pub struct About(pub &'static str, pub Option<Unit>, pub &'static str);

pub struct Families<'e>(pub DescriptorEncoder<'e>);

impl Families<'_> {
    /// Values that go up and down.
    pub fn gauges<'t, V: EncodeGaugeValue, const N: usize>(
        &mut self,
        about: About,
        lines: impl IntoIterator<Item = (Labels<'t, N>, V)>,
    ) -> fmt::Result {
        self.family(about, MetricType::Gauge, lines, |encoder, value| encoder.encode_gauge(&value))
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, about: About, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(about, [([], value)])
    }

    /// Values that only go up. The encoder appends `_total` to the name.
    pub fn counters<'t, V: EncodeCounterValue, const N: usize>(
        &mut self,
        about: About,
        lines: impl IntoIterator<Item = (Labels<'t, N>, V)>,
    ) -> fmt::Result {
        self.family(about, MetricType::Counter, lines, |encoder, value| {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        })
    }

    /// A value that only goes up.
    pub fn counter(&mut self, about: About, value: impl EncodeCounterValue) -> fmt::Result {
        self.counters(about, [([], value)])
    }

    /// Histograms of durations.
    pub fn durations<'t, const N: usize>(
        &mut self,
        about: About,
        lines: impl IntoIterator<Item = (Labels<'t, N>, &'t Durations)>,
    ) -> fmt::Result {
        self.family(about, MetricType::Histogram, lines, |encoder, durations| {
            let (sum, count) = (durations.sum().as_secs_f64(), durations.count());
            let buckets: Vec<_> = durations.buckets().collect();
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    /// Facts, as labels of a line whose value is 1. The encoder appends `_info` to the name.
    pub fn facts<'t, const N: usize>(
        &mut self,
        about: About,
        lines: impl IntoIterator<Item = Labels<'t, N>>,
    ) -> fmt::Result {
        let About(name, unit, help) = about;
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Info)?;
        lines.into_iter().try_for_each(|labels| encoder.encode_info(&labels))
    }

    fn family<'t, V, const N: usize>(
        &mut self,
        About(name, unit, help): About,
        of: MetricType,
        lines: impl IntoIterator<Item = (Labels<'t, N>, V)>,
        write: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), of)?;
        lines
            .into_iter()
            .try_for_each(|(labels, value)| write(&mut encoder.encode_family(&labels)?, value))
    }
}
