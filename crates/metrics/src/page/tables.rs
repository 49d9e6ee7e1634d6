//! The tables of certificates and of drops. Each has a bounded number of rows.

use crate::source::{Drops, Reason};
use control::protocol::{CertificateInfo, GuardInfo};
use serde::Serialize;
use std::cmp::Reverse;

/// Rows of a table.
const ROWS: usize = 100;
/// Tunnels that a certificate names.
const TUNNELS: usize = 3;

/// Certificates and revocation lists, those that end first at the top. The files of private keys are left out.
#[derive(Debug, Serialize)]
pub(crate) struct Certificates {
    rows: Vec<Certificate>,
    /// The number of others.
    omitted: usize,
}

#[derive(Debug, Serialize)]
struct Certificate {
    role: String,
    /// The subject, or the names if it has no subject.
    subject: String,
    issuer: String,
    /// RFC 3339; `None`: it has no end.
    not_after: Option<String>,
    days_left: Option<i64>,
    expires_soon: bool,
    tunnels: Vec<String>,
    more_tunnels: usize,
}

impl Certificates {
    pub fn of(mut all: Vec<CertificateInfo>) -> Self {
        all.sort_by_key(|certificate| certificate.days_left.unwrap_or(i64::MAX));
        let omitted = all.len().saturating_sub(ROWS);
        Self { rows: all.into_iter().take(ROWS).map(Certificate::of).collect(), omitted }
    }
}

impl Certificate {
    fn of(info: CertificateInfo) -> Self {
        let CertificateInfo { role, subject, issuer, names, mut tunnels, .. } = info;
        let more_tunnels = tunnels.len().saturating_sub(TUNNELS);
        tunnels.truncate(TUNNELS);
        Self {
            role,
            subject: if subject.is_empty() { names.join(", ") } else { subject },
            issuer,
            not_after: info.not_after,
            days_left: info.days_left,
            expires_soon: info.expires_soon,
            tunnels,
            more_tunnels,
        }
    }
}

/// Discarded packets and messages, the most frequent reasons first.
#[derive(Debug, Serialize)]
pub(crate) struct Discards {
    reasons: Vec<Reason>,
    unserved: Vec<Unserved>,
    /// The number of other tunnels with packets that no SA served.
    omitted: usize,
    guard: Option<GuardInfo>,
}

/// Packets of a phase 2 tunnel that no SA served.
#[derive(Debug, Serialize)]
struct Unserved {
    tunnel: String,
    count: u64,
}

impl Discards {
    pub fn of(drops: Drops) -> Self {
        let Drops { mut reasons, unserved, guard } = drops;
        reasons.sort_by_key(|reason| Reverse(reason.count));
        let mut unserved: Vec<Unserved> =
            unserved.into_iter().map(|(tunnel, count)| Unserved { tunnel, count }).collect();
        unserved.sort_by_key(|tunnel| Reverse(tunnel.count));
        let omitted = unserved.len().saturating_sub(ROWS);
        unserved.truncate(ROWS);
        Self { reasons, unserved, omitted, guard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_certificate_that_ends_first_is_at_the_top_and_no_key_file_is_told() {
        let certificate = |subject: &str, days: Option<i64>| -> CertificateInfo {
            let json = json!({
                "role": "own", "source": "/etc/vpnd/own.pem", "subject": subject, "issuer": "CN=CA",
                "names": ["gate.example"], "serial": "01", "key": "Ed25519", "private_key": "/etc/vpnd/secret.key",
                "token": "token \"vpn\"", "not_before": "2026-01-01T00:00:00Z", "not_after": null, "days_left": days,
                "expires_soon": false, "tunnels": ["a", "b", "c", "d", "e"]
            });
            serde_json::from_value(json).expect("a certificate")
        };
        let all = vec![
            certificate("CN=never", None),
            certificate("", Some(90)),
            certificate("CN=late", Some(-2)),
        ];
        let told = serde_json::to_value(Certificates::of(all)).expect("JSON");
        let subjects: Vec<_> =
            told["rows"].as_array().expect("rows").iter().map(|row| &row["subject"]).collect();
        assert_eq!(subjects, ["CN=late", "gate.example", "CN=never"]);
        assert_eq!(
            (&told["rows"][0]["tunnels"], &told["rows"][0]["more_tunnels"]),
            (&json!(["a", "b", "c"]), &json!(2))
        );
        let text = told.to_string();
        assert!(!text.contains("secret") && !text.contains("token"), "{text}");
        let many = (0..ROWS + 7).map(|_| certificate("CN=x", None)).collect();
        let told = Certificates::of(many);
        assert_eq!((told.rows.len(), told.omitted), (ROWS, 7));
    }

    #[test]
    fn the_most_frequent_drops_are_at_the_top() {
        let reason = |name: &str, count| Reason { name: name.to_owned(), count, meaning: "" };
        let unserved = (0..ROWS + 1).map(|n| (format!("t{n:03}"), n as u64)).collect();
        let reasons = vec![reason("esp.replayed", 3), reason("ike.unknown_spi", 40)];
        let told = Discards::of(Drops { reasons, unserved, guard: None });
        assert_eq!(told.reasons[0].name, "ike.unknown_spi");
        assert_eq!(
            (told.unserved[0].tunnel.as_str(), told.unserved.len(), told.omitted),
            ("t100", ROWS, 1)
        );
    }
}
