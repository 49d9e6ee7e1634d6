//! The health as the plugins of Nagios, Icinga and their like tell it.
//!
//! <https://www.monitoring-plugins.org/doc/guidelines.html>: one line with the status, behind `|` the numbers to plot, and
//! below it more text.

use super::Health;
use control::protocol::Fleet;

/// The text.
pub fn report(health: &Health) -> String {
    let mut text = format!("VPND {} - {}", health.status.name(), plain(&health.summary));
    if let (Some(tunnels), Some(children)) = (health.tunnels, health.children) {
        let numbers = [("tunnels_up", tunnels), ("children_up", children)]
            .map(|(name, Fleet { up, defined })| format!("{name}={up};;;0;{defined}"));
        text.push_str(&format!(" | {}", numbers.join(" ")));
    }
    text.push('\n');
    for problem in &health.problems {
        text.push_str(&format!("{}: {}", problem.level.name(), plain(&problem.message)));
        if let Some(tunnel) = &problem.tunnel {
            text.push_str(&format!(" (vpnctl why {})", plain(tunnel)));
        }
        text.push('\n');
    }
    text
}

/// Text in which nothing looks like the beginning of numbers.
fn plain(text: &str) -> String {
    text.replace('|', "/")
}

#[cfg(test)]
mod tests {
    use super::super::{Level, Problem};
    use super::*;

    #[test]
    fn the_first_line_has_the_status_and_the_numbers() {
        let fleets = Some([Fleet { defined: 3, up: 2 }, Fleet { defined: 4, up: 3 }]);
        let healthy = Health::new(Vec::new(), fleets);
        let numbers = "tunnels_up=2;;;0;3 children_up=3;;;0;4";
        assert_eq!(report(&healthy), format!("VPND OK - 3 of 4 phase 2 tunnels up | {numbers}\n"));
        let problem = |level, tunnel: Option<&str>, message: &str| Problem {
            tunnel: tunnel.map(str::to_owned),
            ..Problem::new(level, message)
        };
        let two = vec![
            problem(Level::Warning, None, "a file expires"),
            problem(Level::Critical, Some("a|b"), "a|b: down"),
        ];
        let text = format!(
            "VPND CRITICAL - a/b: down; and 1 more problem | {numbers}\n\
             CRITICAL: a/b: down (vpnctl why a/b)\nWARNING: a file expires\n"
        );
        assert_eq!(report(&Health::new(two, fleets)), text);
        let none = Health::silent(Problem::new(Level::Critical, "no vpnd\n  start one"));
        assert_eq!(report(&none), "VPND CRITICAL - no vpnd\nCRITICAL: no vpnd\n  start one\n");
    }
}
