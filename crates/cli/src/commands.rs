//! The commands of `vpnctl`.
//!
//! ```text
//! Arguments ── Command ── Run::run(&self, session) ── Session ── control::Client ── vpnd
//!              (the table below)                      prints text or JSON
//! ```
//!
//! A new command is a file with its arguments and its [`Run`], and a line in the table of [`Command`].

use clap::Subcommand;
use std::process::ExitCode;

pub use session::{Failure, Run, Session};

mod activate;
mod aix_links;
mod certs;
mod counters;
mod crypto;
mod deactivate;
mod events;
mod experiment;
mod filter;
mod list;
mod log;
mod offload;
mod policy;
mod rekey;
mod reload;
mod resync;
mod session;
mod status;
mod stop;
mod top;
mod trace;
mod why;
mod workers;
mod xfrm;

/// Makes [`Command`] of the table of commands: the name of a variant is the command's name, its help is its type's.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($module:ident :: $arguments:ident),)*) => {
        /// A command of `vpnctl` with its arguments.
        #[derive(Debug, Subcommand)]
        #[allow(missing_docs)]
        pub enum Command {
            $($(#[$attribute])* $name($module::$arguments),)*
            #[command(flatten)]
            Shell(crate::shell::ShellCommand),
        }

        impl Run for Command {
            fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
                match self {
                    $(Self::$name(command) => command.run(session),)*
                    Self::Shell(command) => {
                        command.run((session.arguments)(), &mut session.out)?;
                        Ok(ExitCode::SUCCESS)
                    }
                }
            }
        }
    };
}

// The order of `vpnctl --help`.
commands! {
    Activate(activate::Activate),
    Deactivate(deactivate::Deactivate),
    List(list::List),
    Status(status::Status),
    Trace(trace::Trace),
    Filter(filter::Filter),
    Top(top::Top),
    Why(why::Why),
    Events(events::Events),
    Rekey(rekey::Rekey),
    Reload(reload::Reload),
    Log(log::Log),
    Counters(counters::Counters),
    Workers(workers::Workers),
    Certs(certs::Certs),
    Policy(policy::Policy),
    Crypto(crypto::Crypto),
    Experiment(experiment::Experiment),
    AixLinks(aix_links::AixLinks),
    Offload(offload::Offload),
    Xfrm(xfrm::Xfrm),
    Resync(resync::Resync),
    Stop(stop::Stop),
}
