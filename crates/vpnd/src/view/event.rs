//! Events of the engine.

use super::mode_name;
use super::tunnel::failure as failure_info;
use control::protocol::{AlgorithmsInfo, Happening};
use ike::event::{Event, EventKind, Negotiated};
use std::time::SystemTime;
use terminal::report::Algorithms;

/// Shows an event of the engine that happened at this time.
pub fn happening(event: &Event, at: SystemTime) -> Happening {
    let (mut suite, mut algorithms, mut failure, mut reason) = (None, None, None, None);
    match &event.kind {
        EventKind::Established { suite: s } | EventKind::Rekeyed { suite: s } => {
            suite = Some(s.to_string());
            algorithms = Some(agreed(s));
        }
        EventKind::Failed(f) | EventKind::TurnedAway(f) => failure = Some(failure_info(f)),
        EventKind::Closed { reason: r } => reason = Some(r.to_string()),
        _ => {}
    }
    Happening {
        time: stamp(at),
        event: event_name(event).to_owned(),
        tunnel: event.tunnel.clone(),
        child: event.child.clone(),
        peer: event.peer,
        suite,
        algorithms,
        failure,
        reason,
        missed: None,
        message: diagnosis::line::happening(&event.kind),
    }
}

fn agreed(negotiated: &Negotiated) -> AlgorithmsInfo {
    match negotiated {
        Negotiated::Child { mode, suite, inbound_spi, outbound_spi } => AlgorithmsInfo {
            esn: Some(suite.esn),
            mode: Some(mode_name(*mode).to_owned()),
            inbound_spi: Some(inbound_spi.to_string()),
            outbound_spi: Some(outbound_spi.to_string()),
            ..algorithms(&suite.to_string())
        },
        Negotiated::Ike(suite) => {
            AlgorithmsInfo { protocol: "ike".to_owned(), ..algorithms(&suite.to_string()) }
        }
        other => algorithms(&other.to_string()),
    }
}

fn algorithms(suite: &str) -> AlgorithmsInfo {
    let parts = Algorithms::of(suite);
    AlgorithmsInfo {
        protocol: if parts.ah { "ah" } else { "esp" }.to_owned(),
        encryption: parts.encryption.map(str::to_owned),
        integrity: parts.integrity.map(str::to_owned),
        prf: parts.prf.map(str::to_owned),
        group: parts.group.map(str::to_owned),
        ..AlgorithmsInfo::default()
    }
}

/// Tells a slow reader how many events it has missed.
pub fn missed(count: u64, at: SystemTime) -> Happening {
    Happening::missed(stamp(at), count)
}

fn stamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// Stable name of a kind of event, for logs.
pub fn event_name(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Negotiating { .. } => "negotiating",
        EventKind::Established { .. } => "established",
        EventKind::Resumed { .. } => "resumed",
        EventKind::TicketRefused => "ticket_refused",
        EventKind::Rekeyed { .. } => "rekeyed",
        EventKind::Failed(_) => "failed",
        EventKind::Closed { .. } => "closed",
        EventKind::TurnedAway(_) => "turned_away",
        EventKind::Moved { .. } => "moved",
        EventKind::Readdressed { .. } => "readdressed",
        EventKind::Restored(_) => "restored",
        EventKind::Warning(_) | EventKind::Unprotected(_) => "warning",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike::negotiation::suite::{ChildSuite, IkeSuite};
    use policy::{EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Mode, Prf, Protection};

    #[test]
    fn algorithms_stand_one_by_one() {
        let cipher = IkeEncryption::AesCbc(KeyBits::B256);
        let integrity = Some(Integrity::HmacSha2_256_128);
        let suite = IkeSuite::new(cipher, integrity, Prf::HmacSha2_256, Group::Ecp384);
        let kind = EventKind::Established { suite: Negotiated::Ike(suite) };
        let told = happening(&Event::new("site", kind), SystemTime::UNIX_EPOCH);
        let told = serde_json::to_value(told.algorithms).expect("strings");
        assert_eq!(
            told,
            serde_json::json!({
                "protocol": "ike", "encryption": "AES-CBC-256", "integrity": "HMAC-SHA2-256-128",
                "prf": "PRF-HMAC-SHA2-256", "group": "ECP-384"
            })
        );
        let protection = Protection::aead(EspEncryption::AesGcm16(KeyBits::B128));
        let suite = ChildSuite::new(protection);
        let kind = EventKind::Rekeyed {
            suite: Negotiated::Child {
                mode: Mode::Tunnel,
                suite,
                inbound_spi: esp::plane::Spi(0x1000_0001),
                outbound_spi: esp::plane::Spi(0x2000_0002),
            },
        };
        let told = happening(&Event::new("site", kind), SystemTime::UNIX_EPOCH);
        let told = serde_json::to_value(told.algorithms).expect("strings");
        assert_eq!(
            told,
            serde_json::json!({
                "protocol": "esp", "encryption": "AES-GCM-16-128", "esn": false, "mode": "tunnel",
                "inbound_spi": "10000001", "outbound_spi": "20000002"
            })
        );
    }
}
