//! The ranges of values, and their refusals.

use crate::{Span, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A value that is out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The field, as `section.key`.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The rule that the value breaks.
    pub rule: String,
}

/// The values that a setting may have.
pub trait Range<T> {
    /// The value as the refusal shows it, and the rule that it breaks.
    ///
    /// # Errors
    /// If the value is out of range.
    fn judge(&self, value: &T) -> Result<(), (String, String)>;

    /// The range for a reader, as in `1 to 12`; `None`: it has no short form, or another place knows it.
    fn words(&self) -> Option<String>;
}

/// Checks the value of a setting.
///
/// # Errors
/// If it is out of range.
pub fn in_range<T>(
    section: &str,
    name: &str,
    value: &T,
    range: &impl Range<T>,
) -> Result<(), OutOfRange> {
    range.judge(value).map_err(|(value, rule)| {
        let field = format!("{section}.{name}");
        OutOfRange { field, value, rule }
    })
}

impl<T: PartialOrd + Display> Range<T> for RangeInclusive<T> {
    fn judge(&self, value: &T) -> Result<(), (String, String)> {
        if self.contains(value) {
            return Ok(());
        }
        let rule = format!("it must be between {} and {}", self.start(), self.end());
        Err((value.to_string(), rule))
    }

    fn words(&self) -> Option<String> {
        Some(format!("{} to {}", self.start(), self.end()))
    }
}

/// Lengths of time.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// `None`: another place knows the range.
    within: Option<(Duration, Duration)>,
    or_off: bool,
}

impl Times {
    /// Every length of time, but not `off`.
    pub const fn any() -> Self {
        Self { within: None, or_off: false }
    }

    /// From the shortest to the longest one, but not `off`.
    pub const fn between(shortest: Duration, longest: Duration) -> Self {
        Self { within: Some((shortest, longest)), or_off: false }
    }

    /// The same, or `off`.
    pub const fn or_off(self) -> Self {
        Self { or_off: true, ..self }
    }
}

impl Range<Span> for Times {
    fn judge(&self, span: &Span) -> Result<(), (String, String)> {
        let Some(value) = span.0 else {
            let rule = "it must be a length of time such as \"30s\"";
            return if self.or_off { Ok(()) } else { Err((span.to_string(), rule.to_owned())) };
        };
        let Some((shortest, longest)) = self.within else { return Ok(()) };
        if (shortest..=longest).contains(&value) {
            return Ok(());
        }
        let or_off = if self.or_off { " or \"off\"" } else { "" };
        let rule = format!("it must be between {shortest:?} and {longest:?}{or_off}");
        Err((span.to_string(), rule))
    }

    fn words(&self) -> Option<String> {
        let (shortest, longest) = self.within?;
        let or_off = if self.or_off { ", or \"off\"" } else { "" };
        let [shortest, longest] = [shortest, longest].map(|time| Span(Some(time)).toml());
        Some(format!("{shortest} to {longest}{or_off}"))
    }
}

/// Text that a function judges: it returns the rule that the text breaks.
#[derive(Clone, Copy, Debug)]
pub struct Judged(pub fn(&str) -> Result<(), &'static str>);

impl Range<String> for Judged {
    fn judge(&self, text: &String) -> Result<(), (String, String)> {
        (self.0)(text).map_err(|rule| (format!("{text:?}"), rule.to_owned()))
    }

    fn words(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_field_value_and_rule() {
        let refused = in_range("esp", "outer_mtu", &500_u16, &(576..=u16::MAX)).expect_err("small");
        assert_eq!(refused.field, "esp.outer_mtu");
        assert_eq!(refused.value, "500");
        assert_eq!(refused.rule, "it must be between 576 and 65535");
        assert_eq!((576..=u16::MAX).words().as_deref(), Some("576 to 65535"));
        assert_eq!(in_range("esp", "outer_mtu", &576_u16, &(576..=u16::MAX)), Ok(()));
    }

    #[test]
    fn times_have_ends_and_may_be_off() {
        let minutes = Times::between(Duration::from_secs(120), Duration::from_secs(86_400));
        let (value, rule) = minutes.or_off().judge(&Span::seconds(60)).expect_err("short");
        assert_eq!(value, "60s");
        assert_eq!(rule, "it must be between 120s and 86400s or \"off\"");
        assert!(minutes.or_off().judge(&Span(None)).is_ok());
        assert!(minutes.judge(&Span::seconds(120)).is_ok());
        assert_eq!(minutes.words().as_deref(), Some("\"2m\" to \"24h\""));
        assert_eq!(minutes.or_off().words().as_deref(), Some("\"2m\" to \"24h\", or \"off\""));
        assert_eq!(Times::any().words(), None);
        for range in [minutes, Times::any()] {
            let (value, rule) = range.judge(&Span(None)).expect_err("off");
            assert_eq!(value, "\"off\"");
            assert!(rule.contains("length of time such as \"30s\""), "{rule}");
        }
    }
}
