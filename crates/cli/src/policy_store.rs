//! `vpnctl policy …`: its arguments, and what it prints where.

mod access;

use crate::commands::by_vpnd::ByVpnd;
use crate::completions::kinds;
use crate::programs::{self, ProgramError};
use clap::{Args, Subcommand};
use control::client::ClientError;
use control::protocol::{Command, GetPolicy, Objects, PolicyText, PutPolicy, Reply, Stored};
use host::policy_file::{self, PolicyFileError};
use policy::xml::Diagnostics;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::delegated::PolicyCheck;
use terminal::report::{self, Colour};

/// The commands of `vpnctl policy` on the store and on policy files.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Adds the objects of a policy file to the store and puts them in force
    #[command(after_help = "\
Examples:
  vpnctl policy put site.xml
  vpnctl policy put --force site.xml          replaces objects that have the same name
  vpnctl policy put --swap from-the-peer.xml  the file was written for the other side

A file may refer to objects in the store. If it has an error, nothing is changed. Tunnels that it does not \
change stay up. If no vpnd runs, the objects are stored for the next start.")]
    Put(Put),
    /// Prints stored objects as a policy file
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
    /// Deletes all stored objects and all tunnels
    Purge(Purge),
    /// Prints the peer's policy: local and remote identities, keys and roles are exchanged
    #[command(after_help = "\
Examples:
  vpnctl policy mirror site.xml > for-the-peer.xml
  vpnctl policy mirror hub.xml --tunnel branch > for-the-branch.xml")]
    Mirror(Mirror),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Check(ByVpnd<PolicyCheck>),
    /// Shows the changes that a put would make to the store and to tunnels
    #[command(after_help = "\
Examples:
  vpnctl policy diff site.xml
  vpnctl policy diff           the changes of a reload, after the store was edited by hand")]
    Diff(Diff),
}

/// The location of the store.
#[derive(Clone, Debug, Default, Args)]
pub struct Place {
    /// Uses the store in DIR directly; no vpnd may be running from it [default: the store of the running vpnd;
    /// that of /etc/vpnd/vpnd.toml, or /var/lib/vpnd, if none runs]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// The options of a file that is put into the store, or compared with it.
#[derive(Clone, Debug, Args)]
pub struct PutOptions {
    /// Exchanges local and remote sides first, because the file was written for the peer
    #[arg(long)]
    pub swap: bool,
    /// Ignores elements and attributes with unknown names, with a warning; without this option they are errors
    #[arg(long)]
    pub lenient: bool,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// The location of the store.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy put`.
#[derive(Debug, Args)]
pub struct Put {
    /// AIX_VPN XML policy; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replaces objects that have the same name; without this option they are errors
    #[arg(long)]
    pub force: bool,
    /// The options that `put` and `diff` share.
    #[command(flatten)]
    pub put: PutOptions,
}

/// Arguments of `vpnctl policy get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Kind of object: IKEProtection, IKETunnel, IKEPresharedKey, IKEGroup, IPSecProposal, IPSecProtection, IPSecTunnel
    #[arg(long = "type", value_name = "TYPE", add = kinds())]
    pub kind: Option<String>,
    /// Name of the object; that of a preshared key is the remote identity
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Kind of a preshared key's remote identity (for example User_FQDN), if two are written alike
    #[arg(long, value_name = "TYPE")]
    pub id_type: Option<String>,
    /// Also the objects that they refer to, and the phase 2 tunnels of a phase 1 tunnel
    #[arg(long, short)]
    pub recursive: bool,
    /// Leaves preshared keys empty
    #[arg(long)]
    pub hide_keys: bool,
    /// The location of the store.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// Kind of object (for example IPSecTunnel)
    #[arg(long = "type", value_name = "TYPE", add = kinds())]
    pub kind: String,
    /// Name of the object; that of a preshared key is the remote identity
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Kind of a preshared key's remote identity (for example User_FQDN), if two are written alike
    #[arg(long, value_name = "TYPE")]
    pub id_type: Option<String>,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// The location of the store.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy purge`.
#[derive(Debug, Args)]
pub struct Purge {
    /// Confirms the deletion: all tunnels go down
    #[arg(long, required = true)]
    pub yes: bool,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
    /// The location of the store.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `vpnctl policy mirror`.
#[derive(Debug, Args)]
pub struct Mirror {
    /// AIX_VPN XML policy; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only this phase 1 tunnel and its objects: the file for one peer of a hub
    #[arg(long, value_name = "NAME")]
    pub tunnel: Option<String>,
}

/// Arguments of `vpnctl policy diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// AIX_VPN XML policy; - is standard input; none: the store on the disk
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The options that `put` and `diff` share.
    #[command(flatten)]
    pub put: PutOptions,
}

/// A command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The daemon, or the store.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// `vpnd`, which checks policies, and works on the store while no daemon runs, cannot be started.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] PolicyFileError),
    /// The file has errors.
    #[error(transparent)]
    Policy(#[from] Diagnostics),
    /// The output cannot be written.
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
                put.put.run(&put.file, put.force, false, control, out, colour)?;
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
                let mut client = access::open(control, get.place.directory.as_deref())?;
                match client.ask(Command::PolicyGet(wanted))? {
                    Reply::Policy(PolicyText(text)) => out.write_all(text.as_bytes())?,
                    reply => return Err(client.unexpected(&reply).into()),
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
                // The peer's policy follows from the file alone: no store and no daemon is asked.
                let PutPolicy { file, text, .. } = read(&mirror.file)?;
                let mirrored = policy::database::mirror(&file, &text.0, mirror.tunnel.as_deref())?;
                for warning in &mirrored.warnings {
                    eprintln!("{warning}");
                }
                out.write_all(mirrored.database.to_xml().as_bytes())?;
            }
            Self::Check(_) => return Err(programs::become_vpnd().into()),
            Self::Diff(diff) => return diff.run(control, out, colour),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl PutOptions {
    fn run(
        &self,
        file: &Path,
        force: bool,
        dry_run: bool,
        control: &Path,
        out: &mut impl Write,
        colour: Colour,
    ) -> Result<(), CommandError> {
        let Self { swap, lenient, .. } = *self;
        let wanted = PutPolicy { force, swap, lenient, dry_run, ..read(file)? };
        let stored = change(control, &self.place, Command::PolicyPut(wanted))?;
        Ok(print(out, &stored, self.json, colour)?)
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
            self.put.run(file, true, true, control, out, colour)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut client = access::open(control, self.put.place.directory.as_deref())?;
        match client.ask(Command::Reload { dry_run: true, undo_after_seconds: None })? {
            Reply::Reloaded(reloaded) if self.put.json => print_json(out, &reloaded)?,
            Reply::Reloaded(reloaded) => {
                reloaded.warnings.iter().for_each(|warning| eprintln!("{warning}"));
                write!(out, "{}", report::reloaded(&reloaded, colour))?;
            }
            reply => return Err(client.unexpected(&reply).into()),
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

fn change(control: &Path, place: &Place, command: Command) -> Result<Stored, CommandError> {
    let mut client = access::open(control, place.directory.as_deref())?;
    match client.ask(command)? {
        Reply::Stored(stored) => Ok(stored),
        reply => Err(client.unexpected(&reply).into()),
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
