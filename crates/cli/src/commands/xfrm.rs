//! `vpnctl xfrm`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Prints the daemon's SAs and policies in the kernel as commands of ip xfrm that would put them there
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  vpnctl xfrm | grep ' state '

Each line is a command, keys left out. What ip xfrm cannot say (masks of ports, packet offload in old versions) it refuses.")]
pub struct Xfrm {
    /// With keys, which a daemon tells that was started with --insecure-export-keys
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
