//! The ends of certificates and revocation lists.

use crate::metric::{Metric, Value};
use control::protocol::CertificateInfo;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

pub const METRICS: &[Metric<Vec<CertificateInfo>>] = &[Metric::gauge(
    "vpnd_certificate_expiry_timestamp_seconds",
    &["role", "source", "subject", "issuer", "serial"],
    "End of a certificate, or time of the next revocation list, as Unix time; those without an end are absent.",
    |certificates, tell| {
        for (labels, end) in ends(certificates) {
            tell(&labels, Value::Seconds(end));
        }
    },
)];

/// The ends as Unix time, by the values of the labels. A file may hold the same certificate twice.
fn ends(certificates: &[CertificateInfo]) -> BTreeMap<[&str; 5], f64> {
    certificates
        .iter()
        .filter_map(|certificate| {
            let end = humantime::parse_rfc3339(certificate.not_after.as_ref()?).ok()?;
            let labels = [
                certificate.role.as_str(),
                certificate.source.as_str(),
                certificate.subject.as_str(),
                certificate.issuer.as_str(),
                certificate.serial.as_str(),
            ];
            Some((labels, end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()))
        })
        .collect()
}
