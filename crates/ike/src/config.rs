//! Settings of an engine that the policy does not have, and the values that they may have, wherever they come from.

use crate::deadlines::times;
use crate::sa::path::{IKE_PORT, NAT_T_PORT};
use ::crypto::CryptoProviders;
use esp::families::Families;
use policy::InvalidPolicy;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// When ESP is put into UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encap {
    /// Where a NAT is seen, and between two of this implementation where both ends have UDP segmentation offload.
    #[default]
    Auto,
    /// Always (by announcing a NAT to the peer).
    Always,
    /// Only where a NAT is seen.
    Never,
}

/// Settings of an engine that the policy does not have.
#[derive(Clone, Debug)]
pub struct Config {
    /// Pause before the first retransmission (RFC 7296 §2.4), 10 ms to an hour; each further one waits 1.8 times as
    /// long.
    pub retransmit_after: Duration,
    /// Retransmissions before the peer is given up, at most 64.
    pub retransmissions: u32,
    /// Silence after which an empty INFORMATIONAL asks whether the peer lives; `None`: never.
    pub liveness_interval: Option<Duration>,
    /// The action for a phase 2 tunnel whose peer is gone.
    pub liveness_action: RestartAction,
    /// The action for a phase 2 tunnel that the peer has deleted.
    pub close_action: RestartAction,
    /// Interval of NAT keepalives (RFC 3948 §4) while this side is behind a NAT and sends nothing else.
    pub nat_keepalive: Duration,
    /// Half-open IKE SAs above which IKE_SA_INIT must come with a cookie (RFC 7296 §2.6).
    pub cookie_threshold: usize,
    /// Half-open IKE SAs above which IKE_SA_INIT is dropped. A quarter of those above `cookie_threshold` is for peers
    /// whose address the policy names.
    pub half_open_limit: usize,
    /// The time for which a replaced inbound SA still receives, at most an hour.
    pub linger: Duration,
    /// Pause between the last packet on SAs that others have replaced and the Delete of those SAs, at most a minute.
    /// Many peers stop receiving with the Delete, and the network may deliver it before packets that were sent earlier.
    pub drain: Duration,
    /// The pause before the answer to such a Delete of the peer's, if this side has sent on the SAs until then; at most
    /// a minute. Some peers stop receiving with the answer. They repeat the Delete while they wait, libreswan after
    /// half a second.
    pub drain_before_answer: Duration,
    /// Anti-replay window in packets, at most 65,536.
    pub replay_window: u32,
    /// When ESP is put into UDP.
    pub encap: Encap,
    /// UDP port of ESP, and of IKE behind NATs, on both sides (RFC 3948); any but 0 and 500.
    pub natt_port: u16,
    /// IKE_SA_INIT goes from `natt_port` to `natt_port` at once (RFC 7296 §2.23 allows it), for a gateway that has no
    /// port 500. The default is port 500, from which both sides move if they see a NAT.
    pub begin_on_natt_port: bool,
    /// The time after which both sides must prove their identities again, with a new IKE SA and new Child SAs (RFC
    /// 7296 §2.8.3). As a responder, this side tells the initiator (RFC 4478). In both roles, this side closes a
    /// session in which that has not happened within this time and the time that one exchange may take. `None`: never.
    pub reauthenticate: Option<Duration>,
    /// The addresses of both sides may change if the peer supports MOBIKE (RFC 4555).
    pub mobike: bool,
    /// A peer that moves must show that it receives at its new address before ESP is sent there (RFC 4555 §3.7).
    pub return_routability: bool,
    /// Postquantum preshared keys may protect all of IKE_AUTH (RFC 9867). Otherwise they change the proofs only
    /// (RFC 8784).
    pub ppk_before_auth: bool,
    /// The providers of ciphers and PRFs. The builder of a gateway gives the engine those of its data plane.
    pub crypto: Arc<CryptoProviders>,
    /// The address families that tunnels may use at first; [`Engine::set_families`](crate::Engine::set_families)
    /// changes them.
    pub families: Families,
    /// Octets of the largest IP datagram in which a protected IKE message goes; a longer message goes in fragments
    /// (RFC 7383) if the peer takes them, smaller ones when nothing comes back. `None`: no fragments in either
    /// direction. Less than [`SMALLEST_FRAGMENT`](crate::SMALLEST_FRAGMENT) is read as that.
    pub fragment_size: Option<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            retransmit_after: Duration::from_secs(1),
            retransmissions: 5,
            liveness_interval: Some(Duration::from_secs(30)),
            liveness_action: RestartAction::Policy,
            close_action: RestartAction::Policy,
            nat_keepalive: Duration::from_secs(20),
            cookie_threshold: 32,
            half_open_limit: 1024,
            linger: Duration::from_secs(5),
            // Also behind a queue of packets that IKE messages, which are urgent, overtake.
            drain: Duration::from_secs(1),
            drain_before_answer: Duration::from_millis(250),
            replay_window: 4096,
            encap: Encap::Auto,
            natt_port: NAT_T_PORT,
            begin_on_natt_port: false,
            reauthenticate: None,
            mobike: true,
            return_routability: true,
            ppk_before_auth: true,
            crypto: Arc::default(),
            families: Families::default(),
            fragment_size: Some(1280),
        }
    }
}

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
        let judged = self.judged().into_iter();
        let wrong: Vec<InvalidValue> =
            judged.filter(|(good, _)| !good).map(|(_, value)| value).collect();
        if wrong.is_empty() { Ok(()) } else { Err(InvalidConfig(wrong)) }
    }

    /// The values that a field may have, in words; `None`: every value of its type, or there is no such field.
    ///
    /// ```
    /// assert_eq!(ike::Config::range("retransmissions"), Some("0 to 64"));
    /// assert_eq!(ike::Config::range("mobike"), None);
    /// ```
    pub fn range(field: &str) -> Option<&'static str> {
        let judged = Self::default().judged();
        judged.into_iter().find(|(_, value)| value.field == field).map(|(_, value)| value.range)
    }

    /// Every value that has a range, and whether it is in its range.
    fn judged(&self) -> Vec<(bool, InvalidValue)> {
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
            ppk_before_auth: _,
            crypto: _,
            families: _,
            // A size that is too small is read as the smallest.
            fragment_size: _,
        } = self;
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let least = Duration::from_millis(10);
        let mut judged = Vec::new();
        let mut check = |field, good: bool, value: &dyn fmt::Debug, range| {
            judged.push((good, InvalidValue { field, value: format!("{value:?}"), range }));
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
        judged
    }

    /// The port of both sides for IKE_SA_INIT.
    pub(crate) fn first_port(&self) -> u16 {
        if self.begin_on_natt_port { self.natt_port } else { IKE_PORT }
    }

    /// The time that an exchange may take before the peer is given up.
    pub(crate) fn patience(&self) -> Duration {
        let growth =
            1.8f64.powi(i32::try_from(self.retransmissions.min(16)).unwrap_or(16) + 1) / 0.8;
        times(self.retransmit_after, growth)
    }
}

/// The action for a phase 2 tunnel that was up and went, though nobody on this side took it down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartAction {
    /// As the policy says: AutoStart starts it again, OnDemand waits for a packet, otherwise it stays down.
    #[default]
    Policy,
    /// It is started again.
    Restart,
    /// It waits for a packet, as if the policy said OnDemand.
    Trap,
    /// It stays down until a command or the peer starts it, or a packet where the policy says OnDemand.
    Clear,
}

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
