//! The ranges of values.
//!
//! Those of IKE's values are [`ike::Config::validate`]'s. The declarations of the sections have the others.

use super::{Config, Esp};
use ike::InvalidValue;
use settings::{Declared, OutOfRange};

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

/// The refusal of a value of [`ike::Config`], by the name that it has in the file.
fn of_ike(InvalidValue { field, value, range, .. }: &InvalidValue) -> OutOfRange {
    let of_esp = Esp::SECTION.keys.iter().any(|key| key.name == *field);
    let section = if of_esp { "esp" } else { "ike" };
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
