//! The ends of certificates and revocation lists.

use super::families::{About, Families};
use control::protocol::CertificateInfo;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::time::UNIX_EPOCH;

pub fn write(families: &mut Families<'_>, certificates: &[CertificateInfo]) -> fmt::Result {
    // A file may hold the same certificate twice.
    let ends: BTreeMap<_, f64> = certificates
        .iter()
        .filter_map(|certificate| {
            let end = humantime::parse_rfc3339(certificate.not_after.as_ref()?).ok()?;
            let labels = [
                ("role", certificate.role.as_str()),
                ("source", certificate.source.as_str()),
                ("subject", certificate.subject.as_str()),
                ("issuer", certificate.issuer.as_str()),
                ("serial", certificate.serial.as_str()),
            ];
            Some((labels, end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()))
        })
        .collect();
    families.gauges(
        About(
            "certificate_expiry_timestamp",
            Some(Unit::Seconds),
            "End of a certificate, or time of the next revocation list, as Unix time; those without an end are absent.",
        ),
        ends,
    )
}
