//! `vpnctl probe`: the result of echo requests through a tunnel.

use super::{Measured, Probed};
use terminal::report::{Colour, Fields, found, plain};

/// The result of a probe, in words.
pub fn probed(probed: &Probed, colour: Colour) -> String {
    let Probed { tunnel, from, to, measured, findings } = probed;
    let mut text = format!("{}: {from} to {to}\n", colour.heading(&plain(tunnel)));
    let mut fields = Fields::new("  ");
    let Measured { sent, received, round_trip_ms, .. } = measured;
    let answered = format!("{received} of {sent} small packets");
    fields.add("answered", if *received == 0 { colour.bad(&answered) } else { answered });
    if let Some(times) = round_trip_ms {
        let spread = format!("{:.2} to {:.2}", times.least, times.most);
        fields.add("round trip", format!("{:.2} ms ({spread} ms)", times.mean));
    }
    if let Some(largest) = measured.largest {
        fields.add("path MTU", mtu(measured, largest));
        if measured.outer_mtu_learned {
            let nothing = "nothing: vpnd has adapted the tunnel, and tells its hosts";
            fields.add("to do", nothing.to_owned());
        }
    }
    fields.write(&mut text, colour);
    for finding in findings {
        found(&mut text, finding, "  ", colour);
    }
    text
}

fn mtu(measured: &Measured, largest: usize) -> String {
    let inside = format!("{largest} octets inside the tunnel");
    match measured.outer_mtu {
        Some(outer) if measured.outer_mtu_learned => {
            format!("{inside}, {outer} on the way to the peer, as a router there has said")
        }
        Some(outer) if measured.asked == Some(largest) => {
            format!("{inside}, {outer} on the way to the peer")
        }
        _ => inside,
    }
}

#[cfg(test)]
mod tests {
    use super::super::RoundTrip;
    use super::*;
    use std::net::IpAddr;

    const PLAIN: Colour = Colour(false);

    #[test]
    fn a_probe_says_what_passes() {
        let measured = Measured {
            sent: 4,
            received: 4,
            round_trip_ms: Some(RoundTrip { least: 0.18, mean: 0.214, most: 0.3 }),
            asked: Some(1438),
            largest: Some(1438),
            outer_mtu: Some(1500),
            ..Measured::default()
        };
        let ends = [[10, 1, 0, 1], [10, 2, 0, 1]].map(IpAddr::from);
        let result = |measured| Probed {
            tunnel: "lan".to_owned(),
            from: ends[0],
            to: ends[1],
            measured,
            findings: Vec::new(),
        };
        assert_eq!(
            probed(&result(measured.clone()), PLAIN),
            "\
lan: 10.1.0.1 to 10.2.0.1
  answered    4 of 4 small packets
  round trip  0.21 ms (0.18 to 0.30 ms)
  path MTU    1438 octets inside the tunnel, 1500 on the way to the peer
"
        );
        let json = serde_json::to_value(result(measured)).expect("it can be written");
        for field in [
            "tunnel",
            "from",
            "to",
            "sent",
            "received",
            "round_trip_ms",
            "tried",
            "path_mtu",
            "too_big_told",
            "inner_mtu",
            "outer_mtu",
            "outer_mtu_learned",
            "findings",
        ] {
            assert!(json.get(field).is_some(), "no {field} in {json}");
        }
    }
}
