//! Axes: what they measure, where their ticks are, and how values become positions.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The quantity with its unit, as in `throughput (Gbit/s)`.
    pub label: String,
    /// The scale of the axis.
    pub scale: Scale,
}

/// The scale of the axis.
#[derive(Clone, Debug)]
pub enum Scale {
    /// From zero, evenly.
    Linear,
    /// By factors of ten.
    Logarithmic,
    /// These values alone, ascending, each with its number where there is room. Their distances are those of the
    /// values, or of their logarithms if the last is many times the first.
    Steps(Vec<f64>),
    /// Groups of bars with these names; values are 0, 1, 2 and so on.
    Groups(Vec<String>),
}

impl Axis {
    /// An axis from zero.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// An axis by factors of ten.
    pub fn logarithmic(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Logarithmic }
    }

    /// An axis of these values alone.
    pub fn steps(label: impl Into<String>, values: &[usize]) -> Self {
        let values = values.iter().map(|value| *value as f64).collect();
        Self { label: label.into(), scale: Scale::Steps(values) }
    }

    /// Groups of bars.
    pub fn groups<S: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { label: label.into(), scale: Scale::Groups(names) }
    }

    /// Returns `true` if bars stand on it.
    pub(super) fn has_bars(&self) -> bool {
        matches!(self.scale, Scale::Groups(_))
    }

    /// Ticks and the range for values up to `high` and down to `low`.
    pub(super) fn fit(&self, low: f64, high: f64) -> Fitted {
        match &self.scale {
            Scale::Linear => {
                let step = step(high.max(f64::MIN_POSITIVE));
                let count = (high / step).ceil().max(1.0);
                let ticks = (0..=count as usize).map(|n| n as f64 * step).collect();
                Fitted { range: 0.0..count * step, ticks, scale: self.scale.clone() }
            }
            Scale::Logarithmic => {
                let low = low.max(1e-9).log10();
                let high = high.max(1e-9).log10().max(low);
                let decades = low.floor() as i32..=high.ceil() as i32 + 1;
                let steps = [1.0_f64, 2.0, 5.0].map(f64::log10);
                let ticks = decades.flat_map(|d| steps.map(|step| f64::from(d) + step));
                let ticks: Vec<f64> = ticks.collect();
                let first = ticks.iter().rposition(|tick| *tick <= low + 1e-9).unwrap_or(0);
                let last = ticks.iter().position(|tick| *tick >= high - 1e-9).unwrap_or(0);
                let last = last.clamp(first + 1, ticks.len() - 1);
                let range = ticks[first]..ticks[last];
                let mut ticks = ticks[first..=last].to_vec();
                if range.end - range.start > 2.0 {
                    // One for each decade is enough.
                    ticks.retain(|tick| (tick - tick.round()).abs() < 1e-9);
                }
                Fitted { range, ticks, scale: self.scale.clone() }
            }
            Scale::Steps(values) => {
                let places: Vec<f64> = values.iter().map(|v| spaced(values, *v)).collect();
                let first = places.first().copied().unwrap_or(0.0);
                let last = places.last().copied().unwrap_or(0.0);
                let span = if last > first { last - first } else { 1.0 };
                let ticks = apart(&places, span * LABEL);
                let range = first - span * ASIDE..last + span * ASIDE;
                Fitted { range, ticks, scale: self.scale.clone() }
            }
            Scale::Groups(names) => {
                let ticks = (0..names.len()).map(|n| n as f64).collect();
                Fitted {
                    range: -0.5..names.len().max(1) as f64 - 0.5,
                    ticks,
                    scale: self.scale.clone(),
                }
            }
        }
    }
}

/// The share of an axis that a label takes, and that stays free on either side.
const LABEL: f64 = 0.08;
const ASIDE: f64 = 0.06;

/// The quotient of the last and the first value from which on logarithms give the distances.
const MANY_TIMES: f64 = 16.0;

/// The position of a value among others.
fn spaced(values: &[f64], value: f64) -> f64 {
    let (first, last) = (values.first().copied(), values.last().copied());
    match first.zip(last) {
        Some((first, last)) if first > 0.0 && last / first >= MANY_TIMES => {
            value.max(first / 2.0).log2()
        }
        _ => value,
    }
}

/// Those positions that are so far apart, with the last one.
fn apart(places: &[f64], distance: f64) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for place in places.iter().rev() {
        if kept.last().is_none_or(|right| right - place >= distance - 1e-9) {
            kept.push(*place);
        }
    }
    kept.reverse();
    kept
}

/// An axis with its range.
#[derive(Clone)]
pub(super) struct Fitted {
    /// Positions.
    pub range: Range<f64>,
    /// Positions that have a label.
    pub ticks: Vec<f64>,
    scale: Scale,
}

impl Fitted {
    /// The position of a value.
    pub fn place(&self, value: f64) -> f64 {
        match &self.scale {
            Scale::Linear | Scale::Groups(_) => value,
            Scale::Logarithmic => value.max(1e-9).log10().clamp(self.range.start, self.range.end),
            Scale::Steps(values) => spaced(values, value).clamp(self.range.start, self.range.end),
        }
    }

    /// The label of a position.
    pub fn label(&self, position: f64) -> String {
        match &self.scale {
            Scale::Linear => number(position),
            Scale::Logarithmic => number(10_f64.powf(position)),
            Scale::Steps(values) => {
                let near = |v: &&f64| (spaced(values, **v) - position).abs() < 1e-9;
                values.iter().find(near).map_or_else(String::new, |v| number(*v))
            }
            Scale::Groups(names) => {
                names.get(position.round() as usize).cloned().unwrap_or_default()
            }
        }
    }
}

impl Ranged for Fitted {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (position - self.range.start) / (self.range.end - self.range.start);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Fitted {
    fn format(position: &f64) -> String {
        number(*position)
    }
}

/// A round step that makes about five ticks.
fn step(high: f64) -> f64 {
    let rough = high / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.into_iter().map(|s| s * decade).find(|s| *s >= rough * 0.999).unwrap_or(10.0 * decade)
}

/// A number above a bar, where there is little room.
pub(super) fn brief(value: f64) -> String {
    if (1e3..1e4).contains(&value) { format!("{:.1} k", value / 1e3) } else { number(value) }
}

/// A number as short as it stays exact enough for a tick.
fn number(value: f64) -> String {
    let short = |value: f64, digits: usize| {
        let text = format!("{value:.digits$}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    };
    match value.abs() {
        v if v >= 1e7 => format!("{} M", short(value / 1e6, 0)),
        v if v >= 1e6 => format!("{} M", short(value / 1e6, 1)),
        v if v >= 1e5 => format!("{} k", short(value / 1e3, 0)),
        v if v >= 1e4 => format!("{} k", short(value / 1e3, 1)),
        v if v >= 100.0 => short(value, 0),
        v if v >= 10.0 => short(value, 1),
        v if v >= 0.1 => short(value, 2),
        v if v >= 1e-3 => short(value, 4),
        _ => short(value, 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let ticks = |axis: Axis, low, high| {
            let fitted = axis.fit(low, high);
            fitted.ticks.iter().map(|t| fitted.label(*t)).collect::<Vec<_>>()
        };
        let linear = |high| ticks(Axis::linear(""), 0.0, high);
        assert_eq!(linear(9.3), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(linear(0.0), ["0", "0"]);
        assert_eq!(linear(123_456.0), ["0", "25 k", "50 k", "75 k", "100 k", "125 k"]);
        let logarithmic = |low, high| ticks(Axis::logarithmic(""), low, high);
        assert_eq!(logarithmic(0.02, 3_000.0), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(logarithmic(0.000_01, 0.02).first().map(String::as_str), Some("0.00001"));
        assert_eq!(logarithmic(1.0, 30.0), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(logarithmic(0.9, 8.5), ["0.5", "1", "2", "5", "10"]);
        assert_eq!(logarithmic(5.0, 5.0), ["5", "10"]);
        assert_eq!(logarithmic(0.0, 0.0).len(), 2);
        assert_eq!(ticks(Axis::steps("", &[64, 1280]), 0.0, 0.0), ["64", "1280"]);
        let lengths = [64, 128, 256, 512, 1024, 1280, 1400];
        let shown = ["64", "128", "256", "512", "1024", "1400"];
        assert_eq!(ticks(Axis::steps("", &lengths), 0.0, 0.0), shown, "1280 is too close");
        assert_eq!(ticks(Axis::steps("", &[7]), 0.0, 0.0), ["7"]);
        assert_eq!(ticks(Axis::groups("", ["a", "b"]), 0.0, 0.0), ["a", "b"]);
    }

    #[test]
    fn steps_are_as_far_apart_as_their_values() {
        let places = |values: &[usize]| {
            let fitted = Axis::steps("", values).fit(0.0, 0.0);
            values.iter().map(|v| fitted.place(*v as f64)).collect::<Vec<_>>()
        };
        assert_eq!(places(&[1, 2, 4, 12]), [1.0, 2.0, 4.0, 12.0]);
        assert_eq!(places(&[64, 128, 512, 1024]), [6.0, 7.0, 9.0, 10.0]);
    }

    #[test]
    fn numbers_are_short() {
        let shown =
            [0.0, 0.05, 0.126, 7.0, 12.34, 512.0, 1280.0, 56_780.0, 1_260_000.0].map(number);
        assert_eq!([999.0, 5_523.0, 28_000.0].map(brief), ["999", "5.5 k", "28 k"]);
        assert_eq!(shown, ["0", "0.05", "0.13", "7", "12.3", "512", "1280", "56.8 k", "1.3 M"]);
    }
}
