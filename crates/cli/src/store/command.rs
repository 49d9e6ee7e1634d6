//! `vpnctl policy …`: its arguments, and what it prints where.

use super::Access;
use crate::check;
use crate::config::{Config, ConfigError};
use crate::policy_file::{self, PolicyFileError};
use crate::report::{self, Colour};
use clap::{Args, Subcommand};
use control::client::ClientError;
use control::protocol::{Command, GetPolicy, Objects, PolicyText, PutPolicy, Reply, Stored};
use policy::xml::Diagnostics;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What can be done with policies, stored or not.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Puts the objects of a policy file into the store, and in force
    #[command(after_help = "\
Examples:
  vpnctl policy put site.xml
  vpnctl policy put --force site.xml          replaces what has the same names
  vpnctl policy put --swap from-the-peer.xml  the file was written for the other side

A file may refer to objects that are in the store. All of it is put, or, if it has an error, nothing.
Tunnels that it does not change stay up. Where no vpnd runs, it is stored for the next start.")]
    Put(Put),
    /// Prints what is stored, as a policy file that reads back to the same
    #[command(after_help = "\
Examples:
  (umask 077; vpnctl policy get > backup.xml)
  vpnctl policy get --hide-keys
  vpnctl policy get --type IKETunnel --name site --recursive")]
    Get(Get),
    /// Deletes an object that nothing refers to
    #[command(after_help = "\
Examples:
  vpnctl policy delete --type IPSecTunnel --name site_lan
  vpnctl policy delete --type IKEPresharedKey --name 192.0.2.2")]
    Delete(Delete),
    /// Deletes everything that is stored, and all tunnels
    Purge(Purge),
    /// Prints the policy of the other side: identities, keys and roles exchanged
    #[command(after_help = "\
Examples:
  vpnctl policy mirror site.xml > for-the-peer.xml
  vpnctl policy mirror hub.xml --tunnel branch > for-the-branch.xml")]
    Mirror(Mirror),
    /// Validates a policy file and prints it as understood, as vpnd check does
    Check(Check),
    /// Says what a put would change in the store and for tunnels, without changing it
    #[command(after_help = "\
Examples:
  vpnctl policy diff site.xml
  vpnctl policy diff           what a reload would change, where the store was edited by hand")]
    Diff(Diff),
}

/// Where the store is.
#[derive(Clone, Debug, Default, Args)]
pub struct Place {
    /// Works on the store in DIR itself, from which no vpnd may be running [default: asks vpnd, or, where none runs,
    /// works on /var/lib/vpnd]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Arguments of `vpnctl policy put`.
#[derive(Debug, Args)]
pub struct Put {
    /// AIX_VPN XML policy; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replaces objects of the same names; without it they are errors
    #[arg(long)]
    pub force: bool,
    /// Exchanges local and remote first, with keys and roles: the file is the peer's
    #[arg(long)]
    pub swap: bool,
    /// Leaves out elements and attributes of unknown names, with a warning; without it they are errors
    #[arg(long)]
    pub lenient: bool,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// Where the store is.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Kind of object: IKEProtection, IKETunnel, IKEPresharedKey, IKEGroup, IPSecProposal, IPSecProtection, IPSecTunnel
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Name of the object; that of a preshared key is the remote identity
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Kind of a preshared key's remote identity, as in User_FQDN, where two are written alike
    #[arg(long, value_name = "TYPE")]
    pub id_type: Option<String>,
    /// Also all they refer to, and what a phase 1 tunnel carries
    #[arg(long, short)]
    pub recursive: bool,
    /// Leaves preshared keys empty
    #[arg(long)]
    pub hide_keys: bool,
    /// Where the store is.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// Kind of object, as in IPSecTunnel
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: String,
    /// Name of the object; that of a preshared key is the remote identity
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Kind of a preshared key's remote identity, as in User_FQDN, where two are written alike
    #[arg(long, value_name = "TYPE")]
    pub id_type: Option<String>,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// Where the store is.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy purge`.
#[derive(Debug, Args)]
pub struct Purge {
    /// Means it: all tunnels go down
    #[arg(long, required = true)]
    pub yes: bool,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// Where the store is.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy mirror`.
#[derive(Debug, Args)]
pub struct Mirror {
    /// AIX_VPN XML policy; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only this phase 1 tunnel, with all that belongs to it: each peer of a hub has a file of its own
    #[arg(long, value_name = "NAME")]
    pub tunnel: Option<String>,
}

/// Arguments of `vpnctl policy check`.
#[derive(Debug, Args)]
pub struct Check {
    /// AIX_VPN XML policy; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Configuration of vpnd that says where certificates are; without it, the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Warns of elements and attributes with unknown names, and leaves them out, instead of refusing the file
    #[arg(long)]
    pub lenient: bool,
    /// How findings are printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: check::Format,
}

/// Arguments of `vpnctl policy diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// AIX_VPN XML policy; - is standard input; none: the store as it is on the disk
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Exchanges local and remote first, with keys and roles: the file is the peer's
    #[arg(long)]
    pub swap: bool,
    /// Leaves out elements and attributes of unknown names, with a warning; without it they are errors
    #[arg(long)]
    pub lenient: bool,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// Where the store is.
    #[command(flatten)]
    pub place: Place,
}

/// A command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The daemon, or the store.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] PolicyFileError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file has errors.
    #[error(transparent)]
    Policy(#[from] Diagnostics),
    /// What comes of it cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl StoreCommand {
    /// Carries the command out and prints what comes of it: results to `out`, remarks to standard error.
    ///
    /// # Errors
    /// As [`CommandError`].
    pub fn run(
        &self,
        control: &Path,
        out: &mut impl Write,
        colour: Colour,
    ) -> Result<ExitCode, CommandError> {
        match self {
            Self::Put(put) => {
                let Put { force, swap, lenient, .. } = *put;
                let wanted = PutPolicy { force, swap, lenient, ..read(&put.file)? };
                let stored = change(control, &put.place, Command::PolicyPut(wanted))?;
                print(out, &stored, put.json, colour)?;
            }
            Self::Get(get) => {
                let wanted = GetPolicy {
                    objects: Objects {
                        kind: get.kind.clone(),
                        name: get.name.clone(),
                        id_type: get.id_type.clone(),
                    },
                    recursive: get.recursive,
                    keys: !get.hide_keys,
                };
                let mut access = Access::open(control, get.place.directory.as_deref())?;
                match access.ask(Command::PolicyGet(wanted))? {
                    Reply::Policy(PolicyText(text)) => out.write_all(text.as_bytes())?,
                    reply => return Err(access.unexpected(&reply).into()),
                }
            }
            Self::Delete(delete) => {
                let objects = Objects {
                    kind: Some(delete.kind.clone()),
                    name: Some(delete.name.clone()),
                    id_type: delete.id_type.clone(),
                };
                let stored = change(control, &delete.place, Command::PolicyDelete(objects))?;
                print(out, &stored, delete.json, colour)?;
            }
            Self::Purge(purge) => {
                let stored = change(control, &purge.place, Command::PolicyPurge)?;
                print(out, &stored, purge.json, colour)?;
            }
            Self::Mirror(mirror) => {
                let PutPolicy { file, text, .. } = read(&mirror.file)?;
                let mirrored = policy::database::mirror(&file, &text.0, mirror.tunnel.as_deref())?;
                for warning in &mirrored.warnings {
                    eprintln!("{warning}");
                }
                out.write_all(mirrored.database.to_xml().as_bytes())?;
            }
            Self::Check(check) => return check.run(out, colour),
            Self::Diff(diff) => return diff.run(control, out, colour),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Check {
    fn run(&self, out: &mut impl Write, colour: Colour) -> Result<ExitCode, CommandError> {
        let config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        let Self { file, lenient, format, .. } = self;
        let (lenient, format) = (*lenient, *format);
        let request = check::Request { file, config: &config, lenient, format, colour };
        let outcome = check::check(&request);
        write!(out, "{}", outcome.output)?;
        eprint!("{}", outcome.errors);
        Ok(if outcome.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Diff {
    fn run(
        &self,
        control: &Path,
        out: &mut impl Write,
        colour: Colour,
    ) -> Result<ExitCode, CommandError> {
        if let Some(file) = &self.file {
            let wanted = PutPolicy {
                force: true,
                swap: self.swap,
                lenient: self.lenient,
                dry_run: true,
                ..read(file)?
            };
            let stored = change(control, &self.place, Command::PolicyPut(wanted))?;
            print(out, &stored, self.json, colour)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut access = Access::open(control, self.place.directory.as_deref())?;
        match access.ask(Command::Reload { dry_run: true })? {
            Reply::Reloaded(reloaded) if self.json => print_json(out, &reloaded)?,
            Reply::Reloaded(reloaded) => {
                reloaded.warnings.iter().for_each(|warning| eprintln!("{warning}"));
                write!(out, "{}", report::reloaded(&reloaded, colour))?;
            }
            reply => return Err(access.unexpected(&reply).into()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a file that is to be put; whether it is a policy is for the reader to say.
fn read(path: &Path) -> Result<PutPolicy, PolicyFileError> {
    let file = policy_file::text(path)?;
    file.warning.iter().for_each(|warning| eprintln!("{warning}"));
    Ok(PutPolicy { file: file.name, text: PolicyText(file.text), ..PutPolicy::default() })
}

fn change(control: &Path, place: &Place, command: Command) -> Result<Stored, ClientError> {
    let mut access = Access::open(control, place.directory.as_deref())?;
    match access.ask(command)? {
        Reply::Stored(stored) => Ok(stored),
        reply => Err(access.unexpected(&reply)),
    }
}

fn print(out: &mut impl Write, stored: &Stored, json: bool, colour: Colour) -> io::Result<()> {
    if json {
        return print_json(out, stored);
    }
    stored.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let remarks = stored.reloaded.iter().flat_map(|reloaded| &reloaded.warnings);
    remarks.for_each(|warning| eprintln!("{warning}"));
    write!(out, "{}", report::stored(stored, colour))
}

fn print_json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
