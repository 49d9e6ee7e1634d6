//! Commands that need the engine, which `vpnctl` does not have: it becomes `vpnd vpnctl`, which carries them out.

use super::session::{Failure, Run, Session};
use crate::programs;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::process::ExitCode;
use terminal::delegated;

/// `vpnctl support`
pub type Support = ByVpnd<delegated::Support>;

/// A command with these arguments. They are read here for the sake of help and errors, and again there.
#[derive(Debug)]
pub struct ByVpnd<A>(A);

impl<A> Run for ByVpnd<A> {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        Err(programs::become_vpnd().into())
    }
}

impl<A: FromArgMatches> FromArgMatches for ByVpnd<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: Args> Args for ByVpnd<A> {
    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}
