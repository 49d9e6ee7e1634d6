//! `vpnctl sa`
#![allow(rustdoc::broken_intra_doc_links, reason = "[[sa]] in the help is a table of TOML")]

use super::session::{Failure, Run, Session, answer};
use crate::report;
use crate::sa_file::{Mirrored, inlined, mirror_file, read_tables};
use clap::{Args, Subcommand};
use control::protocol::{Command as Ask, KeyedText};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Adds, lists and removes SAs that are keyed by hand, and writes those of the other end
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl sa add lab.toml
  vpnctl sa list
  vpnctl sa remove lab --keep-blocked
  vpnctl sa mirror /etc/vpnd/vpnd.toml --output for-the-peer.toml
  vpnctl sa convert ip-xfrm.txt --output lab.toml

See docs/manual-sas.md for the tables of such a file.")]
pub struct Sa {
    #[command(subcommand)]
    pub command: SaCommand,
}

/// Subcommands of `vpnctl sa`.
#[derive(Debug, Subcommand)]
pub enum SaCommand {
    /// Adds the SAs of a file until vpnd stops
    #[command(after_help = "\
Examples:
  vpnctl sa add lab.toml
  vpnctl sa add - < lab.toml
  vpnctl sa add ip-xfrm.txt              lines of \"ip xfrm state add\" and \"ip xfrm policy add\"

The file has [[sa]] tables as vpnd.toml has them, and nothing else, or such lines. Keys are in the file, or in files of their own that it \
names; they are never on the command line. If one SA is refused, none is added. The sequence numbers go on where they were \
when the same key was used last. The SAs are gone when vpnd stops: to keep them, put the tables into vpnd.toml.")]
    Add {
        /// File with [[sa]] tables, or with lines of ip xfrm; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Allows one key for several SAs of lines of ip xfrm
        #[arg(long)]
        insecure_shared_key: bool,
        /// Prints a JSON array; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Writes the [[sa]] tables of the other end: in and out, and so SPIs and keys, are exchanged
    #[command(after_help = "\
Examples:
  vpnctl sa mirror /etc/vpnd/vpnd.toml --output for-the-peer.toml
  vpnctl sa mirror lab.toml --with-keys | ssh root@198.51.100.7 vpnctl sa add -

Only the tables are written, not the other sections of the file. All their settings stay, also offload_device. Files of keys \
must be copied to the other end, unless --with-keys puts the keys into the output.")]
    Mirror {
        /// vpnd.toml, or another file with [[sa]] tables or lines of ip xfrm; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Writes to FILE, with mode 0600; it must not exist [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replaces keys in files by the keys themselves
        #[arg(long)]
        with_keys: bool,
        /// Allows one key for several SAs of lines of ip xfrm
        #[arg(long)]
        insecure_shared_key: bool,
    },
    /// Writes lines of ip xfrm as [[sa]] tables
    #[command(after_help = "\
Examples:
  vpnctl sa convert ip-xfrm.txt --output lab.toml
  ssh root@198.51.100.7 cat setup.sh | grep 'ip xfrm' | vpnctl sa convert -

The lines are those of \"ip xfrm state add\" and \"ip xfrm policy add\", with keys. A line that a table cannot express is an \
error. The tables can stand in vpnd.toml.")]
    Convert {
        /// File with lines of ip xfrm; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Writes to FILE, with mode 0600; it must not exist [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Allows one key for several SAs
        #[arg(long)]
        insecure_shared_key: bool,
    },
    /// Lists the SAs that are keyed by hand
    List {
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Removes the SAs of a name
    #[command(after_help = "\
Examples:
  vpnctl sa remove lab                   its traffic takes the host's other routes, in the clear
  vpnctl sa remove lab --keep-blocked    its traffic stays blocked: new SAs are to follow

SAs that vpnd.toml defines are back after a restart of vpnd.")]
    Remove {
        /// Name of the SAs
        #[arg(value_name = "NAME")]
        name: String,
        /// Keeps their traffic blocked until SAs of this name are added, or are removed without this option
        #[arg(long)]
        keep_blocked: bool,
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
}

impl Run for Sa {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        match &self.command {
            SaCommand::Add { file, insecure_shared_key, json } => {
                let (text, _) = read_tables(file, *insecure_shared_key)?;
                let text = inlined(&text)
                    .map_err(|why| Failure::Other(format!("{}: {why}", file.display()).into()))?;
                let ask = Ask::SaAdd { text: KeyedText(text) };
                let added = answer!(session, ask, SaAdded);
                session.show(*json, &added, |added, _| report::sas_added(added))?;
            }
            SaCommand::Convert { file, output, insecure_shared_key } => {
                let (text, _) = read_tables(file, *insecure_shared_key)?;
                match output {
                    Some(path) => write(path, &text)?,
                    None => session.text(&text)?,
                }
            }
            SaCommand::Mirror { file, output, with_keys, insecure_shared_key } => {
                let mirrored = mirror_file(file, *with_keys, *insecure_shared_key)?;
                match output {
                    Some(path) => write(path, &mirrored.text)?,
                    None => session.text(&mirrored.text)?,
                }
                session.out.flush()?;
                remarks(&mirrored).iter().for_each(|remark| eprintln!("{remark}"));
            }
            SaCommand::List { json } => {
                let list = answer!(session, Ask::SaList, SaList);
                session.show(*json, &list, report::sa_list)?;
            }
            SaCommand::Remove { name, keep_blocked, json } => {
                let ask = Ask::SaRemove { name: name.clone(), keep_blocked: *keep_blocked };
                let removed = answer!(session, ask, SaRemoved);
                session.show(*json, &removed, |removed, _| report::sa_removed(removed))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", .path.display())]
pub struct OutputError {
    path: PathBuf,
    source: io::Error,
}

/// Writes a file that nobody else may read, and that was not there.
fn write(path: &Path, text: &str) -> Result<(), OutputError> {
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = new.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| OutputError { path: path.to_owned(), source })
}

/// The rest of what the other end needs.
fn remarks(mirrored: &Mirrored) -> Vec<String> {
    let files = mirrored.key_files.iter().map(|path| {
        format!("copy the key file {} to the other end, or use --with-keys", path.display())
    });
    let devices = mirrored.devices.iter().map(|device| {
        format!("offload_device = {device:?}: change it if the other end's card has another name")
    });
    files.chain(devices).collect()
}
