//! `vpnctl probe`: the result of echo requests through a tunnel.

use super::why::found;
use super::{Colour, Fields, plain};
use crate::probe::{Measured, Probed};

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
