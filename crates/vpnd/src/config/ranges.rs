//! The ranges of values.
//!
//! Those of IKE's values are [`ike::Config::validate`]'s. The declarations of the sections have the others.

use super::{Config, Esp};
use ike::InvalidValue;
use settings::{Declared, Key, OutOfRange};

/// Checks every value of a file.
pub(super) fn check(config: &Config) -> Result<(), OutOfRange> {
    config.ike.check()?;
    if let Err(invalid) = config.ike().validate()
        && let Some(first) = invalid.iter().next()
    {
        return Err(of_ike(first));
    }
    let Config {
        policy,
        control,
        log,
        metrics,
        traces,
        ike: _,
        esp,
        families,
        filter,
        certificates,
        crypto,
        sa: _,
        tunnel: _,
    } = config;
    certificates.check()?;
    esp.check()?;
    metrics.check()?;
    policy.check()?;
    control.check()?;
    log.check()?;
    traces.check()?;
    families.check()?;
    filter.check()?;
    crypto.check()
}

/// The range of a setting for a reader; `None`: it has none, or its documentation says more than a range could.
pub(crate) fn words(key: &Key) -> Option<String> {
    let of_engine = || {
        let range = matches!(key.section, "ike" | "esp").then(|| ike::Config::range(key.name));
        Some(format!("{}{}", range??, or_off(key.name)))
    };
    (key.range)().or_else(of_engine)
}

/// The refusal of a value of [`ike::Config`], by the name that it has in the file.
fn of_ike(InvalidValue { field, value, range, .. }: &InvalidValue) -> OutOfRange {
    let of_esp = Esp::SECTION.keys.iter().any(|key| key.name == *field);
    let section = if of_esp { "esp" } else { "ike" };
    let or_off = or_off(field);
    OutOfRange {
        field: format!("{section}.{field}"),
        value: value.clone(),
        rule: format!("it must be {range}{or_off}"),
    }
}

/// The word that stands for "never" in the settings that have it.
fn or_off(field: &str) -> &'static str {
    match field {
        "liveness_interval" | "reauthenticate" => " or \"off\"",
        _ => "",
    }
}
