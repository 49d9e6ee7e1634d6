//! `vpnctl certs`.

use super::fitting::Fitting;
use super::{Colour, plain};
use control::protocol::CertificateInfo;

/// The columns of SOURCE and PRIVATE KEY, ISSUER and SERIAL, NAMES, TUNNELS and SUBJECT.
const MOVABLE: &[&[usize]] = &[&[8, 9], &[5, 6], &[2], &[7], &[1]];

/// One row per certificate or revocation list, with a header.
pub fn certificates(all: &[CertificateInfo], colour: Colour) -> String {
    let header = [
        "ROLE",
        "SUBJECT",
        "NAMES",
        "KEY",
        "EXPIRES",
        "ISSUER",
        "SERIAL",
        "TUNNELS",
        "SOURCE",
        "PRIVATE KEY",
    ];
    let mut table = Fitting::new(header, MOVABLE);
    for info in all {
        table.row([
            plain(&info.role.replace("ocsp", "OCSP").replace('_', " ")).into_owned(),
            or_dash(&info.subject),
            or_dash(&info.names.join(", ")),
            or_dash(info.key.as_deref().unwrap_or_default()),
            expiry(info, colour),
            or_dash(&info.issuer),
            or_dash(&info.serial),
            or_dash(&info.tunnels.join(", ")),
            or_dash(&info.source),
            or_dash(info.private_key.as_deref().unwrap_or_default()),
        ]);
    }
    table.render(colour)
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { plain(text).into_owned() }
}

/// The day, and how many are left.
fn expiry(info: &CertificateInfo, colour: Colour) -> String {
    let (Some(until), Some(left)) = (&info.not_after, info.days_left) else {
        return "never".to_owned();
    };
    let day = plain(until.split('T').next().unwrap_or(until)).into_owned();
    let days = match left.unsigned_abs() {
        1 => "1 day".to_owned(),
        n => format!("{n} days"),
    };
    match left {
        ..0 => colour.bad(&format!("{day} (expired {days} ago)")),
        _ if info.expires_soon => colour.notice(&format!("{day} (in {days})")),
        _ => format!("{day} (in {days})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(role: &str, subject: &str, days_left: i64) -> CertificateInfo {
        CertificateInfo {
            role: role.into(),
            source: format!("/etc/vpnd/{role}.pem"),
            subject: subject.into(),
            issuer: "CN=root".into(),
            names: Vec::new(),
            serial: "0a".into(),
            key: Some("ECDSA P-256".into()),
            private_key: None,
            token: None,
            not_before: "2026-01-01T00:00:00Z".into(),
            not_after: Some("2026-12-31T23:59:59Z".into()),
            days_left: Some(days_left),
            expires_soon: (0..30).contains(&days_left),
            tunnels: Vec::new(),
        }
    }

    #[test]
    fn the_table_has_a_line_for_each() {
        let own = CertificateInfo {
            names: vec!["left.example.net".into(), "192.0.2.1".into()],
            tunnels: vec!["site".into()],
            private_key: Some("/etc/vpnd/left.key (token \"vpn\", object \"left\")".into()),
            token: Some("token \"vpn\", object \"left\"".into()),
            ..info("own", "CN=left", 1)
        };
        let list =
            CertificateInfo { serial: String::new(), key: None, ..info("revocation_list", "", -3) };
        let text = certificates(&[info("authority", "CN=root", 400), own, list], Colour(false));
        assert_eq!(
            text,
            "\
ROLE             SUBJECT  KEY          EXPIRES                          TUNNELS
authority        CN=root  ECDSA P-256  2026-12-31 (in 400 days)         -
       issuer CN=root, serial 0a
       source /etc/vpnd/authority.pem
own              CN=left  ECDSA P-256  2026-12-31 (in 1 day)            site
       names left.example.net, 192.0.2.1
       issuer CN=root, serial 0a
       source /etc/vpnd/own.pem, private key /etc/vpnd/left.key (token \"vpn\", object \"left\")
revocation list  -        -            2026-12-31 (expired 3 days ago)  -
       issuer CN=root
       source /etc/vpnd/revocation_list.pem
"
        );
    }

    #[test]
    fn a_soon_expiring_certificate_stands_out_and_terminals_are_not_steered() {
        let line = |days| certificates(&[info("own", "CN=\u{1b}[2J", days)], Colour(true));
        assert!(line(29).contains("\u{1b}[33m2026-12-31"), "{:?}", line(29));
        assert!(line(-1).contains("\u{1b}[31m2026-12-31"), "{:?}", line(-1));
        assert!(!line(30).contains("\u{1b}[33m") && !line(30).contains("\u{1b}[2J"));
    }
}
