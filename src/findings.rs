//! Findings: reasons why the packets of a phase 2 tunnel do not pass, or may not pass, although it is up.
//!
//! [`Gateway::findings`](crate::Gateway::findings) collects the facts when it is asked (`host::facts`, the state of the
//! SAs, the policy), and the functions behind `judge` make findings of them, without I/O. Nothing is changed on the
//! host, and no packet is sent.
//!
//! A gateway needs no more privileges for this than it has: netlink, `/proc/sys/net`, and the program `nft`, which the
//! guard needs too. So every program that embeds a gateway can ask.

mod finding;
mod firewall;
mod nat;
mod networks;
mod routes;
mod shadow;
mod subject;
mod traffic;

pub use finding::{Finding, FindingKind};
pub(crate) use subject::{Subject, questions, subjects};

use esp::filter::Filter;
use host::facts::HostFacts;

/// The findings about a phase 2 tunnel, the certain ones first.
pub(crate) fn judge(subject: &Subject, host: &HostFacts, filter: Option<&Filter>) -> Vec<Finding> {
    let mut findings = networks::forwarding(subject, host);
    findings.extend(networks::no_route_behind(subject, host));
    findings.extend(networks::duplicate_subnet(subject, host, filter));
    findings.extend(routes::diverted(subject, host, filter));
    findings.extend(routes::reverse_path(subject, host));
    findings.extend(firewall::drops(subject, host));
    findings.extend(nat::changes(subject, host));
    findings.extend(shadow::shadowed(subject));
    findings.extend(traffic::narrowed(subject));
    findings.extend(traffic::one_way(subject));
    findings.extend(traffic::unprotected(subject));
    findings.sort_by_key(|finding| !finding.certain);
    findings
}

#[cfg(test)]
mod tests;
