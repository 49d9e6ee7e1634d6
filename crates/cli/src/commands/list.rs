//! `vpnctl list`

use super::session::{Failure, Run, Session};
use clap::Args;
use control::client::{ClientError, Page, Pages};
use control::protocol::{Command as Ask, ManualSaInfo, RefusalCode, Reply, Tunnel};
use std::io::Write;
use std::process::ExitCode;
use terminal::report;

/// Lists the tunnels that are up or being negotiated
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl list
  vpnctl list --all --verbose
  vpnctl list --json | jq -r '.[].name'

A row has the tunnel's state, both ends of its traffic, the time since it came up, the time to the next rekey, and \
the octets received and sent. Where a peer has agreed to less traffic than this side asked for, the asked traffic stands \
behind the agreed one. If a row does not fit on 100 columns, a part of it stands on the lines below. \
Algorithms are shown with --verbose. Very many tunnels are printed as they are read, and each part of the table has the \
names of the columns above it.")]
pub struct List {
    /// Also tunnels that are defined but down
    #[arg(long)]
    pub all: bool,
    /// All details: identities, algorithms, remaining lifetimes, packets
    #[arg(long, short)]
    pub verbose: bool,
    /// Prints a JSON array; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for List {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let mut pages = Pages::new(self.all);
        if self.json {
            json(session, &mut pages)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut is_empty = true;
        while let Some(Page { tunnels, continues }) = pages.read(session.client()?)? {
            is_empty &= tunnels.is_empty();
            let part = report::Part { tunnels: &tunnels, continues };
            // A table without rows is printed only if it is the whole list.
            let is_shown = !tunnels.is_empty() || (is_empty && pages.is_at_end());
            if self.verbose {
                session.text(&report::verbose(part, session.colour))?;
            } else if is_shown {
                session.text(&report::list(part, session.colour))?;
            }
        }
        if !self.verbose {
            let by_hand = manual_sas(session)?;
            if !by_hand.is_empty() {
                session.text(&format!("\n{}", report::manual(&by_hand, session.colour)))?;
                is_empty = false;
            }
        }
        if is_empty {
            session.out.flush()?;
            eprintln!("{}", self.hint());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints an array with an element for each phase 1 tunnel, as soon as all its phase 2 tunnels are known.
fn json(session: &mut Session, pages: &mut Pages) -> Result<(), Failure> {
    let (mut known, mut between) = (Vec::new(), "[\n");
    loop {
        let page = pages.read(session.client()?)?;
        let is_last = page.is_none();
        page.into_iter().for_each(|page| page.join(&mut known));
        // The next page may have more of the last one.
        let open = if is_last { None } else { known.pop() };
        for tunnel in known.drain(..) {
            session.text(&format!("{between}  {}", element(&tunnel)?))?;
            between = ",\n";
        }
        known.extend(open);
        if is_last {
            return Ok(session.text(if between == "[\n" { "[]\n" } else { "\n]\n" })?);
        }
    }
}

/// An element of an array, with the indentation that [`Session::json`] gives it.
fn element(tunnel: &Tunnel) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(tunnel).map_err(std::io::Error::from)?;
    // A line break within a string is escaped.
    Ok(text.replace('\n', "\n  "))
}

impl List {
    /// The advice about an empty table. It goes to standard error: programs read the table.
    fn hint(&self) -> &'static str {
        match self.all {
            true => NO_TUNNEL,
            false => NONE_UP,
        }
    }
}

const NONE_UP: &str = "\
No tunnel is up.
  vpnctl list --all   shows the tunnels of the policy
  vpnctl activate     starts them";

const NO_TUNNEL: &str = "\
The policy has no tunnel.
  Define one as docs/operate/policy.md describes, and load it with: vpnctl reload
  To see a tunnel work first: vpnd demo";

/// The SAs that are keyed by hand; none where the daemon is older than the question.
fn manual_sas(session: &mut Session) -> Result<Vec<ManualSaInfo>, Failure> {
    match session.client()?.ask(Ask::ManualSas) {
        Ok(Reply::ManualSas(sas)) => Ok(sas),
        Ok(reply) => Err(session.unexpected(&reply)),
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownCommand => {
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}
