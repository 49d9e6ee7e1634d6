//! The algorithms that the kernel offers for IPsec: `/proc/crypto`.

use policy::EspEncryption;
use serde::Serialize;
use std::fs;
use std::io;

/// An algorithm that is registered with the kernel. Others may be loaded once they are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Registered {
    /// As in `rfc4106(gcm(aes))`.
    pub name: String,
    /// As in `rfc4106-gcm-aesni`.
    pub driver: String,
    /// As in `aead`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of several drivers of one name the kernel takes the one with the highest.
    pub priority: i64,
    /// The module it is in; `kernel` where it is built in.
    pub module: String,
}

/// Parts of the names in `/proc/crypto` of algorithms that IPsec uses.
const OF_IPSEC: [&str; 8] = [
    "gcm(aes)",
    "rfc7539",
    "chacha20",
    "cbc(aes)",
    "authenc",
    "hmac(sha",
    "cmac(aes)",
    "xcbc(aes)",
];

/// Those that IPsec is made of, the best driver of each name first.
///
/// # Errors
/// Where the kernel does not tell.
pub fn registered() -> io::Result<Vec<Registered>> {
    let mut found = parse(&fs::read_to_string("/proc/crypto")?);
    found.retain(|a| is_of_ipsec(&a.name));
    found.sort_by(|a, b| (&a.name, -a.priority).cmp(&(&b.name, -b.priority)));
    found.dedup();
    Ok(found)
}

/// Returns `true` if IPsec uses an algorithm of the kernel, or a part of it is one of [`OF_IPSEC`].
fn is_of_ipsec(name: &str) -> bool {
    let mut ciphers = EspEncryption::ALL.into_iter().filter(|c| c.hides() && !c.is_weak());
    ciphers.any(|cipher| cipher.row().kernel.contains(&name))
        || OF_IPSEC.iter().any(|part| name.contains(part))
}

/// Paragraphs of lines `field : value`.
fn parse(text: &str) -> Vec<Registered> {
    text.split("\n\n").filter_map(algorithm).collect()
}

fn algorithm(paragraph: &str) -> Option<Registered> {
    Some(Registered {
        name: field(paragraph, "name")?,
        driver: field(paragraph, "driver")?,
        kind: field(paragraph, "type").unwrap_or_default(),
        priority: field(paragraph, "priority")?.parse().ok()?,
        module: field(paragraph, "module").unwrap_or_default(),
    })
}

fn field(paragraph: &str, name: &str) -> Option<String> {
    let lines = paragraph.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(field, _)| field.trim() == name);
    values.next().map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_names_in_the_registry_of_algorithms_are_of_ipsec() {
        let ciphers = EspEncryption::ALL.into_iter().filter(|c| c.hides() && !c.is_weak());
        let names: Vec<_> = ciphers.flat_map(|cipher| cipher.row().kernel).copied().collect();
        assert!(names.len() > 5 && names.iter().all(|name| is_of_ipsec(name)), "{names:?}");
        assert!(is_of_ipsec("authenc(hmac(sha256),cbc(aes))") && !is_of_ipsec("crc32c"));
    }

    #[test]
    fn paragraphs_are_algorithms() {
        let text = "\
name         : rfc4106(gcm(aes))
driver       : rfc4106-gcm-vaes-avx10_512
module       : aesni_intel
priority     : 800
refcnt       : 1
selftest     : passed
internal     : no
type         : aead
async        : no

name         : broken

name         : crc32c
driver       : crc32c-generic
module       : kernel
priority     : 100
type         : shash
";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        let Registered { name, driver, kind, priority, module } = &found[0];
        assert_eq!(
            (name.as_str(), driver.as_str()),
            ("rfc4106(gcm(aes))", "rfc4106-gcm-vaes-avx10_512")
        );
        assert_eq!((kind.as_str(), *priority, module.as_str()), ("aead", 800, "aesni_intel"));
    }
}
