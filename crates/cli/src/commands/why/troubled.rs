//! `vpnctl why` without a name: the tunnels that need an explanation.

use super::super::session::{Failure, Session, answer};
use control::protocol::{Command as Ask, Explanation, Tunnel};
use std::process::ExitCode;
use terminal::report;

/// With so many tunnels, each one is asked about. With more, those that are up are left out: the daemon looks at the
/// host for each of them.
const FEW: usize = 32;

/// Explanations that people are shown.
const SHOWN: usize = 16;

/// Explains every tunnel that is not up, and those that are up with a fault or a finding.
///
/// # Errors
/// As [`Failure`].
pub(super) fn run(session: &mut Session, all: bool, json: bool) -> Result<ExitCode, Failure> {
    let tunnels = session.client()?.tunnels(true)?;
    let few = tunnels.len() <= FEW;
    let mut asked: Vec<&Tunnel> = tunnels.iter().filter(|t| few || is_troubled(t)).collect();
    let left = if json || few { 0 } else { asked.len().saturating_sub(SHOWN) };
    asked.truncate(asked.len() - left);
    let mut explanations: Vec<Explanation> = Vec::new();
    for tunnel in asked {
        let found = answer!(session, Ask::Why { name: tunnel.name.clone() }, Why);
        if needs_explanation(&found) {
            explanations.push(*found);
        }
    }
    if json {
        session.json(&explanations)?;
    } else if tunnels.is_empty() {
        session.line("the policy has no tunnel")?;
    } else if explanations.is_empty() {
        session.line(
            "all tunnels are up (if packets do not pass: vpnctl why NAME, vpnctl probe NAME)",
        )?;
    } else {
        let texts: Vec<String> =
            explanations.iter().map(|found| report::why(found, all, session.colour)).collect();
        session.text(&texts.join("\n"))?;
        if left > 0 {
            session.line(&format!(
                "{left} more tunnels are not up; vpnctl list --all shows all of them"
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns `true` unless the tunnel and all its phase 2 tunnels are up with their whole traffic, and the peer answers.
fn is_troubled(tunnel: &Tunnel) -> bool {
    !tunnel.is_up()
        || tunnel.unanswered.is_some()
        || tunnel.children.iter().any(|c| !c.is_up() || c.fault.is_some() || c.narrowed.is_some())
}

/// Returns `true` unless the tunnel and all its phase 2 tunnels are up, packets pass as far as is known, and nothing
/// has failed that may fail again.
fn needs_explanation(found: &Explanation) -> bool {
    let passes = found.fault.is_none() && found.findings.is_empty() && found.unanswered.is_none();
    !found.is_up()
        || !passes
        || !found.failures.iter().all(|failure| failure.overcome || failure.reloaded_at.is_some())
        || found.children.iter().any(needs_explanation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::protocol::{ExplainedFailure, FindingInfo};

    fn explanation(state: &str, children: Vec<Explanation>) -> Explanation {
        Explanation {
            name: "site".to_owned(),
            phase: 1,
            state: state.to_owned(),
            up_seconds: None,
            up_since: None,
            down: None,
            fault: None,
            waits: None,
            unanswered: None,
            renewal: None,
            failures: Vec::new(),
            turned_away: Vec::new(),
            defined: Vec::new(),
            children,
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_tunnel_is_explained_unless_all_of_it_is_up() {
        let up = || explanation("established", Vec::new());
        assert!(!needs_explanation(&explanation("rekeying", vec![up()])));
        assert!(needs_explanation(&explanation("established", vec![explanation("down", vec![])])));
        assert!(needs_explanation(&explanation("negotiating", vec![up()])));
        let faulty = Explanation { fault: Some("the device is missing".to_owned()), ..up() };
        assert!(needs_explanation(&explanation("established", vec![faulty])));
        let finding = FindingInfo {
            kind: "forwarding".to_owned(),
            certain: true,
            message: "the kernel does not forward packets".to_owned(),
            cure: Vec::new(),
        };
        let stuck = Explanation { findings: vec![finding], ..up() };
        assert!(needs_explanation(&explanation("established", vec![stuck])));
        let refused = |overcome| {
            let failures = vec![ExplainedFailure {
                kind: "no_proposal_chosen".to_owned(),
                message: "the peer refuses each rekey".to_owned(),
                seconds_ago: 200,
                at: "2026-11-23T14:18:03Z".to_owned(),
                overcome_at: None,
                reloaded_at: None,
                times: 2,
                authenticated: true,
                overcome,
                peer: None,
                comparison: Vec::new(),
                cure: Vec::new(),
            }];
            Explanation { failures, ..up() }
        };
        assert!(needs_explanation(&refused(false)));
        assert!(!needs_explanation(&refused(true)));
    }
}
