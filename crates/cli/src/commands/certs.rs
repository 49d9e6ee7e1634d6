//! `vpnctl certs`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::io::Write;
use std::process::ExitCode;
use terminal::report;

const NONE: &str = "\
No certificate is loaded.
  Make certificates with: vpnctl pki init
  Put them below /etc/vpnd as docs/operate/certificates.md describes, then: vpnctl reload";

/// Lists certificates, authorities and revocation lists with their expiry
#[derive(Debug, Args)]
pub struct Certs {
    /// Prints a JSON array; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Certs {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let found = answer!(session, Ask::Certs, Certificates);
        session.show(self.json, &found, |all, colour| report::certificates(all, colour))?;
        if found.is_empty() && !self.json {
            session.out.flush()?;
            eprintln!("{NONE}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
