//! The health of a gateway, for programs that watch it: a level, and the problems behind it.
//!
//! All of it follows from answers of the control protocol.

mod judgement;
mod nagios;

use control::protocol::{Fleet, Overview, Tunnel};
use judgement::{of_daemon, of_tunnel};
pub use nagios::report;
use serde::Serialize;

/// The level of a problem, or the worst one of all. In the order of exit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// There is no problem.
    Ok,
    /// Packets pass, or nobody has asked for the tunnel; somebody should look at it.
    Warning,
    /// Packets do not pass, or are not protected.
    Critical,
    /// The health could not be determined.
    Unknown,
}

impl Level {
    /// The exit status, as monitoring systems read it.
    pub fn exit_status(self) -> u8 {
        self as u8
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub level: Level,
    /// The phase 1 or phase 2 tunnel that has it; `null`: the daemon.
    pub tunnel: Option<String>,
    /// For people.
    pub message: String,
}

impl Problem {
    /// A problem of the daemon.
    pub fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, tunnel: None, message: message.into() }
    }
}

/// The health of a gateway, or of one of its tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The level of the worst problem.
    pub status: Level,
    /// The exit status.
    pub exit_status: u8,
    /// One line for people.
    pub summary: String,
    /// Phase 1 tunnels; `null`: the daemon did not tell.
    pub tunnels: Option<Fleet>,
    /// Phase 2 tunnels; `null`: the daemon did not tell.
    pub children: Option<Fleet>,
    /// The problems, the worst ones first.
    pub problems: Vec<Problem>,
}

impl Health {
    /// The health by what a daemon tells of these tunnels and, unless only one of them is of interest, of itself.
    pub fn of(tunnels: &[Tunnel], daemon: Option<&Overview>) -> Self {
        let mut problems: Vec<Problem> = daemon.map(of_daemon).unwrap_or_default();
        problems.extend(tunnels.iter().flat_map(of_tunnel));
        let phase1 =
            Fleet { defined: tunnels.len(), up: tunnels.iter().filter(|t| t.is_up()).count() };
        let children = tunnels.iter().flat_map(|tunnel| &tunnel.children);
        let phase2 =
            Fleet { defined: children.clone().count(), up: children.filter(|c| c.is_up()).count() };
        Self::new(problems, Some([phase1, phase2]))
    }

    /// The health of a gateway that told nothing.
    pub fn silent(problem: Problem) -> Self {
        Self::new(vec![problem], None)
    }

    fn new(mut problems: Vec<Problem>, fleets: Option<[Fleet; 2]>) -> Self {
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.level));
        let status = problems.first().map_or(Level::Ok, |problem| problem.level);
        let [tunnels, children] = fleets.map_or([None; 2], |fleets| fleets.map(Some));
        let summary = match (problems.as_slice(), children) {
            ([], Some(Fleet { defined, up })) => format!("{up} of {defined} phase 2 tunnels up"),
            ([], None) => String::new(),
            ([first, more @ ..], _) => {
                // The rest of a message is advice.
                let first = first.message.lines().next().unwrap_or_default();
                match more.len() {
                    0 => first.to_owned(),
                    1 => format!("{first}; and 1 more problem"),
                    more => format!("{first}; and {more} more problems"),
                }
            }
        };
        Self { status, exit_status: status.exit_status(), summary, tunnels, children, problems }
    }
}
