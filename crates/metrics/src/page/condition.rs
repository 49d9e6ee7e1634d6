//! The four conditions by which the page sorts tunnels.

use ike::status::State;

/// The condition of a tunnel: its state, as far as it decides whether somebody has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// Packets pass, as far as the two gateways are concerned.
    Up,
    /// It is negotiated for the first time.
    Negotiating,
    /// Both gateways have the SA, but a part of the data plane is missing.
    Blocked,
    /// It has no SA, or is about to have none.
    Down,
}

impl Condition {
    /// All conditions, in the order of the page.
    pub const ALL: [Self; 4] = [Self::Up, Self::Negotiating, Self::Blocked, Self::Down];

    /// The condition of a tunnel in this state.
    pub fn of(state: State) -> Self {
        match state {
            State::Established | State::Rekeying => Self::Up,
            State::Negotiating => Self::Negotiating,
            State::Blocked => Self::Blocked,
            State::Down | State::Closing => Self::Down,
        }
    }

    /// The condition with this name; `None`: there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|condition| condition.name() == name)
    }

    /// Its place in [`Condition::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Negotiating => "negotiating",
            Self::Blocked => "blocked",
            Self::Down => "down",
        }
    }
}
