//! `vpnctl pki`

use super::session::{Failure, Run, Session};
use crate::pki::{
    Alternatives, Authority, Entry, Index, Issued, KeyKind, Moment, NewAuthority, PkiError, State,
    Wanted,
};
use crate::policy_new::site::plain_name;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;
use terminal::report::{Colour, Table, plain};

/// Makes certificates for gateways: a small certificate authority in a directory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl pki init
  vpnctl pki issue left --dns left.example.net
  vpnctl pki issue right --dns right.example.net
  vpnctl pki list
  vpnctl pki revoke right

The authority's private key can make a certificate for any identity. Keep the directory on a machine that is not a \
gateway, and make backups of it. docs/operate/certificates.md shows the way from here to a tunnel.")]
pub struct Pki {
    /// Directory of the authority
    #[arg(long, global = true, value_name = "DIR", default_value = "pki")]
    pub dir: PathBuf,
    /// The subcommand.
    #[command(subcommand)]
    pub command: PkiCommand,
}

/// Subcommands of `vpnctl pki`.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Makes an authority: its key, its certificate and an empty revocation list
    Init(Init),
    /// Makes a private key and a certificate for one end, and a directory with all the files that it needs
    Issue(Issue),
    /// Revokes certificates, and writes the revocation list (CRL)
    Revoke(Revoke),
    /// Lists the certificates with their serial numbers, states and identities
    List(List),
    /// Writes the revocation list (CRL) again, before the last one expires
    Crl(Crl),
}

/// Arguments of `vpnctl pki init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Common name of the authority
    #[arg(long, value_name = "CN", default_value = "VPN CA")]
    name: String,
    /// Days until the authority expires
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = days())]
    days: u32,
    /// Days until each revocation list expires; every gateway needs the next one before that
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = days())]
    crl_days: u32,
    /// Kind of the authority's key
    #[arg(long, value_enum, default_value_t)]
    key: KeyKind,
}

/// Arguments of `vpnctl pki issue`.
#[derive(Debug, Args)]
pub struct Issue {
    /// Common name, and name of the files; a domain name or an address is also an alternative name
    #[arg(value_parser = plain_name)]
    name: String,
    /// Domain name that the certificate proves; may be given several times
    #[arg(long, value_name = "NAME", value_parser = domain)]
    dns: Vec<String>,
    /// Address that the certificate proves; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    ip: Vec<IpAddr>,
    /// Mail address that the certificate proves; may be given several times
    #[arg(long, value_name = "USER@DOMAIN", value_parser = mail)]
    email: Vec<String>,
    /// Days until the certificate expires [default: 365, or the rest of the authority's life]
    #[arg(long, value_name = "N", value_parser = days())]
    days: Option<u32>,
    /// Kind of the key
    #[arg(long, value_enum, default_value_t)]
    key: KeyKind,
    /// Adds the extended key usages serverAuth, clientAuth and ipsecIKE, for Windows and Apple clients
    #[arg(long)]
    server_auth: bool,
    /// Makes another certificate for a name that has a valid one; that stays valid until it is revoked
    #[arg(long)]
    renew: bool,
}

/// Arguments of `vpnctl pki revoke`.
#[derive(Debug, Args)]
pub struct Revoke {
    /// Name or serial number; a name stands for all its certificates
    #[arg(value_name = "NAME|SERIAL")]
    which: String,
}

/// Arguments of `vpnctl pki list`.
#[derive(Debug, Args)]
pub struct List {
    /// Prints a JSON object; docs/operate/certificates.md describes its fields
    #[arg(long)]
    json: bool,
}

/// Arguments of `vpnctl pki crl`.
#[derive(Debug, Args)]
pub struct Crl {
    /// Days until this list and those after it expire [default: as before]
    #[arg(long, value_name = "N", value_parser = days())]
    days: Option<u32>,
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

fn domain(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() {
        return Err("this is an address; use --ip".to_owned());
    }
    match text.len() <= 253 && text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err("a domain name is written like left.example.net".to_owned()),
    }
}

/// A label of a domain name: RFC 1035 §2.3.4 allows 63 octets.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn mail(text: &str) -> Result<String, String> {
    match text.split_once('@') {
        Some((name, host)) if is_local_part(name) && domain(host).is_ok() => Ok(text.to_owned()),
        _ => Err("a mail address is written like ops@example.net".to_owned()),
    }
}

/// The part of a mail address before the @: RFC 5321 §4.5.3.1.1 allows 64 octets.
fn is_local_part(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

impl Run for Pki {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let now = SystemTime::now();
        match &self.command {
            PkiCommand::Init(init) => session.text(&init.run(&self.dir, now)?)?,
            PkiCommand::Issue(issue) => session.text(&issue.run(&self.dir, now)?)?,
            PkiCommand::Revoke(revoke) => session.text(&revoke.run(&self.dir, now)?)?,
            PkiCommand::Crl(crl) => session.text(&crl.run(&self.dir, now)?)?,
            PkiCommand::List(list) => list.run(&self.dir, now, session)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Init {
    fn run(&self, dir: &Path, now: SystemTime) -> Result<String, PkiError> {
        let Self { name, days, crl_days, key } = self;
        let wanted =
            NewAuthority { name: name.clone(), days: *days, crl_days: *crl_days, key: *key };
        let authority = Authority::create(dir, &wanted, now)?;
        let [certificate, key] = [authority.certificate_file(), authority.key_file()]
            .map(|path| path.display().to_string());
        Ok(format!(
            "the authority \"{}\" is in {}, valid until {}\n  {certificate}  its certificate, which every gateway needs \
             in /etc/vpnd/ca\n  {key}  its private key: whoever reads it can pass for every gateway\n\nnext, for each \
             gateway\n  vpnctl pki issue left --dns left.example.net{}\n",
            plain(name),
            dir.display(),
            authority.index().not_after,
            in_directory(dir),
        ))
    }
}

/// The option that names a directory other than the default.
fn in_directory(dir: &Path) -> String {
    if dir == Path::new("pki") { String::new() } else { format!(" --dir {}", dir.display()) }
}

impl Issue {
    fn run(&self, dir: &Path, now: SystemTime) -> Result<String, PkiError> {
        let mut alternatives =
            Alternatives { dns: self.dns.clone(), ip: self.ip.clone(), email: self.email.clone() };
        if alternatives == Alternatives::default() {
            match self.name.parse() {
                Ok(address) => alternatives.ip.push(address),
                Err(_) if self.name.contains('.') && domain(&self.name).is_ok() => {
                    alternatives.dns.push(self.name.clone());
                }
                Err(_) => {}
            }
        }
        let wanted = Wanted {
            name: self.name.clone(),
            alternatives,
            days: self.days,
            key: self.key,
            server_auth: self.server_auth,
            renew: self.renew,
        };
        let issued = Authority::open(dir)?.issue(&wanted, now)?;
        Ok(told(&issued))
    }
}

/// The files of an end, and the way to their gateway.
fn told(Issued { entry, directory, files }: &Issued) -> String {
    let Entry { name, serial, identities, not_after, .. } = entry;
    let directory = directory.display();
    let meaning = [
        "certificate of the authority",
        "certificate",
        "private key of the certificate",
        "revocation list",
    ];
    let width = files.iter().map(|file| file.as_os_str().len()).max().unwrap_or(0);
    let mut text = format!(
        "{name}: valid until {not_after}, serial {serial}, for {}\nin {directory}\n",
        identities.join(", ")
    );
    for (file, meaning) in files.iter().zip(meaning) {
        let place = Path::new("/etc/vpnd").join(file);
        let (file, place) = (file.display().to_string(), place.display());
        text.push_str(&format!("  {file:width$}  {meaning}: {place} on the gateway\n"));
    }
    text.push_str(&format!(
        "\nnext\n  copy all of it to the gateway, then remove the private key here\n    tar -C {directory} -c ca certs \
         private crls | ssh root@GATEWAY tar -C /etc/vpnd --no-same-owner -x\n    rm {directory}/{}\n  on the gateway\n    \
         vpnctl reload && vpnctl certs\n  in both policies, this end is\n    {}\n",
        files[2].display(),
        identities.iter().map(|identity| element(identity)).collect::<Vec<_>>().join(" or "),
    ));
    text
}

/// An identity as a policy has it.
fn element(identity: &str) -> String {
    let kind = match identity.parse::<IpAddr>() {
        Ok(address) if address.is_ipv4() => "IPV4_Address",
        Ok(_) => "IPV6_Address",
        Err(_) if identity.starts_with('/') => "ASN1_DN",
        Err(_) if identity.contains('@') => "User_FQDN",
        Err(_) => "FQDN",
    };
    format!("<{kind} Value=\"{identity}\">")
}

impl Revoke {
    fn run(&self, dir: &Path, now: SystemTime) -> Result<String, PkiError> {
        let mut authority = Authority::open(dir)?;
        let mut text = String::new();
        for Entry { name, serial, .. } in authority.revoke(&self.which, now)? {
            text.push_str(&format!("{name}: revoked, serial {serial}\n"));
        }
        Ok(text + &list_told(&authority))
    }
}

impl Crl {
    fn run(&self, dir: &Path, now: SystemTime) -> Result<String, PkiError> {
        let mut authority = Authority::open(dir)?;
        authority.renew_crl(self.days, now)?;
        Ok(list_told(&authority))
    }
}

/// The revocation list, and the way to the gateways.
fn list_told(authority: &Authority) -> String {
    let (list, name) = (authority.crl_file(), authority.crl_name());
    let list = list.display();
    let Index { crl_number, crl_until, .. } = authority.index();
    let until = crl_until.as_ref().map(|until| format!(", until {until}")).unwrap_or_default();
    format!(
        "{list}: revocation list number {crl_number}{until}\n\nnext, for every gateway\n  ssh root@GATEWAY 'cat > \
         /etc/vpnd/crls/{name} && vpnctl reload' < {list}\nThe gateways' policies need IKE_Flags_UseCRL=\"Yes\".\nA tunnel \
         that is up stays up until its ends authenticate again: vpnctl deactivate NAME ends it.\n"
    )
}

/// `vpnctl pki list --json`.
#[derive(Serialize)]
struct Listing<'i> {
    authority: &'i str,
    not_after: Moment,
    crl_number: u64,
    crl_until: Option<Moment>,
    crl_state: Option<State>,
    certificates: Vec<Listed<'i>>,
}

#[derive(Serialize)]
struct Listed<'i> {
    #[serde(flatten)]
    entry: &'i Entry,
    state: State,
}

impl List {
    fn run(&self, dir: &Path, now: SystemTime, session: &mut Session) -> Result<(), Failure> {
        let index = Authority::look(dir)?;
        let certificates =
            index.ends.iter().map(|entry| Listed { entry, state: Entry::state(entry, now) });
        let listing = Listing {
            authority: &index.name,
            not_after: index.not_after,
            crl_number: index.crl_number,
            crl_until: index.crl_until,
            crl_state: index.crl_state(now),
            certificates: certificates.collect(),
        };
        Ok(session.show(self.json, &listing, listing_text)?)
    }
}

fn listing_text(listing: &Listing<'_>, colour: Colour) -> String {
    let mut text = format!(
        "{}, valid until {}\n",
        colour.heading(&format!("authority \"{}\"", plain(listing.authority))),
        listing.not_after
    );
    if let Some(until) = listing.crl_until {
        text.push_str(&format!("revocation list number {}, until {until}", listing.crl_number));
        if let Some(state) = listing.crl_state.filter(|state| *state != State::Valid) {
            let state = state_text(state, colour);
            text.push_str(&format!(" ({state}): vpnctl pki crl makes the next one"));
        }
        text.push('\n');
    }
    let mut table = Table::new(["NAME", "STATE", "UNTIL", "IDENTITIES", "SERIAL"]);
    for Listed { entry, state } in &listing.certificates {
        table.row([
            plain(&entry.name).into_owned(),
            state_text(*state, colour),
            entry.not_after.to_string(),
            plain(&entry.identities.join(", ")).into_owned(),
            entry.serial.clone(),
        ]);
    }
    text + "\n" + &table.render(colour)
}

fn state_text(state: State, colour: Colour) -> String {
    match state {
        State::Valid => "valid".to_owned(),
        State::Expiring => colour.notice("expires soon"),
        State::Expired => colour.bad("expired"),
        State::Revoked => colour.bad("revoked"),
    }
}
