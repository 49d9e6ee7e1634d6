//! Findings: reasons why the packets of a child tunnel do not pass, or may not pass, although it is up.
//!
//! [`Gateway::findings`](crate::Gateway::findings) collects the facts when it is asked ([`host::facts`], the state of the
//! SAs, the policy), and the functions behind [`judge`] make findings of them, without I/O. Nothing is changed on the host,
//! and no packet is sent.
//!
//! A gateway needs no more privileges for this than it has: netlink, `/proc/sys/net`, and the program `nft`, which the guard
//! needs too. So every program that embeds a gateway can ask.

mod firewall;
mod networks;
mod routes;
mod subject;
mod traffic;

pub(crate) use subject::{Subject, questions, subjects};

use esp::filter::Filter;
use host::facts::HostFacts;

/// A reason why the packets of a child tunnel do not pass, or may not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The child tunnel.
    pub child: String,
    /// Its kind.
    pub kind: FindingKind,
    /// Packets do not pass for this reason. `false`: they may pass, as far as is known.
    pub certain: bool,
    /// The reason, in a sentence for people.
    pub message: String,
    /// What to do, the likeliest cure first.
    pub cure: Vec<String>,
}

/// The kind of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FindingKind {
    /// The kernel forwards no packets, and there is a network behind this host.
    Forwarding,
    /// The kernel's reverse path filter drops packets.
    RpFilter,
    /// A rule of this host's packet filter drops packets.
    Firewall,
    /// Packets for the remote network do not enter the tunnel.
    Route,
    /// No route leads to the local network.
    NoRouteBehind,
    /// The same addresses are on both sides.
    DuplicateSubnet,
    /// The peer has agreed to less traffic than the policy names.
    Narrowed,
    /// Packets pass in one direction only.
    OneWay,
}

impl FindingKind {
    /// Stable lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarding => "forwarding",
            Self::RpFilter => "rp_filter",
            Self::Firewall => "firewall",
            Self::Route => "route",
            Self::NoRouteBehind => "no_route_behind",
            Self::DuplicateSubnet => "duplicate_subnet",
            Self::Narrowed => "narrowed",
            Self::OneWay => "one_way",
        }
    }
}

impl Finding {
    /// A finding about a child tunnel, without a cure.
    pub fn new(
        child: impl Into<String>,
        kind: FindingKind,
        certain: bool,
        message: impl Into<String>,
    ) -> Self {
        let (child, message) = (child.into(), message.into());
        Self { child, kind, certain, message, cure: Vec::new() }
    }

    /// The same with something to do about it.
    #[must_use]
    pub fn with_cure(self, cure: impl IntoIterator<Item = String>) -> Self {
        Self { cure: cure.into_iter().collect(), ..self }
    }
}

/// The findings about a child tunnel, the certain ones first.
pub(crate) fn judge(subject: &Subject, host: &HostFacts, filter: Option<&Filter>) -> Vec<Finding> {
    let mut findings = networks::forwarding(subject, host);
    findings.extend(networks::no_route_behind(subject, host));
    findings.extend(networks::duplicate_subnet(subject, host, filter));
    findings.extend(routes::diverted(subject, host, filter));
    findings.extend(routes::reverse_path(subject, host));
    findings.extend(firewall::drops(subject, host));
    findings.extend(traffic::narrowed(subject));
    findings.extend(traffic::one_way(subject));
    findings.sort_by_key(|finding| !finding.certain);
    findings
}

/// A command that sets a value of the kernel, and how that is kept.
fn sysctl(setting: &str, value: u8) -> [String; 2] {
    [
        format!("sysctl -w {setting}={value}"),
        format!("to keep it over a reboot: echo {setting}={value} >> /etc/sysctl.d/90-vpn.conf"),
    ]
}

#[cfg(test)]
mod tests;
