//! Findings: reasons why the packets of a phase 2 tunnel do not pass, or may not pass, although it is up.
//!
//! [`subjects`] are the tunnels that are up, [`questions`] what has to be known of the host for them, and [`judge`] makes
//! findings of the answers. `Gateway::findings` of the crate `vpn` does all of it: it collects the facts when it is asked.

mod finding;
mod firewall;
mod nat;
mod networks;
mod routes;
mod shadow;
mod subject;
mod traffic;

pub use finding::{Finding, FindingKind};
pub use subject::{Subject, questions, subjects};

use esp::filter::Filter;
use host_facts::HostFacts;

/// The findings about a phase 2 tunnel, the certain ones first.
pub fn judge(subject: &Subject, host: &HostFacts, filter: Option<&Filter>) -> Vec<Finding> {
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
