//! `vpnd check`

use crate::check::{self, Format};
use crate::commands::{Failure, Run, Session};
use crate::config::Config;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// AIX_VPN XML policy
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Configuration file with the paths of the certificates; none: the built-in defaults
    /// [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ignores elements and attributes with unknown names, with a warning, instead of refusing the file
    #[arg(long)]
    lenient: bool,
    /// Format of the findings
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

impl Run for Check {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let config = match Config::find_unprivileged(self.config.as_deref()) {
            Ok((config, remark)) => {
                remark.iter().for_each(|remark| eprintln!("{remark}"));
                config
            }
            Err(error) => {
                eprintln!("{error}");
                return Ok(ExitCode::FAILURE);
            }
        };
        let outcome = check::check(&check::Request {
            file: &self.file,
            config: &config,
            lenient: self.lenient,
            format: self.format,
            colour: session.colour,
        });
        session.text(&outcome.output)?;
        eprint!("{}", outcome.errors);
        Ok(if outcome.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
