//! swanctl.conf.

mod connection;
mod section;
mod syntax;

use super::dialect::Dialect;
use super::draft::Draft;
use super::finding::{Finding, Report};
use super::keys::{Key, Owner, secret};
use super::source::{File, Files};
use section::Section;

/// Reads a file and what it includes.
///
/// # Errors
/// Returns an error if the syntax is wrong or an included file cannot be read.
pub(super) fn read(
    file: File,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Draft, Finding> {
    let written = syntax::parse(file, files, report)?;
    let root = written.inherit()?;
    let mut draft = Draft::default();
    for section in root.sections {
        match section.name.as_str() {
            "connections" => {
                for section in section.sections {
                    connection::read(section, &mut draft, report);
                }
            }
            "secrets" => {
                for section in section.sections {
                    draft.keys.extend(key(section, report));
                }
            }
            "pools" => {
                for pool in section.sections {
                    let message = format!("pool {:?}: vpnd assigns no addresses", pool.name);
                    let help = "give clients fixed addresses and name them in remote_ts";
                    report.dropped(&pool.location, message, help);
                }
            }
            "authorities" => {
                for authority in section.sections {
                    let message = format!(
                        "authority {:?}: vpnd finds certificates by directory",
                        authority.name
                    );
                    let help = "copy cacert to /etc/vpnd/ca, crl_uris' lists to /etc/vpnd/crls \
                                (docs/operate/certificates.md)";
                    report.dropped(&authority.location, message, help);
                }
            }
            // A section that others inherit from.
            _ if section.is_template => {}
            name => {
                let message = format!("section {name:?} is none of swanctl.conf");
                report.dropped(
                    &section.location,
                    message,
                    "known are connections, secrets, pools and authorities",
                );
            }
        }
    }
    for (name, value) in root.settings {
        report.dropped(&value.location, format!("{name} outside of a section"), "");
    }
    Ok(draft)
}

/// A preshared key, if the section is one.
fn key(mut section: Section, report: &mut Report) -> Option<Key> {
    let name = section.name.clone();
    if !name.starts_with("ike") {
        let (message, help) = match name.trim_end_matches(|c: char| !c.is_ascii_alphabetic()) {
            kind if kind.starts_with("eap")
                || kind.starts_with("xauth")
                || kind.starts_with("ntlm") =>
            {
                (format!("secret {name:?}: vpnd has no EAP"), "use certificates or preshared keys")
            }
            kind if kind.starts_with("ppk") => (
                format!("secret {name:?}: postquantum preshared keys come from files"),
                "write its secret into /etc/vpnd/ppk/ID, where ID is its id; mode 0600 (docs/operate/post-quantum.md)",
            ),
            _ => (
                format!("secret {name:?}: private keys come from files"),
                "put the key without its password into /etc/vpnd/private, mode 0600 (docs/operate/certificates.md)",
            ),
        };
        report.dropped(&section.location, message, help);
        return None;
    }
    let value = section.take("secret");
    let ids: Vec<_> = section.take_like("id");
    section.leave("secret", report);
    let Some(value) = value else {
        report.left_out(
            &section.location,
            format!("secret {name:?} has no secret"),
            "write secret = \"…\"",
        );
        return None;
    };
    let mut owners = Vec::new();
    for id in &ids {
        match Owner::read(&id.text, Dialect::Strongswan) {
            Some(owner) => owners.push(owner),
            None => report.dropped(
                &id.location,
                format!("an identity of secret {name:?} cannot be read"),
                "",
            ),
        }
    }
    // A key for somebody must not become everybody's.
    if owners.is_empty() && !ids.is_empty() {
        return None;
    }
    match secret(&value) {
        Ok(secret) => Some(Key { location: section.location, owners, secret }),
        Err(why) => {
            report.left_out(&value.location, format!("secret {name:?}: {why}"), "");
            None
        }
    }
}
