//! The problems that a daemon and its tunnels have.
//!
//! The daemon tells causes and cures, which `crates/diagnosis` finds. The client gives them a level, because levels are
//! the exit statuses of monitoring systems, which this command alone has. All facts for that are in the control
//! protocol; in `crates/diagnosis`, this code would link IKE into `vpnctl`.

use super::{Level, Problem};
use control::protocol::{Child, Overview, Tunnel};

/// The problems of the daemon itself.
pub(super) fn of_daemon(daemon: &Overview) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(guard) = &daemon.guard
        && !guard.in_force
        && daemon.children.defined > 0
    {
        let message =
            "the guard is not in force: traffic of tunnels that are down may leave in the clear";
        problems.push(Problem::new(Level::Critical, message));
    }
    if let Some(directory) = &daemon.keys_exported_to {
        let message = format!("INSECURE: vpnd writes the keys of all SAs to {directory}");
        problems.push(Problem::new(Level::Critical, message));
    }
    problems.extend(daemon.warnings.iter().map(|text| Problem::new(Level::Warning, text)));
    problems.extend(daemon.unrouted.iter().map(|unrouted| {
        let message = format!("no route leads to {}: {}", unrouted.network, unrouted.command);
        Problem { tunnel: Some(unrouted.tunnel.clone()), ..Problem::new(Level::Warning, message) }
    }));
    problems
}

/// The problems of a tunnel and its phase 2 tunnels.
pub(super) fn of_tunnel(tunnel: &Tunnel) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(unanswered) = tunnel.unanswered.as_ref().filter(|_| tunnel.is_up()) {
        problems.push(problem(Level::Warning, &tunnel.name, &unanswered.message));
    }
    for child in &tunnel.children {
        if child.has_sa() {
            let found = traffic(child).into_iter();
            problems.extend(found.map(|(level, text)| problem(level, &child.name, &text)));
        } else if let Some((level, text)) = absence(child, tunnel) {
            problems.push(problem(level, &child.name, &text));
        }
    }
    problems
}

fn problem(level: Level, name: &str, message: &str) -> Problem {
    Problem { level, tunnel: Some(name.to_owned()), message: format!("{name}: {message}") }
}

/// The problems of the traffic of a phase 2 tunnel that is up.
fn traffic(child: &Child) -> Vec<(Level, String)> {
    let fault = child.fault.iter().map(|fault| (Level::Critical, format!("blocked: {fault}")));
    let findings = child.findings.iter().map(|finding| match finding.certain {
        true => (Level::Critical, finding.message.clone()),
        false => (Level::Warning, finding.message.clone()),
    });
    let told = child.findings.iter().any(|finding| finding.kind == "narrowed");
    // A peer may ask for any traffic and get its own.
    let less = child.narrowed.as_ref().filter(|narrowed| narrowed.by != "grant");
    let narrowed = less.filter(|_| !told).map(|_| {
        let asked = "the two sides have agreed on a part of the traffic in the policy";
        (Level::Warning, asked.to_owned())
    });
    fault.chain(findings).chain(narrowed).collect()
}

/// The problem of a phase 2 tunnel that is not up; `None`: nobody needs it now.
fn absence(child: &Child, tunnel: &Tunnel) -> Option<(Level, String)> {
    let failure = child.last_failure.as_ref().or(tunnel.last_failure.as_ref());
    let waits = child.waits.as_ref();
    let level = match waits.map_or("", |waits| waits.what.as_str()) {
        // The first packet starts it, or its peer does, from whatever address it has then.
        "packet" => return None,
        "peer" if tunnel.remote_address.is_none() => return None,
        // An administrator has decided that.
        "command" | "family" => Level::Warning,
        "answer" if failure.is_none() => Level::Warning,
        _ => Level::Critical,
    };
    let mut text = match child.state.as_str() {
        "down" => "down".to_owned(),
        state => format!("down ({state})"),
    };
    if let Some(waits) = waits {
        text.push_str(&format!("; it waits for {}", waits.message));
    }
    if let Some(failure) = failure.filter(|_| level == Level::Critical) {
        text.push_str(&format!("; the last failure: {}", failure.message));
    }
    Some((level, text))
}

#[cfg(test)]
mod tests;
