//! Attributes → numbers, flags, words and names.

use super::context::Context;
use crate::wording::{did_you_mean, listed, quoted};
use crate::xml::element::{Attribute, Element};
use crate::xml::schema;
use crate::{Lifetime, LifetimeBounds, Role};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A word of the vocabulary, with its meaning, or with the words to write instead if it is not supported.
pub(super) type Word<T> = (&'static str, Result<T, &'static str>);

pub(super) const ROLE: &[Word<Role>] = &[
    ("Both", Ok(Role::Both)),
    ("Initiator", Ok(Role::Initiator)),
    ("Responder", Ok(Role::Responder)),
];

const YES_NO: &[Word<bool>] = &[("Yes", Ok(true)), ("No", Ok(false))];

/// Minutes of a year, above which a lifetime is taken for a slip.
const MAX_MINUTES: u64 = 525_600;

/// Kilobytes; AIX stores 32 bits.
const MAX_KB: u64 = 0xffff_ffff;

impl Context<'_> {
    /// The value without blanks around it, which are noted.
    pub fn trimmed<'a>(&mut self, element: &Element<'_>, attribute: &'a Attribute<'_>) -> &'a str {
        let value = attribute.trimmed();
        if value.len() != attribute.value.len() && !attribute.secret {
            let span = attribute.span(element);
            self.padded.insert(span.range.start, span);
        }
        value
    }

    /// The name of an object.
    pub fn name(&mut self, element: &Element<'_>, attribute: &Attribute<'_>) -> Option<String> {
        let value = self.trimmed(element, attribute);
        if value.is_empty() || value.len() > 255 || value.chars().any(char::is_control) {
            let message = format!("{} is not a name", attribute.name);
            let help = "a name has 1 to 255 octets and no control characters";
            self.report.error(attribute.span(element), message, help);
            return None;
        }
        Some(value.to_owned())
    }

    /// The meaning of one word.
    pub fn word_of<T: Copy + PartialEq>(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        value: &str,
        words: &[Word<T>],
    ) -> Option<T> {
        let exact = words.iter().find(|(word, _)| *word == value);
        let found =
            exact.or_else(|| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(value)));
        let span = attribute.part(element, value);
        match found {
            Some((word, Ok(meaning))) => {
                if exact.is_none() {
                    let message = format!("{} is read as {word:?}", quoted(value));
                    self.report.warning(span, message, format!("write {word:?}"));
                }
                Some(*meaning)
            }
            Some((_, Err(instead))) => {
                let message = format!("{} {} is not supported", attribute.name, quoted(value));
                self.report.error(span, message, *instead);
                None
            }
            None => {
                let shown = if attribute.secret { "this".to_owned() } else { quoted(value) };
                let message = format!("{} cannot be {shown}", attribute.name);
                let help = did_you_mean(value, words.iter().map(|(word, _)| *word), || {
                    // One spelling of each.
                    format!(
                        "known are {}",
                        listed(
                            (0..words.len())
                                .filter(|at| {
                                    words[*at].1.is_ok()
                                        && words[..*at].iter().all(|w| w.1 != words[*at].1)
                                })
                                .map(|at| words[at].0)
                        )
                    )
                });
                self.report.error(span, message, help);
                None
            }
        }
    }

    /// The meaning of the word in an attribute; `None` where there is no such attribute, or a wrong one.
    pub fn word<T: Copy + PartialEq>(
        &mut self,
        element: &Element<'_>,
        name: &str,
        words: &[Word<T>],
    ) -> Option<T> {
        let attribute = element.attribute(name)?;
        let value = self.trimmed(element, attribute);
        self.word_of(element, attribute, value, words)
    }

    /// A flag that is off unless the file says otherwise.
    pub fn flag(&mut self, element: &Element<'_>, name: &str) -> bool {
        self.word(element, name, YES_NO).unwrap_or(false)
    }

    /// A decimal number.
    pub fn number(
        &mut self,
        element: &Element<'_>,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let attribute = element.attribute(name)?;
        let value = self.trimmed(element, attribute);
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        let number = digits.then(|| value.parse().unwrap_or(u64::MAX));
        if let Some(number) = number.filter(|number| range.contains(number)) {
            return Some(number);
        }
        let message = if digits {
            format!("{name} {} is out of range", quoted(value))
        } else {
            format!("{name} {} is not a number", quoted(value))
        };
        let help = format!("write a whole number from {} to {}", range.start(), range.end());
        self.report.error(attribute.part(element, value), message, help);
        None
    }

    /// A lifetime in minutes.
    pub fn minutes(&mut self, element: &Element<'_>, name: &str) -> Option<u64> {
        self.number(element, name, 1..=MAX_MINUTES)
    }

    /// A volume in kilobytes, 0 for none.
    pub fn kilobytes(&mut self, element: &Element<'_>, name: &str) -> Option<u64> {
        self.number(element, name, 0..=MAX_KB)
    }

    /// The overlap of an old and a new key: at most half of a lifetime.
    pub fn overlap(&mut self, element: &Element<'_>, name: &str) -> u8 {
        let percent = self.number(element, name, 1..=99).unwrap_or(10);
        if percent > 50
            && let Some(attribute) = element.attribute(name)
        {
            let message =
                format!("{name} {percent} is read as 50: rekeying starts at half of the lifetime");
            let help = "the overlap is the share of the lifetime in which old and new keys coexist; \
                        write 50 or less";
            self.report.warning(attribute.span(element), message, help);
        }
        u8::try_from(percent.min(50)).unwrap_or(50)
    }

    /// The responder's windows of `IKE` or `IPSec`, and a warning of own lifetimes outside of them, in minutes and
    /// kilobytes.
    pub fn bounds(
        &mut self,
        element: &Element<'_>,
        prefix: &str,
        own: [&[u64]; 2],
    ) -> LifetimeBounds {
        let [minutes, kilobytes] = own;
        let age = self.window(element, prefix, "Minutes", minutes);
        let volume = self.window(element, prefix, "KB", kilobytes);
        let [shortest, longest] = age
            .map(|minutes| minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60))));
        let [smallest, largest] =
            volume.map(|kilobytes| kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024)));
        LifetimeBounds {
            age: [shortest.unwrap_or(Duration::ZERO), longest.unwrap_or(Duration::MAX)],
            bytes: [smallest.unwrap_or(0), largest.unwrap_or(u64::MAX)],
        }
    }

    /// A responder's window `…ResponderKeyRefreshMin…` to `…Max…`; 0 is no bound. Lifetimes are not negotiated
    /// in IKEv2 (RFC 7296 §2.8), so that it bounds the own ones, not the peer's.
    fn window(
        &mut self,
        element: &Element<'_>,
        prefix: &str,
        unit: &str,
        own: &[u64],
    ) -> [Option<u64>; 2] {
        let names = window_names(prefix, unit);
        let [min, max] = names
            .each_ref()
            .map(|name| self.number(element, name, 0..=MAX_KB).filter(|bound| *bound > 0));
        if let (Some(min), Some(max), Some(attribute)) = (min, max, element.attribute(&names[0]))
            && min > max
        {
            let message = format!("{} {min} is above {} {max}", names[0], names[1]);
            self.report.error(attribute.span(element), message, "exchange the two");
            return [None; 2];
        }
        let outside = own
            .iter()
            .map(|own| (*own, (*own).max(min.unwrap_or(0)).min(max.unwrap_or(u64::MAX))))
            .find(|(own, bounded)| own != bounded);
        let attribute = names.iter().find_map(|name| element.attribute(name));
        if let (Some((own, bounded)), Some(attribute)) = (outside, attribute) {
            let message = format!(
                "the lifetime of {own} {unit} is outside the responder's window: SAs that the peer asks for have {bounded} {unit}"
            );
            let help = "IKEv2 does not negotiate lifetimes, so that each side has its own; write a lifetime inside the \
                        window if both kinds of SA are to live equally long";
            self.report.warning(attribute.span(element), message, help);
        }
        [min, max]
    }

    /// Warns of a responder's window for kilobytes where no SA has a limit by volume.
    pub fn idle_window(
        &mut self,
        element: &Element<'_>,
        prefix: &str,
        bounds: LifetimeBounds,
        [why, help]: [&str; 2],
    ) {
        let names = window_names(prefix, "KB");
        let attribute = names.iter().find_map(|name| element.attribute(name));
        if let Some(attribute) = attribute
            && bounds.bytes != LifetimeBounds::NONE.bytes
        {
            let message = format!("the responder's window for KB has no effect: {why}");
            self.report.warning(attribute.span(element), message, help);
        }
    }

    /// The one of several names for an attribute that an element uses.
    pub fn one_spelling(
        &mut self,
        element: &Element<'_>,
        names: &'static [&'static str],
    ) -> Option<&'static str> {
        let mut present = names.iter().copied().filter(|name| element.attribute(name).is_some());
        match (present.next(), present.next()) {
            (Some(name), None) => Some(name),
            (Some(_), Some(second)) => {
                let span = element.attribute(second).map(|a| a.name_span(element));
                let message = format!("{} is given in two spellings", names[0]);
                self.report.error(span.unwrap_or_else(|| element.span()), message, "keep one");
                None
            }
            (None, _) => {
                if !element.damaged {
                    let message = format!("{} lacks the attribute {}", element.name, names[0]);
                    let help = format!("add {}=\"…\"", listed(names.iter().copied().take(1)));
                    self.report.error(element.span(), message, help);
                }
                None
            }
        }
    }

    /// The one element inside another with one of the names that its kind may hold, or with the one given. `None` if
    /// there is none, which is reported.
    pub fn only<'e, 't>(
        &mut self,
        element: &'e Element<'t>,
        name: Option<&'static str>,
    ) -> Option<&'e Element<'t>> {
        let allowed = schema::kind(element.name).map_or(&[][..], |kind| kind.children);
        let mut found = element.children.iter().filter(|child| match name {
            Some(name) => child.name == name,
            None => allowed.contains(&child.name),
        });
        let first = found.next();
        if let Some(second) = found.next() {
            let message = match name {
                Some(name) => format!("a second {name} inside {}", element.name),
                None => format!("{} is a second identity inside {}", second.name, element.name),
            };
            self.report.error(second.span(), message, "remove one of the two");
            return None;
        }
        // One that does not belong there is reported, and may be what is missing.
        let stray = element.children.iter().any(|child| !allowed.contains(&child.name));
        if first.is_none() && !stray && !element.damaged {
            let message = format!("{} holds no {}", element.name, name.unwrap_or("identity"));
            let missing = match name {
                Some(name) => name.to_owned(),
                // The kinds that name one side come first.
                None => format!("one of {}", listed(allowed.iter().copied().take(6))),
            };
            self.report.error(element.span(), message, format!("put {missing} inside it"));
        }
        first
    }
}

/// The attributes of a responder's window, for `Minutes` or `KB`.
fn window_names(prefix: &str, unit: &str) -> [String; 2] {
    ["Min", "Max"].map(|end| format!("{prefix}_ResponderKeyRefresh{end}{unit}"))
}

/// A lifetime of that many minutes and, if not 0, kilobytes of 1024 octets.
pub(super) fn lifetime(
    minutes: u64,
    kilobytes: u64,
    overlap_percent: u8,
    as_responder: LifetimeBounds,
) -> Lifetime {
    Lifetime {
        hard: Duration::from_secs(minutes * 60),
        bytes: (kilobytes > 0).then(|| kilobytes.saturating_mul(1024)),
        overlap_percent,
        as_responder,
    }
}
