//! `vpnctl policy new`: the policies of both ends of a tunnel, from a few arguments.
//!
//! ```text
//! arguments ── Site ── document.rs: elements and comments of one end ── policy::xml::read ── two files
//!            (site.rs)                                                  (must be faultless)
//! ```

mod document;
mod key;
pub(crate) mod site;

pub use key::KeyError;
pub use site::{AutoStart, Identity, Network, Pair, Site, Suite};

use clap::Args;
use key::Key;
use policy::xml::Diagnostics;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Arguments of `vpnctl policy new`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl policy new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24
  vpnctl policy new --local 2001:db8::1 --remote 2001:db8::2 --transport
  vpnctl policy new --name branch --local 192.0.2.1 --remote 198.51.100.7 \\
      --protect 10.1.0.0/24=10.7.0.0/24 --certificates \\
      --local-id left.example.net --remote-id branch.example.net

The files are left.xml for the end --local and right.xml for the end --remote, or NAME-left.xml and NAME-right.xml \
with --name. Each is a complete policy with comments. No vpnd needs to run.")]
pub struct New {
    /// Address of the left gateway, usually this one
    #[arg(long, value_name = "ADDRESS")]
    pub local: IpAddr,
    /// Address of the right gateway
    #[arg(long, value_name = "ADDRESS")]
    pub remote: IpAddr,
    /// Networks to protect, behind the left gateway and behind the right one; may be given several times. Without
    /// this option the tunnel protects the traffic between the two gateways themselves
    #[arg(long, value_name = "LEFT=RIGHT")]
    pub protect: Vec<Pair>,
    /// Name of the tunnel, and the beginning of the files' names [default: site]
    #[arg(long, value_parser = site::plain_name)]
    pub name: Option<String>,
    /// Makes a preshared key of 32 random octets; the default
    #[arg(long, conflicts_with_all = ["psk_file", "certificates"])]
    pub psk_generate: bool,
    /// Reads the preshared key from FILE (- is standard input): text, or at least 32 hexadecimal digits
    #[arg(long, value_name = "FILE", conflicts_with = "certificates")]
    pub psk_file: Option<PathBuf>,
    /// The ends authenticate with certificates (docs/operate/certificates.md)
    #[arg(long)]
    pub certificates: bool,
    /// With --certificates: a certificate counts even if no current revocation list (CRL) is there
    #[arg(long, requires = "certificates")]
    pub no_crl: bool,
    /// Identity of the left end: a domain name, user@domain, a subject such as /C=NL/CN=left, or the address that a NAT gives
    /// it [default: its address]
    #[arg(long, value_name = "ID")]
    pub local_id: Option<Identity>,
    /// Identity of the right end; an address is the one at which the left end reaches it [default: its address]
    #[arg(long, value_name = "ID")]
    pub remote_id: Option<Identity>,
    /// Algorithms of both phases
    #[arg(long, value_enum, default_value_t)]
    pub suite: Suite,
    /// Transport mode: ESP without an inner IP header, for the traffic between the two gateways themselves
    #[arg(long, conflicts_with = "protect")]
    pub transport: bool,
    /// The first packet starts the tunnel, from either end; no end starts it with its daemon
    #[arg(long, conflicts_with = "auto_start")]
    pub on_demand: bool,
    /// The end that starts the tunnel with its daemon, and again after a failure
    #[arg(long, value_enum, value_name = "END", default_value_t)]
    pub auto_start: AutoStart,
    /// Directory of the files; created if it does not exist
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    pub output: PathBuf,
    /// Replaces files that exist
    #[arg(long)]
    pub force: bool,
}

/// The policies cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The arguments do not go together.
    #[error("{0}")]
    Arguments(String),
    /// A file is there already.
    #[error("{} exists; replace it with --force, or choose another directory with --output", .0.display())]
    Exists(PathBuf),
    /// The arguments make a policy that `vpnd check` would refuse or warn about.
    #[error("these arguments make no good policy:\n{0}")]
    Refused(String),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl From<Diagnostics> for NewError {
    fn from(errors: Diagnostics) -> Self {
        Self::Refused(errors.to_string())
    }
}

/// Both ends, in the order of the ends of a site.
const SIDES: [&str; 2] = ["left", "right"];

impl New {
    /// Writes the policies of both ends; returns a text with what was written, and the next steps.
    ///
    /// # Errors
    /// As [`NewError`]. Then no file has changed, unless the disk was full.
    pub fn run(&self) -> Result<String, NewError> {
        let (key, remark) = self.key()?;
        let site = self.site(key)?;
        let names = self.file_names();
        let texts = [0, 1].map(|end| document::write(&site, end, &names));
        for (name, text) in names.iter().zip(&texts) {
            faultless(name, text)?;
        }
        let here = self.output == Path::new(".");
        let paths =
            names.map(|name| if here { PathBuf::from(name) } else { self.output.join(name) });
        if let Some(path) = paths.iter().find(|path| !self.force && path.exists()) {
            return Err(NewError::Exists(path.clone()));
        }
        let made = fs::create_dir_all(&self.output);
        made.map_err(|source| NewError::Write { path: self.output.clone(), source })?;
        for (path, text) in paths.iter().zip(&texts) {
            self.write(path, text)?;
        }
        Ok(remark.unwrap_or_default() + &steps(&site, &paths))
    }

    /// The key, with a remark about how a file was read.
    fn key(&self) -> Result<(Option<Key>, Option<String>), KeyError> {
        if self.certificates {
            return Ok((None, None));
        }
        let Some(path) = &self.psk_file else { return Ok((Some(Key::generate()), None)) };
        let key = Key::read(path)?;
        let remark = format!("{}: {}\n", path.display(), key.description());
        Ok((Some(key), Some(remark)))
    }

    fn site(&self, key: Option<Key>) -> Result<Site, NewError> {
        let [left, right] = [(&self.local_id, self.local), (&self.remote_id, self.remote)]
            .map(|(identity, address)| identity.clone().unwrap_or(Identity::of(address)));
        let auto_start = if self.on_demand { AutoStart::None } else { self.auto_start };
        let site = Site {
            name: self.name.clone().unwrap_or_else(|| "site".to_owned()),
            addresses: [self.local, self.remote],
            identities: [left, right],
            traffic: self.protect.clone(),
            key,
            use_crl: !self.no_crl,
            suite: self.suite,
            transport: self.transport,
            on_demand: self.on_demand,
            auto_start,
        };
        site.check().map_err(NewError::Arguments)?;
        Ok(site)
    }

    fn file_names(&self) -> [String; 2] {
        SIDES.map(|side| match &self.name {
            Some(name) => format!("{name}-{side}.xml"),
            None => format!("{side}.xml"),
        })
    }

    /// Writes a file with mode 0600. Without `--force` it must not exist, not even since it was looked for.
    fn write(&self, path: &Path, text: &str) -> Result<(), NewError> {
        let written = if self.force {
            host::replace::replace(path, text.as_bytes()).map_err(|(_, error)| error)
        } else {
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            new.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        };
        written.map_err(|source| NewError::Write { path: path.to_owned(), source })
    }
}

/// Reads a policy as `vpnd` would. A warning is an error here, because nobody has written it on purpose.
fn faultless(name: &str, text: &Zeroizing<String>) -> Result<(), NewError> {
    let loaded = policy::xml::read(name, text)?;
    match loaded.warnings.as_slice() {
        [] => Ok(()),
        warnings => {
            let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            Err(NewError::Refused(warnings.join("\n")))
        }
    }
}

/// The files that are written, and the next steps with them.
fn steps(site: &Site, paths: &[PathBuf; 2]) -> String {
    let [left, right] = [0, 1].map(|end| paths[end].display().to_string());
    let (here, there) = (site.addresses[0], site.outer_address(1));
    let mut lines = Vec::new();
    for (end, path) in [(0, &left), (1, &right)] {
        let address = site.addresses[end];
        lines.push(format!("{path}: the policy of {address}; {}", site.starts(end)));
    }
    let secret = if site.key.is_some() { ", for nobody else: it holds the key" } else { "" };
    lines.extend([
        String::new(),
        "next".to_owned(),
        format!(
            "  on {here} (if it has a policy already, add the elements of {left} to that instead)"
        ),
        format!("    install -D -m 600 {left} /etc/vpnd/policy.xml"),
        format!("  send the other file to {there}{secret}"),
        // The file may hold the key: with this umask, nobody else can read it while it arrives.
        format!("    ssh root@{there} 'umask 077; cat > /etc/vpnd/policy.xml' < {right}"),
    ]);
    if site.key.is_none() {
        lines.push(
            "  make the certificates, on a machine that keeps the authority's key".to_owned(),
        );
        lines.push("    vpnctl pki init".to_owned());
        let identities = SIDES.iter().zip(&site.identities);
        lines.extend(identities.map(|(side, identity)| format!("    {}", identity.to_issue(side))));
        lines.push("    (each prints how its files get to the gateway)".to_owned());
    }
    lines.extend([
        "  on both".to_owned(),
        "    vpnd check /etc/vpnd/policy.xml".to_owned(),
        "    systemctl enable --now vpn-guard vpnd    (without systemd: vpnd start --policy /etc/vpnd/policy.xml)"
            .to_owned(),
        "    vpnctl reload                            (instead, if vpnd runs already)".to_owned(),
        "  then on either".to_owned(),
        match (site.auto_start, site.on_demand) {
            (AutoStart::None, false) => format!("    vpnctl activate {}", site.name),
            _ => "    vpnctl list".to_owned(),
        },
    ]);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
