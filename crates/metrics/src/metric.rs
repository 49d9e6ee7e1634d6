//! A metric: a row of a table, with its name, its labels and the place that its numbers come from.

use ike::durations::Durations;

/// Takes a time series: the values of [`Metric::labels`], and its value now.
pub type Tell<'t> = dyn FnMut(&[&str], Value<'_>) + 't;

/// A metric, whose numbers come from an `S`.
#[derive(Debug)]
pub struct Metric<S> {
    /// The name as a monitoring system shows it, with unit and suffix (OpenMetrics 1.0, "Suffixes").
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// A sentence for people.
    pub help: &'static str,
    /// Only the page for monitoring systems has it, and no recorder of a program that embeds a gateway.
    pub page_only: bool,
    /// Tells each of its time series. No two of them have the same labels.
    pub read: fn(&S, &mut Tell<'_>),
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only goes up.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Durations, counted in buckets.
    Histogram,
    /// Facts in labels; the value is 1.
    Info,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Octets.
    Bytes,
    /// Seconds.
    Seconds,
}

/// The value of a time series.
#[derive(Clone, Copy, Debug)]
pub enum Value<'v> {
    /// A count, a state or 0 and 1 for no and yes.
    Whole(u64),
    /// Seconds.
    Seconds(f64),
    /// A histogram.
    Durations(&'v Durations),
}

impl<S> Metric<S> {
    /// A metric whose values only go up.
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Tell<'_>),
    ) -> Self {
        Self { name, kind: Kind::Counter, labels, help, page_only: false, read }
    }

    /// A metric whose values go up and down.
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Tell<'_>),
    ) -> Self {
        Self { name, kind: Kind::Gauge, labels, help, page_only: false, read }
    }

    /// Histograms of durations.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Tell<'_>),
    ) -> Self {
        Self { name, kind: Kind::Histogram, labels, help, page_only: false, read }
    }

    /// Facts, in labels.
    pub const fn info(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Tell<'_>),
    ) -> Self {
        Self { name, kind: Kind::Info, labels, help, page_only: false, read }
    }

    /// Keeps a metric from the recorders of other programs.
    pub const fn of_page_only(metric: Self) -> Self {
        let Self { name, kind, labels, help, read, .. } = metric;
        Self { name, kind, labels, help, page_only: true, read }
    }

    /// The name without the suffix of the kind and without the unit, and the unit.
    pub fn parts(&self) -> (&'static str, Option<Unit>) {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        let family = self.name.strip_suffix(suffix).unwrap_or(self.name);
        for (suffix, unit) in [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)] {
            if let Some(stem) = family.strip_suffix(suffix) {
                return (stem, Some(unit));
            }
        }
        (family, None)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(yes: bool) -> Self {
        Self::Whole(u64::from(yes))
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        // No usize of a target is wider.
        Self::Whole(u64::try_from(number).unwrap_or(u64::MAX))
    }
}
