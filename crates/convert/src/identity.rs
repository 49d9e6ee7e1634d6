//! Identities as strongSwan and libreswan write them.

use super::dialect::Dialect;
use policy::{DistinguishedName, Identity, Secret};
use std::net::IpAddr;

/// Reads an identity; `Ok(None)` is any.
///
/// # Errors
/// The reason why a text is no identity, for people.
pub(super) fn identity(text: &str, dialect: Dialect) -> Result<Option<Identity>, String> {
    match dialect {
        Dialect::Strongswan => of_strongswan(text.trim()),
        Dialect::Libreswan => of_libreswan(text.trim()),
    }
}

/// libreswan takes a text for a name only if there is an `@`, and looks other names up.
fn of_libreswan(text: &str) -> Result<Option<Identity>, String> {
    match text {
        "" | "%any" | "%none" | "0.0.0.0" | "::" => return Ok(None),
        "%fromcert" => return Err("it is the subject of a certificate".to_owned()),
        "%null" => return Err("an anonymous peer has no counterpart".to_owned()),
        _ => {}
    }
    if text.contains('=') {
        return name(text.strip_prefix('@').unwrap_or(text)).map(Some);
    }
    if let Some(hex) = text.strip_prefix("@#") {
        return hexadecimal(hex.strip_prefix("0x").unwrap_or(hex)).map(Some);
    }
    if text.starts_with("@~") {
        return Err("an encoded name has no counterpart; write it in words".to_owned());
    }
    if let Some(key) = text.strip_prefix("@[") {
        let key = key.strip_suffix(']').unwrap_or(key);
        return key_id(key.as_bytes().to_vec()).map(Some);
    }
    if let Some(domain) = text.strip_prefix('@') {
        return Ok(Some(Identity::Fqdn(domain.to_owned())));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(address.into()));
    }
    Ok(Some(match text.contains('@') {
        true => Identity::UserFqdn(text.to_owned()),
        false => Identity::Fqdn(text.to_owned()),
    }))
}

/// Returns `true` for the text of an identity that is the address of a host of this name.
pub(super) fn is_looked_up(text: &str, dialect: Dialect) -> bool {
    dialect == Dialect::Libreswan
        && !text.contains(['@', '='])
        && matches!(identity(text, dialect), Ok(Some(Identity::Fqdn(_))))
}

fn hexadecimal(digits: &str) -> Result<Identity, String> {
    key_id(octets(digits).ok_or_else(|| format!("{digits:?} is not hexadecimal"))?)
}

fn of_strongswan(text: &str) -> Result<Option<Identity>, String> {
    if matches!(text, "" | "%any" | "%any4" | "%any6" | "0.0.0.0" | "::" | "*") {
        return Ok(None);
    }
    if let Some((kind, rest)) = text.split_once(':') {
        match kind {
            "ipv4" | "ipv6" => return address(rest).map(Some),
            "fqdn" | "dns" => return Ok(Some(Identity::Fqdn(rest.to_owned()))),
            "rfc822" | "email" | "userfqdn" => {
                return Ok(Some(Identity::UserFqdn(rest.to_owned())));
            }
            "keyid" => return key_id(rest.as_bytes().to_vec()).map(Some),
            "asn1dn" | "dn" => return name(rest).map(Some),
            _ => {}
        }
    }
    if let Some(hex) = text.strip_prefix("@#") {
        return hexadecimal(hex).map(Some);
    }
    if let Some(user) = text.strip_prefix("@@") {
        return Ok(Some(Identity::UserFqdn(user.to_owned())));
    }
    if let Some(domain) = text.strip_prefix('@') {
        return Ok(Some(Identity::Fqdn(domain.to_owned())));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(address.into()));
    }
    if text.contains('=') {
        return name(text).map(Some);
    }
    if text.contains('*') || text.contains('/') {
        return Err(format!("{text:?} is a pattern: a policy names one peer"));
    }
    if text.contains('@') {
        return Ok(Some(Identity::UserFqdn(text.to_owned())));
    }
    Ok(Some(Identity::Fqdn(text.to_owned())))
}

fn address(text: &str) -> Result<Identity, String> {
    let address: IpAddr = text.trim().parse().map_err(|_| format!("{text:?} is no address"))?;
    Ok(address.into())
}

/// The document holds text: other octets cannot be written.
fn key_id(octets: Vec<u8>) -> Result<Identity, String> {
    let printable = octets.iter().all(|octet| octet.is_ascii_graphic() || *octet == b' ');
    match printable && !octets.is_empty() {
        true => Ok(Identity::KeyId(octets)),
        false => Err("a key id with octets that are no printable characters".to_owned()),
    }
}

/// strongSwan writes names in the order of their encoding, with commas or slashes between.
fn name(text: &str) -> Result<Identity, String> {
    if text.contains("=*") || text.split(['=', ',', '/']).any(|part| part.trim() == "*") {
        return Err(format!("{text:?} is a pattern: a policy names one peer"));
    }
    let slashes = match text.trim().starts_with('/') {
        true => text.trim().to_owned(),
        false => parts(text).iter().map(|part| format!("/{}", part.replace('/', "\\/"))).collect(),
    };
    slashes.parse::<DistinguishedName>().map(Identity::Dn).map_err(|error| error.to_string())
}

/// The parts between commas that nothing escapes or quotes.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut escaped, mut quoted) = (false, false);
    for c in text.chars() {
        if c == '"' && !escaped {
            quoted = !quoted;
            continue;
        }
        if c == ',' && !escaped && !quoted {
            parts.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = parts.last_mut() {
            // A comma inside quotes is escaped for the reader of names.
            if c == ',' && quoted {
                last.push('\\');
            }
            last.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The octets of hexadecimal digits, with or without colons between.
fn octets(hex: &str) -> Option<Vec<u8>> {
    Some(Secret::from_hex(&hex.replace(':', ""))?.expose().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let read = |text: &str| of_strongswan(text).expect(text).expect(text);
        assert_eq!(read("192.0.2.1"), Identity::Ipv4([192, 0, 2, 1].into()));
        assert_eq!(read("2001:db8::1").to_string(), "2001:db8::1");
        assert_eq!(read("gate.example"), Identity::Fqdn("gate.example".into()));
        assert_eq!(read("@gate.example"), Identity::Fqdn("gate.example".into()));
        assert_eq!(read("fqdn:gate.example"), Identity::Fqdn("gate.example".into()));
        assert_eq!(read("ops@example.net"), Identity::UserFqdn("ops@example.net".into()));
        assert_eq!(read("@@ops@example.net"), Identity::UserFqdn("ops@example.net".into()));
        assert_eq!(read("@#67:61:74:65"), Identity::KeyId(b"gate".to_vec()));
        let name = read("C=NL, O=\"Example, Ltd\", CN=gate/1");
        assert_eq!(name.to_string(), "CN=gate/1,O=Example\\, Ltd,C=NL");
        assert_eq!(read("/C=NL/CN=gate").to_string(), "CN=gate,C=NL");
        assert_eq!(of_strongswan("%any"), Ok(None));
        for wrong in ["*.example.net", "C=NL, CN=*", "10.0.0.0/8", "@#0g", "@#00", "C=", "XY=a"] {
            assert!(of_strongswan(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn libreswan_has_words_of_its_own() {
        let read = |text: &str| of_libreswan(text).expect(text).expect(text);
        assert_eq!(read("192.0.2.1"), Identity::Ipv4([192, 0, 2, 1].into()));
        assert_eq!(read("@192.0.2.1"), Identity::Fqdn("192.0.2.1".into()));
        assert_eq!(read("@[branch-7]"), Identity::KeyId(b"branch-7".to_vec()));
        assert_eq!(read("@[the hub"), Identity::KeyId(b"the hub".to_vec()));
        assert_eq!(read("@#0x67617465"), Identity::KeyId(b"gate".to_vec()));
        assert_eq!(read("@fqdn:gate"), Identity::Fqdn("fqdn:gate".into()));
        assert_eq!(read("ops@example.net"), Identity::UserFqdn("ops@example.net".into()));
        assert_eq!(read("@C=NL, CN=gate").to_string(), "CN=gate,C=NL");
        assert_eq!(of_libreswan("%none"), Ok(None));
        for wrong in ["%fromcert", "%null", "@~3000", "@#0g", "@[]", "C=NL, CN=*"] {
            assert!(of_libreswan(wrong).is_err(), "{wrong}");
        }
        let looked_up = |text: &str| is_looked_up(text, Dialect::Libreswan);
        assert!(
            looked_up("gate.example") && !looked_up("@gate.example") && !looked_up("192.0.2.1")
        );
        assert!(!is_looked_up("gate.example", Dialect::Strongswan));
    }
}
