//! `vpnctl trace`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report;

/// Traces a packet: shows the rule, the tunnel and the SA that it would match, without sending it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl trace tcp 10.1.0.5:40000 10.2.0.7:443
  vpnctl trace 'udp [fd01::5]:53 > [fd02::7]:53'
  vpnctl trace icmp 10.1.0.5 10.2.0.7                   echo-request
  vpnctl trace icmp 10.1.0.5 10.2.0.7 3/4               another type, by name or number, with its code
  vpnctl trace udp 10.1.0.5 10.2.0.7 fragment           a later fragment, which has no ports
  vpnctl trace 47 10.1.0.5 10.2.0.7                     another protocol

No packet is sent: the daemon looks this one up in its tables as it does with every packet.")]
pub struct Trace {
    /// Protocol, source and destination, and for ICMP the type, if it is not echo-request
    #[arg(required = true)]
    pub packet: Vec<String>,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Trace {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let found = answer!(session, Ask::Trace { packet: self.packet.join(" ") }, Trace);
        session.show(self.json, &found, report::trace)?;
        Ok(ExitCode::SUCCESS)
    }
}
