//! ipsec.conf and ipsec.secrets: of strongSwan, and as far as they have the same words, of its relatives from FreeS/WAN
//! on.

mod connection;
mod syntax;

use super::draft::Draft;
use super::finding::{Finding, Report};
use super::keys::{Key, Owner, secret};
use super::source::{File, Files, Value};
use std::collections::BTreeSet;
use syntax::Kind;

/// Reads a file and what it includes.
///
/// # Errors
/// Returns an error if the syntax is wrong or an included file cannot be read.
pub(super) fn read(
    file: File,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Draft, Finding> {
    let blocks = syntax::parse(&file, files)?;
    let mut draft = Draft::default();
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
                let help = "copy cacert to /etc/vpnd/ca, crluri's lists to /etc/vpnd/crls (docs/certificates.md)";
                report.dropped(&block.location, message, help);
            }
        }
    }
    Ok(draft)
}

/// Reads ipsec.secrets: identities, a colon, `PSK`, and the key in quotes.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn secrets(
    file: File,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Vec<Key>, Finding> {
    let mut keys = Vec::new();
    for entry in syntax::secrets(&file, files)? {
        let kind = entry.kind.to_ascii_uppercase();
        if kind != "PSK" {
            let (message, help) = match kind.as_str() {
                "EAP" | "XAUTH" | "NTLM" => (
                    format!("{kind}: vpnd has no EAP and no XAuth"),
                    "use certificates or preshared keys",
                ),
                "RSA" | "ECDSA" | "PKCS8" | "P12" | "PIN" | "BLISS" | "ED25519" => (
                    format!("{kind}: private keys come from files"),
                    "put the key without its password into /etc/vpnd/private, mode 0600 (docs/certificates.md)",
                ),
                _ => ("a secret that is no PSK".to_owned(), ""),
            };
            report.dropped(&entry.location, message, help);
            continue;
        }
        let value = Value { text: entry.secret, location: entry.location.clone() };
        let owners: Vec<Owner> =
            entry.owners.iter().filter_map(|owner| Owner::read(owner)).collect();
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
