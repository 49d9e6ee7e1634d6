//! `vpnctl xfrm`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Prints the daemon's SAs and policies in the kernel as ip xfrm commands that would create them
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  vpnctl xfrm | grep ' state '

Each line is a command, without keys. ip xfrm refuses commands that it cannot express (masks of ports; packet offload in old versions).")]
pub struct Xfrm {
    /// Includes the keys; works only if vpnd runs with --insecure-export-keys
    #[arg(long)]
    pub keys: bool,
}

impl Run for Xfrm {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let commands = answer!(session, Ask::Xfrm { keys: self.keys }, Xfrm);
        session.text(&commands)?;
        Ok(ExitCode::SUCCESS)
    }
}
