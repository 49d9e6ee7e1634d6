//! `vpnctl probe`

use super::session::{Failure, Run, Session, answer};
use crate::probe::{self, Plan, ProbeError};
use clap::Args;
use control::protocol::{Child, Command as Ask, Reply};
use host::Routes;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;
use terminal::shell::tunnel_names;

/// Sends packets of several sizes through a tunnel that is up: who answers, how large they may be, how many are lost
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl probe site
  vpnctl probe site_lan --to 10.2.0.7 --count 20

The packets are echo requests (ping) with Don't Fragment, from an address of this host. They need root. The exit status \
is 1 if no answer comes, or if large packets vanish while small ones pass.")]
pub struct Probe {
    /// Phase 1 or phase 2 tunnel
    #[arg(add = tunnel_names())]
    pub name: String,
    /// Number of small packets
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub count: u32,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=60))]
    pub timeout: u64,
    /// Destination, within the remote traffic; default: an address there that answers
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<IpAddr>,
    /// Source, an address of this host within the local traffic; default: the first such address
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Probe {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let children = children(session, &self.name)?;
        let own = Routes::open().and_then(|mut routes| routes.own());
        let own = own.map_err(|error| {
            Failure::Other(format!("the addresses of this host cannot be listed: {error}").into())
        })?;
        let plan = Plan {
            from: self.from,
            to: self.to,
            count: self.count,
            timeout: Duration::from_secs(self.timeout),
        };
        let mut refused = None;
        for child in &children {
            let probed = probe::probe(child, &plan, &own, &mut || self.after(session, &child.name));
            match probed {
                Ok(probed) => {
                    session.show(self.json, &probed, probe::probed)?;
                    let bad = probed.findings.iter().any(|finding| {
                        ["no_answer", "mtu_black_hole"].contains(&finding.kind.as_str())
                    });
                    return Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS });
                }
                // Another phase 2 tunnel may have the ends.
                Err(ProbeError::Ends(none)) => refused = refused.or(Some(ProbeError::Ends(none))),
                Err(error) => return Err(error.into()),
            }
        }
        Err(refused.map_or_else(
            || Failure::Other(format!("{} has no phase 2 tunnel", self.name).into()),
            Failure::from,
        ))
    }
}

impl Probe {
    /// The tunnel's state after the packets.
    fn after(&self, session: &mut Session, child: &str) -> Option<Child> {
        let asked = session.client().ok()?.ask(Ask::Status { name: child.to_owned() }).ok()?;
        let Reply::Tunnels(tunnels) = asked else { return None };
        tunnels.into_iter().flat_map(|tunnel| tunnel.children).find(|c| c.name == child)
    }
}

fn children(session: &mut Session, name: &str) -> Result<Vec<Child>, Failure> {
    let tunnels = answer!(session, Ask::Status { name: name.to_owned() }, Tunnels);
    Ok(tunnels.into_iter().flat_map(|tunnel| tunnel.children).collect())
}
