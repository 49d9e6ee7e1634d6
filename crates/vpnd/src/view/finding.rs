//! Findings about the traffic of a tunnel.

use control::protocol::FindingInfo;
use vpn::findings::Finding;

/// Shows the findings about a phase 2 tunnel.
pub fn findings(findings: &[Finding], child: &str) -> Vec<FindingInfo> {
    let own = findings.iter().filter(|finding| finding.child == child);
    let shown = own.map(|finding| FindingInfo {
        kind: finding.kind.name().to_owned(),
        certain: finding.certain,
        message: finding.message.clone(),
        cure: finding.cure.clone(),
    });
    shown.collect()
}
