//! ipsec.conf and ipsec.secrets: of strongSwan, of libreswan, and as far as they have the same words, of other relatives
//! from FreeS/WAN on.

mod connection;
mod gaps;
mod syntax;

use super::dialect::{self, Dialect, Recognised};
use super::draft::Draft;
use super::finding::{Finding, Report};
use super::keys::{Key, Owner, secret};
use super::proposal;
use super::source::{File, Files, Location, Value};
use std::collections::BTreeSet;
use syntax::{Block, Kind};

/// Reads a file and what it includes. `dialect`: if it is known.
///
/// # Errors
/// Returns an error if the syntax is wrong or an included file cannot be read.
pub(super) fn read(
    file: File,
    dialect: Option<Dialect>,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Draft, Finding> {
    let blocks = syntax::parse(&file, files, report)?;
    let place = Location { file: file.name.clone(), line: 0 };
    let recognised = dialect.is_none().then(|| recognise(&file.text, &place, &blocks));
    let guessed = recognised.as_ref().map(|recognised| recognised.dialect);
    let mut draft = Draft { dialect: dialect.or(guessed).unwrap_or_default(), ..Draft::default() };
    draft.read_as = recognised.as_ref().and_then(Recognised::told);
    let settings = blocks.iter().flat_map(|block| &block.settings);
    let bases: BTreeSet<&str> =
        settings.filter(|(name, _)| name == "also").map(|(_, value)| value.text.as_str()).collect();
    for block in &blocks {
        match block.kind {
            Kind::Conn if block.name == "%default" => {}
            Kind::Conn => {
                let Some(conn) = syntax::inherit(&blocks, block, report) else { continue };
                connection::read(conn, bases.contains(block.name.as_str()), &mut draft, report);
            }
            Kind::Setup => {
                for (name, value) in &block.settings {
                    let message = format!("{name} of config setup: vpnd has settings of its own");
                    let help = match name.as_str() {
                        "strictcrlpolicy" => "write IKE_Flags_UseCRL=\"Yes\" where it is to be so",
                        _ => "see vpnd.toml",
                    };
                    report.dropped(&value.location, message, help);
                }
            }
            Kind::Authority => {
                let message = format!("ca {:?}: vpnd finds certificates by directory", block.name);
                let help = "copy cacert to /etc/vpnd/ca, crluri's lists to /etc/vpnd/crls \
                            (docs/operate/certificates.md)";
                report.dropped(&block.location, message, help);
            }
        }
    }
    let guess = recognised.filter(|recognised| !recognised.is_certain);
    let mut offers = draft.connections.iter().flat_map(|connection| {
        connection.children.iter().map(|child| (&connection.proposals, child))
    });
    if let Some(guess) = guess
        && offers.any(|(ike, child)| proposal::depends_on_dialect(ike, child))
    {
        dialect::report_guess(&guess, &place, report);
    }
    Ok(draft)
}

fn recognise(text: &str, place: &Location, blocks: &[Block]) -> Recognised {
    let authority = blocks.iter().find(|block| block.kind == Kind::Authority);
    let settings = blocks.iter().flat_map(|block| &block.settings);
    dialect::recognise(text, place, settings, authority.map(|block| &block.location))
}

/// Reads ipsec.secrets: identities, a colon, `PSK`, and the key in quotes.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn secrets(
    file: File,
    dialect: Dialect,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Vec<Key>, Finding> {
    let mut keys = Vec::new();
    for entry in syntax::secrets(&file, files, report)? {
        let kind = entry.kind.to_ascii_uppercase();
        if kind != "PSK" {
            let (message, help) = match kind.as_str() {
                "EAP" | "XAUTH" | "NTLM" => (
                    format!("{kind}: vpnd has no EAP and no XAuth"),
                    "use certificates or preshared keys",
                ),
                "RSA" | "ECDSA" | "EDDSA" | "PKCS8" | "P12" | "PIN" | "BLISS" | "ED25519"
                | "DSS" => (
                    format!("{kind}: private keys come from files"),
                    "put the key without its password into /etc/vpnd/private, mode 0600 (docs/operate/certificates.md)",
                ),
                "PPK" | "PPKS" => (
                    "a postquantum preshared key: vpnd reads them from files".to_owned(),
                    "write it into /etc/vpnd/ppk/ID, where ID is its id; mode 0600 (docs/operate/post-quantum.md)",
                ),
                _ => ("a secret that is no PSK".to_owned(), ""),
            };
            report.dropped(&entry.location, message, help);
            continue;
        }
        let value = Value { text: entry.secret, location: entry.location.clone() };
        let owners: Vec<Owner> =
            entry.owners.iter().filter_map(|owner| Owner::read(owner, dialect)).collect();
        if owners.len() != entry.owners.len() {
            report.dropped(&entry.location, "an identity of this secret cannot be read", "");
            // A key for somebody must not become everybody's.
            if owners.is_empty() {
                continue;
            }
        }
        match secret(&value) {
            Ok(secret) => keys.push(Key { location: entry.location, owners, secret }),
            Err(why) => report.left_out(&entry.location, why, ""),
        }
    }
    Ok(keys)
}
