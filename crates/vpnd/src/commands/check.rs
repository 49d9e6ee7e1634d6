//! `vpnd check`

use crate::check;
use crate::commands::{Failure, Run, Session};
use crate::config::Config;
use clap::Args;
use std::process::ExitCode;
use terminal::delegated::PolicyCheck;

/// Checks a policy and prints a description of it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnd check /etc/vpnd/policy.xml
  vpnd check site.xml --config vpnd.toml
  vpnd check site.xml --format json | jq -r '.findings[].message'

If the policy has tunnels with certificates, the certificates and private keys of the configuration are read, too, \
which needs root.

The exit status is 0 if vpnd would run this policy, otherwise 1. Every error is shown with its line and a fix. \
The check needs no privilege and changes nothing.")]
pub struct Check {
    /// The policy and the format of the findings.
    #[command(flatten)]
    arguments: PolicyCheck,
}

impl Run for Check {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        run(&self.arguments, session).or_else(|failure| match failure {
            // A list of errors, as those of a policy.
            Failure::Other(error) => {
                eprintln!("{error}");
                Ok(ExitCode::FAILURE)
            }
            failure => Err(failure),
        })
    }
}

/// Checks a policy and prints what was found.
///
/// # Errors
/// Where the configuration cannot be used.
pub fn run(arguments: &PolicyCheck, session: &mut Session) -> Result<ExitCode, Failure> {
    let PolicyCheck { file, config, lenient, format } = arguments;
    let (config, remark) = Config::find_unprivileged(config.as_deref())?;
    remark.iter().for_each(|remark| eprintln!("{remark}"));
    let outcome = check::check(&check::Request {
        file,
        config: &config,
        lenient: *lenient,
        format: *format,
        colour: session.colour,
    });
    session.text(&outcome.output)?;
    eprint!("{}", outcome.errors);
    Ok(if outcome.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
