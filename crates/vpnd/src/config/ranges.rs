//! The ranges of values.
//!
//! Those of IKE's values are [`ike::Config::validate`]'s. Sections that are declared have their own. The others are here.

use super::{Config, Span};
use ike::InvalidValue;
use settings::{Declared, OutOfRange};
use std::fmt::Display;
use std::time::Duration;

/// Checks every value of a file.
pub(super) fn check(config: &Config) -> Result<(), OutOfRange> {
    let Config { policy, control, log, metrics, traces, ike, esp, families, certificates, .. } =
        config;
    required("ike.retransmit_after", ike.retransmit_after)?;
    required("ike.nat_keepalive", ike.nat_keepalive)?;
    required("ike.linger", ike.linger)?;
    range("ike.fragment_size", ike.fragment_size, ::ike::SMALLEST_FRAGMENT, u16::MAX)?;
    if let Err(invalid) = config.ike().validate()
        && let Some(first) = invalid.iter().next()
    {
        return Err(of_ike(first));
    }
    let (ms, s) = (Duration::from_millis, Duration::from_secs);
    // Four addresses are tried within the minute that work with certificates may take.
    let timeout = required("certificates.fetch_timeout", certificates.fetch_timeout)?;
    range("certificates.fetch_timeout", Time(timeout), Time(ms(100)), Time(s(15)))?;
    // The peer waits meanwhile, and work with certificates may take a minute.
    let timeout = required("certificates.token_timeout", certificates.token_timeout)?;
    range("certificates.token_timeout", Time(timeout), Time(s(1)), Time(s(50)))?;
    or_off("certificates.ocsp_max_age", certificates.ocsp_max_age, s(60), s(365 * 86_400))?;
    // Every host accepts packets of 576 octets over IPv4 (RFC 791 §3.1).
    range("esp.outer_mtu", esp.outer_mtu, 576, u16::MAX)?;
    // RFC 1191 §6.3: not more than once in two minutes; ten are usual.
    or_off("esp.path_mtu_lifetime", esp.path_mtu_lifetime, s(120), s(86_400))?;
    device(&esp.device)?;
    policy.check()?;
    control.check()?;
    log.check()?;
    metrics.check()?;
    traces.check()?;
    families.check()
}

/// The refusal of a value of [`ike::Config`], by the name that it has in the file.
fn of_ike(InvalidValue { field, value, range, .. }: &InvalidValue) -> OutOfRange {
    let section = if *field == "replay_window" { "esp" } else { "ike" };
    let or_off = match *field {
        "liveness_interval" | "reauthenticate" => " or \"off\"",
        _ => "",
    };
    OutOfRange {
        field: format!("{section}.{field}"),
        value: value.clone(),
        rule: format!("it must be {range}{or_off}"),
    }
}

/// A length of time that cannot be `off`.
fn required(field: &str, span: Span) -> Result<Duration, OutOfRange> {
    span.0.ok_or_else(|| OutOfRange {
        field: field.to_owned(),
        value: span.to_string(),
        rule: "it must be a length of time such as \"30s\"".to_owned(),
    })
}

/// A length of time within a range, or `off`.
fn or_off(field: &str, span: Span, min: Duration, max: Duration) -> Result<(), OutOfRange> {
    let Some(value) = span.0 else { return Ok(()) };
    range(field, Time(value), Time(min), Time(max))
        .map_err(|wrong| OutOfRange { rule: format!("{} or \"off\"", wrong.rule), ..wrong })
}

/// A length of time, as messages write it.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Time(Duration);

impl Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Span(Some(self.0)).fmt(f)
    }
}

fn range<T: PartialOrd + Display>(field: &str, value: T, min: T, max: T) -> Result<(), OutOfRange> {
    if (&min..=&max).contains(&&value) {
        return Ok(());
    }
    Err(OutOfRange {
        field: field.to_owned(),
        value: value.to_string(),
        rule: format!("it must be between {min} and {max}"),
    })
}

fn device(name: &str) -> Result<(), OutOfRange> {
    let valid = (1..=15).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%'))
        && !matches!(name, "." | ".." | "all" | "default");
    if valid {
        return Ok(());
    }
    let rule = "a device name has 1 to 15 printable characters without blanks, / : and %";
    let (field, value) = ("esp.device".to_owned(), format!("{name:?}"));
    Err(OutOfRange { field, value, rule: rule.to_owned() })
}
