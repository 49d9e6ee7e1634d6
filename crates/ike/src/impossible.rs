//! The one way in which code says that a branch cannot be reached.
//!
//! Such a branch would be a bug of this crate, not a peer's doing: no message may lead there. A debug build stops; a
//! release build counts it as `bug`, logs the place as an error, and leaves the function without doing anything.
//! Branches that a peer, an operator or the passing of time can lead to are early returns with a reason: a
//! [`Discard`](crate::discard::Discard), a failure, or a comment.

/// Leaves a function whose present branch cannot be reached, with the default value. The arguments are the engine's
/// outputs and the reason why it cannot be reached.
macro_rules! impossible {
    ($out:expr, $why:expr) => {{
        $out.bug($why);
        return Default::default();
    }};
}

pub(crate) use impossible;
