//! The session of one command, and how the errors of this crate end one.

pub use terminal::session::{Failure, Run, Session};

terminal::failures! {
    crate::aix::links::LinkError,
    crate::convert::ConvertError,
    crate::pki::PkiError,
    crate::policy_new::NewError,
    crate::policy_store::CommandError { client: Client, output: Output },
    crate::probe::ProbeError,
    crate::programs::ProgramError,
    crate::top::TopError { client: Client, output: Terminal },
}

/// Asks the daemon and takes the one kind of reply that fits; any other is a failure.
macro_rules! answer {
    ($session:expr, $ask:expr, $kind:ident) => {
        match $session.ask($ask)? {
            control::protocol::Reply::$kind(value) => value,
            reply => return Err($session.unexpected(&reply)),
        }
    };
}
pub(super) use answer;
