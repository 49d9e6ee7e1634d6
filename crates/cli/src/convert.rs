//! `vpnctl policy convert`: its arguments, and what it prints where.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use convert::source::{self, Disk, ReadError};
use convert::{Converted, Finding, Format, Options, convert};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `vpnctl policy convert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl policy convert /etc/swanctl/swanctl.conf --output policy.xml --settings vpnd.toml
  vpnctl policy convert /etc/ipsec.conf --secrets /etc/ipsec.secrets --output policy.xml
  vpnctl policy convert swanctl.conf --peer --output other-end.xml

Settings that have no equivalent are reported on standard error, line by line, and in a comment of the policy. \
Narrow traffic stands before wide traffic in the policy, because a packet takes the first tunnel that covers it.

An ipsec.conf means one thing to strongSwan and another one to libreswan, above all where ike= or esp= names no group. \
The words of the file show which daemon reads it, and the summary names the word that decided; --from decides it.

Exit status:
  0  every tunnel is in the policy, and starts as it did
  1  a tunnel was left out or lost a function, or a file cannot be read; nothing is written if no tunnel could be \
converted
  2  wrong arguments")]
pub struct Convert {
    /// swanctl.conf or ipsec.conf; - is standard input
    pub file: PathBuf,
    /// Format of the file; by default it is recognised from the content
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    pub from: Option<Format>,
    /// ipsec.secrets, which holds the preshared keys of ipsec.conf
    #[arg(long, value_name = "FILE")]
    pub secrets: Option<PathBuf>,
    /// File for the policy, created with mode 0600; by default standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// File for the settings of vpnd.toml; by default they are shown on standard error
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Overwrites existing files
    #[arg(long)]
    pub force: bool,
    /// Writes the peer's policy: local and remote sides are exchanged
    #[arg(long)]
    pub peer: bool,
    /// Address of this side, if the file does not give it or does not say which side of a conn this is
    #[arg(long, value_name = "ADDRESS")]
    pub local_address: Option<IpAddr>,
}

/// A file cannot be converted at all.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its syntax is wrong.
    #[error("{0}")]
    Syntax(Box<Finding>),
    /// The converted policy cannot be written.
    #[error("cannot write {}: {source}{}", .path.display(), if .source.kind() == io::ErrorKind::AlreadyExists { "; overwrite it with --force" } else { "" })]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Convert {
    /// Converts the file.
    ///
    /// # Errors
    /// Where it, or one it includes, cannot be read.
    pub fn convert(&self) -> Result<Converted, ConvertError> {
        let file = source::read(&self.file)?;
        let secrets = self.secrets.as_deref().map(source::read).transpose()?;
        let format = self.from.unwrap_or_else(|| Format::of(&file.text));
        let options = Options { local_address: self.local_address, peer: self.peer };
        convert(format, file, secrets, &mut Disk::default(), &options)
            .map_err(|finding| ConvertError::Syntax(Box::new(finding)))
    }

    /// Converts the file and writes what comes of it.
    ///
    /// # Errors
    /// As [`ConvertError`].
    pub fn run(&self) -> Result<ExitCode, ConvertError> {
        let converted = self.convert()?;
        eprint!("{}", converted.report());
        if converted.is_empty() {
            let file = self.file.display();
            eprintln!("no tunnel of {file} could be converted, and nothing was written");
            return Ok(ExitCode::FAILURE);
        }
        let settings = self.settings.as_ref().filter(|_| !converted.settings.is_empty());
        let mut files = self.output.iter().chain(settings);
        if let Some(path) = files.find(|path| !self.force && path.exists()) {
            let (path, source) = (path.clone(), io::ErrorKind::AlreadyExists.into());
            return Err(ConvertError::Write { path, source });
        }
        match &self.output {
            Some(path) => self.write(path, &converted.xml)?,
            None => print(&converted.xml)?,
        }
        match &self.settings {
            _ if converted.settings.is_empty() => {}
            Some(path) => self.write(path, &converted.settings)?,
            None => eprint!("for vpnd.toml:\n\n{}\n", converted.settings),
        }
        eprintln!("{}", converted.summary());
        if let Some(path) = &self.output {
            eprintln!("see what the policy means with: vpnd check {}", path.display());
        }
        if let Some(path) = settings {
            eprintln!(
                "copy the lines of {} into the same sections of /etc/vpnd/vpnd.toml, which may have each section once",
                path.display()
            );
        }
        Ok(if converted.is_incomplete() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), ConvertError> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        match self.force {
            true => options.create(true).truncate(true),
            false => options.create_new(true),
        };
        let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|source| ConvertError::Write { path: path.to_owned(), source })
    }
}

fn print(text: &str) -> Result<(), ConvertError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader of our output has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(ConvertError::Write { path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

/// Reads the name of a format, and explains each in the help.
fn format() -> impl TypedValueParser<Value = Format> {
    let swanctl = PossibleValue::new("swanctl").help("swanctl.conf of strongSwan");
    let ipsec = PossibleValue::new("ipsec").help("ipsec.conf, of the daemon that its words show");
    let strongswan = PossibleValue::new("strongswan").help("ipsec.conf of strongSwan");
    let libreswan =
        PossibleValue::new("libreswan").help("ipsec.conf of libreswan, Openswan or FreeS/WAN");
    PossibleValuesParser::new([swanctl, ipsec, strongswan, libreswan]).map(|name| {
        match name.as_str() {
            "ipsec" => Format::Ipsec,
            "strongswan" => Format::Strongswan,
            "libreswan" => Format::Libreswan,
            _ => Format::Swanctl,
        }
    })
}
