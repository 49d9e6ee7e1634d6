//! The rules that every [`Config`] obeys, wherever its values come from.

use crate::Config;
use crate::sa::path::IKE_PORT;
use policy::InvalidPolicy;
use std::fmt;
use std::time::Duration;

/// Values that an engine refuses to work with.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// Values of the policy.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// Values of the configuration.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
}

policy::readable_debug!(InvalidSettings);

/// Values of a configuration that cannot be used, at least one. Its `Display` has a line for each.
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidConfig(Vec<InvalidValue>);

/// One value of a configuration that cannot be used. Its `Display` is one line.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is out of range; use {range}")]
#[non_exhaustive]
pub struct InvalidValue {
    /// Name of the field of [`Config`].
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The values that can be used.
    pub range: &'static str,
}

policy::readable_debug!(InvalidValue);

impl InvalidConfig {
    /// The values, in the order of the fields of [`Config`].
    pub fn iter(&self) -> std::slice::Iter<'_, InvalidValue> {
        self.0.iter()
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration of IKE is invalid")?;
        self.0.iter().try_for_each(|value| write!(f, "\n{value}"))
    }
}

impl std::error::Error for InvalidConfig {}

policy::readable_debug!(InvalidConfig);

impl Config {
    /// Checks every value. `Duration::MAX` means "never" where that makes sense: for `liveness_interval`,
    /// `nat_keepalive` and `reauthenticate`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let config = ike::Config { retransmit_after: Duration::ZERO, ..ike::Config::default() };
    /// let refused = config.validate().unwrap_err();
    /// assert_eq!(
    ///     refused.iter().next().unwrap().to_string(),
    ///     "retransmit_after: 0ns is out of range; use 10 milliseconds to an hour"
    /// );
    /// ```
    ///
    /// # Errors
    /// All values that cannot be used.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        // Every field is named, so that a new one cannot be forgotten here.
        let Self {
            retransmit_after,
            retransmissions,
            liveness_interval,
            liveness_action: _,
            close_action: _,
            nat_keepalive,
            cookie_threshold,
            half_open_limit,
            linger,
            drain,
            drain_before_answer,
            replay_window,
            encap: _,
            natt_port,
            begin_on_natt_port: _,
            reauthenticate,
            mobike: _,
            return_routability: _,
            crypto: _,
            families: _,
            // A size that is too small is read as the smallest.
            ppk_before_auth: _,
            fragment_size: _,
        } = self;
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let least = Duration::from_millis(10);
        let mut wrong = Vec::new();
        let mut check = |field, good: bool, value: &dyn fmt::Debug, range| {
            if !good {
                wrong.push(InvalidValue { field, value: format!("{value:?}"), range });
            }
        };
        let good = (least..=hour).contains(retransmit_after);
        check("retransmit_after", good, retransmit_after, "10 milliseconds to an hour");
        check("retransmissions", *retransmissions <= 64, retransmissions, "0 to 64");
        let good = liveness_interval.is_none_or(|interval| interval >= least);
        let shown = liveness_interval.unwrap_or_default();
        check("liveness_interval", good, &shown, "10 milliseconds or more");
        check("nat_keepalive", *nat_keepalive >= second, nat_keepalive, "1 second or more");
        let good = cookie_threshold <= half_open_limit;
        check("cookie_threshold", good, cookie_threshold, "at most half_open_limit");
        let good = (1..=1_000_000).contains(half_open_limit);
        check("half_open_limit", good, half_open_limit, "1 to 1,000,000");
        check("linger", *linger <= hour, linger, "at most an hour");
        check("drain", *drain <= 60 * second, drain, "at most a minute");
        let good = *drain_before_answer <= 60 * second;
        check("drain_before_answer", good, drain_before_answer, "at most a minute");
        check("replay_window", *replay_window <= 65_536, replay_window, "at most 65,536");
        let good = ![0, IKE_PORT].contains(natt_port);
        check("natt_port", good, natt_port, "1 to 65,535 but 500");
        let good = reauthenticate.is_none_or(|interval| interval >= 10 * second);
        let shown = reauthenticate.unwrap_or_default();
        check("reauthenticate", good, &shown, "10 seconds or more");
        if wrong.is_empty() { Ok(()) } else { Err(InvalidConfig(wrong)) }
    }
}
