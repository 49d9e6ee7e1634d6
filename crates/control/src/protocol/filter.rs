//! The filter, which decides about traffic outside tunnels.

use serde::{Deserialize, Serialize};

/// The filter in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterInfo {
    /// The fate of IPv4 packets that no rule and no tunnel covers: `permit` or `deny`.
    pub ipv4: String,
    /// The fate of IPv6 packets that no rule and no tunnel covers.
    pub ipv6: String,
    /// The first that covers a packet decides.
    pub rules: Vec<FilterRuleInfo>,
    /// IPv4 that was denied for want of a rule.
    pub denied_ipv4: Count,
    /// IPv6 that was denied for want of a rule.
    pub denied_ipv6: Count,
    /// Seconds until a change of the defaults is undone, if it is not confirmed.
    #[serde(default)]
    pub undo_in_seconds: Option<u64>,
    /// True if cleartext that should have come protected is dropped.
    pub inbound_guard: bool,
    /// The file of the defaults that outlive a restart; a daemon of before 0.1.0 sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A rule of the filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRuleInfo {
    /// Its place, from 1.
    pub number: usize,
    /// For people.
    pub name: Option<String>,
    /// `bypass` or `discard`.
    pub action: String,
    /// `in`, `out` or `both`.
    pub direction: String,
    /// This side's traffic.
    pub local: Vec<String>,
    /// The other side's traffic.
    pub remote: Vec<String>,
    /// The packets that this rule has decided about.
    pub decided: Count,
}

/// Packets and their octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Octets of the packets.
    pub bytes: u64,
}

/// A change of the filter by a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterChange {
    /// `added`, `removed`, `changed` or `reordered`.
    pub effect: String,
    /// For people: the rule, or the default of a family.
    pub message: String,
    /// True if it may drop ssh to this host, which passed before.
    #[serde(default)]
    pub may_shut_out: bool,
}

/// The fate of packets that no rule and no tunnel covers: `permit` or `deny`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultAction {
    /// They pass in the clear.
    #[default]
    Permit,
    /// They are dropped.
    Deny,
}
