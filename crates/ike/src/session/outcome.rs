//! The facts that a session leaves behind when it is over.

use crate::effect::Lost;

/// The cause of a session's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer does not answer any more, or knows nothing of it.
    Unanswered,
    /// The peer's Delete.
    ByPeer,
    /// This side.
    #[default]
    Otherwise,
}

/// The traces that a session leaves when it is over.
#[derive(Default)]
pub(crate) struct Outcome {
    pub ending: Ending,
    /// The phase 2 tunnels that were up when it ended.
    pub lost: Vec<Lost>,
    /// The phase 2 tunnels that could not be set up before it ended.
    pub failed: Vec<String>,
    /// Phase 2 tunnels that are to be set up again.
    pub(super) reconnect: Vec<String>,
}
