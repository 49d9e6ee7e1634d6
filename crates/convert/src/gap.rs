//! Settings without a counterpart in `vpnd`.

use crate::finding::Report;
use crate::source::Value;

/// A setting without a counterpart: its name, the values that ask for no more than what `vpnd` does, the reason why
/// others are dropped, and advice.
pub(super) type Gap = (&'static str, &'static [&'static str], &'static str, &'static str);

/// Takes out the settings that are gaps, and reports those whose values ask for more.
pub(super) fn take(settings: &mut Vec<(String, Value)>, gaps: &[Gap], report: &mut Report) {
    settings.retain(|(name, value)| {
        let Some((_, same, why, help)) = gaps.iter().find(|(gap, ..)| gap == name) else {
            return true;
        };
        if !same.contains(&value.text.trim()) && !value.text.is_empty() {
            report.dropped(&value.location, format!("{}: {why}", value.shown(name)), *help);
        }
        false
    });
}
