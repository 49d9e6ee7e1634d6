//! `vpnctl sa add`, `mirror` and `convert`: what needs to understand tables of SAs and lines of `ip xfrm`.

use crate::commands::{Failure, Run, Session};
use crate::sa_file::{Mirrored, inlined, mirror_file, read_tables};
use clap::Subcommand;
use control::protocol::{Command as Ask, KeyedText, Reply};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::delegated::{SaAdd, SaConvert, SaMirror};
use terminal::report;

/// The subcommands of `vpnctl sa` that come here.
#[derive(Debug, Subcommand)]
pub enum Sa {
    Add(SaAdd),
    Mirror(SaMirror),
    Convert(SaConvert),
}

impl Run for Sa {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        match self {
            Self::Add(SaAdd { file, insecure_shared_key, json }) => {
                let (text, _) = read_tables(file, *insecure_shared_key)?;
                let text = inlined(&text)
                    .map_err(|why| Failure::Other(format!("{}: {why}", file.display()).into()))?;
                let ask = Ask::SaAdd { text: KeyedText(text) };
                let added = match session.ask(ask)? {
                    Reply::SaAdded(added) => added,
                    reply => return Err(session.unexpected(&reply)),
                };
                session.show(*json, &added, |added, _| report::sas_added(added))?;
            }
            Self::Convert(SaConvert { file, output, insecure_shared_key }) => {
                let (text, _) = read_tables(file, *insecure_shared_key)?;
                match output {
                    Some(path) => write(path, &text)?,
                    None => session.text(&text)?,
                }
            }
            Self::Mirror(SaMirror { file, output, with_keys, insecure_shared_key }) => {
                let mirrored = mirror_file(file, *with_keys, *insecure_shared_key)?;
                match output {
                    Some(path) => write(path, &mirrored.text)?,
                    None => session.text(&mirrored.text)?,
                }
                session.out.flush()?;
                remarks(&mirrored).iter().for_each(|remark| eprintln!("{remark}"));
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
