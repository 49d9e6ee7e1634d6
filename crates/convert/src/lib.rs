//! Configurations of other IPsec daemons become policies: strongSwan's swanctl.conf, and ipsec.conf of strongSwan and of
//! libreswan.
//!
//! ```text
//! swanctl.conf ── swanctl ──┐
//!                           ├─▶ draft ── assemble ─▶ policy::Policy ── write ─▶ AIX_VPN XML
//! ipsec.conf ──── ipsec ────┘      │         │
//! ipsec.secrets ─ keys ─────┘      └─ settings ─▶ lines for vpnd.toml
//!                                  every setting that is not taken over ─▶ Finding
//! ```
//!
//! A reader turns a file into drafts that keep the words of the file and their lines; `assemble` makes tunnels of them;
//! `write` makes the document. Every setting of a file ends up in the document, in the lines for `vpnd.toml`, or in a
//! [`Finding`]: none is dropped in silence.
//!
//! # Example
//!
//! ```
//! use convert::source::{Disk, File};
//! use convert::{Format, Options, convert};
//!
//! let text = "connections {
//!   site {
//!     local_addrs = 192.0.2.1
//!     remote_addrs = 192.0.2.2
//!     local { auth = psk }
//!     remote { auth = psk }
//!     children { lan { local_ts = 10.1.0.0/16
//!                      remote_ts = 10.2.0.0/16 } }
//!   }
//! }
//! secrets { ike-site { secret = \"not a good one\" } }
//! ";
//! let file = File { name: "swanctl.conf".into(), text: text.to_owned().into() };
//! let converted = convert(Format::Swanctl, file, None, &mut Disk::default(), &Options::default())?;
//! assert_eq!(converted.tunnels, (1, 1));
//! # Ok::<(), convert::Finding>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is an option of swanctl.conf read, and its syntax? | `swanctl.rs`, `swanctl/` |
//! | Where is an option of ipsec.conf read, and its syntax? | `ipsec.rs`, `ipsec/` |
//! | Which daemon is an ipsec.conf for, and which defaults has that daemon? | `dialect.rs`, `proposal/defaults.rs` |
//! | What becomes of a setting that has no counterpart? | `finding.rs`, `gap.rs` |
//! | How are files opened, and included ones followed? | `source.rs`, `include.rs` |
//! | Where are values translated? | `proposal.rs`, `identity.rs`, `traffic.rs`, `quantity.rs` |
//! | Where do drafts become tunnels, and which side becomes local? | `draft.rs`, `assemble.rs`, `place.rs` |
//! | Where are preshared keys found for a connection? | `keys.rs` |
//! | Which settings go into vpnd.toml? | `settings.rs`, `kernel.rs` |
//! | In which order do tunnels stand? | `order.rs` |
//! | How is the document written, and what if it would be refused? | `write.rs`, `sound.rs` |
//! | What does `vpnctl policy convert` print, and where are samples? | `crates/cli/src/convert.rs`, `crates/vpnd/tests/convert/` |
#![forbid(unsafe_code)]

pub mod finding;
pub mod source;

mod assemble;
mod dialect;
mod draft;
mod gap;
mod identity;
mod include;
mod ipsec;
mod kernel;
mod keys;
mod order;
mod place;
mod proposal;
mod quantity;
mod settings;
mod sound;
mod swanctl;
mod traffic;
mod write;

use assemble::Assembled;
use dialect::Dialect;
use finding::Report;
pub use finding::{Finding, Loss};
use source::{File, Files, Location};
use std::net::IpAddr;
use zeroize::Zeroizing;

/// The configuration a file is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// swanctl.conf of strongSwan
    Swanctl,
    /// ipsec.conf; the file shows whether strongSwan or libreswan reads it
    Ipsec,
    /// ipsec.conf of strongSwan
    Strongswan,
    /// ipsec.conf of libreswan
    Libreswan,
}

impl Format {
    /// Guesses the format of a file: swanctl.conf has sections in braces, ipsec.conf words at the beginning of lines.
    pub fn of(text: &str) -> Self {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let braced = lines.clone().any(|line| line.trim_end().ends_with('{'));
        let sectioned = lines.into_iter().any(|line| {
            let mut words = line.split_ascii_whitespace();
            matches!(words.next(), Some("conn" | "config" | "ca")) && words.next().is_some()
        });
        if sectioned && !braced { Self::Ipsec } else { Self::Swanctl }
    }
}

/// Options of a conversion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The address of this side, where a file leaves it to the routes or does not say which side this is.
    pub local_address: Option<IpAddr>,
    /// The policy is for the other end.
    pub peer: bool,
}

/// A policy made of another configuration.
#[derive(Debug)]
pub struct Converted {
    /// The document, with its keys.
    pub xml: Zeroizing<String>,
    /// The lines for vpnd.toml; may be empty.
    pub settings: String,
    /// Settings that are missing or different in the document, in the order of the files.
    pub findings: Vec<Finding>,
    /// The daemon for whose file it was taken, and the word that shows it; `None` if that was said.
    pub read_as: Option<String>,
    /// Phase 1 and phase 2 tunnels in the document.
    pub tunnels: (usize, usize),
}

impl Converted {
    /// Returns `true` if the policy has no tunnel.
    pub fn is_empty(&self) -> bool {
        self.tunnels.0 == 0
    }

    /// Returns `true` if a tunnel of the file is missing, has a mistake, or no longer does what it did by itself.
    pub fn is_incomplete(&self) -> bool {
        self.findings.iter().any(|finding| finding.loss.is_failure())
    }

    /// Every finding, with an empty line at the end if there are any.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text.push_str(&format!("{finding}\n"));
        }
        if !self.findings.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The numbers of tunnels made and of settings lost, in one line.
    pub fn summary(&self) -> String {
        let (ike, children) = self.tunnels;
        let mut text =
            format!("{}, {}", counted(ike, "phase 1 tunnel"), counted(children, "phase 2 tunnel"));
        let losses = [
            (Loss::LeftOut, "left out"),
            (Loss::FunctionLost, "function lost"),
            (Loss::Dropped, "not carried over"),
            (Loss::Changed, "changed"),
            (Loss::NeverUsed, "never used"),
        ];
        for (loss, name) in losses {
            let count = self.findings.iter().filter(|finding| finding.loss == loss).count();
            if count > 0 {
                let name = match (loss, count) {
                    (Loss::FunctionLost, 2..) => "functions lost",
                    _ => name,
                };
                text.push_str(&format!(", {count} {name}"));
            }
        }
        if let Some(read_as) = &self.read_as {
            text.push_str(&format!("; {read_as}"));
        }
        text
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Converts a file, with what it includes and, of ipsec.conf, the file of its secrets.
///
/// # Errors
/// The line of the first mistake, if a file cannot be read as its format.
pub fn convert(
    format: Format,
    file: File,
    secrets: Option<File>,
    files: &mut dyn Files,
    options: &Options,
) -> Result<Converted, Finding> {
    let mut report = Report::default();
    let named = file.name.clone();
    let place = Location { file: named.clone(), line: 0 };
    let mut draft = match format {
        Format::Swanctl => swanctl::read(file, files, &mut report)?,
        Format::Ipsec => ipsec::read(file, None, files, &mut report)?,
        Format::Strongswan => ipsec::read(file, Some(Dialect::Strongswan), files, &mut report)?,
        Format::Libreswan => ipsec::read(file, Some(Dialect::Libreswan), files, &mut report)?,
    };
    if let Some(secrets) = secrets {
        draft.keys.extend(ipsec::secrets(secrets, draft.dialect, files, &mut report)?);
    }
    let Assembled { policy, places, mut kernel } = assemble::policy(&draft, options, &mut report);
    // A policy that the reader refuses must not look converted.
    let policy = sound::sound(policy, &places, &place, &mut report);
    kernel.retain(|(name, _)| {
        policy.tunnels.iter().flat_map(|tunnel| &tunnel.children).any(|child| child.name == *name)
    });
    order::report_shadowed(&policy, &kernel::bindings(&kernel), &places, &mut report);
    let settings = settings::write(&draft, &kernel, &mut report);
    let body = write::policy(&policy);
    let findings = report.into_findings();
    let children = policy.tunnels.iter().map(|tunnel| tunnel.children.len()).sum();
    let mut xml = Zeroizing::new(String::with_capacity(body.len() + 4096));
    write::document(&mut xml, &named, &findings, options, &body);
    let tunnels = (policy.tunnels.len(), children);
    Ok(Converted { xml, settings, findings, read_as: draft.read_as, tunnels })
}
