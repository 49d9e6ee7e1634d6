//! Certificates for both ends of every tunnel that wants them.

use super::key::Key;
use super::token;
use crate::site::{Authentication, Tunnels};
use aws_lc_rs::error::Unspecified;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyIdMethod,
    KeyUsagePurpose, SerialNumber,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory of the certificates; `/run` belongs to this process alone.
pub(super) const DIRECTORY: &str = "/run/vpnctl-experiment/certificates";

/// Writes them where `vpnd` looks for them, and returns the directory.
///
/// # Errors
/// Where a key cannot be made or a file not be written.
pub(super) fn write(all: &[Tunnels]) -> Result<PathBuf, String> {
    let directory = PathBuf::from(DIRECTORY);
    for part in ["ca", "certs", "private"] {
        let path = directory.join(part);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if all.iter().any(|tunnels| tunnels.authentication == Authentication::RsaToken) {
        token::make(&directory).map_err(|error| format!("making a token: {error}"))?;
    }
    for tunnels in all {
        let Some(key) = key(tunnels.authentication) else { continue };
        authority(&directory, tunnels, key)
            .map_err(|error| format!("making certificates: {error}"))?;
    }
    Ok(directory)
}

fn key(authentication: Authentication) -> Option<fn() -> Result<Key, Unspecified>> {
    match authentication {
        Authentication::PresharedKey => None,
        Authentication::EcdsaP256 => Some(Key::ecdsa_p256),
        Authentication::Rsa2048 | Authentication::RsaToken => Some(Key::rsa_2048),
    }
}

/// An authority and what it has signed. The certificates of an end share a key: making one for each takes long, and
/// what is measured uses it.
fn authority(
    directory: &Path,
    tunnels: &Tunnels,
    key: fn() -> Result<Key, Unspecified>,
) -> Result<(), Box<dyn std::error::Error>> {
    let label = tunnels.authentication.label();
    let root = key()?;
    let mut params = named(&format!("authority {label}"), vec![], &root)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    put(directory, &format!("ca/{label}.der"), params.self_signed(&root)?.der())?;
    let issuer = Issuer::new(params, root);
    for end in [0, 1] {
        let own = key()?;
        match tunnels.authentication {
            Authentication::RsaToken => token::import(directory, &format!("{label}{end}"), &own)?,
            _ => put(directory, &format!("private/{label}{end}.der"), own.der())?,
        }
        for n in 0..tunnels.number {
            let identity = tunnels.identity(n, end);
            let params = named(&identity, vec![identity.clone()], &own)?;
            let certificate = params.signed_by(&own, &issuer)?;
            put(directory, &format!("certs/{identity}.der"), certificate.der())?;
        }
    }
    Ok(())
}

fn named(
    name: &str,
    alternatives: Vec<String>,
    key: &Key,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(alternatives)?;
    let identifier = key.identifier();
    params.serial_number = Some(SerialNumber::from_slice(&identifier));
    params.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

pub(super) fn put(directory: &Path, name: &str, octets: &[u8]) -> std::io::Result<()> {
    let path = directory.join(name);
    fs::write(&path, octets)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
}
