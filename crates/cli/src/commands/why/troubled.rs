//! `vpnctl why` without a name: the tunnels that need an explanation.

use super::super::session::{Failure, Session, answer};
use crate::report;
use control::protocol::{Command as Ask, Explanation, Tunnel};
use std::process::ExitCode;

/// Explains every tunnel that is not up, or that is up with a fault.
///
/// # Errors
/// As [`Failure`].
pub(super) fn run(session: &mut Session, json: bool) -> Result<ExitCode, Failure> {
    let tunnels = answer!(session, Ask::List { all: true }, Tunnels);
    let mut explanations: Vec<Explanation> = Vec::new();
    for tunnel in &tunnels {
        let found = answer!(session, Ask::Why { name: tunnel.name.clone() }, Why);
        if is_narrowed(tunnel) || needs_explanation(&found) {
            explanations.push(found);
        }
    }
    if json {
        session.json(&explanations)?;
    } else if tunnels.is_empty() {
        session.line("the policy has no tunnel")?;
    } else if explanations.is_empty() {
        session.line("all tunnels are up")?;
    } else {
        let texts: Vec<String> =
            explanations.iter().map(|found| report::why(found, session.colour)).collect();
        session.text(&texts.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns `true` unless the tunnel and all that it carries is up, without a fault.
fn needs_explanation(found: &Explanation) -> bool {
    let is_up = matches!(found.state.as_str(), "established" | "rekeying");
    !is_up || found.fault.is_some() || found.children.iter().any(needs_explanation)
}

/// Returns `true` if a peer has agreed to less traffic than the policy has.
fn is_narrowed(tunnel: &Tunnel) -> bool {
    tunnel.children.iter().any(|child| child.narrowed.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explanation(state: &str, children: Vec<Explanation>) -> Explanation {
        Explanation {
            name: "site".to_owned(),
            phase: 1,
            state: state.to_owned(),
            up_seconds: None,
            fault: None,
            waits: None,
            failures: Vec::new(),
            turned_away: Vec::new(),
            defined: Vec::new(),
            children,
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
    }
}
