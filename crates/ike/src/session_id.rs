//! The name of a session inside one engine.

/// Names a session for as long as the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(pub u64);
