//! Statistics over repetitions.

use serde::{Deserialize, Serialize};

/// Lowest, median and highest of some repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lowest.
    pub low: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// Of these values, in any order; `None` where there is none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { low, median, high })
    }

    /// In another unit: every value times `factor`, which is positive.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, median: self.median * factor, high: self.high * factor }
    }

    /// The difference of each value from 1.
    #[must_use]
    pub fn complement(self) -> Self {
        Self { low: 1.0 - self.high, median: 1.0 - self.median, high: 1.0 - self.low }
    }

    /// Returns `true` if the value is among those measured: the repetitions do not agree whether it is more or less.
    pub fn holds(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The ratio with the highest median of some, as a text; a dash if there is none.
    pub fn highest(ratios: impl IntoIterator<Item = Self>) -> String {
        let highest = ratios.into_iter().max_by(|a, b| a.median.total_cmp(&b.median));
        highest.map_or_else(|| "–".to_owned(), |ratio| ratio.show_ratio(1))
    }

    /// Of a ratio, as in `0.98 (0.95–1.02: no difference is shown)`.
    pub fn show_ratio(self, digits: usize) -> String {
        let shown = self.show(digits);
        match self.holds(1.0) && self.low < self.high {
            true => shown.replace(')', ": no difference is shown)"),
            false => shown,
        }
    }

    /// As in `12.1 (11.8–12.6)`.
    pub fn show(&self, digits: usize) -> String {
        let Self { low, median, high } = self;
        format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
    }
}

/// The value that this share (0 to 1) of them does not exceed; `None` where there is none.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_lowest_median_and_highest() {
        assert_eq!(Spread::of([]), None);
        let show = |values: &[f64]| Spread::of(values.iter().copied()).map(|s| s.show(1));
        assert_eq!(show(&[3.0]).as_deref(), Some("3.0 (3.0–3.0)"));
        assert_eq!(show(&[9.0, 1.0, 2.0]).as_deref(), Some("2.0 (1.0–9.0)"));
        assert_eq!(show(&[4.0, 1.0, 2.0, 3.0]).as_deref(), Some("2.5 (1.0–4.0)"));
        let halved = Spread { low: 2.0, median: 4.0, high: 6.0 }.times(0.5);
        assert_eq!(halved, Spread { low: 1.0, median: 2.0, high: 3.0 });
    }

    #[test]
    fn noise_is_named() {
        let of = |low, median, high| Spread { low, median, high };
        assert_eq!(Spread::highest([of(1.5, 2.0, 9.0), of(2.0, 3.0, 4.0)]), "3.0 (2.0–4.0)");
        assert_eq!(Spread::highest([]), "–");
        assert_eq!(of(0.9, 1.0, 1.2).show_ratio(1), "1.0 (0.9–1.2: no difference is shown)");
        assert_eq!(of(1.1, 1.2, 1.3).show_ratio(1), "1.2 (1.1–1.3)");
        assert_eq!(of(1.0, 1.0, 1.0).show_ratio(1), "1.0 (1.0–1.0)");
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let at = |share| percentile(&values, share);
        assert_eq!([at(0.5), at(0.99), at(1.0)], [Some(100.0), Some(198.0), Some(200.0)]);
        assert_eq!(at(0.0), Some(1.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
